//! Where things lie in a store: slots, segments, offsets, and how many segments a store needs.
//!
//! A slot is the number of a page in the segment area, counted from 0. Pure arithmetic; does not
//! know what a slot holds.

use crate::limits::{CLEANING_RESERVE_SEGMENTS, SEGMENTS_START, SLACK_SEGMENTS};
use crate::types::PAGE_SIZE;

/// Bytes in the header of a summary.
pub(crate) const SUMMARY_HEADER_BYTES: usize = 64;
/// Bytes in an entry of a summary.
pub(crate) const SUMMARY_ENTRY_BYTES: usize = 16;

/// The slots of one store. Holding it proves that the segment size is a power of two and that every
/// slot number fits 32 bits with two values to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    segment_shift: u32,
    segments: u32,
}

impl Geometry {
    /// `None` when the numbers cannot be addressed.
    pub fn new(segment_pages: u32, segments: u32) -> Option<Self> {
        let fits = u64::from(segment_pages) * u64::from(segments) <= u64::from(u32::MAX) - 2;
        (segment_pages.is_power_of_two() && fits)
            .then(|| Self { segment_shift: segment_pages.trailing_zeros(), segments })
    }

    /// Pages in a segment.
    pub fn segment_pages(&self) -> u32 {
        1 << self.segment_shift
    }

    /// Segments in the store.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Bytes that the store's space must have.
    pub fn size(&self) -> u64 {
        self.offset_of(self.segments << self.segment_shift)
    }

    /// Where a slot lies in the store's space.
    pub fn offset_of(&self, slot: u32) -> u64 {
        SEGMENTS_START + u64::from(slot) * PAGE_SIZE as u64
    }

    /// The segment that holds a slot.
    pub fn segment_of(&self, slot: u32) -> u32 {
        slot >> self.segment_shift
    }

    /// The first slot of a segment.
    pub fn first_slot(&self, segment: u32) -> u32 {
        segment << self.segment_shift
    }

    /// Most pages that one segment stores.
    pub fn segment_entries(&self) -> u32 {
        entries_max(self.segment_pages())
    }

    /// Segments that a save of `budget_pages` may need: the pages, and two segments that are open
    /// and partly used when the power fails.
    pub fn save_reserve_segments(&self, budget_pages: u32) -> u32 {
        budget_pages.div_ceil(self.segment_entries()).saturating_add(2)
    }

    /// Pages that a save can write into so many free segments: the reverse of
    /// [`Self::save_reserve_segments`].
    pub fn save_capacity_pages(&self, free_segments: u32) -> u32 {
        free_segments.saturating_sub(2).saturating_mul(self.segment_entries())
    }

    /// Segments for regions of `region_pages` pages in all: both versions of every page (the
    /// committed one and the one that replaces it), a quarter for cleaning to be cheap, and twice
    /// the save reserve, so that a save fits while a checkpoint is under way.
    pub fn segments_needed(&self, region_pages: u64, save_reserve: u32) -> u64 {
        let log = (region_pages * 9).div_ceil(4 * u64::from(self.segment_entries()));
        log + 2 * u64::from(save_reserve) + u64::from(SLACK_SEGMENTS)
    }

    /// The same segment size with another number of segments.
    pub fn with_segments(&self, segments: u32) -> Option<Self> {
        Self::new(self.segment_pages(), segments)
    }
}

/// Segments that writeback must leave free.
pub(crate) fn writeback_floor(save_reserve: u32) -> u32 {
    save_reserve.saturating_add(CLEANING_RESERVE_SEGMENTS)
}

/// Pages of a summary with `entries` entries.
pub fn summary_pages(entries: u32) -> u32 {
    (SUMMARY_HEADER_BYTES + SUMMARY_ENTRY_BYTES * entries as usize).div_ceil(PAGE_SIZE) as u32
}

/// Most entries of a batch that has `pages` pages of space for summary and data together.
pub fn entries_max(pages: u32) -> u32 {
    let mut entries = pages.saturating_sub(1);
    // At most as many steps as the largest summary has pages.
    while entries > 0 && summary_pages(entries) + entries > pages {
        entries -= 1;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_segment_is_one_batch_of_1020_pages() {
        assert_eq!(entries_max(1024), 1020);
        assert_eq!(summary_pages(1020), 4);
    }

    #[test]
    fn entries_max_is_the_largest_that_fits() {
        for pages in 0..=1024 {
            let entries = entries_max(pages);
            assert!(entries == 0 || summary_pages(entries) + entries <= pages);
            assert!(summary_pages(entries + 1) + entries + 1 > pages);
        }
    }

    #[test]
    fn geometry_refuses_what_it_cannot_address() {
        assert!(Geometry::new(1000, 4).is_none());
        assert!(Geometry::new(1024, 1 << 22).is_none());
        assert!(Geometry::new(1024, (1 << 22) - 1).is_some());
    }

    #[test]
    fn the_save_reserve_holds_the_budget() {
        let geometry = Geometry::new(1024, 100).expect("valid");
        assert_eq!(geometry.save_reserve_segments(0), 2);
        assert_eq!(geometry.save_reserve_segments(1020), 3);
        assert_eq!(geometry.save_reserve_segments(1021), 4);
        for pages in [1, 1020, 1021, 50_000] {
            let reserve = geometry.save_reserve_segments(pages);
            assert!(geometry.save_capacity_pages(reserve) >= pages);
            assert!(geometry.save_capacity_pages(reserve - 1) < pages);
        }
    }
}
