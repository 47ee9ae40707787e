//! Long histories: the log is compacted under way, by one thread and by several.

mod common;

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex};

use common::{heap, reopened, small, space};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use wattkeep_heap::{Heap, HeapError};

const SEED: u64 = 20;
const ROUNDS: usize = if cfg!(miri) { 500 } else { 300_000 };
const LIVE: usize = if cfg!(miri) { 20 } else { 5_000 };
/// So many that the log is long, and records are excluded by others.
const MANY: usize = 4 * LIVE;

fn churn(heap: &Heap, seed: u64, rounds: usize, many: usize) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut live: Vec<u64> = (0..many).map(|_| heap.alloc(64).expect("room")).collect();
    for round in 0..rounds {
        let number = random.next_u64();
        let slot = &mut live[(number >> 32) as usize % many];
        heap.free(*slot).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        *slot = heap.alloc([16, 64, 100, 1000][number as usize % 4]).expect("room");
    }
    live
}

fn assert_same(heap: &Heap, live: &[u64]) {
    let apart: BTreeSet<u64> = live.iter().copied().collect();
    assert_eq!(apart.len(), live.len(), "an object was given out twice");
    for at in live {
        assert!(heap.is_allocated(*at), "{at:#x} is gone");
        heap.free(*at).expect("an object");
    }
}

/// A free looked where the record was, then made room for its own, which compacted the log: the record had
/// moved, its old segment was the thread's new one, and a live object was reported as freed twice.
#[test]
fn what_is_moved_while_a_free_makes_room_is_found() {
    let heap = heap(32 << 20);
    // Without the fix it happens in round 583,842.
    let live = churn(&heap, SEED, 10 * ROUNDS, MANY);
    let again = reopened(&heap);
    assert_same(&again, &live);
    assert_same(&heap, &live);
}

/// A segment that compaction left with one slot, too few for a header and a record, was sealed as if it were
/// full. Two passes later what had stood in that slot was a record again, behind a gap: the heap was refused,
/// or an object seemed to be freed twice.
#[test]
fn threads_that_share_a_heap_never_share_an_object() {
    let heap = heap(64 << 20);
    let (barrier, shared) = (Barrier::new(3), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (heap, barrier, shared) = (&heap, &barrier, &shared);
            scope.spawn(move || {
                barrier.wait();
                let mut live = churn(heap, SEED + thread, ROUNDS / 3, LIVE);
                // Half of them are freed by whoever comes next.
                let given: Vec<u64> = live.drain(..LIVE / 2).collect();
                let taken = std::mem::replace(&mut *shared.lock().expect("no panic"), given);
                taken.into_iter().for_each(|at| heap.free(at).expect("an object of another thread"));
                barrier.wait();
                shared.lock().expect("no panic").extend(live);
            });
        }
    });
    let live = shared.into_inner().expect("no panic");
    assert_same(&reopened(&heap), &live);
}

/// A freed object keeps the slot of its record while a thread has it at hand. Another thread that fills the gaps
/// of that segment leaves the slot alone: else one of two objects would be gone after a restart.
#[test]
fn a_slot_that_a_freed_object_keeps_is_not_filled() {
    const SEGMENT: usize = 504;
    let heap = heap(16 << 20);
    let mut live: Vec<u64> = (0..4 * SEGMENT).map(|_| heap.alloc(64).expect("room")).collect();
    // The first of them go back to all threads, and the last ones stay with this one.
    live.drain(..SEGMENT * 3 / 4).for_each(|at| heap.free(at).expect("an object"));
    std::thread::scope(|scope| {
        let others = scope.spawn(|| (0..SEGMENT).map(|_| heap.alloc(64).expect("room")).collect::<Vec<_>>());
        live.extend(others.join().expect("no panic"));
    });
    live.extend((0..SEGMENT / 2).map(|_| heap.alloc(64).expect("room")));
    assert!(heap.check(None).expect("readable").is_clean());
    assert_same(&reopened(&heap), &live);
    assert_same(&heap, &live);
}

/// Objects that many threads free at once: each is freed by one of them, the others are told.
#[test]
fn of_threads_that_free_an_object_one_does() {
    const OBJECTS: usize = if cfg!(miri) { 50 } else { 20_000 };
    for many in [OBJECTS / 20, OBJECTS] {
        let heap = heap(16 << 20);
        let objects: Vec<u64> = (0..many).map(|_| heap.alloc(64).expect("room")).collect();
        let barrier = Barrier::new(3);
        let freed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let free = |at: &&u64| match heap.free(**at) {
                            Ok(()) => true,
                            Err(HeapError::DoubleFree { .. }) => false,
                            Err(error) => panic!("{error}"),
                        };
                        objects.iter().filter(free).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(freed, many);
        let report = heap.check(None).expect("readable");
        assert!(report.is_clean() && report.objects == 0, "{report}");
    }
}

#[test]
fn a_full_heap_says_so_and_goes_on_when_something_is_freed() {
    let heap = Heap::create(space(1 << 20), &small()).expect("room for a heap");
    let mut live = Vec::new();
    let full = loop {
        match heap.alloc(48) {
            Ok(at) => live.push(at),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, HeapError::OutOfSpace { .. }), "{full}");
    assert!(live.len() * 64 > 700 << 10, "{} objects fill a heap of 1 MiB", live.len());
    for at in live.drain(..).rev() {
        heap.free(at).expect("freeing needs no room");
    }
    let (free, longest) = heap.free_bytes();
    let large =
        heap.alloc(300 << 10).unwrap_or_else(|error| panic!("{error}; {free} free, {longest} in a row"));
    heap.free(large).expect("an object");
    let again = reopened(&heap);
    again.alloc(300 << 10).expect("room after a restart, too");
}

#[test]
fn a_heap_grows_no_longer_by_churning() {
    let heap = heap(32 << 20);
    churn(&heap, SEED, ROUNDS / 3, LIVE).into_iter().for_each(|at| heap.free(at).expect("an object"));
    let before = heap.free_bytes();
    for seed in 0..3 {
        churn(&heap, seed, ROUNDS / 3, LIVE).into_iter().for_each(|at| heap.free(at).expect("an object"));
    }
    let after = heap.free_bytes();
    assert!(before.0 - after.0 <= 2 << 20, "{before:?} bytes free, then {after:?}");
}
