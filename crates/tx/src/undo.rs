//! Commits with old values in the log.
//!
//! Before a range is stored to for the first time, its old bytes are logged, and a fence makes them durable:
//! then the store goes to its place. The commit waits for the homes, and then marks the transaction done in
//! one word. Rolling back is putting the old bytes there again; the records never overlap, so their order
//! does not matter.
//!
//! A lane belongs to the transaction from its first store to its end. So whoever takes locks inside of
//! transactions takes all of them there: a thread that waits for a lane while it holds a lock may be what
//! the others wait for.

use wattkeep_persist::{LINE, mutant};

use crate::error::TxError;
use crate::lane::{Lane, put};
use crate::lines::Tally;
use crate::manager::Manager;
use crate::record::{Kind, ORDINAL_MAX, with_ordinal};
use crate::recover;
use crate::work::{Open, Work};

impl Manager {
    /// Logs what `len` bytes at `at` hold now, where that is new to the transaction.
    pub(crate) fn log_old(&self, work: &mut Work, at: u64, len: usize, words: bool) -> Result<(), TxError> {
        work.lines.mark(at, len, words, &mut work.scratch.runs);
        if work.scratch.runs.is_empty() {
            return Ok(());
        }
        // Bytes that are marked and not logged must not be stored to.
        self.log_runs(work).inspect_err(|_| work.doomed = true)
    }

    fn log_runs(&self, work: &mut Work) -> Result<(), TxError> {
        self.open_lane(work)?;
        let Open { lane, tid } = work.open.as_mut().expect("opened above");
        let need = Tally::of(&work.scratch.runs).need();
        if let Some(part) = lane.short_of(&need) {
            return Err(self.too_large(part, lane.used().of(part) + need.of(part)));
        }
        let old = &mut work.scratch.bytes;
        for run in &work.scratch.runs {
            old.resize(run.bytes.len(), 0);
            self.space.read_bytes(run.home as usize, old)?;
            let (words, objects) = lane.made();
            let ordinal = if run.kind() == Kind::Word { words } else { objects };
            lane.record(run.kind(), with_ordinal(*tid, ordinal as u64), run.home, old);
            if ordinal == ORDINAL_MAX {
                lane.append_records(&self.space)?;
                self.space.fence();
            }
        }
        lane.append_records(&self.space)?;
        if !mutant::planted("tx-store-before-old-value") {
            self.space.fence();
        }
        Ok(())
    }

    fn open_lane(&self, work: &mut Work) -> Result<(), TxError> {
        if work.open.is_none() {
            let mut lane = self.log.pool.take();
            lane.begin();
            lane.rewind_for_undo();
            let tid = match self.log.next_tid() {
                Ok(tid) => tid,
                Err(error) => {
                    self.log.pool.put(lane);
                    return Err(error);
                }
            };
            work.open = Some(Open { lane, tid });
        }
        Ok(())
    }

    /// Commits what `work` stored. An error before the mark leaves the transaction open.
    pub(crate) fn commit_undo(&self, work: &mut Work) -> Result<(), TxError> {
        self.open_lane(work)?;
        work.list_allocated();
        let Open { mut lane, tid } = work.open.take().expect("opened above");
        let committed = self.commit_in(&mut lane, tid, work);
        work.open = Some(Open { lane, tid });
        committed?;
        self.close_lane(work);
        Ok(())
    }

    fn commit_in(&self, lane: &mut Lane, tid: u64, work: &Work) -> Result<(), TxError> {
        // What the heap would refuse is refused here: behind the mark it is too late.
        let claimed = match work.listed() {
            0 => None,
            _ => Some(self.heap.claim(lane.number, tid, &work.scratch.allocated, &work.freed)?),
        };
        if let Err(error) = self.mark(lane, tid, work) {
            self.unclaim(claimed);
            return Err(error);
        }
        if let Some(claimed) = claimed {
            self.log.decided(|| claimed.publish().and_then(|()| self.heap.retire(lane.number, tid)))?;
        }
        Ok(())
    }

    /// Everything up to the durable mark.
    fn mark(&self, lane: &mut Lane, tid: u64, work: &Work) -> Result<(), TxError> {
        let space = &*self.space;
        if !mutant::planted("tx-done-before-homes") {
            work.lines.offsets().try_for_each(|offset| space.flush(offset, LINE))?;
        }
        work.fresh.flush(space)?;
        let late = mutant::planted("tx-commit-before-versions");
        if !late {
            work.versions.mark()?;
        }
        let listed = work.listed() > 0;
        if listed {
            let (before, allocated) = (lane.used(), &work.scratch.allocated);
            lane.append_list(space, allocated, &work.freed)?;
            // The records are no part of this slot: they are finished when it counts.
            let slot = lane.slot_of_list(tid, &before, (allocated.len(), work.freed.len()));
            lane.append_slot(space, &lane.announce_slot(space)?, &slot)?;
        }
        space.fence();
        self.log.decided(|| lane.mark_done(space, tid, listed))?;
        space.fence();
        if late {
            work.versions.mark()?;
        }
        Ok(())
    }

    /// Puts back what `work` changed. An error poisons the manager: the next open rolls back.
    pub(crate) fn roll_back(&self, work: &mut Work) -> Result<(), TxError> {
        let Some(Open { lane, tid }) = &work.open else { return Ok(()) };
        let tid = *tid;
        let space = &*self.space;
        let undone = self.log.decided(|| {
            recover::undo::each_record(space, &lane.place, &lane.used(), tid, |record, old| {
                put(space, record.home as usize, old)?;
                Ok(space.flush(record.home as usize, old.len())?)
            })?;
            space.fence();
            lane.mark_done(space, tid, false)?;
            space.fence();
            Ok::<_, TxError>(())
        });
        self.close_lane(work);
        undone
    }

    /// Gives the lane back.
    pub(crate) fn close_lane(&self, work: &mut Work) {
        if let Some(Open { lane, .. }) = work.open.take() {
            self.log.pool.put(lane);
        }
    }
}
