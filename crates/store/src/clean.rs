//! Cleaning: which pages to write again so that segments become free. Reads nothing.
//!
//! Memory holds every live page, so the caller appends the live pages of the emptiest segments
//! from there. Pages that have changed in memory are left out: their stored version is dropped
//! with `forget_latest`, or, when it is the committed one, goes with the next commit.

use crate::batch::{Begin, Head, Purpose};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::layout::writeback_floor;
use crate::store::Store;
use crate::types::PageId;

/// What to do about space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleaningAdvice {
    /// Nothing: enough segments are free.
    No,
    /// Clean: see [`Store::cleaning_candidates`].
    Clean,
    /// Make a checkpoint: committed versions hold the space, and cleaning cannot move them.
    CheckpointFirst,
}

/// Cleaning looks at segments that are at most this full, in eighths: above, it moves eight pages
/// or more to gain one.
const WORTH_CLEANING_EIGHTHS: u32 = 7;

/// One pass cleans one of this many segments: a pass reads the whole index, so it should not free
/// too little.
const SEGMENTS_PER_PASS: u32 = 128;

impl<D: Disk> Store<D> {
    /// Whether free segments run low, and what to do about it.
    pub fn cleaning_needed(&self) -> CleaningAdvice {
        let total = self.superblock.geometry.segments();
        let slack = (total / 32).max(2);
        let floor = writeback_floor(self.superblock.save_reserve_segments);
        let free = self.segments.free() + self.segments.waiting_for_flush();
        if free > floor.saturating_add(slack) {
            return CleaningAdvice::No;
        }
        if self.segments.cleanable(self.worth_cleaning()).next().is_some() {
            CleaningAdvice::Clean
        } else if self.segments.pinned() > 0 {
            CleaningAdvice::CheckpointFirst
        } else {
            CleaningAdvice::No
        }
    }

    /// Live pages of the emptiest segments that cleaning can free, in the order of the index. The
    /// caller appends each, if it is unchanged in memory, with [`Store::begin_cleaning`].
    pub fn cleaning_candidates(&mut self) -> Vec<PageId> {
        let mut emptiest: Vec<_> = self.segments.cleanable(self.worth_cleaning()).collect();
        emptiest.sort_unstable();
        let geometry = self.superblock.geometry;
        let count = (geometry.segments() / SEGMENTS_PER_PASS).max(1) as usize;
        emptiest.truncate(count);
        let mut chosen = vec![false; geometry.segments() as usize];
        for &(_, segment) in &emptiest {
            chosen[segment as usize] = true;
        }
        let stored = self.index.stored();
        stored.filter(|&(slot, _)| chosen[geometry.segment_of(slot) as usize]).map(|(_, page)| page).collect()
    }

    /// Opens a batch for cleaning: of pages whose stored version is the committed one
    /// ([`Store::is_committed`]), or of the others. Both may be open at once.
    pub fn begin_cleaning(&mut self, committed: bool) -> Result<Begin, StoreError> {
        let head = if committed { Head::ColdCommitted } else { Head::ColdCurrent };
        self.begin_at(head, Purpose::Cleaning, self.segment_entries() as usize)
    }

    /// The same, and may take the save's reserve, but for the segments that `dirty_pages` pages fill: only
    /// while nobody may write. A save eats into its reserve; without this a store could end below what
    /// cleaning needs to begin.
    pub fn begin_refill(&mut self, committed: bool, dirty_pages: u32) -> Result<Begin, StoreError> {
        let head = if committed { Head::ColdCommitted } else { Head::ColdCurrent };
        if self.segments.free() <= dirty_pages.div_ceil(self.segment_entries()) {
            return Ok(Begin::NoSpace);
        }
        self.begin_at(head, Purpose::Refill, self.segment_entries() as usize)
    }

    /// Pages that a save could write into the free segments, if `fewer` of these were gone. Whoever gives
    /// out permits gives out no more.
    pub fn save_capacity(&self, fewer: u32) -> u32 {
        self.superblock.geometry.save_capacity_pages(self.segments.free().saturating_sub(fewer))
    }

    /// Drops the stored version of a page that has changed in memory, when it is not the committed
    /// one. The page must be written before the next commit, which is refused otherwise. `false`
    /// when nothing was dropped, and always while events wait for a poll: the version may be one
    /// that the caller has not heard of yet.
    pub fn forget_latest(&mut self, page: PageId) -> bool {
        self.ready.is_empty() && self.index.forget_latest(page, &mut self.segments)
    }

    fn worth_cleaning(&self) -> u32 {
        self.segment_entries() * WORTH_CLEANING_EIGHTHS / 8
    }
}
