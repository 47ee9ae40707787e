//! Tests of the restore: what a turn fills, and what the SSD does meanwhile.

use wattkeep_sim::disk::MemoryDisk;
use wattkeep_store::disk::Wait;
use wattkeep_store::types::PageId;
use wattkeep_store::{Begin, CommitKind, CreateOptions, NewRegion, Purpose, RegionMode, Store};

use super::engine::Keeper;
use super::notices::ClientLine;
use crate::clock::{Clock, SimulatedClock};
use crate::control::block::Control;
use crate::control::page_word::State;
use crate::limits::{ADDRESS_BASE, PAGE_SIZE, RESTORE_READ_PAGES};
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

/// A keeper whose program has just opened the region.
fn restoring(store: Store<MemoryDisk>) -> Keeper<MemoryDisk> {
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
    let request = RegionRequest {
        name: "table".into(),
        create_bytes: None,
        tracking: Tracking::Transparent,
        reserve_bytes: 0,
    };
    keeper.open_region(&request).expect("a region");
    keeper.attach(0, None).expect("memory that can be sealed");
    keeper
}

/// Every page is there as it was stored.
fn check(keeper: &Keeper<MemoryDisk>) {
    let region = &keeper.regions[0];
    assert_eq!(region.absent, 0);
    let mut found = [0; PAGE_SIZE];
    for page in 0..region.pages {
        assert_eq!(region.word(page).load().state(), State::Clean, "page {page}");
        region.memory().copy_page(page, &mut found);
        assert!(found == content(page), "page {page} came back differently");
    }
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
