//! The catalogue: what a store records about each region.
//!
//! Plain data. Does not know where the pages of a region are stored or mapped.

use crate::limits::CUTS_MAX;
use crate::types::{RegionId, Sequence};

/// How writes to a region become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionMode {
    /// First writes fault: for programs that do not know us.
    Transparent,
    /// The program announces its writes.
    Explicit,
}

/// One region, as the superblock records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRecord {
    /// Never reused within a store.
    pub id: RegionId,
    /// Unique in the store.
    pub name: String,
    /// How writes become known.
    pub mode: RegionMode,
    /// Size in pages.
    pub pages: u32,
    /// Address space to keep for growth, in pages; at least `pages`.
    pub reserve_pages: u32,
    /// Where the region is mapped, so that raw pointers stay valid. 0: not chosen.
    pub address: u64,
    /// Creation, in seconds since 1970.
    pub created_unix_s: u64,
    /// The region's part of the last commit.
    pub(crate) committed: ImagePart,
    /// Shrinks whose cut-off pages may still be in the log, by growing sequence.
    pub(crate) cuts: Cuts,
}

/// What a new region needs. The store adds the id and the time.
#[derive(Clone, Debug)]
pub struct NewRegion {
    /// 1 to 128 bytes, unique in the store.
    pub name: String,
    /// How writes become known.
    pub mode: RegionMode,
    /// Size in pages.
    pub pages: u32,
    /// Address space to keep for growth, in pages. Raised to `pages` when smaller.
    pub reserve_pages: u32,
    /// Where the region is mapped; 0 when not chosen yet.
    pub address: u64,
}

/// The stored pages of one region in one image: how many, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImagePart {
    pub(crate) pages: u32,
    pub(crate) hash: u128,
}

/// One shrink: entries of pages from `page` on with a sequence below `sequence` are void, also when
/// the region has grown again since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) page: u32,
    pub(crate) sequence: u64,
}

/// The shrinks of a region that still matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cuts(Vec<Cut>);

impl Cuts {
    /// Takes cuts of growing sequences, at most [`CUTS_MAX`]; `None` for any other list.
    pub(crate) fn from_list(list: Vec<Cut>) -> Option<Self> {
        let grows = list.windows(2).all(|pair| pair[0].sequence < pair[1].sequence);
        (grows && list.len() <= CUTS_MAX).then_some(Self(list))
    }

    pub(crate) fn list(&self) -> &[Cut] {
        &self.0
    }

    /// Adds a shrink that is newer than all others. It covers those since the last commit at or
    /// above its page; older ones stay, because the committed image was made with them and without
    /// this one. `false`, and no change, when the list is full.
    pub(crate) fn add(&mut self, cut: Cut, last_commit: Sequence) -> bool {
        let mut cuts = self.0.clone();
        cuts.retain(|old| old.sequence <= last_commit.0 || old.page < cut.page);
        cuts.push(cut);
        let fits = cuts.len() <= CUTS_MAX;
        if fits {
            self.0 = cuts;
        }
        fits
    }

    /// A commit was made with all cuts: those that a newer one covers can go.
    pub(crate) fn committed(&mut self) {
        let mut lowest = u32::MAX;
        let mut kept: Vec<Cut> = Vec::new();
        for &cut in self.0.iter().rev() {
            if cut.page < lowest || kept.is_empty() {
                lowest = cut.page;
                kept.push(cut);
            }
        }
        kept.reverse();
        self.0 = kept;
    }

    /// The cuts that void an entry, by number.
    pub(crate) fn voiding(&self, page: u32, sequence: u64) -> impl Iterator<Item = usize> + '_ {
        let voids = move |cut: &Cut| page >= cut.page && sequence < cut.sequence;
        self.0.iter().enumerate().filter(move |(_, cut)| voids(cut)).map(|(number, _)| number)
    }

    /// The lowest page that a shrink after the commit cut off.
    pub(crate) fn lowest_after(&self, commit: Sequence) -> Option<u32> {
        self.0.iter().filter(|cut| cut.sequence > commit.0).map(|cut| cut.page).min()
    }

    /// Keeps the cuts for which `keep` says so.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Cut) -> bool) {
        self.0.retain(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_COMMIT: Sequence = Sequence(0);

    #[test]
    fn a_lower_shrink_covers_the_higher_ones() {
        let mut cuts = Cuts::default();
        assert!(cuts.add(Cut { page: 100, sequence: 50 }, NO_COMMIT));
        assert!(cuts.add(Cut { page: 140, sequence: 70 }, NO_COMMIT));
        assert_eq!(cuts.voiding(120, 49).collect::<Vec<_>>(), [0]);
        assert_eq!(cuts.voiding(120, 60).count(), 0, "written after the shrink to 100");
        assert_eq!(cuts.voiding(150, 60).collect::<Vec<_>>(), [1]);
        assert!(cuts.add(Cut { page: 100, sequence: 80 }, NO_COMMIT));
        assert_eq!(cuts.list(), [Cut { page: 100, sequence: 80 }]);
    }

    #[test]
    fn a_shrink_keeps_those_that_the_committed_image_was_made_with() {
        let mut cuts = Cuts::default();
        assert!(cuts.add(Cut { page: 20, sequence: 50 }, NO_COMMIT));
        assert!(cuts.add(Cut { page: 10, sequence: 100 }, Sequence(60)));
        assert_eq!(cuts.list().len(), 2);
        cuts.committed();
        assert_eq!(cuts.list(), [Cut { page: 10, sequence: 100 }]);
    }
}
