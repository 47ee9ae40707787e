//! The log of an open manager: its lanes, the TIDs, and emptying it.
//!
//! Truncation takes all lanes. If it emptied one lane only, a lower TID of another lane would be replayed
//! over a value whose record is gone.
//!
//! The heap has it emptied, too: before memory that it may name changes hands without a transaction.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wattkeep_heap::{Heap, Replayed, TID_MAX};
use wattkeep_persist::{LINE, Refused, Space, mutant};

use crate::error::TxError;
use crate::lane::Lane;
use crate::layout::Layout;
use crate::pool::Pool;
use crate::record::Mark;
use crate::recover;

/// See the module.
pub(crate) struct OpenLog {
    heap: Heap,
    space: Arc<Space>,
    pub(crate) layout: Layout,
    pub(crate) pool: Pool,
    truncating: Mutex<()>,
    /// The TID that is drawn next.
    tids: AtomicU64,
    poisoned: OnceLock<String>,
}

impl OpenLog {
    /// A log that holds nothing, of TIDs up to `last`.
    pub(crate) fn new(heap: &Heap, layout: Layout, last: u64) -> Self {
        Self {
            heap: heap.clone(),
            space: Arc::clone(heap.space()),
            pool: Pool::new(&layout, last),
            layout,
            truncating: Mutex::new(()),
            tids: AtomicU64::new(last + 1),
            poisoned: OnceLock::new(),
        }
    }

    /// Draws the next TID.
    #[inline]
    pub(crate) fn next_tid(&self) -> Result<u64, TxError> {
        let tid = self.tids.fetch_add(1, Ordering::Relaxed);
        if tid < TID_MAX {
            return Ok(tid);
        }
        self.tids.store(TID_MAX, Ordering::Relaxed);
        let why = "its transaction numbers are used up; copy what the heap holds into a new one";
        Err(TxError::NotALog { why: why.into() })
    }

    /// The highest TID drawn so far.
    pub(crate) fn last_tid(&self) -> u64 {
        self.tids.load(Ordering::Relaxed) - 1
    }

    /// An error if an earlier commit failed half way.
    #[inline]
    pub(crate) fn check_poison(&self) -> Result<(), TxError> {
        match self.poisoned.get() {
            None => Ok(()),
            Some(why) => Err(TxError::Poisoned { why: why.clone() }),
        }
    }

    /// Takes a step behind the point of no return: an error poisons, and a panic.
    #[inline]
    pub(crate) fn decided<T, E: Into<TxError>>(
        &self,
        step: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, TxError> {
        let cut_short = CutShort(self);
        let answer = step().map_err(E::into);
        mem::forget(cut_short);
        if let Err(error) = &answer {
            self.poison(error.to_string());
        }
        answer
    }

    #[cold]
    fn poison(&self, why: String) {
        let _ = self.poisoned.set(why);
    }

    /// Empties the log: all that is committed is durable at home.
    pub(crate) fn truncate(&self) -> Result<(), TxError> {
        let _one = self.truncating.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lanes: Vec<_> = (0..self.pool.len()).map(|number| self.pool.take_number(number)).collect();
        let truncated = self.truncate_all(&mut lanes);
        lanes.into_iter().for_each(|lane| self.pool.put(lane));
        truncated
    }

    fn truncate_all(&self, lanes: &mut [Box<Lane>]) -> Result<(), TxError> {
        self.check_poison()?;
        if lanes.iter().any(|lane| !lane.is_empty()) {
            self.truncate_some(lanes)?;
        }
        // No lane is away, so nobody is just saying otherwise.
        self.heap.replays_nothing();
        Ok(())
    }

    fn truncate_some(&self, lanes: &mut [Box<Lane>]) -> Result<(), TxError> {
        if !mutant::planted("tx-truncate-before-homes") {
            for lane in &mut *lanes {
                flush_homes(&self.space, lane)?;
            }
            self.space.fence();
        }
        let last = self.last_tid();
        self.decided(|| set_floor(&self.space, self.layout.floor_at(), last))?;
        for lane in lanes {
            lane.rewind(last);
            self.decided(|| self.heap.retire(lane.number, last))?;
        }
        Ok(())
    }
}

/// A step that has not come to its end.
struct CutShort<'a>(&'a OpenLog);

impl Drop for CutShort<'_> {
    fn drop(&mut self) {
        self.0.poison("it panicked".to_owned());
    }
}

impl Replayed for OpenLog {
    fn empty(&self) -> Result<(), String> {
        self.truncate().map_err(|error| error.to_string())
    }
}

/// Everything up to `tid` is at home: the log behind it is empty.
pub(crate) fn set_floor(space: &Space, at: usize, tid: u64) -> Result<(), Refused> {
    space.store(at, Mark::of(tid).word())?;
    space.persist(at, LINE)
}

/// Begins to write back the homes of the lane's last transaction, for whose flushes another thread has not
/// waited.
pub(crate) fn flush_homes(space: &Space, lane: &mut Lane) -> Result<(), Refused> {
    if let Some((slot, before, _)) = lane.unfenced.take() {
        recover::each_home(space, &lane.place, &slot, &before, |home, bytes| space.flush(home, bytes))?;
    }
    Ok(())
}
