//! Room that is there is given out, whichever thread has it at hand.

mod common;

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex};

use common::{heap, reopened};
use wattkeep_heap::{Heap, HeapError};

#[cfg(not(miri))]
const THREADS: usize = 4;
/// A size of each fourth class or so: their chunks lie in blocks of their own.
const SIZES: [u64; 8] = [16, 48, 100, 300, 700, 1500, 5000, 16000];

#[cfg(not(miri))] // which has no barriers on other threads
/// Runs `then` while threads wait that have each done `before`, and call the heap no more.
fn beside_idle_threads<T: Send>(threads: usize, before: impl Fn() + Sync, then: impl FnOnce() -> T) -> T {
    let (ready, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                before();
                ready.wait();
                end.wait();
            });
        }
        ready.wait();
        let answer = then();
        end.wait();
        answer
    })
}

#[cfg(not(miri))]
/// Objects of `bytes` until there is no room.
fn fill(heap: &Heap, bytes: u64) -> Vec<u64> {
    let mut objects = Vec::new();
    loop {
        match heap.alloc(bytes) {
            Ok(at) => objects.push(at),
            Err(HeapError::OutOfSpace { .. }) => return objects,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Each thread that had ever freed something kept some of it at hand for as long as it lived. A chunk keeps its
/// block of 64 KiB: with a few such threads, most of a small heap could be free, and was refused.
#[cfg(not(miri))]
#[test]
fn what_idle_threads_have_at_hand_is_given_out_before_room_is_refused() {
    let alone = fill(&heap(8 << 20), 200 << 10).len();
    let heap = heap(8 << 20);
    let touch = || {
        let objects: Vec<u64> = SIZES.iter().map(|bytes| heap.alloc(*bytes).expect("room")).collect();
        objects.into_iter().for_each(|at| heap.free(at).expect("an object"));
    };
    let beside = beside_idle_threads(THREADS, touch, || fill(&heap, 200 << 10).len());
    // The log and the last of the blocks differ by where they lie.
    assert!(beside * 10 >= alone * 9, "{beside} objects fit beside idle threads, and {alone} without");
}

/// The same for objects of the size that the idle threads have: their chunks are given out, not their blocks.
#[cfg(not(miri))]
#[test]
fn objects_that_idle_threads_freed_are_given_out_again() {
    const EACH: usize = 100;
    let heap = heap(4 << 20);
    let full = Mutex::new(fill(&heap, 64));
    let all = full.lock().expect("no panic").len();
    let free_some = || {
        let mut full = full.lock().expect("no panic");
        let from = full.len() - EACH;
        full.drain(from..).for_each(|at| heap.free(at).expect("an object"));
    };
    let again = beside_idle_threads(THREADS, free_some, || fill(&heap, 64));
    assert_eq!(again.len(), THREADS * EACH);
    full.lock().expect("no panic").extend(again);
    let live = full.into_inner().expect("no panic");
    assert_eq!(BTreeSet::from_iter(&live).len(), all, "an object was given out twice");
    let again = reopened(&heap);
    assert!(live.iter().all(|at| again.is_allocated(*at)));
}

/// Threads that are short of room empty the caches of threads that are amid calls: what one takes is gone for
/// the other, and nothing is given out twice. In a space so full, compaction had copied segments in which nearly
/// all records counted, until its own spares were used up, and panicked.
#[test]
fn threads_that_take_room_from_each_other_never_share_an_object() {
    const ROUNDS: usize = if cfg!(miri) { 3 } else { 60 };
    const ENOUGH: usize = if cfg!(miri) { 300 } else { 20_000 };
    let heap = heap(2 << 20);
    let given = Mutex::new(BTreeSet::new());
    let full = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (heap, given) = (&heap, &given);
                scope.spawn(move || {
                    let (mut mine, mut full) = (Vec::new(), 0);
                    for round in 0..ROUNDS {
                        let bytes = SIZES[(round + thread) % 4];
                        while mine.len() < ENOUGH {
                            match heap.alloc(bytes) {
                                Ok(at) => {
                                    let is_new = given.lock().expect("no panic").insert(at);
                                    assert!(is_new, "round {round}: {at:#x} was given out twice");
                                    mine.push(at);
                                }
                                Err(HeapError::OutOfSpace { .. }) => {
                                    full += 1;
                                    break;
                                }
                                Err(error) => panic!("round {round}: {error}"),
                            }
                        }
                        for at in mine.drain(mine.len() / 8..) {
                            assert!(given.lock().expect("no panic").remove(&at));
                            heap.free(at).expect("an object");
                        }
                    }
                    full
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
    });
    assert!(full > 0 || cfg!(miri), "there was room all the time: nothing was taken");
    let live = given.into_inner().expect("no panic");
    let report = heap.check(None).expect("readable");
    assert!(report.is_clean() && report.objects == live.len() as u64, "{report}");
    let again = reopened(&heap);
    assert!(live.iter().all(|at| again.is_allocated(*at)));
}
