//! Promise 1: dirty + in-flight pages never exceed the dirty budget, at any instant, for any schedule
//! of threads, budget changes included. And what was stored is in the store: no page is written
//! untracked, no permit is lost.
#![allow(missing_docs)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{Random, get, options, pages, put, put_announced, within};
use wattkeep::{FaultMode, KeeperPlace, PolicyName, Region, RegionOptions, Store, Tracking};

const PAGES: usize = 300;
const POLICIES: [PolicyName; 4] =
    [PolicyName::Fifo, PolicyName::S3Fifo, PolicyName::SecondChance, PolicyName::LeastRecentlyUpdated];

/// Each writer has a slot of its own in every page, and remembers what it stored there.
struct Writer<'a> {
    region: &'a Region,
    slot: usize,
    random: Random,
    stored: Vec<u64>,
}

impl<'a> Writer<'a> {
    fn new(region: &'a Region, slot: usize, seed: u64) -> Self {
        let stored = (0..pages(region)).map(|page| get(region, page, slot)).collect();
        Self { region, slot, random: Random(seed), stored }
    }

    fn store_once(&mut self) {
        let page = self.random.below(self.stored.len());
        let value = self.random.next() | 1;
        match self.region.tracking() {
            Tracking::Transparent => put(self.region, page, self.slot, value),
            _ => put_announced(self.region, page, self.slot, value),
        }
        self.stored[page] = value;
    }

    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            (0..8).for_each(|_| self.store_once());
        }
    }

    fn check(&self, when: &str) {
        for (page, value) in self.stored.iter().enumerate() {
            assert_eq!(get(self.region, page, self.slot), *value, "slot {} of page {page} {when}", self.slot);
        }
    }
}

/// Samples the ledger until told to stop; `limit` is the highest budget that any permit may be from.
fn audit(store: &Store, stop: &AtomicBool, limit: &AtomicU32) -> u64 {
    let mut samples = 0;
    loop {
        // A budget may change beside the sample: the higher of both sides counts.
        let before = limit.load(Ordering::SeqCst);
        let held = store.session().control().ledger.0.permits().held;
        let limit = before.max(limit.load(Ordering::SeqCst));
        assert!(held <= limit, "{held} pages dirty, budget {limit}");
        samples += 1;
        if stop.load(Ordering::Relaxed) {
            return samples;
        }
        std::hint::spin_loop();
    }
}

fn open(directory: &std::path::Path, mode: FaultMode, policy: PolicyName, place: KeeperPlace) -> Store {
    options().fault_mode(mode).policy(policy).keeper(place).budget("50%").open(directory).expect("opens")
}

fn both_regions(store: &Store) -> [Region; 2] {
    let bytes = (PAGES * common::PAGE) as u64;
    [
        store.region("transparent", RegionOptions::transparent().create(bytes)).expect("a region"),
        store.region("explicit", RegionOptions::explicit().create(bytes)).expect("a region"),
    ]
}

/// `threads` writers on both regions for a moment with this budget; then everything is quiet and every
/// permit must come home.
fn round(store: &Store, regions: &[Region], threads: usize, budget: u32, seed: u64) {
    store.set_budget(&budget.to_string()).expect("a budget");
    let stop = AtomicBool::new(false);
    let limit = AtomicU32::new(u32::MAX);
    // What an earlier, larger budget left dirty drains first.
    let ledger = &store.session().control().ledger.0;
    assert!(within(Duration::from_secs(5), || ledger.permits().held <= budget), "{:?}", ledger.permits());
    limit.store(budget, Ordering::SeqCst);
    let mut writers: Vec<_> = (0..threads)
        .map(|thread| Writer::new(&regions[thread % regions.len()], thread, seed + thread as u64))
        .collect();
    std::thread::scope(|scope| {
        let auditor = scope.spawn(|| audit(store, &stop, &limit));
        let running: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(|| writer.run(&stop))).collect();
        std::thread::sleep(Duration::from_millis(30));
        stop.store(true, Ordering::Relaxed);
        running.into_iter().for_each(|writer| writer.join().expect("a writer"));
        assert!(auditor.join().expect("the auditor") > 0);
    });
    writers.iter().for_each(|writer| writer.check("in memory"));
    store.checkpoint().expect("a checkpoint");
    let permits = ledger.permits();
    assert_eq!(permits.held, 0, "permits lost with {threads} threads and {budget} pages");
}

fn matrix(mode: FaultMode, place: KeeperPlace) {
    for (number, policy) in POLICIES.into_iter().enumerate() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path(), mode, policy, place);
        let regions = both_regions(&store);
        for (threads, budget) in [(1, 1), (1, 2), (1, 100), (2, 7), (2, 2), (4, 1), (4, 7), (4, 64)] {
            round(&store, &regions, threads, budget, (number * 1000 + threads) as u64);
            if threads == 1 {
                round(&store, &regions[1..], threads, budget, (number * 2000 + threads) as u64);
            }
        }
        let before: Vec<_> = regions.iter().map(common::image).collect();
        drop(regions);
        store.close().expect("an orderly close");
        let store = open(directory.path(), mode, policy, place);
        let after: Vec<_> = both_regions(&store).iter().map(common::image).collect();
        assert!(before == after, "{mode} {policy:?}: the store differs from what was stored");
    }
}

#[test]
fn dirty_pages_stay_within_the_budget_in_signal_mode() {
    matrix(FaultMode::Signal, KeeperPlace::Process);
}

#[test]
fn dirty_pages_stay_within_the_budget_in_mprotect_mode() {
    matrix(FaultMode::Mprotect, KeeperPlace::Process);
}

#[test]
fn dirty_pages_stay_within_the_budget_in_monitor_mode() {
    matrix(FaultMode::Monitor, KeeperPlace::Process);
}

#[test]
fn dirty_pages_stay_within_the_budget_of_a_keeper_thread() {
    matrix(FaultMode::Signal, KeeperPlace::Thread);
}

/// Budgets go up and down while four threads write: no sample above the limits in force, and each
/// lowered limit is reached.
fn changing_budget(mode: FaultMode) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), mode, PolicyName::SecondChance, KeeperPlace::Process);
    let regions = both_regions(&store);
    let (stop, limit) = (AtomicBool::new(false), AtomicU32::new(300));
    let ledger = &store.session().control().ledger.0;
    std::thread::scope(|scope| {
        scope.spawn(|| audit(&store, &stop, &limit));
        for thread in 0..4 {
            let (regions, stop) = (&regions, &stop);
            scope.spawn(move || Writer::new(&regions[thread % 2], thread, thread as u64).run(stop));
        }
        let mut random = Random(42);
        let mut before = 300;
        for _ in 0..20 {
            let next = 1 + random.below(300) as u32;
            limit.store(before.max(next), Ordering::SeqCst);
            store.set_budget(&next.to_string()).expect("a budget");
            let drained = within(Duration::from_secs(5), || ledger.permits().held <= next);
            assert!(drained, "{mode}: from {before} to {next}: {:?}", ledger.permits());
            limit.store(next, Ordering::SeqCst);
            before = next;
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.checkpoint().expect("a checkpoint");
    assert_eq!(ledger.permits().held, 0);
}

#[test]
fn a_changing_budget_bounds_running_writers_in_signal_mode() {
    changing_budget(FaultMode::Signal);
}

#[test]
fn a_changing_budget_bounds_running_writers_in_mprotect_mode() {
    changing_budget(FaultMode::Mprotect);
}

#[test]
fn a_changing_budget_bounds_running_writers_in_monitor_mode() {
    changing_budget(FaultMode::Monitor);
}

/// The story: only faulting threads protect victims with mprotect; a program that went idle, or only
/// rewrites pages that are dirty already, never drained below a lowered budget.
#[test]
fn a_lowered_budget_drains_an_idle_program() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path(), mode, PolicyName::SecondChance, KeeperPlace::Process);
        let regions = both_regions(&store);
        (0..100).for_each(|page| put(&regions[0], page, 0, 7));
        store.set_budget("5").expect("a budget");
        let ledger = &store.session().control().ledger.0;
        let drained = within(Duration::from_secs(2), || ledger.permits().held <= 5);
        assert!(drained, "{mode}: {:?}", ledger.permits());
    }
}

/// The story: the keeper cleaned only what lay above `budget - pressure`. After seconds of idleness the
/// pressure is zero, a lowered budget drains to exactly its last page, and the next writer waited for a
/// permit that nobody was going to free.
#[test]
fn a_writer_after_a_long_pause_gets_a_permit() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), FaultMode::Signal, PolicyName::SecondChance, KeeperPlace::Process);
    let regions = both_regions(&store);
    (0..60).for_each(|page| put(&regions[0], page, 0, 7));
    let quiet = within(Duration::from_secs(20), || {
        std::thread::sleep(Duration::from_millis(100));
        store.status().expect("a status").pressure_pages == 0.0
    });
    assert!(quiet);
    store.set_budget("20").expect("a budget");
    let ledger = &store.session().control().ledger.0;
    assert!(within(Duration::from_secs(2), || ledger.permits().held <= 20), "{:?}", ledger.permits());
    let began = Instant::now();
    let (started, target) = (std::sync::mpsc::channel(), regions[0].as_ptr() as usize + 200 * common::PAGE);
    std::thread::spawn(move || {
        common::poke(target, 9);
        let _ = started.0.send(());
    });
    let stored = started.1.recv_timeout(Duration::from_secs(2)).is_ok();
    let permits = ledger.permits();
    if !stored {
        // The thread still uses the region.
        std::mem::forget(regions);
    }
    assert!(stored, "stalls: {permits:?}");
    assert!(began.elapsed() < Duration::from_millis(500));
}

/// The story: a thread that took more permits than pages gave the rest back without waking who slept
/// for them; with a budget of one page and many threads each race cost a tenth of a second.
#[test]
fn threads_that_race_for_the_last_permit_do_not_sleep_beside_a_free_one() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path(), mode, PolicyName::Fifo, KeeperPlace::Process);
        let regions = both_regions(&store);
        store.set_budget("1").expect("a budget");
        let began = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let regions = &regions;
                scope.spawn(move || (0..40).for_each(|page| put(&regions[0], page, thread, 1)));
            }
        });
        let spent = began.elapsed();
        // 120 stores, each at most one SSD write apart: far below one nap of 100 ms a store.
        assert!(spent < Duration::from_millis(40 * 100), "{mode}: {spent:?}");
    }
}
