//! From energy and power to the save window, and from the window to the time left for copying.
//!
//! ```text
//! mains fail                                                                 energy ends
//! |--detection--|--freeze--|-------------- copying --------------|--commit--|
//! |<------------------------------- window ------------------------------->|
//! ```
//!
//! The window counts from the instant the mains fail. Everything here rounds it down, and answers
//! zero when an argument makes no sense: no power draw means an unread meter, not eternity.

use serde::{Deserialize, Serialize};

use crate::energy::{Fraction, Millijoules, Milliwatts};

/// The share of a window that a save may use: while armed, a save ends within this much of it.
pub const DEADLINE_SHARE: Fraction = match Fraction::from_percent(80) {
    Some(share) => share,
    None => Fraction::ZERO,
};

const BYTES_PER_GIB: u128 = 1 << 30;

/// Nanoseconds in which one milliwatt consumes one millijoule, for one millionth of the energy.
const NS_PER_SECOND_AND_MILLIONTH: u128 = 1_000;

/// What the components draw at worst while a save runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerModel {
    /// Board, fans, network: everything not named below.
    pub base: Milliwatts,
    /// All processors at full load.
    pub cpu: Milliwatts,
    /// Memory, per GiB installed.
    pub dram_per_gib: Milliwatts,
    /// All drives while they write.
    pub ssd: Milliwatts,
    /// Output over input of the power supply and the inverter between battery and board.
    pub psu_efficiency: Fraction,
}

impl PowerModel {
    /// What the battery must deliver at worst, rounded up. `None` on overflow, or when the supply
    /// has no efficiency.
    pub fn peak_power(&self, dram_bytes: u64) -> Option<Milliwatts> {
        let dram = u128::from(self.dram_per_gib.0) * u128::from(dram_bytes);
        let dram = u64::try_from(dram.div_ceil(BYTES_PER_GIB)).ok()?;
        let parts = [self.base.0, self.cpu.0, dram, self.ssd.0];
        let sum = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(*part))?;
        self.psu_efficiency.whole_of_rounded_up(sum).map(Milliwatts)
    }
}

/// The parts of a window in which no page is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overheads {
    /// From the mains failing until the keeper knows.
    pub detection_ns: u64,
    /// From then until no page can be written any more.
    pub freeze_ns: u64,
    /// The commit record and the last flush.
    pub commit_ns: u64,
}

impl Overheads {
    /// The sum; `None` on overflow.
    pub fn total_ns(&self) -> Option<u64> {
        self.detection_ns.checked_add(self.freeze_ns)?.checked_add(self.commit_ns)
    }
}

/// `floor(energy x derating / peak power)` in nanoseconds: how long the energy lasts.
///
/// Zero if the power is zero or the result does not fit.
pub fn window_ns(energy: Millijoules, derating: Fraction, peak_power: Milliwatts) -> u64 {
    let usable = u128::from(energy.0) * u128::from(derating.parts_per_million());
    let numerator = usable * NS_PER_SECOND_AND_MILLIONTH;
    let window = numerator.checked_div(u128::from(peak_power.0)).unwrap_or(0);
    u64::try_from(window).unwrap_or(0)
}

/// `ceil(window x peak power / derating)`: the least energy whose [`window_ns`] is at least this.
///
/// `None` if no energy below 2^64 millijoules lasts that long.
pub fn energy_lasting(window_ns: u64, derating: Fraction, peak_power: Milliwatts) -> Option<Millijoules> {
    let per_millijoule = u128::from(derating.parts_per_million()) * NS_PER_SECOND_AND_MILLIONTH;
    if per_millijoule == 0 || peak_power.0 == 0 {
        return None;
    }
    let needed = u128::from(window_ns) * u128::from(peak_power.0);
    u64::try_from(needed.div_ceil(per_millijoule)).ok().map(Millijoules)
}

/// What a window leaves for copying pages. Zero if the overheads use it up.
pub fn copy_time_ns(window_ns: u64, overheads: &Overheads) -> u64 {
    let left = overheads.total_ns().and_then(|overhead| window_ns.checked_sub(overhead));
    left.unwrap_or(0)
}

/// When a save must have ended: [`DEADLINE_SHARE`] of the window, rounded down.
pub fn deadline_ns(window_ns: u64) -> u64 {
    DEADLINE_SHARE.of_rounded_down(window_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::NS_PER_SECOND;
    use proptest::prelude::*;

    const SERVER: PowerModel = PowerModel {
        base: Milliwatts(60_000),
        cpu: Milliwatts(120_000),
        dram_per_gib: Milliwatts(375),
        ssd: Milliwatts(24_000),
        psu_efficiency: match Fraction::from_percent(90) {
            Some(efficiency) => efficiency,
            None => Fraction::ZERO,
        },
    };

    #[test]
    fn peak_power_is_the_sum_over_the_efficiency() {
        // 60 + 120 + 256 x 0.375 + 24 = 300 W at the board.
        assert_eq!(SERVER.peak_power(256 << 30), Some(Milliwatts(333_334)));
        assert_eq!(PowerModel { psu_efficiency: Fraction::ZERO, ..SERVER }.peak_power(0), None);
        assert_eq!(PowerModel { cpu: Milliwatts(u64::MAX), ..SERVER }.peak_power(0), None);
    }

    #[test]
    fn a_deadline_is_four_fifths_of_the_window() {
        assert_eq!(deadline_ns(10 * NS_PER_SECOND), 8 * NS_PER_SECOND);
        assert_eq!(deadline_ns(u64::MAX), 14_757_395_258_967_641_292);
    }

    #[test]
    fn a_window_of_the_papers_server() {
        let window = window_ns(Millijoules(300_000_000), Fraction::ONE, Milliwatts(300_000));
        assert_eq!(window, 1_000 * NS_PER_SECOND);
    }

    #[test]
    fn doubt_is_no_window() {
        let energy = Millijoules(1_000_000);
        assert_eq!(window_ns(energy, Fraction::ONE, Milliwatts(0)), 0);
        assert_eq!(window_ns(energy, Fraction::ZERO, Milliwatts(1)), 0);
        assert_eq!(window_ns(Millijoules(u64::MAX), Fraction::ONE, Milliwatts(1)), 0, "overflow");
        let overheads = Overheads { detection_ns: u64::MAX, freeze_ns: 1, commit_ns: 0 };
        assert_eq!(copy_time_ns(u64::MAX, &overheads), 0);
        assert_eq!(energy_lasting(1, Fraction::ZERO, Milliwatts(1)), None);
        assert_eq!(energy_lasting(1, Fraction::ONE, Milliwatts(0)), None);
        assert_eq!(energy_lasting(u64::MAX, Fraction::ONE, Milliwatts(u64::MAX)), None);
    }

    proptest! {
        #[test]
        fn energy_lasting_is_the_least_that_lasts(
            window in 0..1u64 << 50, parts in 1..=Fraction::PARTS, power in 1..1u64 << 22,
        ) {
            let derating = Fraction::from_parts_per_million(parts).expect("in range");
            let power = Milliwatts(power);
            if let Some(energy) = energy_lasting(window, derating, power) {
                prop_assert!(window_ns(energy, derating, power) >= window);
                if let Some(less) = energy.0.checked_sub(1) {
                    prop_assert!(window_ns(Millijoules(less), derating, power) < window);
                }
            }
        }

        #[test]
        fn copying_never_outlasts_the_window(window: u64, detection_ns: u64, freeze_ns: u64, commit_ns: u64) {
            let overheads = Overheads { detection_ns, freeze_ns, commit_ns };
            let spent = u128::from(detection_ns) + u128::from(freeze_ns) + u128::from(commit_ns);
            let copying = u128::from(copy_time_ns(window, &overheads));
            prop_assert!(copying == 0 || copying + spent == u128::from(window));
        }
    }
}
