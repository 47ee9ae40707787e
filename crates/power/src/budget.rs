//! The dirty budget: how many pages may be dirty, so that a save always fits its window.
//!
//! ```text
//! budget pages = floor( (energy x derating / peak power - detection - freeze - commit)
//!                       x worst measured bandwidth / 4096 ) - in-flight reserve
//! ```
//!
//! Invariants, each held by a property test:
//! - a budget is never rounded up: saving it takes no longer than its window;
//! - an inverse is never rounded down: the window (energy) it names gives at least that budget;
//! - more energy, time or bandwidth never gives a smaller budget, more overhead or power never a
//!   larger one, short of an overflow;
//! - any doubt, overflow included, is a budget of zero, or no answer from an inverse.
//!
//! The in-flight reserve is subtracted because pages on their way to the SSD are vulnerable too.

use serde::{Deserialize, Serialize};

use crate::energy::{Fraction, Millijoules, Milliwatts};
use crate::units::{NS_PER_SECOND, PAGE_BYTES};
use crate::window::{self, DEADLINE_SHARE, Overheads};

/// Time to copy one page at one byte per second.
const NS_TIMES_BANDWIDTH_PER_PAGE: u128 = PAGE_BYTES as u128 * NS_PER_SECOND as u128;

/// What a save costs on this machine and this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaveCost {
    /// Worst measured sequential write bandwidth of the store.
    pub bandwidth_bytes_per_s: u64,
    /// The parts of the window in which no page is copied.
    pub overheads: Overheads,
    /// Pages that writeback may have in flight beyond the dirty ones.
    pub in_flight_reserve_pages: u64,
}

/// The whole formula: pages that may be dirty on this battery. Zero means: do not arm.
pub fn budget_pages(energy: Millijoules, derating: Fraction, peak_power: Milliwatts, cost: &SaveCost) -> u64 {
    budget_for(window::window_ns(energy, derating, peak_power), cost)
}

/// Pages that may be dirty when `window_ns` remain from the instant the mains fail.
///
/// The save of that many pages may use the whole of `window_ns`: pass [`window::deadline_ns`] of a
/// measured window, unless it is already derated to [`DEADLINE_SHARE`] or less.
pub fn budget_for(window_ns: u64, cost: &SaveCost) -> u64 {
    let copy_ns = window::copy_time_ns(window_ns, &cost.overheads);
    // Below 2^128: both factors are below 2^64.
    let written = u128::from(copy_ns) * u128::from(cost.bandwidth_bytes_per_s);
    let pages = u64::try_from(written / NS_TIMES_BANDWIDTH_PER_PAGE).unwrap_or(0);
    pages.saturating_sub(cost.in_flight_reserve_pages)
}

/// The least window that carries `budget_pages`, overheads and reserve included, rounded up.
///
/// `None` if no window below 2^64 nanoseconds does.
pub fn window_for(budget_pages: u64, cost: &SaveCost) -> Option<u64> {
    if cost.bandwidth_bytes_per_s == 0 {
        return None;
    }
    let pages = u128::from(budget_pages) + u128::from(cost.in_flight_reserve_pages);
    let written = pages.checked_mul(NS_TIMES_BANDWIDTH_PER_PAGE)?;
    let copy_ns = u64::try_from(written.div_ceil(u128::from(cost.bandwidth_bytes_per_s))).ok()?;
    copy_ns.checked_add(cost.overheads.total_ns()?)
}

/// The least energy that carries `budget_pages`, rounded up: the battery to buy.
///
/// `None` if no energy below 2^64 millijoules does.
pub fn energy_for(
    budget_pages: u64,
    cost: &SaveCost,
    derating: Fraction,
    peak_power: Milliwatts,
) -> Option<Millijoules> {
    window::energy_lasting(window_for(budget_pages, cost)?, derating, peak_power)
}

/// The window that a drill assumes when a budget is given and no battery: one of which saving
/// `budget_pages` takes [`DEADLINE_SHARE`], rounded up.
///
/// `None` if no window below 2^64 nanoseconds does.
pub fn default_window(budget_pages: u64, cost: &SaveCost) -> Option<u64> {
    DEADLINE_SHARE.whole_of_rounded_up(window_for(budget_pages, cost)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn cost(bandwidth_bytes_per_s: u64) -> SaveCost {
        SaveCost { bandwidth_bytes_per_s, overheads: Overheads::default(), in_flight_reserve_pages: 0 }
    }

    /// 4 TB of DRAM, an SSD of 4 GB/s, a server of 300 W: "a battery with ~300 kJ".
    #[test]
    fn the_papers_server_needs_about_300_kj() {
        let dram_pages = 4_000_000_000_000 / PAGE_BYTES;
        let disk = cost(4_000_000_000);
        let power = Milliwatts(300_000);
        let energy = energy_for(dram_pages, &disk, Fraction::ONE, power).expect("in range");
        assert_eq!(energy.to_string(), "300 kJ");
        assert!(budget_pages(energy, Fraction::ONE, power, &disk) >= dram_pages);

        // With binary terabytes it is 330 kJ, and "close to 17 minutes" become 18.
        let binary = energy_for((4u64 << 40) / PAGE_BYTES, &disk, Fraction::ONE, power);
        assert_eq!(binary.expect("in range").to_string(), "330 kJ");

        // Discharged to half only, the battery carries half.
        let half = Fraction::from_percent(50).expect("in range");
        let halved = budget_pages(Millijoules(300_000_000), half, power, &disk);
        assert_eq!(halved, 2_000_000_000_000 / PAGE_BYTES);
    }

    #[test]
    fn every_term_of_the_formula_counts() {
        let overheads = Overheads { detection_ns: 100 * MS, freeze_ns: 20 * MS, commit_ns: 30 * MS };
        let cost = SaveCost { bandwidth_bytes_per_s: 409_600_000, overheads, in_flight_reserve_pages: 256 };
        // 1.25 kJ x 80 % / 1 kW = 1 s; less 150 ms; at 100,000 pages per second; less 256.
        let energy = Millijoules(1_250_000);
        let derating = Fraction::from_percent(80).expect("in range");
        assert_eq!(budget_pages(energy, derating, Milliwatts(1_000_000), &cost), 85_000 - 256);
        assert_eq!(window_for(85_000 - 256, &cost), Some(1_000 * MS));
        assert_eq!(default_window(85_000 - 256, &cost), Some(1_250 * MS));
        let needed = energy_for(85_000 - 256, &cost, derating, Milliwatts(1_000_000));
        assert_eq!(needed, Some(energy));
    }

    #[test]
    fn doubt_is_a_budget_of_zero() {
        let disk = cost(4_000_000_000);
        let second = 1_000 * MS;
        assert_eq!(budget_for(0, &disk), 0);
        assert_eq!(budget_for(second, &cost(0)), 0);
        assert_eq!(budget_for(u64::MAX, &cost(u64::MAX)), 0, "overflow");
        let reserve = SaveCost { in_flight_reserve_pages: u64::MAX, ..disk };
        assert_eq!(budget_for(second, &reserve), 0);
        let slow = Overheads { detection_ns: u64::MAX, freeze_ns: u64::MAX, commit_ns: u64::MAX };
        assert_eq!(budget_for(second, &SaveCost { overheads: slow, ..disk }), 0);
        assert_eq!(window_for(1, &SaveCost { overheads: slow, ..disk }), None);
        assert_eq!(window_for(1, &cost(0)), None);
        assert_eq!(window_for(u64::MAX, &cost(1)), None);
        assert_eq!(budget_pages(Millijoules(1), Fraction::ONE, Milliwatts(0), &disk), 0);
    }

    /// Every corner of every argument, multiplied out: 9^5 x 4 combinations.
    #[test]
    fn no_corner_panics() {
        let corners = [0, 1, 2, 4095, 4096, 1 << 32, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for a in corners {
            for b in corners {
                for c in corners {
                    for d in corners {
                        for e in corners {
                            let overheads = Overheads { detection_ns: c, freeze_ns: d, commit_ns: c };
                            let cost =
                                SaveCost { bandwidth_bytes_per_s: b, overheads, in_flight_reserve_pages: e };
                            let budget = budget_for(a, &cost);
                            assert!(budget == 0 || window_for(budget, &cost) <= Some(a));
                            let _ = default_window(a, &cost);
                            let _ = energy_for(a, &cost, DEADLINE_SHARE, Milliwatts(d));
                            let _ = budget_pages(Millijoules(a), Fraction::ONE, Milliwatts(d), &cost);
                        }
                    }
                }
            }
        }
    }

    prop_compose! {
        /// Machines that exist: up to 64 GB/s, overheads up to 1,000 s, reserves up to 4 GiB.
        fn any_cost()(
            bandwidth_bytes_per_s in 1..64_000_000_000u64,
            detection_ns in 0..1_000_000_000_000u64,
            freeze_ns in 0..1_000_000_000_000u64,
            commit_ns in 0..1_000_000_000_000u64,
            in_flight_reserve_pages in 0..1u64 << 20,
        ) -> SaveCost {
            let overheads = Overheads { detection_ns, freeze_ns, commit_ns };
            SaveCost { bandwidth_bytes_per_s, overheads, in_flight_reserve_pages }
        }
    }

    prop_compose! {
        fn any_fraction()(parts in 1..=Fraction::PARTS) -> Fraction {
            Fraction::from_parts_per_million(parts).expect("in range")
        }
    }

    proptest! {
        #[test]
        fn a_budget_never_exceeds_its_window(window in 0..1u64 << 50, cost in any_cost()) {
            let budget = budget_for(window, &cost);
            if budget > 0 {
                let needed = window_for(budget, &cost).expect("a real budget has a window");
                prop_assert!(needed <= window);
                // Nor is a page given away.
                prop_assert!(window_for(budget + 1, &cost).expect("in range") > window);
            }
        }

        #[test]
        fn an_inverse_is_conservative_and_tight(
            budget in 1..1u64 << 32, cost in any_cost(), derating in any_fraction(), power in 1..1u64 << 22,
        ) {
            let power = Milliwatts(power);
            let window = window_for(budget, &cost).expect("in range");
            prop_assert!(budget_for(window, &cost) >= budget);
            prop_assert!(budget_for(window - 1, &cost) < budget);
            if let Some(energy) = energy_for(budget, &cost, derating, power) {
                prop_assert!(budget_pages(energy, derating, power, &cost) >= budget);
            }
        }

        #[test]
        fn a_default_window_keeps_the_deadline(budget in 1..1u64 << 32, cost in any_cost()) {
            let window = default_window(budget, &cost).expect("in range");
            let needed = window_for(budget, &cost).expect("in range");
            prop_assert!(needed <= window::deadline_ns(window));
            prop_assert!(budget_for(window::deadline_ns(window), &cost) >= budget);
        }

        #[test]
        fn a_budget_is_monotone_in_each_argument(
            energy in 0..1u64 << 44, power in 1..1u64 << 30, derating in any_fraction(),
            cost in any_cost(), more in 0..1u64 << 40,
        ) {
            let pages = |energy, power, derating, cost: &SaveCost| {
                budget_pages(Millijoules(energy), derating, Milliwatts(power), cost)
            };
            let base = pages(energy, power, derating, &cost);
            let overheads = cost.overheads;
            let with = |overheads| SaveCost { overheads, ..cost };

            prop_assert!(pages(energy + more, power, derating, &cost) >= base);
            prop_assert!(pages(energy, power, Fraction::ONE, &cost) >= base);
            let faster = cost.bandwidth_bytes_per_s + more % 64_000_000_000;
            let faster = SaveCost { bandwidth_bytes_per_s: faster, ..cost };
            prop_assert!(pages(energy, power, derating, &faster) >= base);

            prop_assert!(pages(energy, power + more, derating, &cost) <= base);
            let detection_ns = overheads.detection_ns + more;
            let freeze_ns = overheads.freeze_ns + more;
            let commit_ns = overheads.commit_ns + more;
            let in_flight_reserve_pages = cost.in_flight_reserve_pages + more;
            for dearer in [
                with(Overheads { detection_ns, ..overheads }),
                with(Overheads { freeze_ns, ..overheads }),
                with(Overheads { commit_ns, ..overheads }),
                SaveCost { in_flight_reserve_pages, ..cost },
            ] {
                prop_assert!(pages(energy, power, derating, &dearer) <= base);
            }
        }

        #[test]
        fn an_inverse_is_monotone(budget in 0..1u64 << 32, more in 0..1u64 << 32, cost in any_cost()) {
            prop_assert!(window_for(budget + more, &cost) >= window_for(budget, &cost));
            prop_assert!(default_window(budget + more, &cost) >= default_window(budget, &cost));
        }

        #[test]
        fn nothing_panics_and_no_budget_outlasts_its_window(
            window: u64, energy: u64, power: u64, bandwidth_bytes_per_s: u64, budget: u64,
            detection_ns: u64, freeze_ns: u64, commit_ns: u64, in_flight_reserve_pages: u64,
        ) {
            let overheads = Overheads { detection_ns, freeze_ns, commit_ns };
            let cost = SaveCost { bandwidth_bytes_per_s, overheads, in_flight_reserve_pages };
            let pages = budget_for(window, &cost);
            prop_assert!(pages == 0 || window_for(pages, &cost) <= Some(window));
            let _ = budget_pages(Millijoules(energy), DEADLINE_SHARE, Milliwatts(power), &cost);
            let _ = energy_for(budget, &cost, DEADLINE_SHARE, Milliwatts(power));
        }
    }
}
