//! A lock that is biased to a thread which puts no fence, and a revoker that puts one on all threads.
//!
//! # Safety
//!
//! 1. Of each lock, one thread of the model enters, opens and leaves.
//! 2. Another one revokes, with a fence that the checker has meet those of the first.
#![allow(unsafe_code)]

use std::convert::Infallible;
use std::sync::Arc;

use wattkeep_announce::biased::{Biased, Revoker};

use super::harness::{explore, thread};
use crate::control::primitives::{AtomicU32, Ordering, fence};

const KEY: u64 = 1;

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
fn revoke(lock: &Biased<Content>, f: impl Fn(&Content)) -> bool {
    // The barrier that the kernel puts on the thread stands in the model as a fence of the thread's own.
    let barrier = || {
        fence(Ordering::SeqCst);
        Ok::<_, Infallible>(())
    };
    // SAFETY: 2: the model's one revoker, and its barrier.
    let Ok(left) =
        unsafe { Revoker::default().revoke(vec![lock], |lock| *lock, barrier, |content| f(content)) };
    left.is_empty()
}

#[test]
fn what_a_thread_keeps_in_its_lock_is_had_once_by_itself_or_by_a_revoker() {
    explore("biased", 40_000, || {
        let lock = Arc::new(Biased::new(KEY, Content::new()));
        let given_back = Arc::new(AtomicU32::new(0));
        let keeper = {
            let (lock, given_back) = (Arc::clone(&lock), Arc::clone(&given_back));
            thread::spawn(move || {
                let give_back = |content: &Content| {
                    given_back.fetch_add(content.take_all(), Ordering::Relaxed);
                };
                within(&lock, Content::put, give_back);
                within(&lock, Content::put, give_back);
                // SAFETY: 1: the model's one thread that enters.
                unsafe { lock.leave(|content| give_back(content)) };
            })
        };
        revoke(&lock, |content| {
            given_back.fetch_add(content.take_all(), Ordering::Relaxed);
        });
        keeper.join().expect("it keeps, and leaves");
        assert_eq!(given_back.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_thread_that_was_alone_knows_better_before_the_second_one_begins() {
    explore("biased", 40_000, || {
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
        let begins = revoke(&lock, Content::not_alone);
        if begins {
            shared.fetch_add(1, Ordering::Relaxed);
        }
        first.join().expect("it counts twice");
        assert_eq!(shared.load(Ordering::Relaxed), 2 + u32::from(begins));
    });
}
