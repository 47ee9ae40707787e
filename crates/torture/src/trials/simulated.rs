//! The campaigns of the simulator: a whole machine on one thread, its power cut at every write.
//!
//! A failure carries the seed of its history and the shortest script that still fails.

use wattkeep_sim::campaign;
use wattkeep_sim::tally::Tally;

use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Of so many double crashes inside recovery, one is triple.
const DOUBLE_PER_TRIPLE: u64 = 10;

pub(super) fn crash(assignment: &Assignment, outcome: &mut Outcome) {
    take_over(campaign::crash(assigned(assignment), assignment.seed, &mut |_| {}), assignment, outcome);
}

pub(super) fn histories(assignment: &Assignment, outcome: &mut Outcome) {
    take_over(campaign::histories(assigned(assignment), assignment.seed, &mut |_| {}), assignment, outcome);
}

pub(super) fn enumerate(assignment: &Assignment, outcome: &mut Outcome) {
    // All sequences have some 30,000 images; whoever asks for more gets them again, from other seeds.
    for seed in assignment.seed.. {
        let left = assigned(assignment).saturating_sub(outcome.tried);
        if left == 0 || outcome.bad() > 0 {
            return;
        }
        take_over(campaign::enumerate(left, seed, &mut |_| {}), assignment, outcome);
    }
}

pub(super) fn recrash(assignment: &Assignment, outcome: &mut Outcome) {
    let triple = assigned(assignment) / (DOUBLE_PER_TRIPLE + 1);
    let double = assigned(assignment) - triple;
    take_over(campaign::recrash(double, triple, assignment.seed, &mut |_| {}), assignment, outcome);
}

pub(super) fn power(assignment: &Assignment, outcome: &mut Outcome) {
    take_over(campaign::power(assigned(assignment), assignment.seed, &mut |_| {}), assignment, outcome);
}

pub(super) fn auditor(assignment: &Assignment, outcome: &mut Outcome) {
    take_over(campaign::auditor(assigned(assignment), assignment.seed, &mut |_| {}), assignment, outcome);
}

fn take_over(tally: Tally, assignment: &Assignment, outcome: &mut Outcome) {
    outcome.tried += tally.tried;
    outcome.lost += tally.lost;
    outcome.violations += tally.violations;
    outcome.hangs += tally.hangs;
    outcome.panics += tally.panics;
    let notes: Vec<_> = tally.notes.iter().map(|(name, count)| format!("{count} {name}")).collect();
    outcome.note = notes.join(", ");
    if let Some(first) = tally.first {
        let again = format!("torture trial {} --count 1 --seed {}", assignment.name, first.seed);
        outcome.fail(format!("{first}alone: {again}"));
    }
}
