//! Keeps free segments in the log: re-appends live pages from memory, or asks for a checkpoint when it
//! is the last commit's old versions that hold the space.
//!
//! Only pages that are clean in memory are moved, and only if they stay clean while they are copied;
//! a page that is dirty has its newest version in memory, and its old one is dropped.

use wattkeep_store::disk::Disk;
use wattkeep_store::{Begin, CleaningAdvice};

use super::engine::{Keeper, KeeperError};
use super::write::MOVED;
use crate::control::page_word::State;
use crate::limits::BATCHES_IN_FLIGHT;
use crate::types::PageId;

impl<D: Disk> Keeper<D> {
    pub(super) fn make_room(&mut self) -> Result<bool, KeeperError> {
        if self.checkpoint.is_some() {
            return Ok(false);
        }
        match self.store.cleaning_needed() {
            CleaningAdvice::No => Ok(false),
            CleaningAdvice::CheckpointFirst => {
                // Behind a restore the pages are not in memory yet, but a checkpoint needs none of them.
                Ok(self.begin_checkpoint(None))
            }
            CleaningAdvice::Clean if self.filling.pending() => Ok(false),
            CleaningAdvice::Clean => self.clean_segments(),
        }
    }

    fn clean_segments(&mut self) -> Result<bool, KeeperError> {
        // The log counts a moved page at its old place until its move is acknowledged: a second pass
        // before that would choose the same segments again.
        if self.in_flight_batches >= BATCHES_IN_FLIGHT || self.moved_until > self.acknowledged {
            return Ok(false);
        }
        let candidates = self.store.cleaning_candidates();
        let (committed, current): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|page| self.store.is_committed(*page));
        let mut moved = self.move_pages(&committed, true)?;
        moved |= self.move_pages(&current, false)?;
        self.counters.cleaning_passes += u64::from(moved);
        Ok(moved)
    }

    fn move_pages(&mut self, pages: &[PageId], committed: bool) -> Result<bool, KeeperError> {
        let mut rest = pages;
        let mut moved = false;
        while !rest.is_empty() {
            let Begin::Batch(mut batch) = self.store.begin_cleaning(committed)? else { break };
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
        let Some(region) = self.regions.iter().find(|region| region.id == id.region) else { return Ok(()) };
        let word = region.word(id.page);
        let before = word.load();
        if before.state() != State::Clean {
            if before.state().holds_permit() && !committed && region.copies_in_flight(id.page) == 0 {
                self.store.forget_latest(id);
                self.counters.forgotten_pages += 1;
            }
            return Ok(());
        }
        let staged = batch.next_page();
        region.copy_page(id.page, staged);
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
}
