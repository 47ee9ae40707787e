//! Tests of the restore: what a turn fills, what the SSD does meanwhile, and what a second thread may.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::ThreadId;

use rustix::io::{Errno, Result};
use wattkeep_sim::disk::MemoryDisk;
use wattkeep_store::disk::Wait;
use wattkeep_store::limits::SEGMENTS_START;
use wattkeep_store::types::PageId;
use wattkeep_store::{Begin, CommitKind, CreateOptions, NewRegion, Purpose, RegionMode, Store};

use super::engine::Keeper;
use super::notices::ClientLine;
use super::pages::RegionMemory;
use crate::clock::{Clock, SimulatedClock};
use crate::control::block::Control;
use crate::control::page_word::State;
use crate::limits::{ADDRESS_BASE, PAGE_SIZE, RESTORE_READ_PAGES};
use crate::page_table::{PageTable, TwinPageTable};
use crate::protocol::{RegionRequest, SessionOptions};
use crate::types::{FaultMode, PolicyName, Tracking};

/// What is stored in a page.
fn content(page: u32) -> [u8; PAGE_SIZE] {
    let mut bytes = [page as u8; PAGE_SIZE];
    bytes[..4].copy_from_slice(&page.to_le_bytes());
    bytes
}

/// A store with one transparent region, every page of it written, in order.
fn store_of(pages: u32, seed: u64) -> Store<MemoryDisk> {
    let mut store = Store::create(MemoryDisk::new(seed), &mut CreateOptions::default()).expect("no fault");
    let new = NewRegion {
        name: "table".into(),
        mode: RegionMode::Transparent,
        pages,
        reserve_pages: pages,
        address: ADDRESS_BASE,
    };
    let region = store.create_region(new).expect("a region");
    let mut next = 0;
    while next < pages {
        let begun = store.begin(Purpose::Writeback, (pages - next) as usize).expect("a good store");
        let Begin::Batch(mut batch) = begun else {
            store.poll(Wait::One, &mut Vec::new()).expect("a good store");
            continue;
        };
        while next < pages && batch.room() > 0 {
            batch.next_page().copy_from_slice(&content(next));
            batch.push(PageId { region, page: next }, store.hash(&content(next)), 0);
            next += 1;
        }
        store.submit(batch);
    }
    store.commit(CommitKind::Close).expect("a good store");
    store
}

/// The client's page table, and the memory behind it.
struct Table {
    memory: RegionMemory,
    inner: Mutex<Filled>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Filled {
    pages: BTreeSet<u32>,
    /// Pages that were there before, and are not in `pages`.
    present: Range<u32>,
    protected: u32,
    /// Pages filled by others than the thread that turns the keeper.
    by_others: usize,
    /// Other threads wait in their calls while this is set.
    held_up: bool,
    /// Threads that wait so.
    waiting: usize,
    /// From so many pages on the mapping is gone.
    gone_after: Option<usize>,
}

impl Table {
    fn inner(&self) -> MutexGuard<'_, Filled> {
        self.inner.lock().expect("no test thread panics in here")
    }

    fn release(&self) {
        self.inner().held_up = false;
        self.changed.notify_all();
    }
}

/// A page table, and the thread that turns the keeper over it.
struct Twin(Arc<Table>, ThreadId);

impl std::fmt::Debug for Twin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Twin")
    }
}

impl TwinPageTable for Twin {
    fn protect(&self, _: usize, len: usize, protect: bool) -> Result<()> {
        assert!(protect, "a restore opens no page");
        self.0.inner().protected += (len / PAGE_SIZE) as u32;
        Ok(())
    }

    fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> Result<usize> {
        assert!(protect, "the region is transparent");
        let mut inner = self.0.inner();
        let other = std::thread::current().id() != self.1;
        if other {
            inner.waiting += 1;
            inner = self.0.changed.wait_while(inner, |inner| inner.held_up).expect("as above");
            inner.waiting -= 1;
        }
        let first = ((start - ADDRESS_BASE as usize) / PAGE_SIZE) as u32;
        for (number, bytes) in bytes.chunks(PAGE_SIZE).enumerate() {
            let page = first + number as u32;
            let refused = if inner.gone_after.is_some_and(|pages| inner.pages.len() >= pages) {
                Some(Errno::NOENT)
            } else {
                (inner.present.contains(&page) || inner.pages.contains(&page)).then_some(Errno::EXIST)
            };
            match refused {
                Some(errno) if number == 0 => return Err(errno),
                Some(_) => return Ok(number * PAGE_SIZE),
                None => {}
            }
            inner.by_others += usize::from(other);
            inner.pages.insert(page);
            self.0.memory.store(page, bytes).expect("its own memory");
        }
        Ok(bytes.len())
    }
}

/// A keeper whose program has just opened the region, without a page table.
fn restoring(store: Store<MemoryDisk>) -> Keeper<MemoryDisk> {
    let mut keeper = keeper_of(store);
    keeper.attach(0, None).expect("memory that can be sealed");
    keeper
}

/// A keeper whose program asked for the region.
fn keeper_of(store: Store<MemoryDisk>) -> Keeper<MemoryDisk> {
    let options = SessionOptions {
        create_if_missing: false,
        budget: None,
        policy: PolicyName::Fifo,
        checkpoint_interval_ms: 0,
        quiesce_ms: 0,
        fault_mode: FaultMode::Signal,
        fault_mode_reason: String::new(),
        fill_ahead: false,
    };
    let (control, _) = Control::create().expect("memory");
    let budget = "10%".parse().expect("a budget");
    let clock = Clock::Simulated(SimulatedClock::new());
    let mut keeper = Keeper::new(store, control, ClientLine::default(), options, budget, clock);
    open(&mut keeper);
    keeper
}

fn open(keeper: &mut Keeper<MemoryDisk>) {
    let request = RegionRequest {
        name: "table".into(),
        create_bytes: None,
        tracking: Tracking::Transparent,
        reserve_bytes: 0,
    };
    keeper.open_region(&request).expect("a region");
}

fn attach(keeper: &mut Keeper<MemoryDisk>, table: Filled) -> Arc<Table> {
    let table = Arc::new(Table {
        memory: keeper.regions[0].memory().clone(),
        inner: Mutex::new(table),
        changed: Condvar::new(),
    });
    let twin = Arc::new(Twin(table.clone(), std::thread::current().id()));
    keeper.attach(0, Some(PageTable::Twin(twin))).expect("memory that can be sealed");
    table
}

/// Turns until nothing is left to be filled.
fn restore(keeper: &mut Keeper<MemoryDisk>) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while keeper.regions[0].absent > 0 || keeper.filling.pending() {
        keeper.turn().expect("a good store");
        assert!(std::time::Instant::now() < deadline, "the restore does not end");
    }
}

/// Every page was filled through the table, with what was stored, and is clean; those of `lost` are lost
/// instead.
fn check_table(keeper: &Keeper<MemoryDisk>, table: &Table, lost: &[u32]) {
    let (region, inner) = (&keeper.regions[0], table.inner());
    for page in 0..region.pages {
        let state = region.word(page).load().state();
        let wanted = if lost.contains(&page) { (State::Lost, false) } else { (State::Clean, true) };
        assert_eq!((state, inner.pages.contains(&page)), wanted, "page {page}");
        if state == State::Clean {
            check_page(keeper, page);
        }
    }
}

/// The page is there as it was stored.
fn check_page(keeper: &Keeper<MemoryDisk>, page: u32) {
    let region = &keeper.regions[0];
    assert_eq!(region.word(page).load().state(), State::Clean, "page {page}");
    let mut found = [0; PAGE_SIZE];
    region.memory().copy_page(page, &mut found);
    assert!(found == content(page), "page {page} came back differently");
}

/// Every page is there as it was stored.
fn check(keeper: &Keeper<MemoryDisk>) {
    assert_eq!(keeper.regions[0].absent, 0);
    (0..keeper.regions[0].pages).for_each(|page| check_page(keeper, page));
}

/// The keeper filled the pages of every read that had ended before it submitted the next ones: the SSD
/// stood still meanwhile, half of the time of a restore.
#[test]
fn the_ssd_reads_on_while_pages_are_filled() {
    let pages = 40 * RESTORE_READ_PAGES;
    for seed in 1..4 {
        println!("seed {seed}");
        let mut keeper = restoring(store_of(pages, seed));
        for turn in 0.. {
            assert!(turn < 100_000, "the restore does not end");
            let before = keeper.regions[0].absent;
            keeper.turn().expect("a good store");
            let filled = before - keeper.regions[0].absent;
            assert!(filled <= RESTORE_READ_PAGES, "turn {turn} filled {filled} pages");
            if keeper.regions[0].absent == 0 {
                break;
            }
        }
        check(&keeper);
    }
}

#[test]
fn a_second_thread_fills_pages_and_the_keeper_settles_them() {
    for seed in 1..4 {
        println!("seed {seed}");
        let mut keeper = keeper_of(store_of(40 * RESTORE_READ_PAGES, seed));
        let table = attach(&mut keeper, Filled::default());
        restore(&mut keeper);
        check_table(&keeper, &table, &[]);
        assert!(table.inner().by_others > 0, "the second thread filled nothing");
    }
}

#[test]
fn a_second_thread_hands_out_no_damaged_page() {
    let damaged = [0, 700, 701, 2000, 5000, 5255];
    for seed in 1..9 {
        println!("seed {seed}");
        let mut keeper = keeper_of(store_of(40 * RESTORE_READ_PAGES, seed));
        for page in damaged {
            let slot = keeper.store.slot_of(keeper.regions[0].page_id(page)).expect("it is stored");
            let offset = SEGMENTS_START + u64::from(slot) * PAGE_SIZE as u64;
            keeper.store.disk().flip_bit(offset + u64::from(page) % 4096, 3);
        }
        let table = attach(&mut keeper, Filled::default());
        restore(&mut keeper);
        check_table(&keeper, &table, &damaged);
        assert_eq!(keeper.counters.lost_pages, damaged.len() as u64);
        assert!(table.inner().by_others > 0, "the second thread filled nothing");
    }
}

#[test]
fn a_mapping_that_goes_while_it_is_filled_leaves_the_rest_to_plain_stores() {
    let pages = 40 * RESTORE_READ_PAGES;
    let mut keeper = keeper_of(store_of(pages, 1));
    let table = attach(&mut keeper, Filled { gone_after: Some(3000), ..Filled::default() });
    restore(&mut keeper);
    assert_eq!(table.inner().pages.len(), 3000);
    check(&keeper);
}

/// Somebody waited for a page that the second thread had: both filled it.
#[test]
fn a_page_that_is_there_already_counts_only_with_the_same_bytes() {
    for (good, seed) in [(true, 1), (false, 2)] {
        let mut keeper = keeper_of(store_of(40 * RESTORE_READ_PAGES, seed));
        let present = 300..310;
        for page in present.clone() {
            let bytes = if good || page != 305 { content(page) } else { [0; PAGE_SIZE] };
            let at = u64::from(page) * PAGE_SIZE as u64;
            rustix::io::pwrite(keeper.regions[0].descriptors()[0], &bytes, at).expect("not sealed");
        }
        let table = attach(&mut keeper, Filled { present: present.clone(), ..Filled::default() });
        if good {
            restore(&mut keeper);
            let inner = table.inner();
            let clean = (0..keeper.regions[0].pages)
                .all(|page| keeper.regions[0].word(page).load().state() == State::Clean);
            assert!(clean && inner.protected == 10, "{} pages protected", inner.protected);
        } else {
            let refused = (0..100_000).find_map(|_| keeper.turn().err());
            assert!(refused.is_some(), "a page with other bytes passes for a stored one");
            assert_ne!(keeper.regions[0].word(305).load().state(), State::Clean);
        }
    }
}

/// A region was closed amid its restore and opened again: its pages were sorted a second time, those that
/// were still to be read were twice in one read, and the keeper failed with EEXIST at the second.
#[test]
fn a_region_that_is_opened_again_amid_its_restore_is_filled_once() {
    let mut keeper = restoring(store_of(40 * RESTORE_READ_PAGES, 1));
    for _ in 0..8 {
        keeper.turn().expect("a good store");
    }
    assert!(keeper.regions[0].absent > 0, "the restore was over before the region was closed");
    keeper.detach(0).expect("a region");
    open(&mut keeper);
    keeper.attach(0, None).expect("memory that can be sealed");
    restore(&mut keeper);
    check(&keeper);
}

/// What the second thread fills of a region that is closed meanwhile is not in the one opened after it.
#[test]
fn pages_filled_for_a_region_that_was_closed_do_not_count_for_the_next() {
    let mut keeper = keeper_of(store_of(40 * RESTORE_READ_PAGES, 1));
    let old = attach(&mut keeper, Filled { held_up: true, ..Filled::default() });
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while old.inner().waiting == 0 {
        keeper.turn().expect("a good store");
        assert!(std::time::Instant::now() < deadline, "the second thread is given nothing");
    }
    keeper.detach(0).expect("a region");
    open(&mut keeper);
    old.release();
    let new = attach(&mut keeper, Filled::default());
    restore(&mut keeper);
    check_table(&keeper, &new, &[]);
}
