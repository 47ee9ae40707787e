//! Names the pages that a damaged log lost, as far as anything that is left tells.
//!
//! The evidence is the log once more, with the summaries that no chain reaches and with those entries of
//! damaged summaries whose page is whole. It is never taken for the image: it only says what is missing
//! there. When the image with it has the commit's hash, the names are the whole loss.
//!
//! Does no I/O and changes nothing.

use std::fmt::Write;
use std::ops::RangeInclusive;

use crate::index::Index;
use crate::layout::Geometry;
use crate::scan::Scan;
use crate::superblock::Superblock;
use crate::types::{PageId, RegionId};

/// Page numbers of one region, ascending, in ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRanges(Vec<RangeInclusive<u32>>);

impl PageRanges {
    /// The ranges: no two touch.
    pub fn ranges(&self) -> &[RangeInclusive<u32>] {
        &self.0
    }

    /// How many pages they are.
    pub fn pages(&self) -> u64 {
        self.0.iter().map(pages_in).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `page 5`, or `pages 3-7, 19 and 12 more pages`: at most `ranges_max` ranges.
    pub fn named(&self, ranges_max: usize) -> String {
        let mut text = if self.pages() == 1 { "page ".to_owned() } else { "pages ".to_owned() };
        for (number, range) in self.0.iter().take(ranges_max).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            let written = match (range.start(), range.end()) {
                (first, last) if first == last => write!(text, "{comma}{first}"),
                (first, last) => write!(text, "{comma}{first}-{last}"),
            };
            written.expect("a string grows");
        }
        let more: u64 = self.0.iter().skip(ranges_max).map(pages_in).sum();
        match more {
            0 => text,
            1 => text + " and 1 more page",
            more => text + &format!(" and {more} more pages"),
        }
    }
}

/// Takes ascending page numbers.
impl FromIterator<u32> for PageRanges {
    fn from_iter<T: IntoIterator<Item = u32>>(pages: T) -> Self {
        let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
        for page in pages {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == page => *last = *last.start()..=page,
                last => {
                    assert!(last.is_none_or(|last| *last.end() < page), "pages ascend");
                    ranges.push(page..=page);
                }
            }
        }
        Self(ranges)
    }
}

fn pages_in(range: &RangeInclusive<u32>) -> u64 {
    u64::from(range.end() - range.start()) + 1
}

/// A region whose pages are not those that were committed. A page that was cut off since the commit is
/// counted and not named: nobody misses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPages {
    /// The region.
    pub region: RegionId,
    /// Its name.
    pub name: String,
    /// Stored pages at the commit.
    pub committed: u32,
    /// Pages found. When not fewer, some of them are older versions.
    pub found: u32,
    /// Committed pages of which nothing was found: they read as zeros.
    pub missing: PageRanges,
    /// Pages found in a version older than the committed one.
    pub older: PageRanges,
    /// Where the missing pages lie that are not named: pages of which nothing was found, committed or
    /// never written. Empty when all are named.
    pub suspects: PageRanges,
    /// The names are the whole loss: with them the commit's hash is met. Otherwise other pages may show
    /// older versions.
    pub proven: bool,
}

impl LostPages {
    /// A region that does not add up, before anything is named.
    pub(crate) fn unnamed(region: RegionId, name: &str, committed: u32, found: u32) -> Self {
        let (missing, older, suspects) = Default::default();
        Self { region, name: name.to_owned(), committed, found, missing, older, suspects, proven: false }
    }

    /// One clause, with at most `ranges_max` ranges in each list.
    pub fn named(&self, ranges_max: usize) -> String {
        let mut parts = Vec::new();
        let lacking = u64::from(self.committed.saturating_sub(self.found));
        let unnamed = lacking.saturating_sub(self.missing.pages());
        if lacking > 0 {
            let mut part = format!("lacks {lacking} of {} pages", self.committed);
            if !self.missing.is_empty() {
                part += &format!(": {}", self.missing.named(ranges_max));
            }
            if unnamed > 0 && !self.suspects.is_empty() {
                let others = if self.missing.is_empty() { "," } else { &format!(", and {unnamed}") };
                part += &format!("{others} among {}", self.suspects.named(ranges_max));
            }
            parts.push(part);
        }
        if !self.older.is_empty() {
            parts.push(format!("shows older versions of {}", self.older.named(ranges_max)));
        }
        if !self.proven {
            parts.push("may show older versions of pages that nothing names any more".to_owned());
        }
        format!("region '{}' {}", self.name, parts.join(", "))
    }
}

/// What the search for evidence brought.
pub(crate) struct Evidence<'a> {
    pub(crate) superblock: &'a Superblock,
    /// What the chains gave: the image that is found.
    pub(crate) found: &'a Index,
    /// The same with everything overlooked.
    pub(crate) fuller: &'a Index,
    pub(crate) reached: &'a Scan,
    pub(crate) overlooked: &'a Scan,
}

impl Evidence<'_> {
    /// Fills in the names. Returns the slots of the summaries that are damaged, or that hold a lost version
    /// and cannot be reached.
    pub(crate) fn name(&self, lost: &mut [LostPages]) -> Vec<u32> {
        for lost in &mut *lost {
            self.name_in(lost);
        }
        let mut slots: Vec<_> = self.reached.damaged.clone();
        slots.extend(&self.overlooked.damaged);
        let geometry = self.superblock.geometry;
        for batch in &self.overlooked.batches {
            let mut entries = self.overlooked.placed_entries(batch);
            if entries.any(|(slot, entry)| self.is_lost(entry.page, slot)) {
                slots.push(batch.head.position);
                slots.extend(self.gap_before(batch.head.position, geometry));
            }
        }
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Where the chain ended that should have led to `position`.
    fn gap_before(&self, position: u32, geometry: Geometry) -> Option<u32> {
        let segment = geometry.segment_of(position);
        let reached = self.reached.batches.iter();
        let in_segment = reached.filter(|batch| geometry.segment_of(batch.head.position) == segment);
        let ends = in_segment.map(|batch| batch.first_slot() + batch.count);
        let end = ends.max().unwrap_or(geometry.first_slot(segment));
        (end < position).then_some(end)
    }

    fn name_in(&self, lost: &mut LostPages) {
        let at = self.superblock.regions.binary_search_by_key(&lost.region, |region| region.id);
        let region = &self.superblock.regions[at.expect("a lost region is in the catalogue")];
        let cut = region.cuts.lowest_after(self.superblock.commit.last_sequence);
        let end = region.pages.min(cut.unwrap_or(u32::MAX));
        let page = |page| PageId { region: region.id, page };
        let none_found = |number: &u32| self.found.latest(page(*number)).is_none();
        let differs = |number: &u32| self.differs(page(*number));
        lost.missing = (0..end).filter(|number| none_found(number) && differs(number)).collect();
        lost.older = (0..end).filter(|number| !none_found(number) && differs(number)).collect();
        lost.proven = self.fuller.part(region.id) == region.committed;
        let lacking = u64::from(lost.committed.saturating_sub(lost.found));
        if lost.proven || lost.missing.pages() >= lacking {
            return;
        }
        let holes: PageRanges = (0..end).filter(none_found).collect();
        // No other page can be missing, unless it was cut off.
        if cut.is_none() && holes.pages() == lacking {
            lost.missing = holes;
        } else {
            lost.suspects = (0..end).filter(|number| none_found(number) && !differs(number)).collect();
        }
    }

    /// Whether the evidence holds a version of the page that is not the one found.
    fn differs(&self, page: PageId) -> bool {
        let checksum = |index: &Index| index.latest(page).map(|(_, checksum)| checksum);
        checksum(self.fuller) != checksum(self.found)
    }

    /// Whether `slot` holds a lost version.
    fn is_lost(&self, page: PageId, slot: u32) -> bool {
        self.fuller.latest(page).is_some_and(|(latest, _)| latest == slot) && self.differs(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_named_up_to_a_bound_and_the_others_are_counted() {
        let ranges: PageRanges = [3, 4, 5, 6, 7, 19, 21, 22, 30].into_iter().collect();
        assert_eq!(ranges.pages(), 9);
        assert_eq!(ranges.named(20), "pages 3-7, 19, 21-22, 30");
        assert_eq!(ranges.named(3), "pages 3-7, 19, 21-22 and 1 more page");
        assert_eq!(ranges.named(2), "pages 3-7, 19 and 3 more pages");
        assert_eq!([u32::MAX].into_iter().collect::<PageRanges>().named(1), format!("page {}", u32::MAX));
    }

    #[test]
    fn a_loss_says_what_is_named_and_what_is_not() {
        let mut lost = LostPages::unnamed(RegionId(1), "table", 40, 33);
        lost.missing = (3..8).collect();
        lost.suspects = (20..60).collect();
        let text = lost.named(20);
        let unproven = "may show older versions of pages that nothing names any more";
        let expected = "region 'table' lacks 7 of 40 pages: pages 3-7, and 2 among pages 20-59";
        assert_eq!(text, format!("{expected}, {unproven}"));
        lost.missing = PageRanges::default();
        let text = lost.named(20);
        assert_eq!(text, format!("region 'table' lacks 7 of 40 pages, among pages 20-59, {unproven}"));
        let mut lost = LostPages::unnamed(RegionId(1), "table", 40, 40);
        lost.older = (8..10).collect();
        lost.proven = true;
        assert_eq!(lost.named(20), "region 'table' shows older versions of pages 8-9");
    }
}
