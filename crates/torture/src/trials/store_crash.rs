//! Cuts the power at every kind of moment of a store's life: what is found must be the last commit.
//!
//! A history steps until the disk stops at some request. Then many images of that moment are
//! examined: each unflushed write is kept, dropped, torn at 512 bytes, in any order. Some cuts come
//! again inside the recovery. Quiet moments in between are cut, too.

use wattkeep_sim::disk::{Fault, FaultKind};
use wattkeep_sim::random::Random;
use wattkeep_sim::store_model::{Model, Statistics};

use super::guard::{Bad, guarded};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Crashes that one store goes through before a new one is made.
const CRASHES_PER_STORE: u64 = 20;
/// Images of one moment.
const IMAGES_PER_MOMENT: u64 = 6;
/// The disk stops within so many requests.
const REQUESTS_MAX: u64 = 120;
/// Steps between two crashes, at most.
const STEPS_MAX: u64 = 60;
/// Saves and closes in between, fewer than this, and the steps behind each.
const ENDS_MAX: u64 = 4;
const STEPS_AFTER_END: u64 = 3;

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut total = Statistics::default();
    while outcome.tried < count && outcome.bad() == 0 {
        let seed = random.number();
        let story = format!("history of seed {seed}");
        if let Some(statistics) = guarded(outcome, &story, || history(seed).map_err(Bad::Lost)) {
            outcome.tried += statistics.crashes;
            total += statistics;
        }
    }
    outcome.note = format!(
        "{} cut again inside recovery, {} with a lost tail, {} opened by digest, after {} commits",
        total.recovery_crashes, total.tails, total.by_digest, total.commits
    );
    let corners = [total.recovery_crashes, total.tails, total.by_digest, total.commits, total.cleanings];
    if count >= 1_000 && outcome.bad() == 0 && corners.contains(&0) {
        outcome.violate(format!("a kind of moment was never met: {total:?}"));
    }
}

fn history(seed: u64) -> Result<Statistics, String> {
    let mut model = Model::new(seed);
    for _ in 0..CRASHES_PER_STORE {
        let at = model.disk.requests() + model.random.below(REQUESTS_MAX);
        model.disk.set_fault(Some(Fault { at, kind: FaultKind::Io, for_ever: true }));
        let steps = model.random.below(STEPS_MAX);
        let quiet = model.random.below(steps + 1);
        let mut refused = model.run(quiet)?;
        // Orderly ends, after which the program goes on.
        for _ in 0..model.random.below(ENDS_MAX) {
            refused = refused || model.end()? || model.run(STEPS_AFTER_END)?;
            model.examine_a_cut()?;
        }
        if !refused {
            model.run(steps - quiet)?;
        }
        for _ in 0..IMAGES_PER_MOMENT {
            model.examine_a_cut()?;
        }
        model.crash()?;
    }
    Ok(model.statistics)
}
