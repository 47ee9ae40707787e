//! Rounds of ours and the rival's on a machine that others use, too.
//!
//! A round during which other programs took more than a twentieth of the processors is measured again,
//! for a while; then the quietest rounds count. Who was quiet is decided by the kernel's accounts alone,
//! never by what was measured.

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

struct Round {
    others: f64,
    ours: f64,
    theirs: f64,
}

impl Bench {
    /// Measures `count` rounds of both sides, alternating, and changing who goes first. `pids` are the
    /// processes that belong to the measurement.
    pub(super) fn alternate(
        &self,
        count: usize,
        pids: &[u32],
        mut ours: impl FnMut(usize) -> Result<f64, BenchError>,
        mut theirs: impl FnMut(usize) -> Result<f64, BenchError>,
    ) -> Result<Measured, BenchError> {
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
            let (mine, other) = if round.is_multiple_of(2) {
                let mine = ours(round)?;
                (mine, theirs(round)?)
            } else {
                let other = theirs(round)?;
                (ours(round)?, other)
            };
            let others = Processors::now(&pids).used_by_others_since(before);
            quiet += usize::from(others <= QUIET);
            measured.push(Round { others, ours: mine, theirs: other });
        }
        Ok(keep_quietest(measured, count))
    }
}

fn keep_quietest(mut measured: Vec<Round>, count: usize) -> Measured {
    let tried = measured.len();
    measured.sort_by(|a, b| a.others.total_cmp(&b.others));
    measured.truncate(count);
    let mut rounds = Rounds::default();
    measured.iter().for_each(|round| rounds.push(round.ours, round.theirs));
    let most = measured.last().map_or(0.0, |round| round.others);
    let others = format!(
        "{} of {tried} rounds count; in them, others used up to {:.0} % of the processors",
        measured.len(),
        most * 100.0
    );
    Measured { rounds, others }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quietest_rounds_count_whatever_they_measured() {
        let noisy = [(0.5, 1.0), (0.01, 9.0), (0.3, 2.0), (0.02, 8.0)];
        let rounds = noisy.iter().map(|&(others, ours)| Round { others, ours, theirs: 1.0 }).collect();
        let measured = keep_quietest(rounds, 2);
        assert_eq!(measured.rounds.ratios(), [9.0, 8.0]);
        assert_eq!(measured.others, "2 of 4 rounds count; in them, others used up to 2 % of the processors");
    }
}
