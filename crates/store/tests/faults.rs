//! Faults of the disk: every request fails once, in every way, and no failure becomes success.

use wattkeep_sim::disk::{Cut, Fault, FaultKind, MemoryDisk};
use wattkeep_sim::random::Random;
use wattkeep_sim::store_model::{BUDGET, Model, SEGMENT_PAGES, append, content, create_options};
use wattkeep_store::disk::Wait;
use wattkeep_store::types::{Checksum, PageId, RegionId};
use wattkeep_store::{
    Begin, CommitKind, CreateError, NewRegion, OpenError, PageRanges, Purpose, ReadError, RegionMode, Store,
    StoreError,
};

fn new_region(pages: u32) -> NewRegion {
    let mode = RegionMode::Transparent;
    NewRegion { name: "table".to_owned(), mode, pages, reserve_pages: 0, address: 0 }
}

/// A store of 40 committed pages.
fn small_store(disk: &MemoryDisk) -> (Store<MemoryDisk>, RegionId) {
    let mut store = Store::create(disk.clone(), &mut create_options(1)).expect("no fault");
    let region = store.create_region(new_region(60)).expect("no fault");
    append(&mut store, region, &(0..40).collect::<Vec<_>>(), 1);
    store.commit(CommitKind::Close).expect("no fault");
    (store, region)
}

/// The same history with each of its requests failing in turn; the store must fail, stay failed,
/// and show the last commit, or the one that was under way, when opened again.
#[test]
fn a_fault_at_any_request_is_never_taken_for_success() {
    let mut struck = 0;
    for kind in [FaultKind::Io, FaultKind::NoSpace, FaultKind::Short, FaultKind::Interrupted] {
        for for_ever in [false, true] {
            for at in 0.. {
                let mut model = Model::new(at);
                let first = model.disk.requests();
                let fault = Fault { at: first + at, kind, for_ever };
                model.disk.set_fault(Some(fault));
                let failed = model.run(150).unwrap_or_else(|cause| panic!("{fault:?}: {cause}"));
                model.disk.set_fault(None);
                if failed {
                    model.must_stay_failed().unwrap_or_else(|cause| panic!("{fault:?}: {cause}"));
                }
                let past = model.disk.requests() < first + at;
                model.crash().unwrap_or_else(|cause| panic!("{fault:?}: {cause}"));
                struck += u64::from(!past);
                if past {
                    break;
                }
            }
        }
    }
    println!("{struck} faults");
    assert!(struck > 300);
}

#[test]
fn a_fault_while_opening_is_an_error_and_a_later_open_succeeds() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    append(&mut store, region, &[1, 2, 3], 2);
    drop(store);
    for at in 0..200 {
        let copy = disk.after_cut(Cut::KeepAll, at);
        copy.set_fault(Some(Fault { at, kind: FaultKind::Io, for_ever: false }));
        let opened = Store::open(copy.clone());
        if at >= copy.requests() {
            assert!(opened.is_ok());
            return;
        }
        // One unreadable superblock copy is survived; everything else is an error.
        assert!(opened.is_err() || at < 4, "fault at {at}");
        drop(opened);
        copy.set_fault(None);
        // Another handle would still see the first opening's requests in flight.
        let (store, _) = match Store::open(copy.after_cut(Cut::KeepAll, at)) {
            Ok(opened) => opened,
            Err(error) => panic!("fault at {at}: {error}"),
        };
        assert_eq!(store.stored_pages(region).count(), 40);
    }
    panic!("opening ends");
}

/// An update was durable in one superblock copy, and the power went before its second copy was. At the next
/// opening that one copy could not be read, for once; the opening took the older state of the others for
/// the newest, erased the newer commit's batches as a lost tail, and wrote over it.
#[test]
fn a_copy_that_cannot_be_read_and_may_be_the_newest_refuses_the_open() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    append(&mut store, region, &[1, 2, 3], 2);
    store.commit(CommitKind::Checkpoint).expect("no fault");
    let epoch = store.last_commit().epoch;
    drop(store);
    let mut refused = 0;
    for copy in 0..4 {
        let disk = disk.after_cut(Cut::DropAll, 1);
        disk.set_fault(Some(Fault { at: copy, kind: FaultKind::Io, for_ever: false }));
        match Store::open(disk.clone()) {
            Ok((store, _)) => assert_eq!(store.last_commit().epoch, epoch),
            Err(error) => {
                assert!(error.to_string().contains("which may be the newest"), "{error}");
                refused += 1;
            }
        }
        let disk = disk.after_cut(Cut::KeepAll, 1);
        assert_eq!(Store::open(disk).expect("the error is gone").0.last_commit().epoch, epoch);
    }
    // The newest copy itself, and the place where an update after it would begin.
    assert_eq!(refused, 2, "the other two are what copies are for");
}

#[test]
fn a_full_disk_refuses_a_region_and_the_store_goes_on() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    disk.set_space_left(0);
    let error = store.create_region(NewRegion { name: "big".into(), ..new_region(100_000) });
    assert!(matches!(error, Err(StoreError::NoSpace { .. })));
    assert!(matches!(store.set_budget(1_000_000), Err(StoreError::NoSpace { .. })));
    append(&mut store, region, &[1], 2);
    store.commit(CommitKind::Checkpoint).expect("nothing was harmed");
}

#[test]
fn a_full_disk_refuses_a_new_store() {
    let disk = MemoryDisk::new(1);
    disk.set_space_left(1 << 20);
    let error = Store::create(disk, &mut create_options(1)).expect_err("no space");
    assert!(matches!(error, CreateError::Grow { .. }));
}

#[test]
fn a_flipped_bit_in_a_page_is_never_handed_out() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    let mut random = Random::new(1);
    let mut bytes = [0; 4096];
    for _ in 0..2_000 {
        let page = PageId { region, page: random.below(40) as u32 };
        let slot = store.slot_of(page).expect("stored");
        let offset = (4 << 20) + u64::from(slot) * 4096 + random.below(4096);
        let bit = random.below(8) as u32;
        disk.flip_bit(offset, bit);
        let read = store.read_page_blocking(page, &mut bytes);
        assert!(matches!(read, Err(ReadError::Damaged { page: named, .. }) if named == page));
        let report = store.check(&mut |_, _| {}).expect("readable");
        assert_eq!(report.damaged.len(), 1);
        disk.flip_bit(offset, bit);
    }
}

/// Every bit of every summary of the image: the open is refused, or the image is whole.
#[test]
fn a_flipped_bit_in_a_summary_refuses_the_open_and_changes_nothing() {
    let disk = MemoryDisk::new(1);
    let (store, region) = small_store(&disk);
    // The first batch of the log; 10 entries or so: flip its header and its first entries.
    let position = store.slot_of(PageId { region, page: 0 }).expect("stored") - 1;
    drop(store);
    let start = (4 << 20) + u64::from(position) * 4096;
    for bit in 0..8 * 96 {
        disk.flip_bit(start + bit / 8, bit as u32 % 8);
        let before = disk.requests();
        let error = Store::open_scanned(disk.clone()).expect_err("part of the image is lost");
        let OpenError::Incomplete { recovery, .. } = &error else { panic!("{error}") };
        assert!(!recovery.lost.is_empty());
        assert!(error.to_string().contains("wattkeep check"));
        assert!(disk.requests() > before);
        disk.flip_bit(start + bit / 8, bit as u32 % 8);
    }
    let (_, recovery) = Store::open(disk).expect("nothing was changed");
    assert!(recovery.clean);
}

#[test]
fn an_accepted_loss_is_listed_and_then_committed() {
    let disk = MemoryDisk::new(1);
    let (store, region) = small_store(&disk);
    let position = store.slot_of(PageId { region, page: 0 }).expect("stored") - 1;
    drop(store);
    disk.flip_bit((4 << 20) + u64::from(position) * 4096, 0);
    let (store, recovery) = Store::open_incomplete(disk.clone()).expect("accepted");
    assert_eq!(recovery.lost.len(), 1);
    assert!(recovery.lost[0].found < recovery.lost[0].committed);
    let left = store.stored_pages(region).count();
    assert_eq!(left, recovery.lost[0].found as usize);
    drop(store);
    let (store, _) = Store::open(disk).expect("what was found is the commit now");
    assert_eq!(store.stored_pages(region).count(), left);
}

#[test]
fn one_superblock_copy_is_enough_and_none_is_refused() {
    let disk = MemoryDisk::new(1);
    drop(small_store(&disk));
    for copy in 0..4u64 {
        let one = disk.after_cut(Cut::KeepAll, copy);
        for other in (0..4u64).filter(|&other| other != copy) {
            one.flip_bit((other << 20) + 2000, 3);
        }
        match Store::open(one) {
            Ok((_, recovery)) => assert_eq!(recovery.superblock_copies_valid, 1),
            // An old copy names an older commit: the log is newer, and says so.
            Err(error) => {
                assert!(matches!(error, OpenError::SuperblockOutdated { .. } | OpenError::Incomplete { .. }))
            }
        }
        one_is_left(&disk, copy);
    }
    for copy in 0..4u64 {
        disk.flip_bit((copy << 20) + 2000, 3);
    }
    assert!(matches!(Store::open(disk), Err(OpenError::SuperblockDamaged { .. })));
}

fn one_is_left(disk: &MemoryDisk, copy: u64) {
    let one = disk.after_cut(Cut::KeepAll, copy);
    one.flip_bit((copy << 20) + 2000, 3);
    let (_, recovery) = Store::open(one).expect("three copies are left");
    assert_eq!(recovery.superblock_copies_valid, 3);
}

#[test]
fn a_blank_and_a_foreign_file_are_told_apart() {
    let mut disk = MemoryDisk::new(1);
    wattkeep_store::disk::Disk::grow(&mut disk, 0, 8 << 20, &mut |_, _| {}).expect("space");
    let error = Store::open(disk.clone()).expect_err("blank");
    assert!(matches!(error, OpenError::NeverCreated { .. }));
    disk.flip_bit(0, 0);
    let error = Store::open(disk).expect_err("foreign");
    assert!(matches!(error, OpenError::Foreign { .. }));
}

#[test]
fn a_read_only_open_writes_nothing() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    append(&mut store, region, &[1, 2, 3], 2);
    drop(store);
    // Another handle would still see the first opening's requests in flight.
    let disk = disk.after_cut(Cut::KeepAll, 1);
    let image = |disk: &MemoryDisk| disk.peek(0, 8 << 20);
    let before = image(&disk);
    let (mut store, recovery) = Store::open_read_only(disk.clone()).expect("a good store");
    assert!(!recovery.clean);
    assert!(matches!(store.begin(Purpose::Save, 1), Err(StoreError::ReadOnly { .. })));
    assert!(store.commit(CommitKind::Close).is_err());
    assert!(store.check(&mut |_, _| {}).expect("readable").damaged.is_empty());
    assert_eq!(image(&disk), before);
}

#[test]
fn a_forgotten_page_forbids_the_commit_until_it_is_written() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    append(&mut store, region, &[5], 2);
    let page = PageId { region, page: 5 };
    while store.is_committed(page) {
        store.poll(Wait::One, &mut Vec::new()).expect("a good store");
    }
    assert!(store.forget_latest(page));
    assert!(!store.forget_latest(page));
    assert_eq!(store.stored_checksum(page), None);
    let refused = store.commit(CommitKind::Checkpoint);
    assert_eq!(refused, Err(StoreError::PagesForgotten { pages: 1 }));
    append(&mut store, region, &[5], 3);
    store.commit(CommitKind::Checkpoint).expect("it was written");
}

#[test]
fn a_save_always_fits_its_reserve() {
    for seed in 0..200 {
        let mut model = Model::new(seed);
        // Fill the log with whatever writeback and cleaning may take.
        for _ in 0..200 {
            model.step().expect("no fault");
        }
        model.commit(CommitKind::Checkpoint, Purpose::Checkpoint).expect("no fault");
        let region = *model.memory.regions.keys().next().expect("there is one");
        let store = model.store();
        store.resize_region(RegionId(region), 60).expect("space");
        fill_until_refused(store, RegionId(region));
        clean_until_refused(store, RegionId(region));
        let mut left = BUDGET as usize;
        while left > 0 {
            match store.begin(Purpose::Save, left).expect("a good store") {
                Begin::Batch(mut batch) => {
                    for _ in 0..batch.room().min(left) {
                        left -= 1;
                        let page = PageId { region: RegionId(region), page: left as u32 };
                        let bytes = content(page, 100);
                        *batch.next_page() = bytes;
                        batch.push(page, store.hash(&bytes), 0);
                    }
                    store.submit(batch);
                }
                Begin::Busy => store.poll(Wait::One, &mut Vec::new()).expect("a good store"),
                Begin::NoSpace => panic!("seed {seed}: a save did not fit"),
            }
        }
        store.commit(CommitKind::Save).expect("a good store");
    }
}

/// One page of its own in each segment, and one page again and again: the emptiest full store.
fn fill_until_refused(store: &mut Store<MemoryDisk>, region: RegionId) {
    for own in 1..60 {
        let mut batch = loop {
            match store.begin(Purpose::Writeback, SEGMENT_PAGES as usize).expect("a good store") {
                Begin::Batch(batch) => break batch,
                Begin::Busy => store.poll(Wait::One, &mut Vec::new()).expect("a good store"),
                Begin::NoSpace => return,
            }
        };
        for number in 0..batch.room() {
            let page = PageId { region, page: if number == 0 { own } else { 0 } };
            let bytes = content(page, 99);
            *batch.next_page() = bytes;
            batch.push(page, store.hash(&bytes), 0);
        }
        store.submit(batch);
    }
    panic!("the store is larger than its pages can hold open");
}

/// Cleaning takes what it may, without waiting for what it frees.
fn clean_until_refused(store: &mut Store<MemoryDisk>, region: RegionId) {
    for _ in 0..50 {
        // A page in flight cannot be cleaned.
        store.poll(Wait::One, &mut Vec::new()).expect("a good store");
    }
    for first in (0..120).step_by(15) {
        match store.begin_cleaning(false).expect("a good store") {
            Begin::Batch(mut batch) => {
                for page in (first..first + batch.room() as u32).map(|page| page % 7) {
                    let page = PageId { region, page };
                    let bytes = content(page, 99);
                    *batch.next_page() = bytes;
                    batch.push(page, store.hash(&bytes), 0);
                }
                store.submit(batch);
            }
            Begin::NoSpace | Begin::Busy => break,
        }
    }
    let status = store.status();
    assert!(status.free >= status.save_reserve_segments, "{status:?}");
}

#[test]
fn an_older_version_is_never_taken_for_the_committed_one() {
    let disk = MemoryDisk::new(1);
    let (mut store, region) = small_store(&disk);
    append(&mut store, region, &[3], 2);
    store.commit(CommitKind::Close).expect("no fault");
    let page = PageId { region, page: 3 };
    let position = store.slot_of(page).expect("stored") - 1;
    drop(store);
    disk.flip_bit((4 << 20) + u64::from(position) * 4096 + 20, 1);
    // The version of the commit before is still in the log: the count is right, the hash is not.
    let Err(OpenError::Incomplete { recovery, .. }) = Store::open_scanned(disk) else {
        panic!("an older version passed")
    };
    assert_eq!(recovery.lost[0].found, recovery.lost[0].committed);
    assert_eq!(recovery.damaged_batches, [position]);
    assert!(recovery.lost[0].proven && recovery.lost[0].missing.is_empty());
    assert_eq!(recovery.lost[0].older.ranges(), [3..=3]);
}

/// What the image holds of each page of the region.
fn image(store: &Store<MemoryDisk>, region: RegionId) -> Vec<Option<Checksum>> {
    (0..60).map(|page| store.stored_checksum(PageId { region, page })).collect()
}

fn numbers(ranges: &PageRanges) -> Vec<u32> {
    ranges.ranges().iter().cloned().flatten().collect()
}

/// Histories by chance, then bits flipped in up to three summaries: whatever can be named is what was lost,
/// whatever was lost is named or suspected, and a loss that is called proven is the whole one.
#[test]
fn an_accepted_loss_names_its_pages_and_no_others() {
    let (mut refused, mut proven, mut suspected, mut older) = (0, 0, 0, 0);
    for seed in 0..600 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(seed);
        let (mut store, region) = small_store(&disk);
        for version in 2..2 + random.below(12) {
            let first = random.below(56) as u32;
            let pages: Vec<_> = (first..first + 1 + random.below(4) as u32).collect();
            append(&mut store, region, &pages, version);
            if random.chance(1, 3) {
                store.commit(CommitKind::Checkpoint).expect("no fault");
            }
        }
        store.commit(CommitKind::Close).expect("no fault");
        let whole = image(&store, region);
        let slots: Vec<_> = (0..60).filter_map(|page| store.slot_of(PageId { region, page })).collect();
        drop(store);
        for _ in 0..1 + random.below(3) {
            // The page before a run of data is its summary, or else a page of data, which is no matter here.
            let slot = slots[random.below(slots.len() as u64) as usize] - 1;
            let bit = if random.chance(1, 3) { 0 } else { random.below(8 * 300) };
            disk.flip_bit((4 << 20) + u64::from(slot) * 4096 + bit / 8, bit as u32 % 8);
        }
        let Err(OpenError::Incomplete { recovery, .. }) = Store::open_scanned(disk.clone()) else { continue };
        let (store, accepted) = Store::open_incomplete(disk.clone()).expect("accepted");
        assert_eq!(recovery.lost, accepted.lost, "refused and accepted with the same names");
        let left = image(&store, region);
        let lost = &recovery.lost[0];
        let (missing, suspects) = (numbers(&lost.missing), numbers(&lost.suspects));
        let gone = |page: &u32| left[*page as usize].is_none() && whole[*page as usize].is_some();
        let changed =
            |page: &u32| left[*page as usize].is_some() && left[*page as usize] != whole[*page as usize];
        assert!(missing.iter().all(gone), "{lost:?}");
        assert!(
            (0..60).filter(gone).all(|page| missing.contains(&page) || suspects.contains(&page)),
            "{lost:?}"
        );
        if lost.proven {
            assert!((0..60).filter(gone).eq(missing) && suspects.is_empty(), "{lost:?}");
            assert!((0..60).filter(changed).eq(numbers(&lost.older)), "{lost:?}");
        }
        refused += 1;
        proven += u32::from(lost.proven);
        suspected += u32::from(!lost.suspects.is_empty());
        older += u32::from(!lost.older.is_empty());
        drop(store);
        assert_eq!(image(&Store::open(disk).expect("good again").0, region), left);
    }
    println!("{refused} refused, {proven} proven, {suspected} with suspects, {older} with older versions");
    assert!(refused > 100 && proven > 40 && suspected > 10 && older > 20);
}
