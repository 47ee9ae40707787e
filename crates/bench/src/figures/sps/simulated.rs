//! The schemes on a simulated memory system: misses, accesses, energy.
//!
//! The persistence thread's work is done by hand here, a few versions after each swap, on the second core:
//! the same run counts the same every time.

use std::sync::Arc;

use wattkeep_persist::Domain;
use wattkeep_tx::versions::Pace;

use super::{Bench, BenchError, Measured, beside_logging, rounds_of, scheme};
use crate::energy::{Accesses, MemorySystem};
use crate::measure::{Figure, Reach};
use crate::sps::{Mechanism, Scheme, Swaps, paper_schemes};

/// Versions that the persistence thread gets done while one swap is made: it keeps up, as it did when it was
/// measured, since a swap writes two.
const VERSIONS_A_SWAP: usize = 4;

/// Swaps before the count begins, as a share of the strings: caches and versions are in use by then.
const WARM_UP: usize = 5;

/// What each scheme was counted to do, by so many swaps.
pub(super) struct Simulated {
    swaps: u64,
    counted: Vec<(&'static str, Accesses)>,
}

impl Simulated {
    /// The paper's schemes.
    pub(super) fn paper(bench: &Bench, strings: usize, swaps: u64) -> Result<Self, BenchError> {
        let counted = paper_schemes().map(|scheme| Ok((scheme.name, count(bench, scheme, strings, swaps)?)));
        let counted = counted.into_iter().collect::<Result<_, BenchError>>()?;
        Ok(Self { swaps, counted })
    }

    /// What a scheme did, by `what`, a swap.
    pub(super) fn each(&self, name: &str, what: impl Fn(&Accesses) -> f64) -> f64 {
        let found = self.counted.iter().find(|(scheme, _)| *scheme == name);
        found.map_or(f64::NAN, |(_, counted)| what(counted) / self.swaps as f64)
    }

    fn all(&self, what: impl Fn(&Accesses) -> f64) -> Measured {
        self.counted.iter().map(|(name, counted)| (*name, vec![what(counted)])).collect()
    }

    pub(super) fn figures(&self, size: &str) -> Vec<Figure> {
        let swaps = self.swaps as f64;
        let a_microjoule = |counted: &Accesses| swaps / (counted.picojoules() / 1e6);
        let energy = self.all(a_microjoule);
        let of = |name| &energy.iter().find(|(scheme, _)| *scheme == name).expect("one of them").1;
        let id = if size == "1m" { "sps.energy".to_owned() } else { format!("sps.energy.{size}") };
        let note = "simulated: memory dynamic energy by the paper's model, accesses counted by our own caches \
                    and row buffers";
        let rounds = rounds_of(of("TCS"), of("LCS"));
        let mut figures = vec![
            Figure::beside(&id, "LCS", "swaps/µJ", &rounds, &Reach::AtLeast(2.4)).with_note(note.into()),
        ];
        let misses = self.all(|counted| 100.0 * counted.l1_misses as f64 / counted.words as f64);
        figures.extend(beside_logging("sps.l1", size, "misses/100", &misses));
        let memory = self.all(|counted| counted.memory() as f64 / swaps);
        figures.extend(beside_logging("sps.memory", size, "lines/swap", &memory));
        let picojoules = self.all(|counted| counted.picojoules() / swaps);
        figures.extend(beside_logging("sps.energy", size, "pJ/swap", &picojoules));
        figures
    }
}

/// TCS with another threshold: picojoules a swap.
pub(super) fn energy_at(
    bench: &Bench,
    threshold: f64,
    strings: usize,
    swaps: u64,
) -> Result<f64, BenchError> {
    let scheme = Scheme { mechanism: crate::sps::threaded(threshold), ..scheme("TCS") };
    Ok(count(bench, scheme, strings, swaps)?.picojoules() / swaps as f64)
}

fn count(bench: &Bench, scheme: Scheme, strings: usize, swaps: u64) -> Result<Accesses, BenchError> {
    let flush = match scheme.domain {
        Domain::Adr(flush, _) => Some(flush),
        _ => None,
    };
    let mechanism = match scheme.mechanism {
        Mechanism::Threaded(pace) => Mechanism::ThreadedByHand(Pace { ..pace }),
        mechanism => mechanism,
    };
    let memory = Arc::new(MemorySystem::new(flush));
    let scheme = Scheme { mechanism, ..scheme };
    let mut made = scheme.make_watched(strings, bench.scratch.path(), Some(memory.clone()))?;
    let mut stream = Swaps::new(strings, 1);
    let mut run = |count: u64| -> Result<(), BenchError> {
        for _ in 0..count {
            stream.run(&mut *made, 1)?;
            memory.run_on(1);
            made.persist_some(VERSIONS_A_SWAP)?;
            memory.run_on(0);
        }
        Ok(())
    };
    run((strings / WARM_UP) as u64)?;
    let before = memory.counted();
    run(swaps)?;
    Ok(memory.counted() - before)
}

/// A threshold's energy, for its figure.
pub(super) fn threshold_figure(id: &str, energy: f64, at_first: f64) -> Figure {
    Figure::beside(id, "threshold 0.2", "pJ/swap", &rounds_of(&[energy], &[at_first]), &Reach::Shown)
}
