//! Which pages are free: extents in DRAM, merged as they come back, the best fit first; and, where none of
//! them fits, pages that were never used, from the supply.
//!
//! Pure: does not know the space, but for the source that the supply asks.

use std::collections::{BTreeMap, BTreeSet};

use crate::supply::{Counts, Options, Purpose, Source, Supply};

/// Looks at so many extents that are long enough before it takes one of the longest for alignment.
const FITS_TRIED_MAX: usize = 64;

/// The free pages.
#[derive(Default)]
pub(crate) struct Pages {
    by_start: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
    /// In extents, and with the supply.
    free: u64,
    fresh: Option<Fresh>,
}

/// Pages behind all that are or were in use.
struct Fresh {
    supply: Supply,
    options: Options,
    source: Box<dyn Source + Send>,
}

impl Pages {
    /// From now on the last extent, if it ends at `end`, is supplied in batches; so is what is added there.
    pub(crate) fn supply(&mut self, end: u32, options: Options, source: Box<dyn Source + Send>) {
        let supply = Supply::new(self.take_last(end), &options, &*source);
        self.fresh = Some(Fresh { supply, options, source });
    }

    /// Adds pages behind all others.
    pub(crate) fn extend(&mut self, first: u32, pages: u32) {
        let end = first + pages;
        match &mut self.fresh {
            Some(fresh) if fresh.supply.end() == u64::from(first) => {
                fresh.supply.grow(end.into());
                self.free += u64::from(pages);
            }
            _ => self.give(first, pages),
        }
    }

    /// What the supply did.
    pub(crate) fn supplied(&self) -> Counts {
        self.fresh.as_ref().map_or_else(Counts::default, |fresh| fresh.supply.counts())
    }

    /// Takes `pages` of them for data that survives, the first a multiple of `align`.
    pub(crate) fn take(&mut self, pages: u32, align: u32) -> Option<u32> {
        self.take_for(Purpose::Persistent, pages, align)
    }

    /// The same, for this purpose.
    pub(crate) fn take_for(&mut self, purpose: Purpose, pages: u32, align: u32) -> Option<u32> {
        let first = self
            .take_extent(pages, align)
            .or_else(|| self.take_fresh(purpose, pages, align))
            .or_else(|| self.regroup().and_then(|()| self.take_extent(pages, align)));
        self.renew();
        self.free -= first.map_or(0, |_| u64::from(pages));
        first
    }

    fn take_fresh(&mut self, purpose: Purpose, pages: u32, align: u32) -> Option<u32> {
        let Fresh { supply, source, .. } = self.fresh.as_mut()?;
        let first = supply.take(pages.into(), align.into(), purpose, &**source)?;
        Some(u32::try_from(first).expect("the supply has pages of the space"))
    }

    /// Gives the supply's pages to the extents, where they merge with what is free beside them.
    fn regroup(&mut self) -> Option<()> {
        let rows = self.fresh.as_mut()?.supply.give_up();
        for row in rows {
            self.free -= row.end - row.start;
            self.give(row.start as u32, (row.end - row.start) as u32);
        }
        Some(())
    }

    /// A supply that gave its pages up gets the last extent back.
    fn renew(&mut self) {
        let Some(end) = self.fresh.as_ref().filter(|fresh| fresh.supply.left() == 0).map(|f| f.supply.end())
        else {
            return;
        };
        let last = self.take_last(end as u32);
        if let Some(fresh) = &mut self.fresh
            && !last.is_empty()
        {
            fresh.supply = Supply::new(last, &fresh.options, &*fresh.source);
        }
    }

    /// The last extent, if it ends at `end`: it stays free, but is none of the extents any more.
    fn take_last(&mut self, end: u32) -> std::ops::Range<u64> {
        match self.by_start.last_key_value() {
            Some((&start, &len)) if start + len == end => {
                self.remove(start, len);
                start.into()..end.into()
            }
            _ => end.into()..end.into(),
        }
    }

    fn take_extent(&mut self, pages: u32, align: u32) -> Option<u32> {
        let fits = |start: u32, len: u32| {
            let first = start.checked_next_multiple_of(align)?;
            (first.checked_add(pages)? <= start + len).then_some(first)
        };
        let near = self.by_len.range((pages, 0)..).take(FITS_TRIED_MAX);
        let (start, len, first) =
            near.chain(self.by_len.range((pages.saturating_add(align), 0)..).take(1))
                .find_map(|&(len, start)| fits(start, len).map(|first| (start, len, first)))?;
        self.remove(start, len);
        if first > start {
            self.insert(start, first - start);
        }
        if first + pages < start + len {
            self.insert(first + pages, start + len - first - pages);
        }
        Some(first)
    }

    /// Takes exactly these, if all of them are free.
    pub(crate) fn take_at(&mut self, first: u32, pages: u32) -> bool {
        let Some((&start, &len)) = self.by_start.range(..=first).next_back() else {
            return false;
        };
        let Some(end) = first.checked_add(pages).filter(|end| *end <= start + len) else {
            return false;
        };
        self.remove(start, len);
        if first > start {
            self.insert(start, first - start);
        }
        if end < start + len {
            self.insert(end, start + len - end);
        }
        self.free -= u64::from(pages);
        true
    }

    /// Gives pages back that are not free.
    pub(crate) fn give(&mut self, first: u32, pages: u32) {
        if pages == 0 {
            return;
        }
        self.free += u64::from(pages);
        let (mut start, mut end) = (first, first + pages);
        if let Some((&before, &len)) = self.by_start.range(..first).next_back() {
            assert!(before + len <= first, "pages are given back once");
            if before + len == first {
                self.remove(before, len);
                start = before;
            }
        }
        if let Some((&after, &len)) = self.by_start.range(first..).next() {
            assert!(after >= end, "pages are given back once");
            if after == end {
                self.remove(after, len);
                end += len;
            }
        }
        self.insert(start, end - start);
    }

    /// How many are free.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// The longest run of free ones.
    pub(crate) fn longest(&self) -> u32 {
        let fresh = self.fresh.as_ref().map_or(0, |fresh| fresh.supply.longest() as u32);
        self.by_len.last().map_or(0, |(len, _)| *len).max(fresh)
    }

    fn insert(&mut self, start: u32, len: u32) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn remove(&mut self, start: u32, len: u32) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    use crate::supply::Populated;

    /// Has pieces of four pages, and every third batch comes scattered.
    struct Played;

    impl Source for Played {
        fn piece(&self, at_least: u64) -> u64 {
            at_least
        }

        fn populate(&self, pages: std::ops::Range<u64>) -> Populated {
            if (pages.start / 4).is_multiple_of(3) { Populated::Scattered } else { Populated::Contiguous }
        }

        fn expect(&self, _pages: std::ops::Range<u64>) {}

        fn free_bytes(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn fresh_pages_come_after_those_that_were_used_and_merge_when_room_is_short() {
        let mut pages = Pages::default();
        pages.give(0, 4);
        pages.give(8, 56);
        pages.supply(64, Options::for_space(1 << 40), Box::new(Played));
        assert_eq!((pages.free(), pages.longest()), (60, 56));
        assert_eq!(pages.take(3, 1), Some(0));
        assert_eq!(pages.supplied(), Counts::default());
        assert_eq!(pages.take(8, 8), Some(8));
        assert_ne!(pages.supplied().batches, 0);
        pages.give(8, 8);
        // Only what was used and what was not, together, are long enough.
        assert_eq!(pages.take(56, 1), Some(8));
        assert_eq!((pages.free(), pages.longest()), (1, 1));
        pages.give(8, 56);
        assert_eq!(pages.take(57, 1), None);
        assert_eq!((pages.free(), pages.longest()), (57, 56));
        pages.extend(64, 8);
        assert_eq!(pages.take(64, 1), Some(8));
    }

    proptest! {
        #[test]
        fn pages_are_given_out_once_and_come_back(
            supplied in any::<bool>(),
            steps in prop::collection::vec((1u32..40, 0u32..5, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut pages = Pages::default();
            pages.give(16, 1000);
            if supplied {
                pages.supply(1016, Options::for_space(1 << 40), Box::new(Played));
            }
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (count, shift, which) in steps {
                if count % 3 == 0 && !taken.is_empty() {
                    let (first, count) = taken.swap_remove(which.index(taken.len()));
                    pages.give(first, count);
                } else if let Some(first) = pages.take(count, 1 << shift) {
                    prop_assert!(first.is_multiple_of(1 << shift) && first >= 16 && first + count <= 1016);
                    for &(other, len) in &taken {
                        prop_assert!(first + count <= other || other + len <= first);
                    }
                    taken.push((first, count));
                }
                let held: u64 = taken.iter().map(|(_, len)| u64::from(*len)).sum();
                prop_assert_eq!(pages.free(), 1000 - held);
            }
            for (first, count) in taken {
                pages.give(first, count);
            }
            prop_assert_eq!(pages.free(), 1000);
            prop_assert_eq!(pages.take(1000, 1), Some(16));
            prop_assert_eq!(pages.longest(), 0);
        }
    }
}
