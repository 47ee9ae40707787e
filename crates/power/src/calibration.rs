//! What a drill measured on the real store, and how observations at run time move it.
//!
//! The budget stands on the worst that was seen. A worse observation counts at once and in full; a
//! better one takes back only 1/[`RECOVERY_DIVISOR`] of the difference, so one lucky burst cannot
//! raise the budget, and a slow hour of the SSD is forgotten after some hundred good observations.
//!
//! Invariants: bandwidths are positive, the worst is not above the median, and there was a sample.
//! Deserializing checks them: a file on disk is not trusted.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::budget::SaveCost;
use crate::energy::Fraction;
use crate::units::NS_PER_SECOND;
use crate::window::Overheads;

/// A better observation moves a worst value by one part in this many of the difference: after 64 of
/// them 63 % of a bad spell is forgotten, after 300 it is 99 %.
pub const RECOVERY_DIVISOR: u64 = 64;

/// Observations of fewer bytes measure latency, not bandwidth, and leave the bandwidth alone.
pub const OBSERVED_BYTES_MIN: u64 = 1 << 20;

/// One measured save, or one stretch of run time during which the store was kept busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes written sequentially. Zero: no write in this sample.
    pub written_bytes: u64,
    /// The time that took, without the flush.
    pub write_ns: u64,
    /// The time of one flush. Zero: no flush in this sample.
    pub flush_ns: u64,
    /// Pages protected by a freeze. Zero: no freeze in this sample.
    pub frozen_pages: u64,
    /// The time that took.
    pub freeze_ns: u64,
}

impl Sample {
    /// Bandwidth, rounded down; `None` without a write, or if the clock did not move.
    fn bandwidth_bytes_per_s(&self) -> Option<u64> {
        let scaled = u128::from(self.written_bytes) * u128::from(NS_PER_SECOND);
        let bandwidth = scaled.checked_div(u128::from(self.write_ns))?;
        u64::try_from(bandwidth).ok().filter(|bandwidth| *bandwidth > 0)
    }

    /// Freeze time per page, rounded up; `None` without a freeze.
    fn freeze_ns_per_page(&self) -> Option<u64> {
        (self.frozen_pages > 0).then(|| self.freeze_ns.div_ceil(self.frozen_pages))
    }
}

/// Why samples or a stored record make no calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalibrationError {
    /// No sample holds a write with a bandwidth.
    NoBandwidth,
    /// A stored record breaks an invariant of this file.
    Inconsistent,
}

impl fmt::Display for CalibrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBandwidth => "no sample measured a write to the store: run 'wattkeep drill'",
            Self::Inconsistent => {
                "the stored calibration contradicts itself: measure again with 'wattkeep drill'"
            }
        })
    }
}

impl std::error::Error for CalibrationError {}

/// What saves cost on this store and this kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UntrustedCalibration")]
pub struct Calibration {
    /// The least sequential write bandwidth seen, recovering slowly: the budget stands on it.
    pub write_worst_bytes_per_s: u64,
    /// The usual bandwidth, for people. Never below the worst.
    pub write_median_bytes_per_s: u64,
    /// The longest flush seen, recovering slowly.
    pub flush_worst_ns: u64,
    /// The longest freeze per page seen, rounded up, recovering slowly.
    pub freeze_worst_ns_per_page: u64,
    /// Samples and observations that count so far.
    pub samples: u32,
    /// When the drill measured, in seconds since 1970.
    pub measured_at_unix_s: u64,
}

/// A calibration as read from disk.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UntrustedCalibration {
    write_worst_bytes_per_s: u64,
    write_median_bytes_per_s: u64,
    flush_worst_ns: u64,
    freeze_worst_ns_per_page: u64,
    samples: u32,
    measured_at_unix_s: u64,
}

impl TryFrom<UntrustedCalibration> for Calibration {
    type Error = CalibrationError;

    fn try_from(stored: UntrustedCalibration) -> Result<Self, CalibrationError> {
        let ordered = stored.write_worst_bytes_per_s <= stored.write_median_bytes_per_s;
        if stored.write_worst_bytes_per_s == 0 || !ordered || stored.samples == 0 {
            return Err(CalibrationError::Inconsistent);
        }
        Ok(Self {
            write_worst_bytes_per_s: stored.write_worst_bytes_per_s,
            write_median_bytes_per_s: stored.write_median_bytes_per_s,
            flush_worst_ns: stored.flush_worst_ns,
            freeze_worst_ns_per_page: stored.freeze_worst_ns_per_page,
            samples: stored.samples,
            measured_at_unix_s: stored.measured_at_unix_s,
        })
    }
}

impl Calibration {
    /// Combines the samples of a drill: the least bandwidth, the greatest overheads.
    pub fn from_samples(samples: &[Sample], measured_at_unix_s: u64) -> Result<Self, CalibrationError> {
        let mut bandwidths: Vec<u64> = samples.iter().filter_map(Sample::bandwidth_bytes_per_s).collect();
        bandwidths.sort_unstable();
        let worst = bandwidths.first().ok_or(CalibrationError::NoBandwidth)?;
        // The lower of the two in the middle: nothing is rounded up.
        let median = bandwidths[(bandwidths.len() - 1) / 2];
        let freezes = samples.iter().filter_map(Sample::freeze_ns_per_page);
        Ok(Self {
            write_worst_bytes_per_s: *worst,
            write_median_bytes_per_s: median,
            flush_worst_ns: samples.iter().map(|sample| sample.flush_ns).max().unwrap_or(0),
            freeze_worst_ns_per_page: freezes.max().unwrap_or(0),
            samples: u32::try_from(samples.len()).unwrap_or(u32::MAX),
            measured_at_unix_s,
        })
    }

    /// Merges two drills of the same store: the worse of each value, the later date.
    pub fn combined(&self, other: &Self) -> Self {
        Self {
            write_worst_bytes_per_s: self.write_worst_bytes_per_s.min(other.write_worst_bytes_per_s),
            write_median_bytes_per_s: self.write_median_bytes_per_s.min(other.write_median_bytes_per_s),
            flush_worst_ns: self.flush_worst_ns.max(other.flush_worst_ns),
            freeze_worst_ns_per_page: self.freeze_worst_ns_per_page.max(other.freeze_worst_ns_per_page),
            samples: self.samples.saturating_add(other.samples),
            measured_at_unix_s: self.measured_at_unix_s.max(other.measured_at_unix_s),
        }
    }

    /// Takes in an observation from run time: worse counts at once, better slowly.
    ///
    /// Observe only while the store is kept busy: bytes over an idle second are no bandwidth.
    pub fn observe(&mut self, observed: &Sample) {
        let bandwidth = observed.bandwidth_bytes_per_s();
        let bandwidth = bandwidth.filter(|_| observed.written_bytes >= OBSERVED_BYTES_MIN);
        if let Some(bandwidth) = bandwidth {
            self.observe_bandwidth(bandwidth);
        }
        if observed.flush_ns > 0 {
            self.flush_worst_ns = track_greatest(self.flush_worst_ns, observed.flush_ns);
        }
        if let Some(freeze_ns_per_page) = observed.freeze_ns_per_page() {
            self.freeze_worst_ns_per_page = track_greatest(self.freeze_worst_ns_per_page, freeze_ns_per_page);
        }
        self.samples = self.samples.saturating_add(1);
    }

    fn observe_bandwidth(&mut self, observed_bytes_per_s: u64) {
        let median = self.write_median_bytes_per_s;
        let step = median / RECOVERY_DIVISOR;
        // A step towards the observation, of a fixed share of itself, ends at the median.
        self.write_median_bytes_per_s = if observed_bytes_per_s >= median {
            median.saturating_add(step).min(observed_bytes_per_s)
        } else {
            (median - step).max(observed_bytes_per_s)
        };
        let worst = self.write_worst_bytes_per_s;
        let tracked = match observed_bytes_per_s.checked_sub(worst) {
            None => observed_bytes_per_s,
            Some(better_by) => worst + better_by / RECOVERY_DIVISOR,
        };
        self.write_worst_bytes_per_s = tracked.min(self.write_median_bytes_per_s);
    }

    /// The same machine on a bad day: bandwidth times `share`, overheads over `share`, for what no
    /// drill has seen. Zero bandwidth, so no budget, when `share` is zero.
    pub fn derated(&self, share: Fraction) -> Self {
        let longer = |worst_ns| share.whole_of_rounded_up(worst_ns).unwrap_or(u64::MAX);
        Self {
            write_worst_bytes_per_s: share.of_rounded_down(self.write_worst_bytes_per_s),
            write_median_bytes_per_s: share.of_rounded_down(self.write_median_bytes_per_s),
            flush_worst_ns: longer(self.flush_worst_ns),
            freeze_worst_ns_per_page: longer(self.freeze_worst_ns_per_page),
            ..*self
        }
    }

    /// What a save costs when `freeze_pages` must be protected before copying starts.
    ///
    /// A commit is the flush of the data, then the record and its flush: two flushes. Saturates, and
    /// a saturated overhead gives a budget of zero.
    pub fn save_cost(&self, detection_ns: u64, freeze_pages: u64, in_flight_reserve_pages: u64) -> SaveCost {
        SaveCost {
            bandwidth_bytes_per_s: self.write_worst_bytes_per_s,
            overheads: Overheads {
                detection_ns,
                freeze_ns: self.freeze_worst_ns_per_page.saturating_mul(freeze_pages),
                commit_ns: self.flush_worst_ns.saturating_mul(2),
            },
            in_flight_reserve_pages,
        }
    }
}

/// The greatest value so far, sinking slowly towards smaller ones.
fn track_greatest(worst: u64, observed: u64) -> u64 {
    match worst.checked_sub(observed) {
        None => observed,
        Some(better_by) => worst - better_by / RECOVERY_DIVISOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::budget_for;
    use proptest::prelude::*;

    /// A second of writing at so many MB/s.
    fn second_at(mb_per_s: u64) -> Sample {
        Sample { written_bytes: mb_per_s * 1_000_000, write_ns: NS_PER_SECOND, ..Sample::default() }
    }

    fn calibrated(mb_per_s: u64) -> Calibration {
        Calibration::from_samples(&[second_at(mb_per_s)], 1_700_000_000).expect("one write")
    }

    #[test]
    fn samples_combine_to_the_worst() {
        let freeze = Sample { frozen_pages: 1_000, freeze_ns: 60_001, ..second_at(1_500) };
        let flush = Sample { flush_ns: 5_000_000, ..Sample::default() };
        let slower_flush = Sample { flush_ns: 9_000_000, ..second_at(1_200) };
        let samples = [second_at(1_800), freeze, flush, slower_flush, second_at(2_000)];
        let calibration = Calibration::from_samples(&samples, 7).expect("four writes");
        let expected = Calibration {
            write_worst_bytes_per_s: 1_200_000_000,
            write_median_bytes_per_s: 1_500_000_000,
            flush_worst_ns: 9_000_000,
            freeze_worst_ns_per_page: 61,
            samples: 5,
            measured_at_unix_s: 7,
        };
        assert_eq!(calibration, expected);
        let cost = calibration.save_cost(100, 1_000, 64);
        assert_eq!(cost.bandwidth_bytes_per_s, 1_200_000_000);
        assert_eq!(cost.overheads.total_ns(), Some(100 + 61_000 + 18_000_000));
    }

    #[test]
    fn no_write_is_no_calibration() {
        let still_clock = Sample { written_bytes: 1 << 20, ..Sample::default() };
        for samples in [&[][..], &[Sample::default()], &[still_clock]] {
            let error = Calibration::from_samples(samples, 0).expect_err("nothing measured");
            assert_eq!(error, CalibrationError::NoBandwidth);
        }
    }

    #[test]
    fn worse_counts_at_once_and_better_slowly() {
        let mut calibration = calibrated(2_000);
        calibration.observe(&second_at(500));
        assert_eq!(calibration.write_worst_bytes_per_s, 500_000_000);
        calibration.observe(&second_at(2_000));
        assert!(calibration.write_worst_bytes_per_s < 525_000_000, "one burst is not trusted");
        for _ in 0..600 {
            calibration.observe(&second_at(2_000));
        }
        assert!(calibration.write_worst_bytes_per_s > 1_950_000_000, "a bad hour is forgotten");
        assert!(calibration.write_worst_bytes_per_s <= 2_000_000_000);

        calibration.observe(&Sample { flush_ns: 64_000, ..Sample::default() });
        calibration.observe(&Sample { flush_ns: 6_400, ..Sample::default() });
        assert_eq!(calibration.flush_worst_ns, 64_000 - 900);
    }

    #[test]
    fn small_or_empty_observations_leave_the_bandwidth_alone() {
        let mut calibration = calibrated(2_000);
        calibration.observe(&Sample { written_bytes: 4096, write_ns: 1 << 30, ..Sample::default() });
        calibration.observe(&Sample::default());
        assert_eq!(calibration.write_worst_bytes_per_s, 2_000_000_000);
        assert_eq!(calibration.flush_worst_ns, 0);
    }

    #[test]
    fn derating_to_nothing_leaves_no_budget() {
        let cost = calibrated(2_000).derated(Fraction::ZERO).save_cost(0, 1, 0);
        assert_eq!(budget_for(1 << 50, &cost), 0);
        let half = Fraction::from_percent(50).expect("in range");
        assert_eq!(calibrated(2_000).derated(half).write_worst_bytes_per_s, 1_000_000_000);
    }

    #[test]
    fn a_stored_record_is_checked() {
        let good = serde_json::to_string(&calibrated(2_000)).expect("plain integers");
        assert_eq!(serde_json::from_str::<Calibration>(&good).ok(), Some(calibrated(2_000)));
        for (from, to) in [
            ("\"write_worst_bytes_per_s\":2000000000", "\"write_worst_bytes_per_s\":0"),
            ("\"write_worst_bytes_per_s\":2000000000", "\"write_worst_bytes_per_s\":2000000001"),
            ("\"samples\":1", "\"samples\":0"),
            ("\"samples\":1", "\"samples\":1,\"trust\":true"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            assert!(serde_json::from_str::<Calibration>(&bad).is_err(), "{bad}");
        }
    }

    prop_compose! {
        fn any_sample()(
            written_bytes: u64, write_ns: u64, flush_ns: u64, frozen_pages: u64, freeze_ns: u64,
        ) -> Sample {
            Sample { written_bytes, write_ns, flush_ns, frozen_pages, freeze_ns }
        }
    }

    proptest! {
        #[test]
        fn the_invariants_survive_any_observation(samples in prop::collection::vec(any_sample(), 1..40)) {
            if let Ok(mut calibration) = Calibration::from_samples(&samples, 0) {
                for sample in &samples {
                    calibration.observe(sample);
                    prop_assert!(calibration.write_worst_bytes_per_s > 0);
                    prop_assert!(calibration.write_worst_bytes_per_s <= calibration.write_median_bytes_per_s);
                    prop_assert!(calibration.flush_worst_ns >= sample.flush_ns);
                    if sample.written_bytes >= OBSERVED_BYTES_MIN {
                        let bandwidth = sample.bandwidth_bytes_per_s().unwrap_or(u64::MAX);
                        prop_assert!(calibration.write_worst_bytes_per_s <= bandwidth);
                    }
                    let _ = calibration.save_cost(sample.write_ns, sample.frozen_pages, 1);
                }
                let both = calibration.combined(&calibration.derated(Fraction::ONE));
                prop_assert_eq!(both.write_worst_bytes_per_s, calibration.write_worst_bytes_per_s);
            }
        }
    }
}
