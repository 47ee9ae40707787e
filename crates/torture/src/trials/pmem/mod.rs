//! Trials of what stands on persistent memory: the heap, transactions, versioned objects.
//!
//! [`cuts`] cuts the power of a twin of persistent memory behind a cache, at steps of a program's history;
//! [`timeline`] knows what had been promised by then. [`changes`] are the transactions of a seed, [`slots`]
//! makes them in a heap, [`aside`] writes versioned objects in them, [`beside`] changes a hash map and a
//! B+tree, [`machine`] is a program's heap as a whole, [`subject`] the program as a process.

mod aside;
mod beside;
mod changes;
mod cuts;
mod machine;
mod slots;
pub(crate) mod subject;
mod timeline;

pub(crate) mod heap_crash;
pub(crate) mod heap_drill;
pub(crate) mod tx_crash;
pub(crate) mod tx_kill;
pub(crate) mod versions_crash;

use cuts::Tried;
use wattkeep_sim::random::Random;

use super::guard::{Bad, guarded};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// The heap's own check finds nothing wrong, and so many objects.
fn check_heap(heap: &wattkeep_heap::Heap, objects: u64) -> Result<(), String> {
    let report = heap.check(None).map_err(|error| error.to_string())?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("the heap's check finds {} problems: {problem:?}", report.problems_count));
    }
    if report.objects == objects {
        return Ok(());
    }
    Err(format!("the heap holds {} objects, not {objects}", report.objects))
}

/// Runs histories until enough images were tried. The first one's seed is the assignment's, so that one
/// history can be run alone.
fn histories(
    assignment: &Assignment,
    outcome: &mut Outcome,
    mut history: impl FnMut(u64) -> Result<Tried, Bad>,
) -> Tried {
    super::raw::take_large_memory_from_the_kernel();
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut seed = assignment.seed;
    let mut total = Tried::default();
    while outcome.tried < count && outcome.bad() == 0 {
        let alone = format!("alone: torture trial {} --count 1 --seed {seed}\n", assignment.name);
        if let Some(tried) = guarded(outcome, &alone, || history(seed)) {
            outcome.tried += tried.images;
            total += tried;
        }
        seed = random.number();
    }
    total
}
