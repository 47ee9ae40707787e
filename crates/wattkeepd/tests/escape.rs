//! The escape matrix (RELIABILITY.md, X1 to X4): every way to write past the protection is closed, or
//! fails, or does what is written here; and faults that are not ours go where they went before us.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{PAGE, Scoreboard, get, in_time, options, plays, put, within};
use wattkeep::{FaultMode, Region, RegionOptions, Store};

const PAGES: usize = 64;

fn open(directory: &std::path::Path, mode: FaultMode) -> (Store, Region) {
    let store = options().fault_mode(mode).budget("32").open(directory).expect("opens");
    let region =
        store.region("a", RegionOptions::transparent().create((PAGES * PAGE) as u64)).expect("a region");
    (store, region)
}

/// Pages 0 to 7 clean, protected and of value 1; 2 is then opened.
fn three_pages(mode: FaultMode) -> (tempfile::TempDir, Store, Region) {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, region) = open(directory.path(), mode);
    (0..8).for_each(|page| put(&region, page, 0, 1));
    store.checkpoint().expect("a checkpoint");
    put(&region, 2, 0, 2);
    (directory, store, region)
}

fn held(store: &Store) -> u32 {
    store.session().control().ledger.0.permits().held
}

#[test]
fn read_into_a_protected_page_is_efault_and_a_short_read_without_an_announcement() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect] {
        let (_directory, store, region) = three_pages(mode);
        let base = region.as_ptr() as usize;
        let refused = common::read_zeros_into(base + 4 * PAGE, PAGE).expect_err("protected");
        assert_eq!(refused.raw_os_error(), Some(libc::EFAULT), "{mode}");
        // The open page takes its bytes, the protected one behind it ends the call: a short read.
        assert_eq!(common::read_zeros_into(base + 2 * PAGE, 3 * PAGE).expect("a part"), PAGE, "{mode}");
        assert_eq!((get(&region, 2, 0), get(&region, 3, 0)), (0, 1), "{mode}");
        let before = held(&store);
        let announced = region.will_write(2 * PAGE, 3 * PAGE).expect("an announcement");
        assert_eq!(common::read_zeros_into(base + 2 * PAGE, 3 * PAGE).expect("all"), 3 * PAGE, "{mode}");
        drop(announced);
        assert!(held(&store) >= before + 2, "{mode}: the pages read into hold permits");
        assert_eq!((get(&region, 3, 0), get(&region, 4, 0)), (0, 0), "{mode}");
    }
}

#[test]
fn read_into_a_protected_page_works_in_monitor_mode() {
    let (_directory, store, region) = three_pages(FaultMode::Monitor);
    let read = common::read_zeros_into(region.as_ptr() as usize + 3 * PAGE, 3 * PAGE);
    assert_eq!(read.expect("all"), 3 * PAGE);
    assert!(held(&store) >= 4, "the pages read into hold permits");
    // Never-written pages, too.
    let read = common::read_zeros_into(region.as_ptr() as usize + 30 * PAGE, 20 * PAGE);
    assert_eq!(read.expect("all"), 20 * PAGE);
}

#[test]
fn a_closed_region_memory_takes_no_second_writer() {
    let (_directory, store, region) = three_pages(FaultMode::Signal);
    put(&region, 0, 0, 7);
    let mut tried = 0;
    for pid in [store.keeper_pid(), std::process::id()] {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).expect("our processes") {
            let path = entry.expect("an entry").path();
            let target = std::fs::read_link(&path).unwrap_or_default();
            if !target.to_string_lossy().contains("memfd:wattkeep-region") {
                continue;
            }
            tried += 1;
            assert_eq!(common::ways_to_write(&path), Vec::<&str>::new(), "{}", path.display());
        }
    }
    assert!(tried > 0, "the keeper holds the memory by descriptor");
    assert_eq!(get(&region, 0, 0), 7);
}

#[test]
fn a_forked_child_dies_on_the_region_and_leaves_it_alone() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let (directory, store, region) = three_pages(mode);
        let base = region.as_ptr() as usize;
        for page in [2, 3, 40] {
            let signal = common::fork_and(|| common::poke(base + page * PAGE, 99));
            assert_eq!(signal, Some(libc::SIGSEGV), "{mode}: page {page}");
        }
        assert_eq!((get(&region, 2, 0), get(&region, 3, 0), get(&region, 40, 0)), (2, 1, 0), "{mode}");
        // A child that drops its copies of the handles leaves the parent's session alone.
        let (copy, ended) = (store.clone(), common::fork_and(|| {}));
        assert_eq!(ended, None);
        drop(copy);
        put(&region, 5, 0, 6);
        drop(region);
        store.close().expect("closes");
        let (_store, region) = open(directory.path(), mode);
        assert_eq!(get(&region, 5, 0), 6, "{mode}");
    }
}

/// The story: a child that returned from its work closed the store, over the parent's own socket.
#[test]
fn a_forked_child_cannot_close_its_parents_store() {
    let (_directory, store, region) = three_pages(FaultMode::Signal);
    let ended = common::fork_and(|| {
        assert!(store.status().is_err());
        assert!(store.checkpoint().is_err());
        let _ = store.clone().close();
    });
    assert_eq!(ended, None);
    put(&region, 6, 0, 8);
    store.checkpoint().expect("the parent goes on");
}

/// What mremap does, so that nobody is surprised: the moved pages leave our protection, and stores to them
/// are not tracked. A program must not do that to a region; the test shows that nothing notices.
#[test]
fn mremap_takes_pages_out_of_protection_as_documented() {
    let test = "mremap_takes_pages_out_of_protection_as_documented";
    if let Some(directory) = plays("client") {
        let (store, region) = open(&directory, FaultMode::Signal);
        (0..8).for_each(|page| put(&region, page, 0, 1));
        store.checkpoint().expect("a checkpoint");
        let before = held(&store);
        let moved = common::mremap(region.as_ptr() as usize, 2 * PAGE);
        common::poke(moved, 5);
        let board = Scoreboard::open(&directory, 2);
        board.set(0, 1 + u64::from(held(&store) - before));
        board.set(1, common::peek(moved));
        // SAFETY is the parent's: it kills us before the region unmaps what is not there.
        std::thread::sleep(Duration::from_secs(60));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), 2);
    let child = common::child(test, "client", directory.path());
    assert!(within(Duration::from_secs(10), || board.get(1) > 0));
    assert_eq!((board.get(0), board.get(1)), (1, 5), "a store after mremap takes no permit, and no fault");
    drop(child);
}

/// A real SIGBUS: a file mapping behind the end of its file.
#[test]
fn a_foreign_fault_goes_to_the_handler_before_ours() {
    let test = "a_foreign_fault_goes_to_the_handler_before_ours";
    if let Some(directory) = plays("client") {
        common::repair_bus_faults_elsewhere();
        let (_store, region) = open(&directory, FaultMode::Signal);
        put(&region, 0, 0, 1);
        let broken = common::mapping_behind_a_file();
        assert_eq!(common::peek(broken), 0, "the foreign handler mapped zeros there");
        put(&region, 1, 0, 1);
        Scoreboard::open(&directory, 1).set(0, 1 + common::repaired());
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let child = common::child(test, "client", directory.path());
    let (code, _, said) = child.end(Duration::from_secs(10));
    assert_eq!((code, Scoreboard::open(directory.path(), 1).get(0)), (Some(0), 2), "{said}");
}

#[test]
fn a_foreign_fault_without_a_handler_kills_as_it_would_without_us() {
    let test = "a_foreign_fault_without_a_handler_kills_as_it_would_without_us";
    for (role, mode, signal) in [
        ("bus", FaultMode::Signal, libc::SIGBUS),
        ("segv", FaultMode::Mprotect, libc::SIGSEGV),
        ("outside", FaultMode::Signal, libc::SIGSEGV),
    ] {
        if let Some(directory) = plays(role) {
            let (_store, region) = open(&directory, mode);
            put(&region, 0, 0, 1);
            match role {
                "bus" => drop(common::peek(common::mapping_behind_a_file())),
                "segv" => common::poke(16, 1),
                // Behind the region's present size, inside its reserve: nobody's memory.
                _ => common::poke(16, 1),
            }
            return;
        }
        if std::env::var_os("WATTKEEP_TEST_ROLE").is_some() {
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (_, ended, said) = common::child(test, role, directory.path()).end(Duration::from_secs(10));
        assert_eq!(ended, Some(signal), "{role}: {said}");
        let (_store, region) = open(directory.path(), mode);
        assert_eq!(get(&region, 0, 0), 1, "{role}: the store before the fault is kept");
    }
}

#[test]
fn a_touch_behind_the_region_ends_the_program_and_loses_nothing() {
    let test = "a_touch_behind_the_region_ends_the_program_and_loses_nothing";
    for mode in [FaultMode::Signal, FaultMode::Mprotect] {
        if let Some(directory) = plays(&format!("client-{mode}")) {
            let (_store, region) = open(&directory, mode);
            put(&region, 0, 0, 1);
            common::poke(region.as_ptr() as usize + PAGES * PAGE, 1);
            return;
        }
        if std::env::var_os("WATTKEEP_TEST_ROLE").is_some() {
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let role = format!("client-{mode}");
        let (_, ended, said) = common::child(test, &role, directory.path()).end(Duration::from_secs(10));
        assert!(matches!(ended, Some(libc::SIGBUS | libc::SIGSEGV)), "{mode}: {ended:?} {said}");
        let (_store, region) = open(directory.path(), mode);
        assert_eq!(get(&region, 0, 0), 1, "{mode}");
    }
}

#[test]
fn a_thread_that_blocks_the_fault_signal_is_told_at_open() {
    for (mode, signal) in [(FaultMode::Signal, libc::SIGBUS), (FaultMode::Mprotect, libc::SIGSEGV)] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        let refused = std::thread::spawn(move || {
            common::block(signal);
            options().fault_mode(mode).open(path).err().map(|e| e.to_string())
        });
        let refused = refused.join().expect("no panic").expect("an error");
        assert!(refused.contains("block") && refused.contains("unblock"), "{refused}");
    }
}

#[test]
fn a_store_from_a_signal_handler_on_the_alternate_stack_works() {
    let (_directory, _store, region) = three_pages(FaultMode::Signal);
    let address = region.as_ptr() as usize + 5 * PAGE;
    let stored = in_time(Duration::from_secs(5), move || common::store_in_a_handler(address, 77));
    assert!(stored.is_some());
    assert_eq!(get(&region, 5, 0), 77);
}
