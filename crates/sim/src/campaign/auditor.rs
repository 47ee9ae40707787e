//! The bound, sampled: dirty pages counted without the ledger, while budgets change.

use super::Progress;
use super::histories::{run, settings, shorten};
use crate::generate::{self, Mix};
use crate::script::{Op, Script};
use crate::tally::Tally;

/// Steps of one history.
const STEPS: usize = 1000;

fn script(seed: u64) -> Script {
    generate::script(seed, STEPS, settings(seed).pages, Mix::BUDGETS)
}

/// Takes `count` samples at least. `tried` counts samples; a note counts budget changes.
pub fn auditor(count: u64, seed: u64, progress: Progress<'_>) -> Tally {
    let mut tally = Tally::default();
    let mut seed = seed;
    while tally.tried < count && tally.is_clean() {
        let (settings, script) = (settings(seed), script(seed));
        let changes = script.ops.iter().filter(|op| matches!(op, Op::Budget { .. })).count();
        tally.note("budget changes", changes as u64);
        match run(&settings, &script) {
            Ok(world) => tally.tried += world.samples(),
            Err(bad) => tally.count(bad.clone(), seed, || Some(shorten(&settings, &script, &bad))),
        }
        progress(&tally);
        seed += 1;
    }
    tally
}
