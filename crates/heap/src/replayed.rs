//! A log of stores that the next open would repeat, and memory that changes hands without it.
//!
//! A transaction's log names the places that it stored to, until it is emptied. If one of them were freed and
//! given to another owner meanwhile, the next open would store over what that owner wrote. So whoever takes
//! memory away directly has the log emptied first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, Weak};

use crate::core::Core;
use crate::error::{HeapError, Quick};
use crate::heap::Heap;
use crate::layout::LOG_AREA_AT;

/// A log whose stores the next open repeats.
pub trait Replayed: Send + Sync {
    /// Makes all that it would repeat durable in place, and forgets it. Says then that it
    /// [replays nothing](Heap::replays_nothing). Never called by a thread that is inside of the heap.
    ///
    /// # Errors
    /// Why it cannot; the next open still repeats what it holds.
    fn empty(&self) -> Result<(), String>;
}

/// What the heap knows of such a log.
#[derive(Default)]
pub(crate) struct Replays {
    /// It may hold something.
    holds: AtomicBool,
    log: Mutex<Option<Weak<dyn Replayed>>>,
}

impl Replays {
    #[cold]
    fn empty(&self) -> Quick<()> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(Weak::upgrade);
        let emptied = log.map_or_else(|| Err("nobody has opened it".into()), |log| log.empty());
        emptied.map_err(|why| Box::new(HeapError::Replayed { why }))
    }
}

impl Core {
    /// Nobody knows yet what the log holds, if there is one.
    pub(crate) fn assume_log(&self) -> Result<(), HeapError> {
        let is_there = self.log_area_bytes > 0 && self.space.load(LOG_AREA_AT as usize)? != 0;
        self.replays.holds.store(is_there, Ordering::Relaxed);
        Ok(())
    }

    /// Memory may change hands, or be stored to without a transaction: no log names it any more.
    #[inline(always)]
    pub(crate) fn before_taking(&self) -> Quick<()> {
        // Relaxed: who was handed memory by the thread that stored to it sees what that thread said of its log.
        if self.replays.holds.load(Ordering::Relaxed) { self.replays.empty() } else { Ok(()) }
    }
}

impl Heap {
    /// `log` empties the log of this heap from now on, when memory is taken away that it may name. It holds
    /// nothing now.
    pub fn emptied_by(&self, log: Weak<dyn Replayed>) {
        *self.core.replays.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
        self.replays_nothing();
    }

    /// The log holds stores that the next open repeats.
    #[inline]
    pub fn replays_stores(&self) {
        let holds = &self.core.replays.holds;
        if !holds.load(Ordering::Relaxed) {
            holds.store(true, Ordering::Relaxed);
        }
    }

    /// The log holds none any more.
    pub fn replays_nothing(&self) {
        self.core.replays.holds.store(false, Ordering::Relaxed);
    }
}
