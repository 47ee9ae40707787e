//! Kills the keeper with SIGKILL at random moments, under a program that stores: it must fail closed.
//!
//! After the death of the keeper no page becomes writable any more, so the writers come to a stand; at
//! most the budget's pages are unsaved, seen from outside; the program is told. When the program has
//! ended, the store opens as the last checkpoint that was answered or a newer one, exact.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wattkeep::FaultMode;
use wattkeep_keep::protocol::{Reply, Request};
use wattkeep_sim::random::Random;

use super::lab::{adopt_orphans, ask, ends, send};
use super::outside::Outside;
use super::subject::SubjectOptions;
use super::victim::{NoStart, Victim, in_directory};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Kills of one store, before a new one: the check costs as much as was ever stored.
const KILLS_PER_STORE: u64 = 25;

/// Writers that store nothing for so long, while their program runs, stand still.
const STILL: Duration = Duration::from_millis(25);

/// How long writers may find pages that are open already.
const STILL_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    adopt_orphans();
    while outcome.tried < count && outcome.bad() == 0 {
        let kills = KILLS_PER_STORE.min(count - outcome.tried);
        one_store(kills, random.number(), outcome);
    }
}

fn one_store(kills: u64, seed: u64, outcome: &mut Outcome) {
    let mut random = Random::new(seed);
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = in_directory(scratch.path(), seed);
    options.mode = [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor][random.below(3) as usize];
    options.explicit = random.chance(1, 4);
    options.budget = ["2", "11%", "30%", "50%"][random.below(4) as usize].to_owned();
    options.checkpoint_ms = 1;
    let story = format!(
        "store of seed {seed}, {:?}, explicit: {}, budget {}",
        options.mode, options.explicit, options.budget
    );
    for kill in 0..kills {
        let story = format!("{story}, kill {kill}");
        let died = one_death(&options, &mut random);
        if let Err(fault) = died.and_then(|told| reopens_exactly(&options, &told)) {
            return match fault {
                Fault::Lost(cause) => outcome.lose(1, format!("{story}: {cause}")),
                Fault::Violation(cause) => outcome.violate(format!("{story}: {cause}")),
                Fault::Hang(cause) => outcome.hang(format!("{story}: {cause}")),
            };
        }
        outcome.tried += 1;
    }
}

enum Fault {
    Lost(String),
    Violation(String),
    Hang(String),
}

impl From<NoStart> for Fault {
    fn from(why: NoStart) -> Self {
        match why {
            NoStart::Wrong(cause) => Fault::Lost(cause),
            NoStart::Silent(cause) => Fault::Hang(cause),
        }
    }
}

/// What a program had stored before its last checkpoint, by thread.
type Told = Vec<(u64, u64)>;

/// A program stores, its keeper is killed, the program is looked at from outside and killed.
fn one_death(options: &SubjectOptions, random: &mut Random) -> Result<Told, Fault> {
    let mut victim = Victim::start(options).map_err(Fault::Hang)?;
    victim.wait_until(|victim| !victim.heard.checkpoint.is_empty() && !victim.heard.at.is_empty())?;
    let keeper = victim.heard.keeper.ok_or_else(|| Fault::Hang("it names no keeper".into()))?;
    let budget = budget_pages(&options.directory)?;
    let outside = Outside::open(
        &options.directory,
        victim.pid(),
        keeper,
        options.pages,
        options.mode,
        options.explicit,
    )
    .map_err(Fault::Violation)?;
    disturb(options, &mut victim, keeper, random);
    victim
        .wait_until(|victim| victim.heard.keeper_gone)
        .map_err(|_| Fault::Violation("the program is not told that its keeper is gone".into()))?;
    stand_still(&mut victim)?;
    let first = outside.look(false).map_err(Fault::Violation)?;
    let unsaved = first.unsaved();
    if unsaved > budget {
        return Err(Fault::Violation(format!("{unsaved} pages are unsaved, the budget is {budget} pages")));
    }
    victim.run_for(Duration::from_millis(2));
    let later = outside.look(false).map_err(Fault::Violation)?;
    if later.writable != first.writable {
        return Err(Fault::Violation("a page became writable after the death of the keeper".into()));
    }
    victim.kill();
    if !ends(keeper) {
        return Err(Fault::Hang(format!("keeper {keeper} was killed and lives on")));
    }
    Ok(victim.heard.checkpoint.iter().map(|(thread, number)| (*thread, *number)).collect())
}

fn budget_pages(directory: &Path) -> Result<usize, Fault> {
    match ask(directory, &Request::Status) {
        Ok(Reply::Status(status)) => Ok(status.budget_pages as usize),
        other => Err(Fault::Hang(format!("no status: {other:?}"))),
    }
}

/// Kills the keeper: at rest, or while it carries out a request.
fn disturb(options: &SubjectOptions, victim: &mut Victim, keeper: i32, random: &mut Random) {
    victim.run_for(Duration::from_micros(random.below(4_000)));
    let request = match random.below(4) {
        0 => Some(Request::Save),
        1 => Some(Request::SetBudget { budget: options.budget.clone() }),
        _ => None,
    };
    let directory = options.directory.clone();
    let asking = request.map(|request| std::thread::spawn(move || drop(ask(&directory, &request))));
    if asking.is_some() {
        victim.run_for(Duration::from_micros(random.below(1_500)));
    }
    send(keeper, Signal::KILL);
    asking.map(std::thread::JoinHandle::join);
}

/// Every thread of the program comes to a page that it may not write.
fn stand_still(victim: &mut Victim) -> Result<(), Fault> {
    let began = Instant::now();
    loop {
        let before = victim.heard.at.clone();
        victim.run_for(STILL);
        if victim.heard.at == before {
            return Ok(());
        }
        if began.elapsed() > STILL_LIMIT {
            let at = &victim.heard.at;
            return Err(Fault::Violation(format!("writers go on without a keeper: {before:?}, then {at:?}")));
        }
    }
}

/// The next program finds an exact image, not older than the last checkpoint that was answered.
fn reopens_exactly(options: &SubjectOptions, told: &Told) -> Result<(), Fault> {
    let mut next = Victim::start(options).map_err(Fault::Hang)?;
    next.wait_until_it_stores()?;
    for (thread, number) in told {
        let found = next.heard.found.get(thread).copied().unwrap_or(0);
        if found < *number {
            let cause = format!("{found} stores of thread {thread}, its checkpoint had {number}");
            return Err(Fault::Lost(cause));
        }
    }
    let keeper = next.heard.keeper;
    next.kill();
    if keeper.is_some_and(|keeper| !ends(keeper)) {
        return Err(Fault::Hang("a keeper lives on after its program".into()));
    }
    Ok(())
}
