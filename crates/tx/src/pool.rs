//! Hands out lanes: each thread gets the one it had before, or the first that is free, or waits.
//!
//! Invariant: a lane is either in the pool or in exactly one pair of hands.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::lane::Lane;
use crate::layout::Layout;
use crate::logged::{LaneCounters, Logged};

thread_local! {
    static THREAD: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
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

/// A lane is whole at every moment, so a panic beside it does no harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(crate) fn new(layout: &Layout) -> Self {
        let lanes: Vec<_> = (0..layout.lanes).map(|number| Box::new(Lane::new(layout, number))).collect();
        Self {
            counters: lanes.iter().map(|lane| lane.counters()).collect(),
            lanes: lanes.into_iter().map(|lane| Mutex::new(Some(lane))).collect(),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            returned: Condvar::new(),
        }
    }

    /// A lane; waits until there is one.
    #[inline]
    pub(crate) fn take(&self) -> Box<Lane> {
        let preferred = THREAD.with(|thread| thread % self.lanes.len());
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
    fn wait_for(&self, find: impl Fn() -> Option<Box<Lane>>) -> Box<Lane> {
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
