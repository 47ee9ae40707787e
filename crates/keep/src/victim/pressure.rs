//! How many pages the next epoch will dirty, and so how far below the budget to stay.
//!
//! Viyojit, section 5.3: `pressure = 0.75 x (new dirty pages of this epoch) + 0.25 x pressure`, and
//! pages are cleaned ahead as long as more than `budget - pressure` are dirty.

/// Weight of the newest epoch.
const NEWEST: f64 = 0.75;

/// The running estimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    expected: f64,
}

impl Pressure {
    /// An epoch ended in which `dirtied` pages became dirty.
    pub fn epoch(&mut self, dirtied: u64) {
        self.expected = NEWEST * dirtied as f64 + (1.0 - NEWEST) * self.expected;
    }

    /// Newly dirty pages expected in the next epoch.
    pub fn expected(&self) -> f64 {
        self.expected
    }

    /// Dirty pages above which to clean ahead. At least half of the budget stays in use, whatever
    /// the pressure: a burst must not throw the whole working set out.
    pub fn threshold(&self, budget_pages: u32) -> u32 {
        budget_pages - (self.expected.ceil() as u32).min(budget_pages.div_ceil(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_weighs_the_newest_epoch_with_three_quarters() {
        let mut pressure = Pressure::default();
        pressure.epoch(100);
        assert_eq!(pressure.expected(), 75.0);
        pressure.epoch(0);
        assert_eq!(pressure.expected(), 18.75);
        assert_eq!(pressure.threshold(1000), 981);
    }

    #[test]
    fn pressure_never_takes_more_than_half_of_the_budget() {
        let mut pressure = Pressure::default();
        pressure.epoch(1 << 40);
        assert_eq!((pressure.threshold(10), pressure.threshold(1), pressure.threshold(0)), (5, 0, 0));
    }
}
