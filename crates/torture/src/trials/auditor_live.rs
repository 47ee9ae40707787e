//! Counts unsaved pages from outside, while threads store and the budget goes up and down.
//!
//! Both processes are stopped for each sample, so that it is one instant. A page is unsaved when the
//! program can store to it, or when its bytes differ from the newest version in the log: no book of
//! the product is asked. The bound of a sample is the budget in force; after a lowered budget, the old
//! one, until the product says that it is armed again.

use std::path::Path;

use wattkeep::FaultMode;
use wattkeep_keep::protocol::{Reply, Request};
use wattkeep_sim::random::Random;

use super::lab::{LIMIT, adopt_orphans, ask, ends, within};
use super::outside::Outside;
use super::victim::{NoStart, Victim, in_directory};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Samples of one store, before a new one in another fault mode.
const SAMPLES_PER_STORE: u64 = 1_000;

/// Samples between two changes of the budget. At the size for CI that makes more than 1,000 changes.
const SAMPLES_PER_BUDGET: u64 = 5;

/// The region, in pages.
const PAGES: u64 = 256;

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut seen = Seen::default();
    adopt_orphans();
    while outcome.tried < count && outcome.bad() == 0 {
        let samples = SAMPLES_PER_STORE.min(count - outcome.tried);
        let seed = random.number();
        if let Err(cause) = one_store(samples, seed, outcome, &mut seen) {
            return outcome.hang(format!("store of seed {seed}: {cause}"));
        }
    }
    outcome.note = format!(
        "{} budgets, {} times lowered, {} samples at the bound",
        seen.budgets, seen.lowered, seen.at_bound
    );
    if outcome.bad() == 0 && seen.at_bound == 0 {
        outcome.violate("no sample reached its bound: the writers were too slow to prove anything");
    }
}

/// What makes the samples worth something.
#[derive(Default)]
struct Seen {
    budgets: u64,
    lowered: u64,
    at_bound: u64,
}

fn one_store(samples: u64, seed: u64, outcome: &mut Outcome, seen: &mut Seen) -> Result<(), String> {
    let mut random = Random::new(seed);
    let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut options = in_directory(scratch.path(), seed);
    options.pages = PAGES;
    options.mode = [FaultMode::Signal, FaultMode::Monitor, FaultMode::Mprotect][random.below(3) as usize];
    options.explicit = random.chance(1, 4);
    options.budget = "40".to_owned();
    options.checkpoint_ms = if random.chance(1, 2) { 20 } else { 0 };
    options.tell_ms = 20;
    let mut victim = Victim::start(&options)?;
    victim.wait_until_it_stores().map_err(|why| match why {
        NoStart::Wrong(cause) | NoStart::Silent(cause) => cause,
    })?;
    let keeper = victim.heard.keeper.ok_or("it names no keeper")?;
    let outside =
        Outside::open(&options.directory, victim.pid(), keeper, PAGES, options.mode, options.explicit)?;
    let story = format!("store of seed {seed}, {:?}, explicit: {}", options.mode, options.explicit);
    let mut sample = |bound: u64, seen: &mut Seen| -> Result<(), String> {
        let unsaved = outside.look(true)?.unsaved() as u64;
        outcome.tried += 1;
        seen.at_bound += u64::from(unsaved == bound);
        if unsaved > bound {
            outcome.violate(format!("{story}: {unsaved} pages unsaved, the budget is {bound} pages"));
        }
        Ok(())
    };
    let (mut budget, mut taken) = (40, 0);
    while taken < samples {
        let most = if random.chance(1, 2) { 16 } else { PAGES / 2 };
        let next = 1 + random.below(most);
        set_budget(&options.directory, next)?;
        seen.budgets += 1;
        if next < budget {
            seen.lowered += 1;
            // It drains: until then no more than before.
            sample(budget, seen)?;
            taken += 1;
            if !within(LIMIT, || is_armed(&options.directory)) {
                return Err(format!("from {budget} to {next} pages it does not drain"));
            }
        }
        budget = next;
        for _ in 0..SAMPLES_PER_BUDGET.min(samples.saturating_sub(taken)) {
            victim.run_for(std::time::Duration::from_micros(random.below(300)));
            sample(budget, seen)?;
            taken += 1;
        }
    }
    victim.kill();
    if ends(keeper) { Ok(()) } else { Err(format!("keeper {keeper} lives on after its program")) }
}

fn set_budget(directory: &Path, pages: u64) -> Result<(), String> {
    match ask(directory, &Request::SetBudget { budget: pages.to_string() })? {
        Reply::Done => Ok(()),
        other => Err(format!("no budget of {pages} pages: {other:?}")),
    }
}

fn is_armed(directory: &Path) -> bool {
    matches!(ask(directory, &Request::Status), Ok(Reply::Status(status)) if status.state == "armed")
}
