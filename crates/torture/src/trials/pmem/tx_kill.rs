//! Kills a program that makes transactions on a heap in a region, at random instants, again and again; and
//! takes the power away from it and its keeper.
//!
//! `tx_kill`: SIGKILL to the program. What it had promised in its notes is there, whole, when the next one
//! opens; of the transaction under way all or nothing.
//!
//! `tx_power`: SIGKILL to the keeper, and then to the program: after a save, which must hold what was promised;
//! or unannounced, when the last checkpoint must be there, as a whole.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use wattkeep::FaultMode;
use wattkeep_keep::protocol::{Reply, Request};
use wattkeep_sim::random::Random;

use super::changes::{End, transaction};
use super::subject::{Notes, TxSubjectOptions};
use crate::outcome::Outcome;
use crate::trials::lab::{adopt_orphans, ask, ends, send};
use crate::trials::victim::{NoStart, Victim};
use crate::trials::{Assignment, assigned};

/// Kills of one store, before a new one: verifying costs as much as was ever done.
const KILLS_PER_STORE: u64 = 40;
/// A program lives so long at most once it has begun, in microseconds.
const LIFE_US_MAX: u64 = 6_000;

pub(crate) fn kill(assignment: &Assignment, outcome: &mut Outcome) {
    run(assignment, false, outcome);
}

pub(crate) fn power(assignment: &Assignment, outcome: &mut Outcome) {
    run(assignment, true, outcome);
}

/// How a program ended.
enum Fault {
    Lost(String),
    Violated(String),
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

fn run(assignment: &Assignment, power: bool, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut transactions = 0;
    adopt_orphans();
    while outcome.tried < count && outcome.bad() == 0 {
        let seed = random.number();
        let mut one = Lives::new(seed, power);
        let kills = KILLS_PER_STORE.min(count - outcome.tried);
        for kill in 0..kills {
            let story = format!("{}, kill {kill}", one.story);
            match one.live() {
                Ok(()) => outcome.tried += 1,
                Err(Fault::Lost(cause)) => return outcome.lose(1, format!("{story}: {cause}")),
                Err(Fault::Violated(cause)) => return outcome.violate(format!("{story}: {cause}")),
                Err(Fault::Hang(cause)) => return outcome.hang(format!("{story}: {cause}")),
            }
        }
        transactions += one.least.iter().sum::<u64>();
    }
    outcome.note = format!("{transactions} transactions promised");
}

/// One store, and its programs one after the other.
struct Lives {
    random: Random,
    _scratch: tempfile::TempDir,
    options: TxSubjectOptions,
    power: bool,
    story: String,
    /// For each table, what the next program must find at least, and what it may find at most.
    least: Vec<u64>,
    most: Vec<u64>,
}

impl Lives {
    fn new(seed: u64, power: bool) -> Self {
        let mut random = Random::new(seed);
        let scratch = tempfile::tempdir().expect("a directory");
        let directory: PathBuf = scratch.path().join("store");
        let threads = 1 + random.below(3);
        let options = TxSubjectOptions {
            directory,
            threads,
            budget: ["11%", "50%", "100%"][random.below(3) as usize].to_owned(),
            mode: [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor][random.below(3) as usize],
            transparent: random.chance(1, 3),
            undo: random.chance(1, 2),
            seed,
            checkpoint_ms: u64::from(power),
        };
        let story = format!("store of seed {seed}, {options:?}");
        let none = vec![0; threads as usize];
        Self { random, _scratch: scratch, options, power, story, least: none.clone(), most: none }
    }

    /// A program finds what was promised, makes transactions, and is killed.
    fn live(&mut self) -> Result<(), Fault> {
        let directory = self.options.directory.clone();
        let mut victim =
            Victim::start_as("tx-subject", &directory, &self.options.words()).map_err(Fault::Hang)?;
        victim.wait_until_it_stores()?;
        for table in 0..self.least.len() {
            let found = victim.heard.found.get(&(table as u64)).copied().unwrap_or(0);
            if found < self.least[table] || found > self.most[table] {
                return Err(Fault::Lost(format!(
                    "table {table} ends with transaction {found}, not one of {}..={}; {}",
                    self.least[table], self.most[table], victim.heard.recovered
                )));
            }
        }
        let keeper = victim.heard.keeper.ok_or_else(|| Fault::Hang("it names no keeper".into()))?;
        if self.power {
            self.cut(&mut victim, keeper)?;
        } else {
            victim.run_for(Duration::from_micros(self.random.below(LIFE_US_MAX)));
            victim.kill();
            self.note(true)?;
        }
        if let Some(cause) = victim.heard.wrong.take() {
            return Err(Fault::Lost(format!("a reader beside the transactions: {cause}")));
        }
        if !ends(keeper) {
            return Err(Fault::Hang(format!("keeper {keeper} lives on")));
        }
        Ok(())
    }

    /// What is noted may be followed by the transaction under way; without `all`, `least` stays.
    fn note(&mut self, all: bool) -> Result<(), Fault> {
        let notes = Notes::open(&self.options.directory).map_err(Fault::Violated)?;
        for table in 0..self.most.len() {
            let promised = notes.promised(table);
            let seed = self.options.seed.wrapping_add(table as u64);
            let next = (promised + 1..).find(|number| transaction(seed, *number).1 == End::Commit);
            self.most[table] = next.expect("most transactions commit");
            if all {
                self.least[table] = promised;
            }
        }
        Ok(())
    }

    /// The power goes: announced, and the save holds what was promised before it; or not.
    fn cut(&mut self, victim: &mut Victim, keeper: i32) -> Result<(), Fault> {
        victim.wait_until(|victim| !victim.heard.checkpoint.is_empty())?;
        victim.run_for(Duration::from_micros(self.random.below(LIFE_US_MAX)));
        let announced = self.random.chance(1, 2);
        if announced {
            match ask(&self.options.directory, &Request::Save) {
                Ok(Reply::Saved(_)) => {}
                other => return Err(Fault::Violated(format!("no save: {other:?}"))),
            }
            // Nobody stores any more: what is noted now had been done before.
            self.note(true)?;
        }
        send(keeper, Signal::KILL);
        victim.kill();
        if !announced {
            self.note(false)?;
            for (table, least) in self.least.iter_mut().enumerate() {
                let checkpoint = victim.heard.checkpoint.get(&(table as u64)).copied().unwrap_or(0);
                *least = checkpoint.max(*least);
            }
        }
        Ok(())
    }
}
