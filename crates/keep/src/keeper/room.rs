//! Keeps free segments in the log: re-appends live pages from memory, or asks for a checkpoint when it
//! is the last commit's old versions that hold the space.
//!
//! Pages that are clean in memory are moved, if they stay clean while they are copied; pages that are not
//! in memory (of regions that are not open, or still to be restored) are read from the log;
//! a page that is dirty has its newest version in memory, and its old one is dropped.

use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::{Begin, CleaningAdvice, Purpose};

use super::engine::{Keeper, KeeperError};
use super::write::MOVED;
use crate::control::page_word::State;
use crate::limits::BATCHES_IN_FLIGHT;
use crate::types::PageId;

/// Segments that the log keeps for cleaning beside the save's reserve.
const CLEANING_SEGMENTS: u32 = 2;

impl<D: Disk> Keeper<D> {
    pub(super) fn make_room(&mut self) -> Result<bool, KeeperError> {
        if self.checkpoint.is_some() {
            return Ok(false);
        }
        match self.store.cleaning_needed() {
            CleaningAdvice::No => Ok(false),
            CleaningAdvice::CheckpointFirst => {
                // Behind a restore the pages are not in memory yet, but a checkpoint needs none of them.
                Ok(self.now >= self.checkpoint_not_before && self.begin_checkpoint(None))
            }
            CleaningAdvice::Clean if self.filling.pending() => Ok(false),
            CleaningAdvice::Clean if self.clean_segments(Purpose::Cleaning)? => Ok(true),
            // Too little is free for cleaning to begin, or every page that it could move is dirty. A checkpoint
            // may use what is kept for the save, while nobody may write, and wins it back.
            CleaningAdvice::Clean => Ok(self.cleaning_is_stuck()
                && self.now >= self.checkpoint_not_before
                && self.begin_checkpoint(None)),
        }
    }

    /// Nothing that is under way will free a segment, and writeback has none to begin with.
    fn cleaning_is_stuck(&self) -> bool {
        let status = self.store.status();
        let under_way = self.in_flight_batches > 0 || self.moved_until > self.acknowledged;
        let kept = status.save_reserve_segments + CLEANING_SEGMENTS;
        !under_way && status.waiting_for_flush == 0 && status.free <= kept
    }

    /// A checkpoint may write every dirty page, and should leave the save's reserve alone: cleans first,
    /// while cleaning may still begin. True when that moved something: then it is worth another look.
    pub(super) fn make_room_for_checkpoint(&mut self) -> Result<bool, KeeperError> {
        let status = self.store.status();
        let held = self.control.ledger.0.permits().held;
        let dirty_segments = held.div_ceil(self.store.segment_entries()) + 1;
        let needed = status.save_reserve_segments + CLEANING_SEGMENTS + dirty_segments;
        if status.free >= needed || self.filling.pending() {
            return Ok(false);
        }
        // A pass under way, or a flush that frees segments, is worth waiting for.
        if self.moved_until > self.acknowledged || status.waiting_for_flush > 0 {
            self.reap(Wait::One)?;
            return Ok(true);
        }
        self.clean_segments(Purpose::Cleaning)
    }

    /// Wins back what was used of the save's reserve, while nobody may write: at the opening of a store, when
    /// writers go on after a save, and behind a checkpoint that found no other room.
    pub(super) fn refill_reserve(&mut self) -> Result<(), KeeperError> {
        // A read of the restore may be on its way to a page that would be moved from under it.
        if self.filling.pending() {
            return Ok(());
        }
        // A pass frees at least one segment, or nothing more can be freed.
        for _ in 0..self.store.status().segments {
            if self.store.cleaning_needed() != CleaningAdvice::Clean
                || !self.clean_segments(Purpose::Refill)?
            {
                break;
            }
            while self.moved_until > self.acknowledged || self.store.status().waiting_for_flush > 0 {
                self.reap(Wait::One)?;
            }
        }
        Ok(())
    }

    fn clean_segments(&mut self, purpose: Purpose) -> Result<bool, KeeperError> {
        // The log counts a moved page at its old place until its move is acknowledged: a second pass
        // before that would choose the same segments again.
        if self.in_flight_batches >= BATCHES_IN_FLIGHT || self.moved_until > self.acknowledged {
            return Ok(false);
        }
        let candidates = self.store.cleaning_candidates();
        let (committed, current): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|page| self.store.is_committed(*page));
        let mut moved = self.move_pages(&committed, true, purpose)?;
        moved |= self.move_pages(&current, false, purpose)?;
        Ok(moved)
    }

    fn move_pages(
        &mut self,
        pages: &[PageId],
        committed: bool,
        purpose: Purpose,
    ) -> Result<bool, KeeperError> {
        let mut rest = pages;
        let mut moved = false;
        while !rest.is_empty() {
            let begun = match purpose {
                Purpose::Refill => {
                    self.fit_permits_beside(1);
                    let dirty = self.control.ledger.0.permits().held;
                    self.store.begin_refill(committed, dirty)?
                }
                _ => self.store.begin_cleaning(committed)?,
            };
            let Begin::Batch(mut batch) = begun else { break };
            let count = rest.len().min(batch.room());
            for page in &rest[..count] {
                if let Err(e) = self.move_page(*page, committed, &mut batch) {
                    self.store.submit(batch);
                    return Err(e);
                }
            }
            moved |= !batch.is_empty();
            self.moved_until = self.store.submit(batch);
            rest = &rest[count..];
        }
        Ok(moved)
    }

    fn move_page(
        &mut self,
        id: PageId,
        committed: bool,
        batch: &mut wattkeep_store::Batch,
    ) -> Result<(), KeeperError> {
        let Some(region) = self.regions.iter().find(|region| region.id == id.region) else {
            self.move_stored(id, batch);
            return Ok(());
        };
        let word = region.word(id.page);
        let before = word.load();
        if before.state() == State::Absent {
            self.move_stored(id, batch);
            return Ok(());
        }
        if before.state() != State::Clean {
            // A grant may yet turn back to clean; then nothing would write the page again.
            let dirty = before.state().holds_permit() && before.state() != State::Granting;
            if dirty && !committed && region.copies_in_flight(id.page) == 0 {
                self.store.forget_latest(id);
            }
            return Ok(());
        }
        let staged = batch.next_page();
        region.memory().copy_page(id.page, staged);
        if word.load() != before {
            return Ok(());
        }
        let checksum = self.store.hash(staged);
        if self.store.stored_checksum(id) != Some(checksum) {
            // Never move damage on: the copy in the log is the good one.
            return Err(std::io::Error::other(format!(
                "{id} changed in memory although nobody may write it: faulty DRAM, or a store behind our back; \
                 end the program, the last commit is intact"
            ))
            .into());
        }
        batch.push(id, checksum, MOVED);
        Ok(())
    }

    /// A page that is not in memory comes from the log. A damaged one stays where it is.
    fn move_stored(&mut self, id: PageId, batch: &mut wattkeep_store::Batch) {
        let staged = batch.next_page();
        if matches!(self.store.read_page_blocking(id, staged), Ok(true)) {
            let checksum = self.store.hash(staged);
            batch.push(id, checksum, MOVED);
        }
    }
}
