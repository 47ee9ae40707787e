//! Stores that hazard pointers announce, beside a keeper that cleans, cuts and saves.
#![allow(missing_docs)]

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{PAGE, Random, get, in_time, options, put, put_announced};
use wattkeep::{Region, RegionOptions, Store};

const PAGES: usize = 64;
/// Words of a page: each thread has one.
const WORDS: usize = PAGE / 8;

fn region(store: &Store) -> Region {
    store.region("a", RegionOptions::explicit().create((PAGES * PAGE) as u64)).expect("a region")
}

/// Stores rising values to its word of pages drawn by chance, and knows the last of each page.
fn overwrite(region: &Region, thread: usize, stores: u64) -> Vec<u64> {
    let (mut random, mut last) = (Random(thread as u64 + 1), vec![0; PAGES]);
    for value in 1..=stores {
        let page = random.below(PAGES);
        // Most stores find their page dirty.
        for value in [2 * value, 2 * value + 1] {
            put_announced(region, page, thread, value);
            last[page] = value;
        }
    }
    last
}

/// A store that was made while the keeper took its page for untouched would be in memory, and never in the
/// store.
#[test]
fn stores_of_many_threads_under_a_small_budget_all_come_back() {
    for (threads, stores, budget) in [(4, 20_000, "8"), (300, 100, "16"), (3, 3_000, "1")] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().budget(budget).open(directory.path()).expect("opens");
        let kept = region(&store);
        let done = AtomicBool::new(false);
        let together = Barrier::new(threads);
        let expected: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (kept, together) = (&kept, &together);
                    scope.spawn(move || {
                        together.wait();
                        overwrite(kept, thread % WORDS, stores)
                    })
                })
                .collect();
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    // Gives up where it falls upon a store that is not done: not here, for long.
                    store.checkpoint().expect("a checkpoint");
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let expected = writers.into_iter().map(|writer| writer.join().expect("it stores")).collect();
            done.store(true, Ordering::SeqCst);
            expected
        });
        let status = store.status().expect("a status");
        assert!(status.max_dirty_pages <= budget.parse().expect("a number"), "{status:?}");
        drop(kept);
        store.close().expect("closes");
        let store = options().open(directory.path()).expect("opens again");
        let kept = region(&store);
        for (thread, last) in expected.iter().enumerate() {
            for (page, value) in last.iter().enumerate() {
                assert_eq!(
                    get(&kept, page, thread),
                    *value,
                    "page {page} of thread {thread}, budget {budget}"
                );
            }
        }
    }
}

/// A page that a thread holds announced is passed over; all others are cleaned for whoever needs a permit, and
/// that one, too, once it is let go.
#[test]
fn a_page_that_is_held_announced_is_not_cleaned_and_keeps_nobody_else_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("2").open(directory.path()).expect("opens");
    let kept = region(&store);
    (0..3).for_each(|value| put_announced(&kept, 0, 0, value));
    let held = kept.will_write(0, 8).expect("an announcement");
    // By another thread: this one is amid a store.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..3 * PAGES).for_each(|turn| put_announced(&kept, 1 + turn % (PAGES - 1), 0, 7)));
    });
    put(&kept, 0, 0, 41);
    assert!(store.status().expect("a status").dirty_pages >= 1, "the page that is held is dirty");
    drop(held);
    drop(kept);
    store.close().expect("closes");
    let store = options().open(directory.path()).expect("opens again");
    assert_eq!(get(&region(&store), 0, 0), 41);
}

/// With one permit, which the held page has, another page waits until that is let go. Nobody rings then.
#[test]
fn who_waits_for_a_page_that_is_held_goes_on_when_it_is_let_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("1").open(directory.path()).expect("opens");
    let kept = std::sync::Arc::new(region(&store));
    for round in 0..20 {
        (0..2).for_each(|value| put_announced(&kept, 0, 0, value));
        let held = kept.will_write(0, 8).expect("an announcement");
        let (others, waits) = (kept.clone(), std::sync::Arc::new(AtomicBool::new(true)));
        let waiting = waits.clone();
        let writer = std::thread::spawn(move || {
            put_announced(&others, 1, 0, round);
            waiting.store(false, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(2));
        assert!(waits.load(Ordering::SeqCst), "a second page became dirty with one permit");
        drop(held);
        let joined = in_time(Duration::from_secs(5), move || writer.join().expect("it stores"));
        assert!(joined.is_some(), "round {round}: the writer still waits");
        assert_eq!(get(&kept, 1, 0), round);
    }
}

/// A forked child has its parent's thread, and its number: what it stores is its own, and no slot of its parent's
/// tells of it.
#[test]
fn a_forked_child_announces_nothing_for_its_parent() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("8").open(directory.path()).expect("opens");
    let kept = region(&store);
    (0..2).for_each(|value| put_announced(&kept, 0, 0, value));
    let mut held = Some(kept.will_write(0, 8).expect("an announcement"));
    let refused = common::in_forked_child(|| {
        // The handle of its parent: ended in the child, it says nothing there.
        drop(held.take());
        kept.will_write(0, 8).is_err() && kept.will_write(PAGE, 8).is_err()
    });
    assert!(refused, "a child stored to its parent's region");
    assert_eq!(store.session().control().hazards.glance().len(), 1, "the parent's announcement is gone");
}

/// A handle that is forgotten holds its page, as long as its region is open. It was held for as long as the program
/// ran: a region that was opened again has the same address.
#[test]
fn an_announcement_that_is_forgotten_ends_with_its_region() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("1").open(directory.path()).expect("opens");
    let kept = region(&store);
    (0..2).for_each(|value| put_announced(&kept, 0, 0, value));
    std::mem::forget(kept.will_write(0, 8).expect("an announcement"));
    drop(kept);
    assert!(store.session().control().hazards.glance().is_empty(), "somebody is amid a store to nothing");
    let kept = std::sync::Arc::new(region(&store));
    put_announced(&kept, 0, 0, 2);
    let others = kept.clone();
    let stored = in_time(Duration::from_secs(5), move || put_announced(&others, 1, 0, 3));
    assert!(stored.is_some(), "the page of the forgotten announcement is never cleaned");
}
