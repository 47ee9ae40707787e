//! Kills a program with SIGKILL at random moments: its keeper must bring every store to the SSD.
//!
//! The next program verifies the image that it finds. It must be what some prefix of the stores left,
//! and no shorter than what the killed program had told of. The moments: while it stores, while the
//! store is made, opened and restored, beside checkpoints, in the middle of a save, while regions are
//! made, with a forked child that lives on; and stopped with SIGSTOP, when a save must do without it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wattkeep::FaultMode;
use wattkeep_keep::protocol::{Reply, Request};
use wattkeep_sim::random::Random;

use super::lab::{LIMIT, adopt_orphans, ask, ends, send};
use super::subject::SubjectOptions;
use super::victim::{NoStart, Victim, Words, in_directory};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Kills of one store, before a new one: the check costs as much as was ever stored.
const KILLS_PER_STORE: u64 = 50;

/// The first kills of a store, while it is being made.
const KILLS_IN_CREATE: u64 = 3;

/// Regions beside the first that one store gets.
const REGIONS_BESIDE: u64 = 12;

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    adopt_orphans();
    while outcome.tried < count && outcome.bad() == 0 {
        let kills = KILLS_PER_STORE.min(count - outcome.tried);
        Killer::new(random.number()).kill(kills, outcome);
    }
}

/// What a program is told that may have to wait a little longer.
const IN_USE: &str = "another process has the store";

/// When a program is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Creating,
    Opening,
    Storing,
    Checkpointing,
    Saving,
    Stopped,
    Forked,
    MakingRegions,
}

/// One store, its programs, and what they had told of when they died.
struct Killer {
    random: Random,
    _scratch: tempfile::TempDir,
    directory: PathBuf,
    options: SubjectOptions,
    told: BTreeMap<u64, u64>,
    regions: u64,
    keepers: Vec<i32>,
    forked: Option<i32>,
    story: String,
    /// What the last programs and their keepers wrote to their standard error.
    words: Vec<Words>,
}

impl Killer {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("store");
        let mut options = in_directory(&directory, seed);
        options.mode = [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor][random.below(3) as usize];
        options.explicit = random.chance(1, 3);
        options.budget = ["2", "11%", "50%", "100%"][random.below(4) as usize].to_owned();
        let story = format!(
            "store of seed {seed}, {:?}, explicit: {}, budget {}",
            options.mode, options.explicit, options.budget
        );
        let (told, keepers) = (BTreeMap::new(), Vec::new());
        Self {
            random,
            _scratch: scratch,
            directory,
            options,
            told,
            regions: 0,
            keepers,
            forked: None,
            story,
            words: Vec::new(),
        }
    }

    fn kill(&mut self, kills: u64, outcome: &mut Outcome) {
        for kill in 0..=kills {
            let moment = self.moment(kill);
            let options = self.options_for(moment);
            let story = format!("{}, kill {kill}, {moment:?}", self.story);
            let mut victim = match Victim::start(&options) {
                Ok(victim) => victim,
                Err(cause) => return outcome.panic(format!("{story}: {cause}")),
            };
            let early = matches!(moment, Moment::Creating | Moment::Opening) && kill < kills;
            if !early {
                match self.begin(&mut victim, &options) {
                    Ok(()) => {}
                    Err(NoStart::Wrong(cause)) => return outcome.lose(1, format!("{story}: {cause}")),
                    Err(NoStart::Silent(cause)) => return outcome.hang(format!("{story}: {cause}")),
                }
                self.compare(&victim, &story, false, outcome);
                self.bury(&story, outcome);
            }
            if kill == kills || outcome.bad() > 0 {
                victim.kill();
                self.keepers.extend(victim.heard.keeper);
                return self.bury(&story, outcome);
            }
            self.strike(moment, &mut victim, &story, outcome);
            if early {
                self.compare(&victim, &story, early, outcome);
            }
            self.remember(&victim);
            outcome.tried += 1;
        }
    }

    /// Waits until the program stores. One that finds the store in use, because the keeper of the killed
    /// one does not get a processor to end on, is started again, as its operator would.
    fn begin(&mut self, victim: &mut Victim, options: &SubjectOptions) -> Result<(), NoStart> {
        let began = Instant::now();
        loop {
            match victim.wait_until_it_stores() {
                Err(NoStart::Silent(cause)) if cause.contains(IN_USE) && began.elapsed() < LIMIT => {
                    *victim = Victim::start(options).map_err(NoStart::Silent)?;
                }
                answer => return answer,
            }
        }
    }

    fn moment(&mut self, kill: u64) -> Moment {
        if kill < KILLS_IN_CREATE {
            return Moment::Creating;
        }
        match self.random.below(14) {
            0..4 => Moment::Storing,
            4..6 => Moment::Opening,
            6..8 => Moment::Checkpointing,
            8..10 => Moment::Saving,
            10 | 11 => Moment::Stopped,
            12 => Moment::Forked,
            _ => Moment::MakingRegions,
        }
    }

    fn options_for(&mut self, moment: Moment) -> SubjectOptions {
        let mut options = self.options.clone();
        options.checkpoint_ms = u64::from(moment == Moment::Checkpointing || self.random.chance(1, 8));
        options.fork = moment == Moment::Forked;
        if moment == Moment::MakingRegions {
            options.regions_known = self.regions;
            options.regions = (self.regions + 3).min(REGIONS_BESIDE);
        }
        options
    }

    fn strike(&mut self, moment: Moment, victim: &mut Victim, story: &str, outcome: &mut Outcome) {
        let us = |random: &mut Random, below| Duration::from_micros(random.below(below));
        match moment {
            // Writing the zeros of a new store takes some 50 ms.
            Moment::Creating => victim.run_for(us(&mut self.random, 60_000)),
            Moment::Opening => victim.run_for(us(&mut self.random, 12_000)),
            Moment::MakingRegions => victim.run_for(us(&mut self.random, 20_000)),
            Moment::Storing | Moment::Checkpointing | Moment::Forked => {
                victim.run_for(us(&mut self.random, 4_000));
            }
            Moment::Saving => {
                let directory = self.directory.clone();
                let asking = std::thread::spawn(move || ask(&directory, &Request::Save));
                victim.run_for(us(&mut self.random, 2_000));
                victim.kill();
                // The keeper may end before it answers: it writes everything out in any case.
                let _ = asking.join();
            }
            Moment::Stopped => {
                victim.run_for(us(&mut self.random, 4_000));
                send(victim.pid(), Signal::STOP);
                match ask(&self.directory, &Request::Save) {
                    Ok(Reply::Saved(_)) => {}
                    other => outcome.violate(format!("{story}: no save of a stopped program: {other:?}")),
                }
                send(victim.heard.keeper.unwrap_or(0), Signal::KILL);
            }
        }
        victim.kill();
    }

    /// No thread's stores may be fewer than it had told of. A program that was killed `early` may have told of what
    /// it found of one thread, and not of the next.
    fn compare(&self, victim: &Victim, story: &str, early: bool, outcome: &mut Outcome) {
        for (thread, number) in &self.told {
            let heard = victim.heard.found.get(thread).copied();
            let found = heard.unwrap_or(0);
            if found < *number && !(early && heard.is_none()) {
                let words: Vec<_> = self.words.iter().rev().take(3).map(Words::to_string).collect();
                outcome.lose(
                    number - found,
                    format!(
                        "{story}: {found} of {number} stores of thread {thread}; {}; said before: {}",
                        victim.heard.recovered,
                        words.join(" | ")
                    ),
                );
            }
        }
    }

    fn remember(&mut self, victim: &Victim) {
        for (thread, number) in victim.heard.found.iter().chain(&victim.heard.at) {
            let told = self.told.entry(*thread).or_default();
            *told = (*told).max(*number);
        }
        self.regions = self.regions.max(victim.heard.regions);
        self.keepers.extend(victim.heard.keeper);
        self.forked = victim.heard.forked.or(self.forked);
        self.words.push(victim.words.clone());
    }

    /// Reaps the keepers of dead programs: each must have ended, since the next program has the store.
    fn bury(&mut self, story: &str, outcome: &mut Outcome) {
        for keeper in self.keepers.drain(..) {
            if !ends(keeper) {
                outcome.hang(format!("{story}: keeper {keeper} of a killed program lives on"));
            }
        }
        if let Some(child) = self.forked.take() {
            send(child, Signal::KILL);
            ends(child);
        }
    }
}
