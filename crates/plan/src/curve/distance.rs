//! How many distinct pages were written since the last write of this one: the stack distance of updates,
//! for all budgets at once.
//!
//! With the least recently updated page as victim, a budget of B pages holds exactly the B pages written
//! last (Mattson's inclusion). So a write finds its page dirty in all budgets above its distance, and in
//! no other; one histogram of distances answers for every budget.
//!
//! Each page in the order has a stamp; a Fenwick tree counts the stamps above one. When stamps run out
//! they are dealt anew in the same order. Of a large trace only pages with a low hash are kept (SHARDS,
//! Waldspurger and others, FAST 2015): each time they become too many, half of the hashes go, and
//! distances and counts are doubled once more.
//!
//! Invariants: a page is in the order if and only if its stamp is not 0. Without sampling all numbers are
//! exact.

use crate::analyse::pages::PageTable;

/// Pages that are followed exactly, unless told otherwise: a working set of 16 GiB.
pub const SAMPLE_PAGES: u32 = 1 << 22;

/// How far back the last write of a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// It is its first write.
    First,
    /// So many distinct other pages were written since.
    Pages(u64),
    /// The page is not in the sample.
    NotSampled,
}

/// Pages in the order of their last updates.
#[derive(Debug)]
pub struct UpdateOrder {
    /// Slot numbers by stamp; [`GONE`] where the page moved on.
    owners: Vec<u32>,
    tree: Fenwick,
    /// Next stamp.
    next: u32,
    live: u32,
    live_max: u32,
    /// One page of 2^shift is kept.
    shift: u32,
}

const GONE: u32 = u32::MAX;
const STAMPS_MIN: usize = 1 << 12;
/// No order of fewer than so many pages is thinned: the estimate would be worthless.
pub const SAMPLE_PAGES_MIN: u32 = 1 << 10;

impl UpdateOrder {
    /// An empty order that keeps at most `live_max` pages, at least [`SAMPLE_PAGES_MIN`].
    pub fn new(live_max: u32) -> Self {
        Self {
            owners: vec![GONE; STAMPS_MIN],
            tree: Fenwick::new(STAMPS_MIN),
            next: 1,
            live: 0,
            live_max: live_max.clamp(SAMPLE_PAGES_MIN, u32::MAX / 8),
            shift: 0,
        }
    }

    /// One page of 2 to this power is followed; 0: all.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The page with slot `number` is written.
    #[inline]
    pub fn write(&mut self, table: &mut PageTable, number: u32) -> Distance {
        if self.next as usize == self.owners.len() {
            self.deal_anew(table);
        }
        let slot = table.slot(number);
        if self.shift > 0 && slot.hash >> (32 - self.shift) != 0 {
            return Distance::NotSampled;
        }
        let stamp = std::mem::replace(&mut slot.stamp, self.next);
        self.owners[self.next as usize] = number;
        let distance = match stamp {
            0 => {
                self.live += 1;
                Distance::First
            }
            stamp => {
                let above = self.live - self.tree.sum(stamp as usize);
                self.tree.add(stamp as usize, -1);
                self.owners[stamp as usize] = GONE;
                Distance::Pages(u64::from(above) << self.shift)
            }
        };
        self.tree.add(self.next as usize, 1);
        self.next += 1;
        distance
    }

    /// Gives the pages in the order new stamps from 1 up, and room for as many again; thins the sample
    /// first if there are too many.
    fn deal_anew(&mut self, table: &mut PageTable) {
        while self.live > self.live_max {
            self.thin(table);
        }
        let mut dealt = vec![GONE; (self.live as usize * 2).max(STAMPS_MIN)];
        let mut stamp = 1;
        for owner in self.owners.drain(..).filter(|owner| *owner != GONE) {
            table.slot(owner).stamp = stamp;
            dealt[stamp as usize] = owner;
            stamp += 1;
        }
        debug_assert_eq!(stamp - 1, self.live);
        self.tree = Fenwick::of_ones(dealt.len(), self.live as usize);
        self.owners = dealt;
        self.next = stamp;
    }

    /// Drops the upper half of the hashes from the order.
    fn thin(&mut self, table: &mut PageTable) {
        self.shift += 1;
        for owner in self.owners.iter_mut().filter(|owner| **owner != GONE) {
            let slot = table.slot(*owner);
            if slot.hash >> (32 - self.shift) != 0 {
                slot.stamp = 0;
                *owner = GONE;
                self.live -= 1;
            }
        }
    }
}

/// Prefix sums over places from 1, in logarithmic time (Fenwick, 1994).
#[derive(Debug)]
struct Fenwick(Vec<i32>);

impl Fenwick {
    fn new(places: usize) -> Self {
        Self(vec![0; places])
    }

    /// Ones at the places from 1 to `ones`, in linear time.
    fn of_ones(places: usize, ones: usize) -> Self {
        let mut tree = Self::new(places);
        for place in 1..places {
            tree.0[place] += i32::from(place <= ones);
            let parent = place + (place & place.wrapping_neg());
            if parent < places {
                tree.0[parent] += tree.0[place];
            }
        }
        tree
    }

    #[inline]
    fn add(&mut self, mut place: usize, what: i32) {
        while place < self.0.len() {
            self.0[place] += what;
            place += place & place.wrapping_neg();
        }
    }

    /// The sum over places from 1 to `place`.
    #[inline]
    fn sum(&self, mut place: usize) -> u32 {
        let mut sum = 0;
        while place > 0 {
            sum += self.0[place];
            place &= place - 1;
        }
        u32::try_from(sum).expect("a count of pages is not negative")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by walking a list.
    fn walked(writes: &[u64]) -> Vec<Distance> {
        let mut order: Vec<u64> = Vec::new();
        let distance = |page: &u64| {
            let at = order.iter().rposition(|other| other == page);
            let distance = at.map_or(Distance::First, |at| Distance::Pages((order.len() - 1 - at) as u64));
            at.map(|at| order.remove(at));
            order.push(*page);
            distance
        };
        writes.iter().map(distance).collect()
    }

    fn distances(order: &mut UpdateOrder, writes: impl IntoIterator<Item = u64>) -> Vec<Distance> {
        let mut table = PageTable::default();
        let mut next = |page| {
            let number = table.number(0, page);
            order.write(&mut table, number)
        };
        writes.into_iter().map(&mut next).collect()
    }

    #[test]
    fn distances_count_distinct_pages_since() {
        use Distance::{First, Pages};
        let expected = [First, First, Pages(0), Pages(1), First, Pages(2), Pages(2), Pages(0)];
        assert_eq!(distances(&mut UpdateOrder::new(1024), [1, 2, 2, 1, 3, 2, 1, 1]), expected);
    }

    #[test]
    fn a_sample_keeps_its_bound_and_its_scale() {
        let mut order = UpdateOrder::new(SAMPLE_PAGES_MIN);
        // Round and round 64,000 pages: each distance is 63,999.
        let found = distances(&mut order, (0..10).flat_map(|_| 0..64_000));
        assert!(order.shift() >= 5 && order.live <= SAMPLE_PAGES_MIN * 2, "{}", order.shift());
        let last: Vec<_> = found[576_000..]
            .iter()
            .filter_map(|distance| match distance {
                Distance::Pages(pages) => Some(*pages as f64),
                _ => None,
            })
            .collect();
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        assert!((mean / 63_999.0 - 1.0).abs() < 0.1, "{mean}");
    }

    proptest! {
        #[test]
        fn distances_are_those_of_a_list(writes in prop::collection::vec(0_u64..300, 0..9_000)) {
            prop_assert_eq!(distances(&mut UpdateOrder::new(1024), writes.iter().copied()), walked(&writes));
        }
    }
}
