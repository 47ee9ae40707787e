//! What no library offers, because no program should do it: forks without exec, and the rest of what a
//! program may do to a region behind our back.
//!
//! # Safety
//!
//! 1. A forked child makes async-signal-safe calls only, or runs in a program whose other threads hold
//!    no lock that it needs; it leaves by `_exit`.
//! 2. Addresses name bytes of a region, or of a mapping made here, that no reference covers. What a
//!    case does to them is what it is there to show: the program ends after it.
//! 3. System calls get pointers and descriptors that live for the call.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::{IoUring, opcode, types};
use wattkeep::PAGE_SIZE;

/// How long a forked child sleeps, unless it is ended before, in seconds.
const SLEEP_S: u32 = 60;

fn checked(answer: i64) -> Result<usize> {
    usize::try_from(answer).map_err(|_| Error::last_os_error())
}

fn mapped(answer: *mut libc::c_void) -> Result<usize> {
    if answer == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(answer as usize) }
}

/// Takes large allocations from the kernel, as long as the process lives: the allocator would keep them, and
/// write zeros over megabytes where the kernel's pages are zero already.
pub(crate) fn take_large_memory_from_the_kernel() {
    // SAFETY: 3: a number.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
}

/// Forks a child that shares everything a fork shares but the standard streams, and sleeps. Its id.
pub(crate) fn fork_sleeper() -> i32 {
    // SAFETY: 1: three kinds of call, all async-signal-safe.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            for stream in 0..3 {
                libc::close(stream);
            }
            libc::sleep(SLEEP_S);
            libc::_exit(0);
        }
        child
    }
}

/// Runs `work` in a forked child; its exit code, or the signal that killed it.
pub(crate) fn fork_and(work: impl FnOnce() -> u8) -> std::result::Result<i32, i32> {
    // SAFETY: 1: the case forks from the only thread that uses the store.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = work();
        // SAFETY: 1.
        unsafe { libc::_exit(i32::from(code)) }
    }
    let mut status = 0;
    // SAFETY: 3.
    unsafe { libc::waitpid(child, &mut status, 0) };
    if libc::WIFSIGNALED(status) { Err(libc::WTERMSIG(status)) } else { Ok(libc::WEXITSTATUS(status)) }
}

/// A raw store.
pub(crate) fn poke(address: usize, value: u64) {
    // SAFETY: 2.
    unsafe { with_exposed_provenance_mut::<u64>(address).write_volatile(value) }
}

/// A raw load.
pub(crate) fn peek(address: usize) -> u64 {
    // SAFETY: 2.
    unsafe { with_exposed_provenance::<u64>(address).read_volatile() }
}

/// read(2) to an address.
pub(crate) fn read_into(file: &File, address: usize, len: usize) -> Result<usize> {
    // SAFETY: 2, 3: the kernel stores there, or answers EFAULT.
    checked(unsafe { libc::read(file.as_raw_fd(), with_exposed_provenance_mut(address), len) } as i64)
}

/// getrandom(2) to an address.
pub(crate) fn random_into(address: usize, len: usize) -> Result<usize> {
    // SAFETY: 2, 3.
    checked(unsafe { libc::getrandom(with_exposed_provenance_mut(address), len, 0) } as i64)
}

/// process_vm_writev(2) of zeros to an address of our own.
pub(crate) fn write_from_outside(address: usize, len: usize) -> Result<usize> {
    let zeros = vec![0u8; len];
    let local = libc::iovec { iov_base: zeros.as_ptr() as *mut _, iov_len: len };
    let remote = libc::iovec { iov_base: with_exposed_provenance_mut(address), iov_len: len };
    // SAFETY: 2, 3.
    checked(unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) } as i64)
}

/// A ring with one registered buffer.
pub(crate) struct FixedBuffer {
    ring: IoUring,
    address: usize,
    len: u32,
}

impl FixedBuffer {
    /// Registers `len` bytes at `address`: the kernel pins their pages.
    pub(crate) fn register(address: usize, len: u32) -> Result<Self> {
        let ring = IoUring::new(2)?;
        let buffer = libc::iovec { iov_base: with_exposed_provenance_mut(address), iov_len: len as usize };
        // SAFETY: 2: the mapping outlives the ring.
        unsafe { ring.submitter().register_buffers(&[buffer]) }?;
        Ok(Self { ring, address, len })
    }

    /// Reads from a file into the registered buffer.
    pub(crate) fn read(&mut self, file: BorrowedFd<'_>) -> Result<usize> {
        let target = with_exposed_provenance_mut(self.address);
        let entry = opcode::ReadFixed::new(types::Fd(file.as_raw_fd()), target, self.len, 0);
        submit(&mut self.ring, &entry.build())
    }
}

/// An io_uring read to an address, through no registered buffer.
pub(crate) fn ring_read_into(file: &File, address: usize, len: u32) -> Result<usize> {
    let mut ring = IoUring::new(2)?;
    let target = with_exposed_provenance_mut(address);
    submit(&mut ring, &opcode::Read::new(types::Fd(file.as_raw_fd()), target, len).build())
}

fn submit(ring: &mut IoUring, entry: &io_uring::squeue::Entry) -> Result<usize> {
    // SAFETY: 2, 3: the buffer is region memory, and the call waits for the completion.
    unsafe { ring.submission().push(entry) }.map_err(|_| Error::other("the ring is full"))?;
    ring.submit_and_wait(1)?;
    let answer = ring.completion().next().ok_or_else(|| Error::other("no completion"))?.result();
    usize::try_from(answer).map_err(|_| Error::from_raw_os_error(-answer))
}

/// Maps a page of `file` for writing.
pub(crate) fn map_for_writing(file: &File) -> Result<usize> {
    let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: 2, 3: a new mapping where the kernel likes.
    mapped(unsafe { libc::mmap(null_mut(), PAGE_SIZE, access, shared, file.as_raw_fd(), 0) })
}

/// Punches a page out of `file`.
pub(crate) fn punch(file: &File) -> Result<usize> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: 3.
    checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, PAGE_SIZE as i64) }.into())
}

/// Maps private zeros over a page.
pub(crate) fn map_over(address: usize) -> Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let target = with_exposed_provenance_mut(address);
    // SAFETY: 2.
    mapped(unsafe { libc::mmap(target, PAGE_SIZE, access, flags, -1, 0) })
}

/// Moves a page elsewhere; its new address.
pub(crate) fn move_away(address: usize) -> Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: 2: a free range, then the page moved over it.
    unsafe {
        let free = mapped(libc::mmap(null_mut(), PAGE_SIZE, libc::PROT_NONE, flags, -1, 0))?;
        let old = with_exposed_provenance_mut(address);
        let (how, free) =
            (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, with_exposed_provenance_mut::<u8>(free));
        mapped(libc::mremap(old, PAGE_SIZE, PAGE_SIZE, how, free))
    }
}

/// madvise(2) on `len` bytes.
pub(crate) fn advise(address: usize, len: usize, advice: i32) -> Result<usize> {
    // SAFETY: 2.
    checked(unsafe { libc::madvise(with_exposed_provenance_mut(address), len, advice) }.into())
}

/// Gives itself all access rights to a page.
pub(crate) fn make_writable(address: usize) -> Result<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: 2.
    checked(unsafe { libc::mprotect(with_exposed_provenance_mut(address), PAGE_SIZE, access) }.into())
}

/// A mapping of a file that ends before it: an access is a SIGBUS that is not ours.
pub(crate) fn mapping_behind_a_file() -> Result<usize> {
    let file = tempfile::tempfile()?;
    file.set_len(PAGE_SIZE as u64)?;
    let address = map_for_writing(&file)?;
    file.set_len(0)?;
    Ok(address)
}

/// Puts the default action of a signal back.
pub(crate) fn forget_handler(signal: i32) {
    install(signal, libc::SIG_DFL, 0);
}

fn install(signal: i32, handler: usize, flags: i32) {
    // SAFETY: 3: a valid action for the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(signal, &action, null_mut());
    }
}

/// Blocks a signal in this thread.
pub(crate) fn block(signal: i32) {
    // SAFETY: 3: a set on the stack.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut());
    }
}

static REPAIRED: AtomicU64 = AtomicU64::new(0);

extern "C" fn repair(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    REPAIRED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: 3: the kernel's own argument.
    let page = unsafe { (*info).si_addr() } as usize & !(PAGE_SIZE - 1);
    let _ = map_over(page);
}

/// Installs a handler for SIGBUS that maps zeros where the fault was, and counts.
pub(crate) fn repair_bus_faults() {
    install(libc::SIGBUS, repair as *const () as usize, libc::SA_SIGINFO);
}

/// How often that handler ran.
pub(crate) fn repaired() -> u64 {
    REPAIRED.load(Ordering::SeqCst)
}

static HANDLER_STORES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn store_now(_: i32) {
    poke(HANDLER_STORES[0].load(Ordering::SeqCst) as usize, HANDLER_STORES[1].load(Ordering::SeqCst));
}

/// Stores from a handler of SIGUSR1 on the alternate stack: the fault nests in it.
pub(crate) fn store_in_a_handler(address: usize, value: u64) {
    HANDLER_STORES[0].store(address as u64, Ordering::SeqCst);
    HANDLER_STORES[1].store(value, Ordering::SeqCst);
    install(libc::SIGUSR1, store_now as *const () as usize, libc::SA_ONSTACK);
    // SAFETY: 3: raises a signal in this thread. Rust gives every thread an alternate stack.
    unsafe { libc::raise(libc::SIGUSR1) };
}

/// Closes every descriptor but the standard streams.
pub(crate) fn close_everything() {
    // SAFETY: 3: what owns them is never used again: the case ends by `leave`.
    unsafe { libc::close_range(3, u32::MAX, 0) };
}

/// Ends the process at once, without a destructor.
pub(crate) fn leave() -> ! {
    // SAFETY: 1.
    unsafe { libc::_exit(0) }
}

/// Becomes another program.
pub(crate) fn become_true() {
    let path = c"/bin/true".as_ptr();
    // SAFETY: 3: a path and a list that ends with null.
    unsafe { libc::execv(path, [path, null()].as_ptr()) };
}
