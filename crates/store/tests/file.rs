//! The store on a real file: what is written, committed and closed comes back.

use std::path::Path;

use wattkeep_store::disk::Wait;
use wattkeep_store::types::{PageId, RegionId};
use wattkeep_store::{
    Begin, CommitKind, CreateOptions, Event, FileError, NewRegion, Purpose, RegionMode, Store, UringDisk,
    store_file,
};

fn create(directory: &Path) -> Store<UringDisk> {
    let mut options = CreateOptions { budget_pages: 100, ..CreateOptions::default() };
    Store::create_in(directory, &mut options).expect("a fresh directory")
}

fn new_region(name: &str, pages: u32) -> NewRegion {
    let mode = RegionMode::Transparent;
    NewRegion { name: name.to_owned(), mode, pages, reserve_pages: pages, address: 0 }
}

/// Appends pages `from..to`, each filled with a byte of its own.
fn append(store: &mut Store<UringDisk>, region: RegionId, from: u32, to: u32) {
    let (mut next, mut events) = (from, Vec::new());
    while next < to {
        let wanted = (to - next) as usize;
        let mut batch = match store.begin(Purpose::Writeback, wanted).expect("a good store") {
            Begin::Batch(batch) => batch,
            Begin::Busy => {
                store.poll(Wait::One, &mut events).expect("a good store");
                continue;
            }
            Begin::NoSpace => panic!("the capacity rule gives space"),
        };
        while batch.room() > 0 && next < to {
            let bytes = batch.next_page();
            bytes.fill(next as u8);
            bytes[..4].copy_from_slice(&next.to_le_bytes());
            let checksum = store.hash(bytes);
            batch.push(PageId { region, page: next }, checksum, next);
            next += 1;
        }
        store.submit(batch);
    }
    let mut written = 0;
    while written < to - from {
        for event in events.drain(..) {
            if let Event::Written { pages, .. } = event {
                written += pages.len() as u32;
            }
        }
        if written < to - from {
            store.poll(Wait::One, &mut events).expect("a good store");
        }
    }
}

#[test]
fn a_closed_store_comes_back_whole() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = create(directory.path());
    let region = store.create_region(new_region("table", 5000)).expect("a new name");
    append(&mut store, region, 0, 3000);
    store.commit(CommitKind::Close).expect("a good store");
    drop(store);

    let disk = UringDisk::open(directory.path()).expect("the store is there");
    let (mut store, recovery) = Store::open(disk).expect("it was closed");
    assert!(recovery.clean);
    assert_eq!((recovery.commit.pages, recovery.superblock_copies_valid), (3000, 4));
    let mut page = [0; 4096];
    for number in 0..5000 {
        let id = PageId { region, page: number };
        let stored = store.read_page_blocking(id, &mut page).expect("readable");
        assert_eq!(stored, number < 3000);
        if stored {
            assert_eq!(page[..4], number.to_le_bytes());
            assert_eq!(page[4095], number as u8);
        }
    }
    let report = store.check(&mut |_, _| {}).expect("readable");
    assert_eq!((report.pages_checked, report.damaged.len()), (3000, 0));
}

#[test]
fn what_was_not_committed_is_the_lost_tail() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut store = create(directory.path());
    let region = store.create_region(new_region("table", 500)).expect("a new name");
    append(&mut store, region, 0, 100);
    store.commit(CommitKind::Checkpoint).expect("a good store");
    append(&mut store, region, 50, 200);
    drop(store);

    let open = || UringDisk::open(directory.path()).expect("the store is there");
    let (store, recovery) = Store::open(open()).expect("a checkpoint");
    assert!(!recovery.clean);
    assert!(recovery.lost_tail_batches >= 1);
    assert_eq!(store.stored_pages(region).count(), 100);
    drop(store);
    let (_, recovery) = Store::open(open()).expect("a checkpoint");
    assert_eq!(recovery.lost_tail_batches, 0, "the tail was erased");
}

#[test]
fn a_second_writer_is_refused_and_told_where_to_look() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = create(directory.path());
    let error = UringDisk::open(directory.path()).expect_err("it is in use");
    assert!(matches!(error, FileError::InUse { .. }));
    assert!(error.to_string().contains("wattkeep status"));
    assert!(UringDisk::open_read_only(directory.path()).is_err());
    drop(store);
    UringDisk::open(directory.path()).expect("the lock went with its holder");
}

#[test]
fn missing_and_existing_stores_are_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = UringDisk::open(directory.path()).expect_err("nothing there");
    assert!(matches!(missing, FileError::Missing { .. }));
    drop(create(directory.path()));
    let mut options = CreateOptions::default();
    let exists = Store::create_in(directory.path(), &mut options).expect_err("it is there");
    assert!(matches!(exists, FileError::Exists { .. }));
}

#[test]
fn a_copied_and_a_cut_off_file_are_told_apart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = tempfile::tempdir().expect("a temporary directory");
    let mut store = create(directory.path());
    store.commit(CommitKind::Close).expect("a good store");
    drop(store);
    let file = store_file(copy.path());
    std::fs::copy(store_file(directory.path()), &file).expect("space");
    let disk = UringDisk::open(copy.path()).expect("a store");
    drop(Store::open(disk).expect("a copy is a store"));
    let size = std::fs::metadata(&file).expect("it is there").len();
    let handle = std::fs::OpenOptions::new().write(true).open(&file).expect("ours");
    handle.set_len(size - 4096).expect("ours");
    let disk = UringDisk::open(copy.path()).expect("a file");
    let error = Store::open(disk).expect_err("cut off");
    assert!(error.to_string().contains("cut off"), "{error}");
}
