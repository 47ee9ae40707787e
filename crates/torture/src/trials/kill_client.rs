//! Kills a program with SIGKILL at random moments: its keeper must bring every store to the SSD.
//!
//! The next program verifies the image that it finds. It must be what some prefix of the stores left,
//! and no shorter than what the killed program had told of.

use std::time::Duration;

use wattkeep::FaultMode;
use wattkeep_sim::random::Random;

use super::victim::{NoStart, Victim, in_directory};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Kills of one store, before a new one: the check costs as much as was ever stored.
const KILLS_PER_STORE: u64 = 50;

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
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
    options.explicit = random.chance(1, 3);
    options.budget = ["2", "11%", "50%", "100%"][random.below(4) as usize].to_owned();
    let story = format!("store of seed {seed}, {:?}, explicit: {}", options.mode, options.explicit);
    let mut told = std::collections::BTreeMap::new();
    for kill in 0..=kills {
        let mut victim = match Victim::start(&options) {
            Ok(victim) => victim,
            Err(cause) => return outcome.panic(format!("{story}: {cause}")),
        };
        match victim.wait_until_it_stores() {
            Ok(()) => {}
            Err(NoStart::Wrong(cause)) => return outcome.lose(1, format!("{story}, kill {kill}: {cause}")),
            Err(NoStart::Silent(cause)) => return outcome.hang(format!("{story}, kill {kill}: {cause}")),
        }
        for (thread, number) in &told {
            let found = victim.found.get(thread).copied().unwrap_or(0);
            if found < *number {
                outcome.lose(number - found, format!("{story}, kill {kill}: {found} of {number} stores"));
            }
        }
        if kill == kills || outcome.bad() > 0 {
            return;
        }
        victim.run_for(Duration::from_micros(random.below(4_000)));
        victim.kill();
        told = std::mem::take(&mut victim.at);
        outcome.tried += 1;
    }
}
