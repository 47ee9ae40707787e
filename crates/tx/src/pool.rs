//! Hands out lanes: each thread gets the one it had before, or the first that is free, or waits.
//!
//! Invariant: a lane is either in the pool or in exactly one pair of hands. In the pool it is used under its
//! lock, for a commit with redo; undo takes it out, for as long as the transaction lasts.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::lane::Lane;
use crate::layout::Layout;
use crate::logged::{LaneCounters, Logged};

/// Number of this thread: never 0, never used twice.
#[inline]
pub fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static THIS: Cell<u64> = const { Cell::new(0) });
    THIS.with(|this| {
        if this.get() == 0 {
            this.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        this.get()
    })
}

/// All lanes of a log.
#[derive(Debug)]
pub(crate) struct Pool {
    lanes: Vec<Mutex<Option<Box<Lane>>>>,
    counters: Vec<Arc<LaneCounters>>,
    /// Threads that look for a lane and found none.
    waiting: AtomicUsize,
    gate: Mutex<()>,
    returned: Condvar,
}

/// A lane that stays in the pool while it is used, for a short time: others wait for it at its lock.
pub(crate) struct Held<'a>(MutexGuard<'a, Option<Box<Lane>>>);

impl<'a> Held<'a> {
    fn of(guard: MutexGuard<'a, Option<Box<Lane>>>) -> Option<Self> {
        guard.is_some().then_some(Self(guard))
    }
}

impl Deref for Held<'_> {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.0.as_deref().expect("looked at when it was locked")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Lane {
        self.0.as_deref_mut().expect("looked at when it was locked")
    }
}

/// A lane is whole at every moment, so a panic beside it does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(crate) fn new(layout: &Layout, floor: u64) -> Self {
        let lanes: Vec<_> =
            (0..layout.lanes).map(|number| Box::new(Lane::new(layout, number, floor))).collect();
        Self {
            counters: lanes.iter().map(|lane| lane.counters()).collect(),
            lanes: lanes.into_iter().map(|lane| Mutex::new(Some(lane))).collect(),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            returned: Condvar::new(),
        }
    }

    /// A lane for one commit; waits until there is one. Whoever has it takes no other lane, and no gate.
    #[inline]
    pub(crate) fn hold(&self) -> Held<'_> {
        let preferred = self.preferred();
        self.try_hold(preferred).unwrap_or_else(|| self.hold_any(preferred))
    }

    #[inline]
    fn try_hold(&self, number: usize) -> Option<Held<'_>> {
        Held::of(match self.lanes[number].try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        })
    }

    #[cold]
    fn hold_any(&self, preferred: usize) -> Held<'_> {
        let lanes = || (0..self.lanes.len()).map(|step| (preferred + step) % self.lanes.len());
        if let Some(held) = lanes().find_map(|number| self.try_hold(number)) {
            return held;
        }
        // One that is held is waited for at its lock, one that is away at the gate.
        self.wait_for(|| lanes().find_map(|number| Held::of(lock(&self.lanes[number]))))
    }

    #[inline]
    fn preferred(&self) -> usize {
        this_thread() as usize % self.lanes.len()
    }

    /// A lane, out of the pool; waits until there is one.
    #[inline]
    pub(crate) fn take(&self) -> Box<Lane> {
        let preferred = self.preferred();
        if let Some(lane) = lock(&self.lanes[preferred]).take() {
            return lane;
        }
        self.wait_for(|| {
            (0..self.lanes.len())
                .find_map(|step| lock(&self.lanes[(preferred + step) % self.lanes.len()]).take())
        })
    }

    /// The lane of this number; waits until it is there.
    pub(crate) fn take_number(&self, number: usize) -> Box<Lane> {
        self.wait_for(|| lock(&self.lanes[number]).take())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    #[cold]
    fn wait_for<L>(&self, find: impl Fn() -> Option<L>) -> L {
        let mut gate = lock(&self.gate);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let lane = loop {
            match find() {
                Some(lane) => break lane,
                None => gate = self.returned.wait(gate).unwrap_or_else(PoisonError::into_inner),
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        lane
    }

    /// Gives a lane back.
    #[inline]
    pub(crate) fn put(&self, lane: Box<Lane>) {
        let number = lane.number as usize;
        *lock(&self.lanes[number]) = Some(lane);
        // Whoever found the lane away counted itself before it looked: either it sees the lane, or it is
        // seen here, and it holds the gate from its look to its sleep.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.gate));
            self.returned.notify_all();
        }
    }

    /// What all lanes logged.
    pub(crate) fn logged(&self) -> Logged {
        self.counters.iter().fold(Logged::default(), |sum, lane| sum + lane.now())
    }
}
