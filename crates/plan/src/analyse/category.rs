//! The four kinds of volumes that Viyojit's section 3 tells apart, and the thresholds we read from it.
//!
//! | | writes go to mostly unique pages | writes are skewed |
//! |---|---|---|
//! | few writes | 1: a smaller battery pays | 2: it pays most |
//! | many writes | 4: it may not be worthwhile | 3: it pays |
//!
//! The paper names volumes and no thresholds. Ours: writes are few when the worst hour, each write
//! counted as a page of its own, stays below 15 % of the volume, the line the paper draws in figure 2
//! (without times: the whole trace instead of the hour). Writes are skewed when at most half of the
//! touched pages take 99 % of them; the paper's examples of skew have 10 % and 30 %.

use serde::Serialize;

use super::skew::percent;

/// Few writes: the worst hour writes less than this part of the volume.
pub const FEW_WRITES_PERCENT: f64 = 15.0;

/// Skewed: at most this part of the touched pages takes 99 % of the writes.
pub const SKEWED_PERCENT: f64 = 50.0;

/// A kind of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Category {
    /// 1 to 4, as above.
    pub number: u8,
    /// In words.
    pub name: &'static str,
    /// What it means for a battery.
    pub advice: &'static str,
}

impl Category {
    /// The kind of a volume of `volume_pages`, from the page writes of its worst hour, and the pages that
    /// take 99 % of all writes among those touched.
    pub fn of(written_in_an_hour: u64, volume_pages: u64, taking_99: u64, touched: u64) -> Self {
        let few = percent(written_in_an_hour, volume_pages) < FEW_WRITES_PERCENT;
        let skewed = percent(taking_99, touched) <= SKEWED_PERCENT;
        let (number, name, advice) = match (few, skewed) {
            (true, false) => (1, "few writes, to mostly unique pages", "a smaller battery pays"),
            (true, true) => (2, "few writes, and skewed", "a smaller battery pays most"),
            (false, true) => (3, "many writes, and skewed", "a smaller battery pays"),
            (false, false) => (4, "many writes, to mostly unique pages", "a smaller battery may not pay"),
        };
        Self { number, name, advice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_examples_fall_where_it_puts_them() {
        // Blob storage A, Cosmos B and C, Cosmos F (70 % written, 10 % of pages take 99 %), Cosmos E.
        for (hour, taking, number) in [(5, 90, 1), (5, 30, 2), (70, 10, 3), (70, 95, 4)] {
            assert_eq!(Category::of(hour, 100, taking, 100).number, number);
        }
        assert_eq!(Category::of(0, 0, 0, 0).number, 2, "nothing was written");
    }
}
