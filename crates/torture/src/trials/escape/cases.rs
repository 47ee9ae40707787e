//! The cases: what a program may do around the protection, each in a process of its own.
//!
//! A case looks at what happened and says it in a few words; the table says what must happen.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use wattkeep::{FaultMode, PAGE_SIZE, Region, RegionOptions, Store};
use wattkeep_persist::Backing;

use crate::trials::lab::{LIMIT, within};
use crate::trials::raw;
use crate::trials::subject::say;

/// Pages of the region. The first eight hold 1 and are closed; page 2 is open again and holds 2; the last
/// one was never touched.
const PAGES: usize = 64;
const OPEN: usize = 2;
const CLOSED: usize = 4;
const FRESH: usize = 40;

/// A store made before the case, which must be there after it, whatever the case does.
const CANARY: (usize, u64) = (20, 7);

/// How long a store may take that is not stalled.
const PROMPT: Duration = Duration::from_millis(700);

/// An open store and its region, as every case finds them.
pub(super) struct Ground {
    pub(super) store: Store,
    pub(super) region: Region,
    mode: FaultMode,
    directory: PathBuf,
}

impl Ground {
    pub(super) fn lay(directory: &Path, mode: FaultMode) -> Result<Self, String> {
        let (store, region) = open(directory, mode)?;
        let ground = Self { store, region, mode, directory: directory.to_owned() };
        (0..8).for_each(|page| raw::poke(ground.page(page), 1));
        ground.store.checkpoint().map_err(|e| e.to_string())?;
        raw::poke(ground.page(OPEN), 2);
        raw::poke(ground.page(CANARY.0), CANARY.1);
        Ok(ground)
    }

    fn page(&self, number: usize) -> usize {
        self.region.as_ptr() as usize + number * PAGE_SIZE
    }

    fn dirty(&self) -> u32 {
        self.store.status().map_or(0, |status| status.dirty_pages)
    }

    /// Does what stores a new value to a page; says whether a permit was taken for it.
    fn stores(&self, store: impl FnOnce()) -> String {
        let before = self.dirty();
        store();
        // With few pages dirty nothing is cleaned: the count rises with every tracked page.
        if self.dirty() > before { "tracked" } else { "unseen" }.to_owned()
    }

    /// What a system call that stores three or fewer pages came to.
    fn call(&self, pages: usize, call: impl FnOnce() -> io::Result<usize>) -> String {
        let before = self.dirty();
        match call() {
            Err(e) => name_of(&e),
            Ok(len) if len < pages * PAGE_SIZE => format!("short, {} of {pages} pages", len / PAGE_SIZE),
            Ok(_) if self.dirty() > before => "all, tracked".to_owned(),
            Ok(_) => "all, unseen".to_owned(),
        }
    }
}

fn open(directory: &Path, mode: FaultMode) -> Result<(Store, Region), String> {
    let store = Store::options()
        .create_if_missing(true)
        .checkpoint_interval_ms(0)
        .fault_mode(mode)
        .budget("32")
        .open(directory)
        .map_err(|e| e.to_string())?;
    let options = RegionOptions::transparent().create((PAGES * PAGE_SIZE) as u64);
    let region = store.region("escape", options).map_err(|e| e.to_string())?;
    Ok((store, region))
}

/// The store holds what was stored before the case.
pub(super) fn canary_lives(directory: &Path) -> Result<(), String> {
    let (_store, region) = open(directory, FaultMode::Signal)?;
    let found = raw::peek(region.as_ptr() as usize + CANARY.0 * PAGE_SIZE);
    if found == CANARY.1 { Ok(()) } else { Err(format!("page {} holds {found}", CANARY.0)) }
}

fn name_of(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EFAULT) => "EFAULT".to_owned(),
        Some(libc::EPERM) => "EPERM".to_owned(),
        Some(libc::EIO) => "EIO".to_owned(),
        Some(libc::EINVAL) => "EINVAL".to_owned(),
        _ => error.to_string(),
    }
}

fn zeros() -> File {
    File::open("/dev/zero").expect("every Linux has it")
}

pub(super) fn read_into_closed(ground: &Ground) -> String {
    ground.call(1, || raw::read_into(&zeros(), ground.page(CLOSED), PAGE_SIZE))
}

pub(super) fn read_across(ground: &Ground) -> String {
    ground.call(3, || raw::read_into(&zeros(), ground.page(OPEN), 3 * PAGE_SIZE))
}

pub(super) fn read_announced(ground: &Ground) -> String {
    ground.call(3, || {
        let held = ground.region.will_write(OPEN * PAGE_SIZE, 3 * PAGE_SIZE).map_err(io::Error::other)?;
        let read = raw::read_into(&zeros(), ground.page(OPEN), 3 * PAGE_SIZE);
        drop(held);
        read
    })
}

pub(super) fn read_into_fresh(ground: &Ground) -> String {
    ground.call(1, || raw::read_into(&zeros(), ground.page(FRESH), PAGE_SIZE))
}

pub(super) fn random_into_closed(ground: &Ground) -> String {
    ground.call(1, || raw::random_into(ground.page(CLOSED), PAGE_SIZE))
}

/// A file of one page, open for direct I/O.
fn direct_file(ground: &Ground) -> io::Result<File> {
    let path = ground.directory.join("direct");
    std::fs::write(&path, [9; PAGE_SIZE])?;
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path)
}

pub(super) fn direct_read_into_closed(ground: &Ground) -> String {
    ground.call(1, || raw::read_into(&direct_file(ground)?, ground.page(CLOSED), PAGE_SIZE))
}

pub(super) fn ring_read_into_closed(ground: &Ground) -> String {
    ground.call(1, || raw::ring_read_into(&zeros(), ground.page(CLOSED), PAGE_SIZE as u32))
}

pub(super) fn register_closed(ground: &Ground) -> String {
    ground.call(0, || raw::FixedBuffer::register(ground.page(CLOSED), PAGE_SIZE as u32).map(|_| 0))
}

/// The page is open when it is registered, and closed when the device stores to it.
pub(super) fn fixed_buffer(ground: &Ground) -> String {
    let mut buffer = match raw::FixedBuffer::register(ground.page(OPEN), PAGE_SIZE as u32) {
        Ok(buffer) => buffer,
        Err(e) => return name_of(&e),
    };
    if let Err(e) = ground.store.checkpoint() {
        return e.to_string();
    }
    ground.call(1, || buffer.read(zeros().as_fd()))
}

pub(super) fn written_from_outside(ground: &Ground) -> String {
    ground.call(1, || raw::write_from_outside(ground.page(CLOSED), PAGE_SIZE))
}

pub(super) fn through_proc_mem(ground: &Ground) -> String {
    ground.call(1, || {
        let memory = File::options().write(true).open("/proc/self/mem")?;
        memory.write_at(&[0; PAGE_SIZE], ground.page(CLOSED) as u64)
    })
}

/// The region's memory, by the keeper's descriptor, as a program of the same user can get it.
fn memory_of_the_keeper(ground: &Ground) -> io::Result<File> {
    for entry in std::fs::read_dir(format!("/proc/{}/fd", ground.store.keeper_pid()))? {
        let path = entry?.path();
        let target = std::fs::read_link(&path)?;
        if target.to_string_lossy().contains("memfd:wattkeep-region") {
            return File::options().read(true).write(true).open(path);
        }
    }
    Err(io::Error::other("the keeper holds no region by descriptor"))
}

pub(super) fn pwrite_the_memory(ground: &Ground) -> String {
    ground.call(1, || memory_of_the_keeper(ground)?.write_at(&[9; PAGE_SIZE], 0))
}

pub(super) fn map_the_memory(ground: &Ground) -> String {
    ground.call(0, || raw::map_for_writing(&memory_of_the_keeper(ground)?))
}

pub(super) fn truncate_the_memory(ground: &Ground) -> String {
    ground.call(0, || memory_of_the_keeper(ground)?.set_len(PAGE_SIZE as u64).map(|()| 0))
}

pub(super) fn grow_the_memory(ground: &Ground) -> String {
    ground.call(0, || {
        let memory = memory_of_the_keeper(ground)?;
        memory.set_len(memory.metadata()?.len() + PAGE_SIZE as u64).map(|()| 0)
    })
}

pub(super) fn punch_the_memory(ground: &Ground) -> String {
    ground.call(0, || raw::punch(&memory_of_the_keeper(ground)?))
}

pub(super) fn advise_remove(ground: &Ground) -> String {
    ground.call(0, || raw::advise(ground.page(OPEN), PAGE_SIZE, libc::MADV_REMOVE))
}

/// The page table forgets the page, the memory does not.
pub(super) fn advise_dontneed(ground: &Ground) -> String {
    if let Err(e) = raw::advise(ground.page(CLOSED), PAGE_SIZE, libc::MADV_DONTNEED) {
        return name_of(&e);
    }
    ground.stores(|| raw::poke(ground.page(CLOSED), 5))
}

fn child_stores(ground: &Ground, page: usize) -> String {
    let before = raw::peek(ground.page(page));
    let ended = raw::fork_and(|| {
        raw::poke(ground.page(page), 99);
        0
    });
    match ended {
        Err(signal) => format!("the child dies of {}", signal_name(signal)),
        Ok(_) if raw::peek(ground.page(page)) == before => "the child has memory of its own".to_owned(),
        Ok(_) => "the child's store is unseen".to_owned(),
    }
}

pub(super) fn forked_child_stores_to_open(ground: &Ground) -> String {
    child_stores(ground, OPEN)
}

pub(super) fn forked_child_stores_to_closed(ground: &Ground) -> String {
    child_stores(ground, CLOSED)
}

/// A child that asks its parent's keeper.
pub(super) fn forked_child_asks(ground: &Ground) -> String {
    let refused = || u8::from(ground.store.checkpoint().is_err() && ground.store.status().is_err());
    match raw::fork_and(refused) {
        Ok(1) if ground.store.checkpoint().is_ok() => "refused; the parent goes on".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A child ends an announcement that its parent made, and makes one: the parent's page would be pinned by nobody,
/// or for ever.
pub(super) fn forked_child_announces(ground: &Ground) -> String {
    let (region, at) = (&ground.region, OPEN * PAGE_SIZE);
    if let Err(error) = region.begin_write(at, PAGE_SIZE) {
        return error.to_string();
    }
    let announce = || {
        region.end_write(at, PAGE_SIZE);
        u8::from(region.begin_write(at, PAGE_SIZE).is_err() && region.will_read(at, PAGE_SIZE).is_err())
    };
    let ended = raw::fork_and(announce);
    region.end_write(at, PAGE_SIZE);
    match ended {
        // A checkpoint waits for announced stores.
        Ok(1) if ground.store.checkpoint().is_ok() => "refused; the parent goes on".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(super) fn advise_dofork(ground: &Ground) -> String {
    if let Err(e) = raw::advise(ground.page(0), PAGES * PAGE_SIZE, libc::MADV_DOFORK) {
        return name_of(&e);
    }
    child_stores(ground, CLOSED)
}

pub(super) fn mremap(ground: &Ground) -> String {
    match raw::move_away(ground.page(CLOSED)) {
        Ok(moved) => ground.stores(|| raw::poke(moved, 5)),
        Err(e) => name_of(&e),
    }
}

pub(super) fn map_fixed(ground: &Ground) -> String {
    match raw::map_over(ground.page(CLOSED)) {
        Ok(_) => ground.stores(|| raw::poke(ground.page(CLOSED), 5)),
        Err(e) => name_of(&e),
    }
}

pub(super) fn mprotect(ground: &Ground) -> String {
    match raw::make_writable(ground.page(CLOSED)) {
        Ok(_) => ground.stores(|| raw::poke(ground.page(CLOSED), 5)),
        Err(e) => name_of(&e),
    }
}

fn fault_signal(mode: FaultMode) -> i32 {
    if mode == FaultMode::Mprotect { libc::SIGSEGV } else { libc::SIGBUS }
}

pub(super) fn handler_reset(ground: &Ground) -> String {
    raw::forget_handler(fault_signal(ground.mode));
    ground.stores(|| raw::poke(ground.page(CLOSED), 5))
}

pub(super) fn signal_blocked_at_open(ground: &Ground) -> String {
    raw::block(fault_signal(ground.mode));
    match open(&ground.directory.join("second"), ground.mode) {
        Err(why) if why.contains("unblock") => "refused".to_owned(),
        Err(why) => why,
        Ok(_) => "opens".to_owned(),
    }
}

pub(super) fn signal_blocked_later(ground: &Ground) -> String {
    raw::block(fault_signal(ground.mode));
    ground.stores(|| raw::poke(ground.page(CLOSED), 5))
}

pub(super) fn store_in_a_handler(ground: &Ground) -> String {
    ground.stores(|| raw::store_in_a_handler(ground.page(CLOSED), 5))
}

pub(super) fn foreign_fault(_: &Ground) -> String {
    match raw::mapping_behind_a_file() {
        Ok(address) => format!("reads {}, repaired {} times", raw::peek(address), raw::repaired()),
        Err(e) => name_of(&e),
    }
}

pub(super) fn null_store(_: &Ground) -> String {
    raw::poke(16, 1);
    "stores".to_owned()
}

pub(super) fn store_behind_the_region(ground: &Ground) -> String {
    raw::poke(ground.page(PAGES), 1);
    "stores".to_owned()
}

/// Opens and stores in a second store, after the program changed itself.
fn second_store(ground: &Ground) -> String {
    match open(&ground.directory.join("second"), ground.mode) {
        Err(_) => "refused".to_owned(),
        Ok((store, region)) => {
            raw::poke(region.as_ptr() as usize, 5);
            let dirty = store.status().map_or(0, |status| status.dirty_pages);
            if dirty > 0 { "tracked" } else { "unseen" }.to_owned()
        }
    }
}

pub(super) fn not_dumpable(ground: &Ground) -> String {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    second_store(ground)
}

fn limit(resource: Resource, most: u64) {
    let maximum = getrlimit(resource).maximum;
    let _ = setrlimit(resource, Rlimit { current: Some(most), maximum });
}

pub(super) fn few_descriptors(ground: &Ground) -> String {
    limit(Resource::Nofile, 8);
    second_store(ground)
}

pub(super) fn little_address_space(ground: &Ground) -> String {
    limit(Resource::As, 1 << 30);
    second_store(ground)
}

pub(super) fn no_locked_memory(ground: &Ground) -> String {
    limit(Resource::Memlock, 0);
    second_store(ground)
}

/// The keeper takes the end of the connection for the end of the program.
pub(super) fn descriptors_closed(ground: &Ground) -> String {
    let (keeper, target) = (ground.store.keeper_pid(), ground.page(CLOSED));
    raw::close_everything();
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    if !within(LIMIT, has_ended) {
        return "the keeper lives on".to_owned();
    }
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        raw::poke(target, 5);
        let _ = done.send(());
    });
    if ended.recv_timeout(PROMPT).is_ok() { "stores, unseen" } else { "stalls" }.to_owned()
}

pub(super) fn exit_without_close(_: &Ground) -> String {
    say(format_args!("ends"));
    raw::leave()
}

pub(super) fn exec(_: &Ground) -> String {
    say(format_args!("becomes another program"));
    raw::become_true();
    "stays".to_owned()
}

/// The kernel's name of a signal.
pub(super) fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        other => format!("signal {other}"),
    }
}
