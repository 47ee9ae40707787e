//! Commits with new values in the log.
//!
//! Stores wait in DRAM. The commit takes a lane, draws the TID (so that TIDs follow the order in which
//! transactions let go of their locks), stores data, records and then the slot, and one fence makes it
//! durable: a slot whose digest does not fit its records is torn, and never was, unless a word that is stored
//! behind the fence bears witness that it was whole. Then the values go to their homes, whose lines are written
//! back without waiting: the thread's next fence covers them, and the log keeps them until it is truncated.
//!
//! A transaction that stored to memory it allocated, or wrote versioned objects, needs a second fence, before
//! the slot: those stores are in no digest.

use std::mem;

use wattkeep_heap::Claimed;
use wattkeep_persist::{Domain, LINE, Refused, Space, WORD, mutant};

use crate::error::TxError;
use crate::lane::{Bytes, Lane, put};
use crate::layout::Part;
use crate::lines::{Lines, Run, Tally};
use crate::manager::Manager;
use crate::open_log::flush_homes;
use crate::pool::{Held, this_thread};
use crate::record::{Kind, OBJECT_RECORD, ORDERED, SEALED, Slot, WORD_RECORD};
use crate::work::Work;

impl Tally {
    /// What the runs take.
    pub(crate) fn of(runs: &[Run]) -> Self {
        let mut tally = Self::default();
        for run in runs {
            if run.word {
                tally.words += 1;
            } else {
                tally.objects += 1;
                tally.object_bytes += run.bytes.len();
            }
        }
        tally
    }

    /// Bytes of the log that it takes.
    pub(crate) fn need(&self) -> Bytes {
        let mut need = Bytes::default();
        need.add(Part::WordRecords, self.words * WORD_RECORD);
        need.add(Part::Words, self.words * WORD);
        need.add(Part::ObjectRecords, self.objects * OBJECT_RECORD);
        need.add(Part::Objects, self.object_bytes.next_multiple_of(WORD));
        need
    }
}

impl Run {
    pub(crate) fn kind(&self) -> Kind {
        if self.word { Kind::Word } else { Kind::Object }
    }
}

impl Manager {
    /// Commits what waits in `work`. An error leaves everything as before it, or the manager poisoned.
    pub(crate) fn commit_redo(&self, work: &mut Work) -> Result<(), TxError> {
        work.lines.runs(&mut work.scratch.runs);
        let mut need = work.lines.tally().need();
        // Behind its slot there is room for what bears witness of it.
        need.add(Part::Slots, 2 * size_of::<Slot>());
        need.add(Part::Lists, work.listed() * 8);
        let mut lane = self.lane_with_room(&need)?;
        // Under the lane: truncation, which takes it, is all before this or all behind.
        self.heap.replays_stores();
        let before = lane.used();
        let undecided = Undecided { lane: &mut lane, before };
        let claimed = self.write(undecided.lane, work)?;
        mem::forget(undecided);
        self.log.decided(|| {
            work.before_apply();
            self.apply(work, claimed)
        })
    }

    /// What is staged is more than any lane has room for, and `left_out` bytes of a store are still missing:
    /// the transaction can only be aborted.
    #[cold]
    pub(crate) fn overflown(&self, work: &mut Work, left_out: usize, words: bool) -> TxError {
        work.doomed = true;
        let mut tally = work.lines.tally();
        if words {
            tally.words += left_out / WORD;
        } else {
            tally.object_bytes += left_out;
        }
        let (need, lane) = (tally.need(), self.log.layout.lane(0));
        let part = Part::ALL.into_iter().find(|part| need.of(*part) > lane.room(*part));
        let part = part.expect("the tally exceeds one of the rooms");
        self.too_large(part, need.of(part))
    }

    /// A lane with room for `need`.
    fn lane_with_room(&self, need: &Bytes) -> Result<Held<'_>, TxError> {
        loop {
            let mut lane = self.log.pool.hold();
            if lane.has_room(need, self.options.truncate_bytes) {
                if lane.unfenced.as_ref().is_some_and(|(.., thread)| *thread != this_thread()) {
                    flush_homes(&self.space, &mut lane)?;
                }
                return Ok(lane);
            }
            assert!(!lane.is_empty(), "what no lane has room for was refused before");
            drop(lane);
            self.log.truncate()?;
        }
    }

    /// Everything up to the durable slot. What the heap would refuse is refused here: behind the slot it is too
    /// late.
    fn write(&self, lane: &mut Lane, work: &mut Work) -> Result<Option<Claimed<'_>>, TxError> {
        let space = &*self.space;
        let (before, tid) = (lane.used(), self.log.next_tid()?);
        lane.begin();
        for run in &work.scratch.runs {
            lane.record(run.kind(), tid, run.home, &work.lines.bytes()[run.bytes.clone()]);
        }
        lane.append_records(space)?;
        work.list_allocated();
        lane.append_list(space, &work.scratch.allocated, &work.freed)?;
        let claimed = match work.listed() {
            0 => None,
            _ => Some(self.heap.claim(lane.number, tid, &work.scratch.allocated, &work.freed)?),
        };
        match self.decide(lane, work, &before, tid) {
            Ok(()) => Ok(claimed),
            Err(error) => {
                self.unclaim(claimed);
                Err(error)
            }
        }
    }

    /// From the records to the durable slot.
    fn decide(&self, lane: &mut Lane, work: &Work, before: &Bytes, tid: u64) -> Result<(), TxError> {
        let space = &*self.space;
        let mut flags = match space.domain() {
            Domain::Battery | Domain::Eadr => ORDERED,
            Domain::Adr(..) | Domain::File => 0,
        };
        let late = mutant::planted("tx-commit-before-versions");
        let versions = !late && !work.versions.is_empty() && work.versions.mark()?;
        if versions || work.fresh.any_stored() && !mutant::planted("tx-slot-before-new-objects") {
            work.fresh.flush(space)?;
            space.fence();
            flags |= SEALED;
        }
        let slot = lane.slot(tid, flags, before, (work.fresh.len(), work.freed.len()));
        self.log.decided(|| commit(space, lane, &slot, before))?;
        lane.unfenced = Some((slot, *before, this_thread()));
        if late {
            work.versions.mark()?;
        }
        Ok(())
    }

    /// The committed values go home, and the heap learns what is allocated.
    fn apply(&self, work: &Work, claimed: Option<Claimed<'_>>) -> Result<(), TxError> {
        if let Err(refused) = apply(&self.space, &work.lines, &work.scratch.runs) {
            claimed.into_iter().for_each(Claimed::leave);
            return Err(refused.into());
        }
        claimed.map_or(Ok(()), |claimed| Ok(claimed.publish()?))
    }

    /// A commit failed: the heap's objects are as before it, unless the log has decided.
    pub(crate) fn unclaim(&self, claimed: Option<Claimed<'_>>) {
        if self.log.check_poison().is_err() {
            claimed.into_iter().for_each(Claimed::leave);
        }
    }
}

/// What is appended to a lane behind `before`, and does not count: the next record would lie behind a gap.
struct Undecided<'a> {
    lane: &'a mut Lane,
    before: Bytes,
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        self.lane.forget_behind(self.before);
    }
}

/// Appends the slot: from its fence on the transaction has committed.
#[inline]
fn commit(space: &Space, lane: &mut Lane, slot: &Slot, before: &Bytes) -> Result<(), Refused> {
    let too_early = mutant::planted("tx-witness-before-its-slot");
    if too_early {
        lane.bear_witness(space, lane.announce_slot(space)?, before, slot.tid)?;
    }
    let window = lane.announce_slot(space)?;
    lane.append_slot(space, &window, slot)?;
    if !mutant::planted("tx-commit-without-fence") {
        space.fence();
    }
    if too_early { Ok(()) } else { lane.bear_witness(space, window, before, slot.tid) }
}

/// Stores the staged bytes at their homes, announcing consecutive lines of a page at once, and begins to
/// write them back.
fn apply(space: &Space, lines: &Lines, runs: &[Run]) -> Result<(), Refused> {
    for run in runs {
        put(space, run.home as usize, &lines.bytes()[run.bytes.clone()])?;
    }
    lines.offsets().try_for_each(|offset| space.flush(offset, LINE))
}
