//! Opening by the index digest, and by a scan whenever anything is wrong with the digest.

use wattkeep_sim::disk::{Cut, Fault, FaultKind, MemoryDisk};
use wattkeep_sim::store_model::{append, content};
use wattkeep_store::types::{Checksum, PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{Begin, CommitKind, CreateOptions, NewRegion, OpenError, Purpose, RegionMode, Store};

const SEGMENTS_START: u64 = 4 << 20;
const REGION_PAGES: u32 = 900;

type Placed = Vec<(PageId, Option<u32>, Option<Checksum>)>;

fn placed(store: &Store<MemoryDisk>, region: RegionId) -> Placed {
    store.stored_pages(region).map(|page| (page, store.slot_of(page), store.stored_checksum(page))).collect()
}

/// A running store whose region has pages at both ends and a gap longer than a digest's page.
fn running(disk: &MemoryDisk) -> (Store<MemoryDisk>, RegionId) {
    let mut options = CreateOptions {
        uuid: Some([7; 16]),
        seed: Some(1),
        budget_pages: 20,
        segment_pages: Some(16),
        progress: None,
    };
    let mut store = Store::create(disk.clone(), &mut options).expect("no fault");
    let mode = RegionMode::Transparent;
    let name = "table".to_owned();
    let new = NewRegion { name, mode, pages: REGION_PAGES, reserve_pages: 0, address: 0 };
    let region = store.create_region(new).expect("no fault");
    let pages: Vec<u32> = (3..60).chain(880..REGION_PAGES).collect();
    append(&mut store, region, &pages, 1);
    (store, region)
}

fn closed(disk: &MemoryDisk) -> (RegionId, Placed) {
    let (mut store, region) = running(disk);
    store.commit(CommitKind::Close).expect("no fault");
    (region, placed(&store, region))
}

/// Where the digest's header lies.
fn digest_start(disk: &MemoryDisk) -> u64 {
    let mut pages = (SEGMENTS_START..64 << 20).step_by(PAGE_SIZE);
    pages.find(|&at| disk.peek(at, 8) == *b"WKINDEX1").expect("there is a digest")
}

fn open(disk: &MemoryDisk) -> (Store<MemoryDisk>, bool) {
    let (store, recovery) = Store::open(disk.clone()).expect("the image is whole");
    assert_eq!((recovery.clean, recovery.lost_tail_batches), (true, 0));
    (store, recovery.by_digest)
}

#[test]
fn a_close_and_a_save_open_by_their_digest_and_find_what_a_scan_finds() {
    for kind in [CommitKind::Close, CommitKind::Save] {
        let disk = MemoryDisk::new(1);
        let (mut store, region) = running(&disk);
        store.commit(kind).expect("no fault");
        let written = store.write_digest().expect("no fault");
        assert_eq!(written, kind == CommitKind::Save, "a close has written it already");
        store.audit().expect("the counts hold");
        let before = placed(&store, region);
        drop(store);
        let (scanned, recovery) = Store::open_scanned(disk.clone()).expect("whole");
        assert_eq!((placed(&scanned, region), recovery.by_digest), (before.clone(), false));
        let (mut store, by_digest) = open(&disk);
        assert!(by_digest);
        assert_eq!(placed(&store, region), before);
        assert_eq!(store.status().free, scanned.status().free);
        store.audit().expect("the counts hold");
        assert_eq!(store.check(&mut |_, _| {}).expect("readable").damaged, []);
    }
}

#[test]
fn a_checkpoint_leaves_no_digest() {
    let disk = MemoryDisk::new(1);
    let (mut store, _) = running(&disk);
    store.commit(CommitKind::Checkpoint).expect("no fault");
    assert!(!store.write_digest().expect("no fault"));
}

#[test]
fn a_batch_that_is_being_filled_forbids_the_digest() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = running(&disk);
    store.commit(CommitKind::Checkpoint).expect("no fault");
    let Begin::Batch(mut batch) = store.begin(Purpose::Writeback, 1).expect("good") else { panic!("busy") };
    store.commit(CommitKind::Save).expect("no fault");
    assert!(!store.write_digest().expect("no fault"), "the batch would not be seen as the tail");
    let page = PageId { region, page: 3 };
    *batch.next_page() = content(page, 2);
    batch.push(page, store.hash(&content(page, 2)), 0);
    store.submit(batch);
}

#[test]
fn the_first_batch_and_every_change_of_the_catalogue_make_the_digest_void() {
    type Change = fn(&mut Store<MemoryDisk>, RegionId);
    let changes: [Change; 5] = [
        |store, region| append(store, region, &[3], 2),
        |store, _| store.mark_running().expect("good"),
        |store, region| store.resize_region(region, 20).expect("good"),
        |store, region| store.remove_region(region).expect("good"),
        |store, region| store.set_address(region, 4096).expect("good"),
    ];
    for change in changes {
        let disk = MemoryDisk::new(1);
        let (mut store, region) = running(&disk);
        store.commit(CommitKind::Close).expect("no fault");
        let (start, free) = (digest_start(&disk), store.status().free);
        change(&mut store, region);
        store.audit().expect("the counts hold");
        assert!(store.status().free + 1 >= free, "its segments are free again");
        drop(store);
        for cut in [Cut::KeepAll, Cut::DropAll] {
            let disk = disk.after_cut(cut, 1);
            assert_ne!(disk.peek(start, 8), *b"WKINDEX1");
            let (_, recovery) = Store::open(disk).expect("the image is whole");
            assert!(!recovery.by_digest);
        }
    }
}

#[test]
fn a_damaged_digest_is_not_taken_and_nothing_is_lost() {
    let disk = MemoryDisk::new(1);
    let (region, before) = closed(&disk);
    let start = digest_start(&disk);
    let pages = 1 + 1 + 1;
    for bit in (0..8 * pages * PAGE_SIZE as u64).step_by(61) {
        let copy = disk.after_cut(Cut::KeepAll, bit);
        copy.flip_bit(start + bit / 8, bit as u32 % 8);
        let (store, by_digest) = open(&copy);
        assert!(!by_digest, "bit {bit}");
        assert_eq!(placed(&store, region), before);
    }
    let (store, by_digest) = open(&disk);
    assert!(by_digest);
    assert_eq!(placed(&store, region), before);
}

/// The power goes, or the disk fails, at every request of the digest's writing.
#[test]
fn a_digest_cut_off_anywhere_costs_nothing() {
    let (mut taken, mut scanned) = (0, 0);
    for kind in [FaultKind::Io, FaultKind::Short] {
        for cut in [Cut::KeepAll, Cut::DropAll, Cut::Mixed] {
            for at in 0.. {
                let disk = MemoryDisk::new(at);
                let (mut store, region) = running(&disk);
                store.commit(CommitKind::Save).expect("no fault");
                let before = placed(&store, region);
                let first = disk.requests();
                disk.set_fault(Some(Fault { at: first + at, kind, for_ever: true }));
                let written = store.write_digest();
                let past = disk.requests() <= first + at;
                assert_eq!(written.is_ok(), past);
                drop(store);
                let copy = disk.after_cut(cut, at);
                let (store, by_digest) = open(&copy);
                assert_eq!(placed(&store, region), before);
                (taken, scanned) = (taken + u32::from(by_digest), scanned + u32::from(!by_digest));
                if past {
                    break;
                }
            }
        }
    }
    assert!(taken > 0 && scanned > 0);
}

#[test]
fn a_fault_while_the_digest_is_read_leads_to_the_scan() {
    let disk = MemoryDisk::new(1);
    let (region, before) = closed(&disk);
    // Behind the four superblock copies.
    disk.set_fault(Some(Fault { at: disk.requests() + 4, kind: FaultKind::Io, for_ever: false }));
    let (store, by_digest) = open(&disk);
    assert!(!by_digest);
    assert_eq!(placed(&store, region), before);
}

/// A store is closed and used again, and then both copies of the newest superblock are damaged. The
/// closed state that comes back must be judged by what the log holds, not by its digest.
#[test]
fn the_digest_of_an_older_superblock_is_not_believed() {
    let disk = MemoryDisk::new(1);
    let (region, _) = closed(&disk);
    let (mut store, _) = open(&disk);
    // The first free segments are those of the digest: an empty batch of cleaning takes them, so that what
    // is written now leaves the digest's bytes alone.
    for committed in [true, false] {
        let Begin::Batch(batch) = store.begin_cleaning(committed).expect("good") else { panic!("busy") };
        store.submit(batch);
    }
    append(&mut store, region, &[3, 4], 2);
    drop(store);
    let disk = disk.after_cut(Cut::KeepAll, 1);
    let sequence = |copy: u64| {
        let page = disk.peek(copy << 20, PAGE_SIZE);
        u64::from_le_bytes(page[56..64].try_into().expect("eight bytes"))
    };
    let newest = (0..4).map(sequence).max().expect("four");
    for copy in (0..4).filter(|&copy| sequence(copy) == newest) {
        disk.flip_bit((copy << 20) + 300, 0);
    }
    let error = Store::open(disk).map(drop).expect_err("the log is of a later session");
    assert!(matches!(error, OpenError::SuperblockOutdated { .. }), "{error}");
}

/// The story: a close whose digest could not be written reported a failure, although it was durable.
#[test]
fn a_close_is_done_although_its_digest_fails() {
    let (mut failed, mut written) = (0, 0);
    for at in 0.. {
        let disk = MemoryDisk::new(at);
        let (mut store, region) = running(&disk);
        let first = disk.requests();
        disk.set_fault(Some(Fault { at: first + at, kind: FaultKind::Io, for_ever: true }));
        let closed = store.commit(CommitKind::Close);
        let past = disk.requests() <= first + at;
        let (before, failure) = (placed(&store, region), store.digest_failure().map(str::to_owned));
        drop(store);
        if closed.is_err() {
            assert!(!past && failure.is_none());
            continue;
        }
        assert_eq!(failure.is_none(), past, "{failure:?}");
        (failed, written) = (failed + u32::from(!past), written + u32::from(past));
        for cut in [Cut::KeepAll, Cut::DropAll, Cut::Mixed] {
            let (store, _) = open(&disk.after_cut(cut, at));
            assert_eq!(placed(&store, region), before);
        }
        if past {
            break;
        }
    }
    assert!(failed > 0 && written == 1);
}

#[test]
fn a_damaged_summary_is_found_by_a_check_though_the_digest_spares_it() {
    let disk = MemoryDisk::new(1);
    let (region, before) = closed(&disk);
    let position = before[0].1.expect("stored") - 1;
    disk.flip_bit(SEGMENTS_START + u64::from(position) * PAGE_SIZE as u64, 0);
    assert!(Store::open_scanned(disk.clone()).is_err());
    let (store, by_digest) = open(&disk);
    assert!(by_digest);
    assert_eq!(placed(&store, region), before);
}
