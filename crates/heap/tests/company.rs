//! The first thread at a heap is alone there until a second one comes, at whatever moment.

mod common;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{heap, reopened};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use wattkeep_heap::{Heap, HeapError};

const SEED: u64 = 7;
const ROUNDS: u64 = if cfg!(miri) { 3 } else { 60 };
const OBJECTS: usize = if cfg!(miri) { 20 } else { 2_000 };
/// How far the first thread is when the second one comes.
const LEAD_MAX: u64 = OBJECTS as u64 / 2;

/// Whether this call freed the object.
fn frees(heap: &Heap, at: u64) -> bool {
    match heap.free(at) {
        Ok(()) => true,
        Err(HeapError::DoubleFree { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn allocate(heap: &Heap, many: usize) -> Vec<u64> {
    (0..many).map(|_| heap.alloc(64).expect("room")).collect()
}

/// Two threads that free the same object at the same moment, one object after the other.
#[derive(Default)]
struct Pace {
    first: AtomicUsize,
    second: AtomicUsize,
}

/// Says that this thread has come to `object`, and waits for the other one.
fn keep_pace(own: &AtomicUsize, other: &AtomicUsize, object: usize) {
    own.store(object, Ordering::Release);
    for look in 0.. {
        if other.load(Ordering::Acquire) >= object {
            return;
        }
        // The other one may want this processor.
        if look < 1_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// The second thread comes while the first one frees, and from then on they free each object at once.
#[test]
fn an_object_is_freed_once_when_a_second_thread_comes_amid_the_frees_of_the_first() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for round in 0..ROUNDS {
        let heap = heap(2 << 20);
        let objects = allocate(&heap, OBJECTS);
        let lead = (random.next_u64() % LEAD_MAX) as usize;
        let Pace { first, second } = &Pace::default();
        let freed: usize = std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let free = |object: usize| {
                    keep_pace(second, first, object);
                    frees(&heap, objects[object])
                };
                (lead..OBJECTS).filter(|object| free(*object)).count()
            });
            let free = |object: usize| {
                if object > lead {
                    keep_pace(first, second, object);
                }
                first.store(object, Ordering::Release);
                frees(&heap, objects[object])
            };
            let own = (0..OBJECTS).filter(|object| free(*object)).count();
            own + others.join().expect("no panic")
        });
        assert_eq!(freed, OBJECTS, "seed {SEED}, round {round}");
        let report = heap.check(None).expect("readable");
        assert!(report.is_clean() && report.objects == 0, "seed {SEED}, round {round}: {report}");
    }
}

/// Replaces objects, and says those it has in the end.
fn churn(heap: &Heap, seed: u64, mut live: Vec<u64>, done: &AtomicUsize) -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for round in 0..OBJECTS {
        let many = live.len() as u64;
        let slot = &mut live[(random.next_u64() % many) as usize];
        heap.free(*slot).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        *slot = heap.alloc(64).expect("room");
        done.fetch_add(1, Ordering::Relaxed);
    }
    live
}

/// Two come at once while the first one frees and allocates.
#[test]
fn threads_that_come_amid_the_calls_of_the_first_never_share_an_object_with_it() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for round in 0..ROUNDS.div_ceil(2) {
        let heap = heap(2 << 20);
        let mut objects = allocate(&heap, OBJECTS / 2);
        let mut shares = [objects.split_off(OBJECTS / 3), objects.split_off(OBJECTS / 6)].into_iter();
        let lead = (random.next_u64() % LEAD_MAX) as usize;
        let done = AtomicUsize::new(0);
        let live: Vec<u64> = std::thread::scope(|scope| {
            let (heap, done) = (&heap, &done);
            let others = [1, 2].map(|seed| {
                let share = shares.next().expect("two shares");
                scope.spawn(move || {
                    while done.load(Ordering::Relaxed) < lead {
                        std::thread::yield_now();
                    }
                    churn(heap, seed, share, done)
                })
            });
            let mut live = churn(heap, round, objects, done);
            others.into_iter().for_each(|other| live.extend(other.join().expect("no panic")));
            live
        });
        let apart: BTreeSet<u64> = live.iter().copied().collect();
        assert_eq!(apart.len(), live.len(), "round {round}: an object was given out twice");
        let report = heap.check(None).expect("readable");
        assert!(report.is_clean() && report.objects == live.len() as u64, "round {round}: {report}");
        if round == 0 {
            let again = reopened(&heap);
            assert!(live.iter().all(|at| again.is_allocated(*at)));
        }
    }
}

#[test]
fn what_a_thread_freed_that_has_ended_is_not_freed_again() {
    let heap = heap(2 << 20);
    let objects = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let objects = allocate(&heap, OBJECTS);
            objects.iter().step_by(2).for_each(|at| heap.free(*at).expect("an object"));
            objects
        });
        first.join().expect("no panic")
    });
    for (index, at) in objects.into_iter().enumerate() {
        assert_eq!(frees(&heap, at), index % 2 == 1);
    }
    assert!(heap.check(None).expect("readable").is_clean());
}

/// Frees an object when its thread ends.
struct AtEnd(Heap, u64);

impl Drop for AtEnd {
    fn drop(&mut self) {
        assert!(frees(&self.0, self.1));
        assert!(!frees(&self.0, self.1));
    }
}

thread_local! {
    static BEFORE: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    static BEHIND: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
}

/// One of the two is dropped when the thread has no place at the heap any more.
#[test]
fn a_thread_frees_until_its_very_end() {
    for is_first in [true, false] {
        let heap = heap(2 << 20);
        let before = if is_first { Vec::new() } else { allocate(&heap, 1) };
        let until_its_end = {
            let heap = heap.clone();
            move || {
                // Made before its place at the heap, and behind it.
                BEFORE.set(None);
                let objects = allocate(&heap, 2);
                BEFORE.set(Some(AtEnd(heap.clone(), objects[0])));
                BEHIND.set(Some(AtEnd(heap.clone(), objects[1])));
            }
        };
        std::thread::spawn(until_its_end).join().expect("no panic");
        let report = heap.check(None).expect("readable");
        assert!(report.is_clean() && report.objects == before.len() as u64, "{report}");
    }
}

/// It took the lane first and its place at the heap then, for which it waited until the first thread was not in; and
/// that one was in, and waited for the lane.
#[test]
fn a_second_thread_that_comes_with_a_claim_never_waits_for_a_first_that_waits_for_its_lane() {
    const LANE: u32 = 3;
    for _ in 0..ROUNDS {
        let heap = heap(2 << 20);
        let (first, second) = (heap.clone(), heap.clone());
        let (retiring, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (retired, is_over) = (retiring.clone(), over.clone());
        let retires = std::thread::spawn(move || {
            while is_over.load(Ordering::Relaxed) == 0 {
                first.retire(LANE, 1).expect("a lane");
                retired.fetch_add(1, Ordering::Relaxed);
            }
        });
        while retiring.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let (says, hears) = std::sync::mpsc::channel();
        let claims = std::thread::spawn(move || {
            drop(second.claim(LANE, 1, &[], &[]).expect("nothing is claimed"));
            says.send(()).expect("somebody listens");
        });
        hears.recv_timeout(std::time::Duration::from_secs(20)).expect("both go on");
        over.store(1, Ordering::Relaxed);
        claims.join().expect("no panic");
        retires.join().expect("no panic");
    }
}

/// Claims an object when it is dropped, and thinks better of it.
struct ThinksBetter<'a>(&'a Heap, u64);

impl Drop for ThinksBetter<'_> {
    fn drop(&mut self) {
        drop(self.0.claim(3, 1, &[], &[self.1]).expect("an object"));
    }
}

/// A claim that a panic ends is left, as nobody knows what was decided. One that began and ended beside a panic, in
/// the drop of something else, was left, too: its object could not be freed before the next open.
#[test]
fn a_claim_that_begins_and_ends_while_its_thread_panics_is_as_it_was_before() {
    let heap = heap(2 << 20);
    let at = heap.alloc(64).expect("room");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _late = ThinksBetter(&heap, at);
        resume_unwind(Box::new("a panic that was planned"));
    }));
    assert!(panicked.is_err());
    heap.free(at).expect("nobody claims it");
    let at = heap.alloc(64).expect("room");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _claimed = heap.claim(3, 1, &[], &[at]).expect("an object");
        resume_unwind(Box::new("a panic that was planned"));
    }));
    assert!(panicked.is_err());
    assert!(!frees(&heap, at), "it is left");
}
