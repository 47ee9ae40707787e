//! Which pages are free: extents in DRAM, merged as they come back, the best fit first.
//!
//! Pure: does not know the space.

use std::collections::{BTreeMap, BTreeSet};

/// Looks at so many extents that are long enough before it takes one of the longest for alignment.
const FITS_TRIED_MAX: usize = 64;

/// The free pages.
#[derive(Default)]
pub(crate) struct Pages {
    by_start: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
    free: u64,
}

impl Pages {
    /// Takes `pages` of them, the first a multiple of `align`.
    pub(crate) fn take(&mut self, pages: u32, align: u32) -> Option<u32> {
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
        self.free -= u64::from(pages);
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
        self.by_len.last().map_or(0, |(len, _)| *len)
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

    proptest! {
        #[test]
        fn pages_are_given_out_once_and_come_back(
            steps in prop::collection::vec((1u32..40, 0u32..5, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut pages = Pages::default();
            pages.give(16, 1000);
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
            prop_assert_eq!(pages.longest(), 1000);
        }
    }
}
