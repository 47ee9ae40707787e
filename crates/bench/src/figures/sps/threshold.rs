//! TCS by its persistence threshold: throughput measured, energy simulated, each beside threshold 0.2.

use super::simulated::{energy_at, threshold_figure};
use super::{Bench, BenchError, Measured, NAMES, Running, Sizes, rounds_of, scheme, take_turns};
use crate::measure::{Figure, Reach, median};
use crate::sps::{Scheme, threaded};

/// The thresholds of the paper's figures 6 and 7, and below.
const THRESHOLDS: [(&str, f64); 10] = [
    ("0.1", 0.1),
    ("0.2", 0.2),
    ("0.3", 0.3),
    ("0.4", 0.4),
    ("0.5", 0.5),
    ("0.6", 0.6),
    ("0.7", 0.7),
    ("0.8", 0.8),
    ("0.9", 0.9),
    ("1.0", 1.0),
];

/// Which of them the others are compared with.
const FIRST: usize = 1;

/// One sweep over all thresholds.
pub(super) struct Sweep {
    size: &'static str,
    throughput: Measured,
    energy: Vec<f64>,
}

pub(super) fn sweep(bench: &Bench, sizes: Sizes) -> Result<Vec<Sweep>, BenchError> {
    let sweeps = sizes.swaps.iter().zip(NAMES).map(|(&swaps, size)| {
        let mut running = Vec::new();
        for (name, threshold) in THRESHOLDS {
            let scheme = Scheme { name, mechanism: threaded(threshold), ..scheme("TCS") };
            running.push(Running::start(bench, scheme, sizes.strings)?);
        }
        let throughput = take_turns(bench, running, swaps)?;
        let energy = THRESHOLDS.map(|(_, threshold)| energy_at(bench, threshold, sizes.strings, swaps));
        let energy = energy.into_iter().collect::<Result<_, _>>()?;
        Ok(Sweep { size, throughput, energy })
    });
    sweeps.collect()
}

impl Sweep {
    pub(super) fn size(&self) -> &'static str {
        self.size
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let at_first = &self.throughput[FIRST].1;
        let throughput = self.throughput.iter().map(|(name, values)| {
            let id = format!("sps.threshold.{name}.{}", self.size);
            let rounds = rounds_of(values, at_first);
            Figure::beside(&id, "threshold 0.2", "Mswaps/s", &rounds, &Reach::Shown)
        });
        let energy = self.energy.iter().zip(THRESHOLDS).map(|(energy, (name, _))| {
            let id = format!("sps.threshold.energy.{name}.{}", self.size);
            threshold_figure(&id, *energy, self.energy[FIRST])
        });
        throughput.chain(energy).collect()
    }

    /// Throughput and energy over the threshold, each as a share of that at 0.2.
    pub(super) fn curves(&self) -> [Vec<(f64, f64)>; 2] {
        let middles: Vec<f64> =
            self.throughput.iter().map(|(_, values)| median(values).unwrap_or(f64::NAN)).collect();
        [&middles, &self.energy].map(|values| {
            let shares = values.iter().map(|value| value / values[FIRST]);
            THRESHOLDS.iter().map(|(_, threshold)| *threshold).zip(shares).collect()
        })
    }
}
