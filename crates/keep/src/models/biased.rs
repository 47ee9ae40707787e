//! A lock that is biased to a thread which puts no fence, and a revoker that puts one on all threads.
//!
//! # Safety
//!
//! 1. Of each lock, one thread of the model enters, opens and leaves.
//! 2. Another one revokes, with a fence that the checker has meet those of the first.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::sync::Arc;

use wattkeep_announce::biased::{Biased, Key, Revoker};

use super::harness::{explore, thread};
use crate::control::primitives::{AtomicU32, Ordering, fence};

const KEY: Key = Key::MIN;

/// What lies in the lock. Only the lock orders what is done to it: who comes too early reads what is old.
struct Content {
    kept: AtomicU32,
    /// The thread takes itself to be alone.
    alone: AtomicU32,
}

impl Content {
    fn new() -> Self {
        Self { kept: AtomicU32::new(0), alone: AtomicU32::new(1) }
    }

    fn put(&self) {
        self.kept.store(self.kept.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn take_all(&self) -> u32 {
        let all = self.kept.load(Ordering::Relaxed);
        self.kept.store(0, Ordering::Relaxed);
        all
    }

    fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed) != 0
    }

    fn not_alone(&self) {
        self.alone.store(0, Ordering::Relaxed);
    }
}

/// Calls `f` in the lock, as its thread; `told` if somebody revoked it before.
fn within(lock: &Biased<Content>, f: impl Fn(&Content), told: impl Fn(&Content)) {
    loop {
        // SAFETY: 1: the model's one thread that enters.
        if let Some(content) = unsafe { lock.enter(KEY) } {
            return f(&content);
        }
        // SAFETY: 1: the same.
        unsafe { lock.open(KEY, |content| told(content)) };
    }
}

/// Revokes the lock; true if its thread was not in all the while.
fn revoke(revoker: &Revoker, lock: &Biased<Content>, f: impl Fn(&Content)) -> bool {
    // The barrier that the kernel puts on the thread stands in the model as a fence of the thread's own.
    let barrier = || {
        fence(Ordering::SeqCst);
        Ok::<_, Infallible>(())
    };
    // SAFETY: 2: the lock's revoker, and its barrier.
    let Ok(left) = unsafe { revoker.revoke(vec![lock], |lock| *lock, barrier, |content| f(content)) };
    left.is_empty()
}

/// The same where the kernel refuses the barrier: the lock is closed, and nothing is touched.
fn revoke_in_vain(revoker: &Revoker, lock: &Biased<Content>) {
    let nothing = |_: &mut Content| panic!("there was no barrier");
    // SAFETY: 2: the lock's revoker, and no barrier.
    let refused = unsafe { revoker.revoke(vec![lock], |lock| *lock, || Err(()), nothing) };
    assert!(refused.is_err());
}

/// One thread keeps two things in its lock, while others revoke it.
fn keep_among(revokers: Vec<impl FnOnce(&Revoker, &Biased<Content>, &AtomicU32) + Send + 'static>) {
    let lock = Arc::new(Biased::new(KEY, Content::new()));
    let (revoker, given_back) = (Arc::new(Revoker::default()), Arc::new(AtomicU32::new(0)));
    let mut threads = Vec::new();
    for revokes in revokers {
        let (revoker, lock, given_back) = (Arc::clone(&revoker), Arc::clone(&lock), Arc::clone(&given_back));
        threads.push(thread::spawn(move || revokes(&revoker, &lock, &given_back)));
    }
    let give_back = |content: &Content| {
        given_back.fetch_add(content.take_all(), Ordering::Relaxed);
    };
    within(&lock, Content::put, give_back);
    within(&lock, Content::put, give_back);
    // SAFETY: 1: the model's one thread that enters.
    unsafe { lock.leave(|content| give_back(content)) };
    threads.into_iter().for_each(|thread| thread.join().expect("it revokes"));
    assert_eq!(given_back.load(Ordering::Relaxed), 2);
}

fn revokes(revoker: &Revoker, lock: &Biased<Content>, given_back: &AtomicU32) {
    revoke(revoker, lock, |content| {
        given_back.fetch_add(content.take_all(), Ordering::Relaxed);
    });
}

#[test]
fn what_a_thread_keeps_in_its_lock_is_had_once_by_itself_or_by_a_revoker() {
    explore("biased", 40_000, || keep_among(vec![revokes]));
}

/// Two that find no room at once.
#[test]
fn two_revokers_do_not_take_one_s_closing_for_the_other_s() {
    explore("biased-by-two", 40_000, || keep_among(vec![revokes, revokes]));
}

/// A filter of system calls may come and go with the thread that asks.
#[test]
fn a_lock_that_was_closed_without_a_barrier_is_revoked_later_as_any_other() {
    explore("biased-without-barrier", 40_000, || {
        keep_among(vec![|revoker: &Revoker, lock: &Biased<Content>, given_back: &AtomicU32| {
            revoke_in_vain(revoker, lock);
            revokes(revoker, lock, given_back);
        }]);
    });
}

#[test]
fn a_thread_that_was_alone_knows_better_before_the_second_one_begins() {
    explore("biased-alone", 40_000, || {
        let lock = Arc::new(Biased::new(KEY, Content::new()));
        let shared = Arc::new(AtomicU32::new(0));
        let first = {
            let (lock, shared) = (Arc::clone(&lock), Arc::clone(&shared));
            thread::spawn(move || {
                let count = |content: &Content| {
                    if content.is_alone() {
                        shared.store(shared.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    } else {
                        shared.fetch_add(1, Ordering::Relaxed);
                    }
                };
                within(&lock, count, Content::not_alone);
                within(&lock, count, Content::not_alone);
            })
        };
        let begins = revoke(&Revoker::default(), &lock, Content::not_alone);
        if begins {
            shared.fetch_add(1, Ordering::Relaxed);
        }
        first.join().expect("it counts twice");
        assert_eq!(shared.load(Ordering::Relaxed), 2 + u32::from(begins));
    });
}
