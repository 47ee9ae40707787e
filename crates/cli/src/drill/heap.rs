//! What a restored heap must hold: every transaction that was reported as committed, of the one under way all
//! or nothing, and nothing else. Then it goes on.

use std::sync::Arc;

use serde::Serialize;
use wattkeep::Region;
use wattkeep::persist::{Domain, Space};
use wattkeep_bench::workload::{HeapFound, HeapModel, HeapPlan, HeapTable};

use super::run::Ran;
use super::stage;
use crate::answer::Output;
use crate::progress;
use crate::text;

/// Transactions that the restored heap makes.
const STEPS_MORE: u64 = 256;

/// What a drill says of its heap.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HeapFacts {
    /// Transactions that had ended when the power failed.
    transactions_reported: u64,
    /// Transactions whose changes are there: the one under way may be.
    transactions_found: u64,
    /// Transactions that the heap made afterwards.
    transactions_after: u64,
    entries: u64,
    objects: u64,
    /// What is wrong, if something is.
    pub(crate) problem: Option<String>,
}

impl HeapFacts {
    /// Opens the heap in the restored region, verifies it, lets it go on, and verifies it again.
    pub(crate) fn examine(plan: &HeapPlan, region: Region, ran: &Ran, output: Output) -> Self {
        let bar = progress::bar("verifying the heap");
        // What a thread stores to an unsettled page is not in the save: perhaps its commit.
        let settled = ran.save.as_ref().is_ok_and(|save| save.unsettled_pages == 0);
        let least = if settled { ran.steps } else { ran.steps_before_save };
        let space = Arc::new(region.into_space(Domain::Battery));
        let found = examine(plan, &space, least, ran.steps + 1);
        bar.finish_and_clear();
        let (found, problem) = match found {
            Ok(found) => (found, None),
            Err(cause) => (HeapFound { steps: 0, entries: 0, objects: 0 }, Some(cause)),
        };
        let what = match &problem {
            None => format!(
                "{} transactions committed, the heap shows {}, with {} entries; then it made {STEPS_MORE} more",
                text::thousands(ran.steps),
                text::thousands(found.steps),
                text::thousands(found.entries)
            ),
            Some(cause) => format!("THE HEAP IS NOT WHAT WAS COMMITTED: {cause}"),
        };
        stage(output, "heap", &what);
        Self {
            transactions_reported: ran.steps,
            transactions_found: found.steps,
            transactions_after: if problem.is_none() { STEPS_MORE } else { 0 },
            entries: found.entries,
            objects: found.objects,
            problem,
        }
    }
}

fn examine(plan: &HeapPlan, space: &Arc<Space>, least: u64, most: u64) -> Result<HeapFound, String> {
    let open =
        || HeapTable::open(space.clone(), plan).map_err(|error| format!("the heap is refused: {error}"));
    let mut model = HeapModel::new(plan);
    (0..least).for_each(|_| model.step(plan));
    let heap = open()?;
    let found = heap.verify(&mut model, most)?;
    for number in found.steps + 1..=found.steps + STEPS_MORE {
        heap.step(number).map_err(|error| format!("transaction {number} after the restore: {error}"))?;
        model.step(plan);
    }
    drop(heap);
    let last = model.steps();
    open()?.verify(&mut model, last).map_err(|cause| format!("after the restore: {cause}"))?;
    Ok(found)
}
