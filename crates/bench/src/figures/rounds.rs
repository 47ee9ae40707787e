//! Rounds of ours and the rival's on a machine that others use, too.
//!
//! A round during which other programs took more than a twentieth of the processors is measured again,
//! for a while; then the quietest rounds count. Who was quiet is decided by the kernel's accounts alone,
//! never by what was measured.
//!
//! Memory is warm when a turn begins. A hypervisor may take back what is free for seconds (free page reporting):
//! where it does, the first touch of a page took 13 µs instead of 0.1 to 0.3, on any side, and whose turn found
//! such pages was chance. It was a third of an insert's time. The processor's own caches are cold then.

use std::hint::black_box;
use std::sync::Arc;

use wattkeep_persist::{Anonymous, Domain, PAGE, Space};

use super::process::Processors;
use super::{Bench, BenchError};
use crate::measure::Rounds;

/// Share of the processors' time above which a round is measured again.
const QUIET: f64 = 0.05;

/// Rounds measured for each one that counts, at most.
const TRIES: usize = 3;

/// Rounds that count, and how much others used the processors meanwhile: a note.
pub(super) struct Measured {
    pub(super) rounds: Rounds,
    pub(super) others: String,
}

/// Memory that is warm when a turn begins: more than most turns touch for the first time.
const WARM_BYTES: usize = 64 << 20;

/// Touches free memory: the kernel gives out first what was freed last. It keeps single pages and large pieces in
/// lists of their own, so both are touched.
fn warm_memory() {
    drop(black_box(vec![1u8; WARM_BYTES]));
    let pieces = Space::new(Arc::new(Anonymous::new(WARM_BYTES)), Domain::Battery);
    pieces.expect(0, WARM_BYTES);
    (0..WARM_BYTES).step_by(PAGE).for_each(|page| pieces.store(page, 1).expect("its own memory"));
}

/// One of those who take turns: given the number of the round, it measures `N` things.
pub(super) type Side<'a, const N: usize> = Box<dyn FnMut(usize) -> Result<[f64; N], BenchError> + 'a>;

/// The rounds that count of all who took turns.
pub(super) struct Turns<const N: usize> {
    /// By round, then by side.
    rounds: Vec<Vec<[f64; N]>>,
    pub(super) others: String,
}

impl<const N: usize> Turns<N> {
    /// What sides `ours` and `theirs` measured as their thing number `what`.
    pub(super) fn rounds(&self, ours: usize, theirs: usize, what: usize) -> Rounds {
        let mut rounds = Rounds::default();
        self.rounds.iter().for_each(|round| rounds.push(round[ours][what], round[theirs][what]));
        rounds
    }

    /// What `side` measured as its thing number `what`.
    pub(super) fn alone(&self, side: usize, what: usize) -> Vec<f64> {
        self.rounds.iter().map(|round| round[side][what]).collect()
    }
}

struct Round<const N: usize> {
    others: f64,
    sides: Vec<[f64; N]>,
}

impl Bench {
    /// Measures `count` rounds of both sides, alternating, and changing who goes first. `pids` are the
    /// processes that belong to the measurement.
    pub(super) fn alternate<'a>(
        &self,
        count: usize,
        pids: &[u32],
        mut ours: impl FnMut(usize) -> Result<f64, BenchError> + 'a,
        mut theirs: impl FnMut(usize) -> Result<f64, BenchError> + 'a,
    ) -> Result<Measured, BenchError> {
        let sides: Vec<Side<'a, 1>> = vec![
            Box::new(move |round| ours(round).map(|value| [value])),
            Box::new(move |round| theirs(round).map(|value| [value])),
        ];
        let turns = self.take_turns(count, pids, sides)?;
        Ok(Measured { rounds: turns.rounds(0, 1, 0), others: turns.others })
    }

    /// Measures `count` rounds of all sides; each round begins with another one.
    pub(super) fn take_turns<const N: usize>(
        &self,
        count: usize,
        pids: &[u32],
        mut sides: Vec<Side<'_, N>>,
    ) -> Result<Turns<N>, BenchError> {
        let mut pids = pids.to_vec();
        pids.push(std::process::id());
        pids.sort_unstable();
        pids.dedup();
        let tries = if self.quick { 1 } else { TRIES };
        let mut measured = Vec::new();
        let mut quiet = 0;
        while quiet < count && measured.len() < count * tries {
            let round = measured.len();
            let before = Processors::now(&pids);
            let mut values = vec![[0.0; N]; sides.len()];
            for turn in 0..sides.len() {
                let side = (round + turn) % sides.len();
                if !self.quick {
                    warm_memory();
                }
                values[side] = sides[side](round)?;
            }
            let others = Processors::now(&pids).used_by_others_since(before);
            quiet += usize::from(others <= QUIET);
            measured.push(Round { others, sides: values });
        }
        Ok(keep_quietest(measured, count))
    }
}

fn keep_quietest<const N: usize>(mut measured: Vec<Round<N>>, count: usize) -> Turns<N> {
    let tried = measured.len();
    measured.sort_by(|a, b| a.others.total_cmp(&b.others));
    measured.truncate(count);
    let most = measured.last().map_or(0.0, |round| round.others);
    let others = format!(
        "{} of {tried} rounds count; in them, others used up to {:.0} % of the processors",
        measured.len(),
        most * 100.0
    );
    Turns { rounds: measured.into_iter().map(|round| round.sides).collect(), others }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quietest_rounds_count_whatever_they_measured() {
        let noisy = [(0.5, 1.0), (0.01, 9.0), (0.3, 2.0), (0.02, 8.0)];
        let rounds =
            noisy.iter().map(|&(others, ours)| Round { others, sides: vec![[ours], [1.0]] }).collect();
        let measured = keep_quietest(rounds, 2);
        assert_eq!(measured.rounds(0, 1, 0).ratios(), [9.0, 8.0]);
        assert_eq!(measured.others, "2 of 4 rounds count; in them, others used up to 2 % of the processors");
    }
}
