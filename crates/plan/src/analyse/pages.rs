//! What is remembered of each distinct page: the only state that grows, and not with the trace's length.
//!
//! Takes about 50 bytes for each page that was touched.

use rustc_hash::FxHashMap;

/// Interval lengths that are watched at once.
pub const INTERVALS: usize = 3;

/// What is known of one page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Writes so far.
    pub writes: u64,
    /// For each interval length, one more than the number of the interval it was last written in; 0: never.
    pub written_in: [u32; INTERVALS],
    /// Its place in the order of updates, from 1; 0: not in it. Belongs to the curve.
    pub stamp: u32,
    /// Whether it was touched before it was written.
    pub read: bool,
    /// Chooses samples. The same page of the same volume has the same hash in each run.
    pub hash: u32,
}

/// All pages of all volumes that were touched.
#[derive(Debug, Default)]
pub struct PageTable {
    numbers: Vec<FxHashMap<u64, u32>>,
    slots: Vec<Slot>,
}

impl PageTable {
    /// The number of a page's slot; made if it is new.
    ///
    /// # Panics
    /// With more than 2^32 pages: 16 TiB touched.
    #[inline]
    pub fn number(&mut self, volume: u32, page: u64) -> u32 {
        let volume_at = volume as usize;
        if volume_at >= self.numbers.len() {
            self.numbers.resize_with(volume_at + 1, FxHashMap::default);
        }
        *self.numbers[volume_at].entry(page).or_insert_with(|| {
            let number = u32::try_from(self.slots.len()).expect("fewer than 2^32 pages fit the memory");
            self.slots.push(Slot { hash: hash(volume, page), ..Slot::default() });
            number
        })
    }

    /// The page with that number.
    #[inline]
    pub fn slot(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize]
    }

    /// All pages.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Pages of one volume.
    pub fn of_volume(&self, volume: usize) -> impl Iterator<Item = &Slot> {
        let numbers = self.numbers.get(volume).into_iter().flat_map(|numbers| numbers.values());
        numbers.map(|number| &self.slots[*number as usize])
    }
}

/// The finaliser of MurmurHash3 over page and volume.
fn hash(volume: u32, page: u64) -> u32 {
    let mut hash = page ^ u64::from(volume).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (hash ^ hash >> 33) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_keeps_its_slot_and_volumes_are_apart() {
        let mut table = PageTable::default();
        let (a, b, other) = (table.number(0, 7), table.number(0, 8), table.number(2, 7));
        table.slot(b).writes = 5;
        assert_eq!((table.number(0, 7), table.number(0, 8), table.number(2, 7)), (a, b, other));
        assert_eq!(table.slots().len(), 3);
        assert_eq!(table.of_volume(0).map(|slot| slot.writes).sum::<u64>(), 5);
        assert_eq!(
            (table.of_volume(1).count(), table.of_volume(2).count(), table.of_volume(9).count()),
            (0, 1, 0)
        );
        assert_ne!(table.slots()[a as usize].hash, table.slots()[other as usize].hash);
    }

    #[test]
    fn hashes_spread_evenly() {
        let below = (0..1 << 16).filter(|page| hash(3, *page) < 1 << 28).count();
        assert!((3_900..4_300).contains(&below), "{below} of 4096 expected");
    }
}
