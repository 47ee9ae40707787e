//! Cuts the power of programs that make transactions, at any step of them and of their recoveries.
//!
//! One to three tables, in one thread or in one each; redo or undo logs, so small that they are truncated
//! again and again; transactions that are given up, panic, are nested; versioned objects of each kind, in the
//! same transactions and in some of their own; a hash map and a B+tree beside each table. Whatever a cut
//! leaves, each table and what is beside it are exactly what its last committed transaction left, and that one
//! is no older than what was promised. Then the program goes on.

use std::sync::{Arc, Mutex};

use wattkeep_persist::Space;
use wattkeep_sim::cache::Dimm;
use wattkeep_sim::random::Random;
use wattkeep_tx::Logging;

use super::cuts::{Cuts, Tried};
use super::histories;
use super::machine::{Machine, Setup};
use super::timeline::Timeline;
use super::versions_crash::domain;
use crate::outcome::Outcome;
use crate::trials::Assignment;
use crate::trials::guard::Bad;

/// Transactions of a table, at most.
const TRANSACTIONS_MAX: u64 = 60;
/// Transactions of a program that goes on.
const TRANSACTIONS_MORE: u64 = 4;
/// Images of one history.
const IMAGES: u64 = 120;
/// Bytes of the space.
const SPACE_BYTES: usize = 3 << 20;
/// Bytes of the smallest and the largest area for logs.
const LOG_BYTES: [u64; 3] = [64 << 10, 96 << 10, 192 << 10];

/// What the histories were.
#[derive(Default)]
struct Kinds {
    redo: u64,
    undo: u64,
    threads: u64,
    transactions: u64,
}

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let mut kinds = Kinds::default();
    let total = histories(assignment, outcome, |seed| history(seed, &mut kinds));
    outcome.note = format!(
        "{} histories with redo logs, {} with undo, {} of all with threads, {} transactions; {} cut inside \
         recovery, up to {} stores on their way",
        kinds.redo, kinds.undo, kinds.threads, kinds.transactions, total.inside_recovery, total.pending_most
    );
}

/// One program, as its seed makes it.
struct Program {
    setup: Setup,
    threads: bool,
    transactions: u64,
}

impl Program {
    fn new(seed: u64, random: &mut Random) -> Self {
        let tables = 1 + random.below(3) as usize;
        let setup = Setup {
            seed,
            tables,
            logging: if random.chance(1, 2) { Logging::Redo } else { Logging::Undo },
            log_bytes: LOG_BYTES[random.below(3) as usize],
            truncate_bytes: (2 << 10) << random.below(6),
            guard: random.chance(1, 4),
        };
        Self {
            setup,
            threads: tables > 1 && random.chance(1, 2),
            transactions: 1 + random.below(TRANSACTIONS_MAX),
        }
    }

    /// Runs it. The answer says what was begun and promised when, for each table.
    fn run(&self, machine: &Machine, now: &(dyn Fn() -> usize + Sync)) -> Result<Vec<Timeline>, String> {
        let timelines: Vec<_> = (0..self.setup.tables).map(|_| Mutex::new(Timeline::default())).collect();
        let step = |table: usize, number: u64| {
            let timeline = || timelines[table].lock().expect("nothing panics while it is held");
            timeline().begin(now(), number);
            if machine.step(table, number)? {
                timeline().promise(now(), number);
            }
            Ok::<_, String>(())
        };
        let numbers = || 1..=self.transactions;
        if self.threads {
            // Threads take turns at each table: its transactions lie in several lanes.
            let next: Vec<_> = (0..self.setup.tables).map(|_| Mutex::new(1)).collect();
            let turn = |table: usize| {
                let mut number = next[table].lock().expect("nothing panics while it is held");
                *number += 1;
                step(table, *number - 1)
            };
            let worker =
                |first: usize| numbers().try_for_each(|at| turn((first + at as usize) % self.setup.tables));
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..self.setup.tables).map(|first| scope.spawn(move || worker(first))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("its panic was caught"))
            })?;
        } else {
            numbers()
                .try_for_each(|number| (0..self.setup.tables).try_for_each(|table| step(table, number)))?;
        }
        Ok(timelines.into_iter().map(|timeline| timeline.into_inner().expect("nobody holds it")).collect())
    }

    /// Opens what a cut left. The answer names the last transactions in it.
    fn examine(&self, space: Arc<Space>, step: usize, timelines: &[Timeline]) -> Result<u64, Bad> {
        let numbers =
            Machine::open(space, &self.setup).and_then(|machine| machine.verify()).map_err(Bad::Lost)?;
        for (table, (number, timeline)) in numbers.iter().zip(timelines).enumerate() {
            timeline.judge(step, *number).map_err(|cause| Bad::Lost(format!("table {table}: {cause}")))?;
        }
        Ok(numbers.iter().fold(0, |state, number| state * NUMBERS + number))
    }

    /// Makes a few transactions more in a space whose tables are at these numbers.
    fn go_on(&self, space: Arc<Space>, state: u64) -> Result<(), Bad> {
        let machine = Machine::open(space.clone(), &self.setup).map_err(Bad::Lost)?;
        let (mut state, mut expected) = (state, Vec::new());
        for table in (0..self.setup.tables).rev() {
            let mut last = state % NUMBERS;
            machine.catch_up(table, last).map_err(Bad::Violated)?;
            for number in last + 1..=last + TRANSACTIONS_MORE {
                if machine.step(table, number).map_err(Bad::Violated)? {
                    last = number;
                }
            }
            expected.insert(0, last);
            state /= NUMBERS;
        }
        drop(machine);
        let machine = Machine::open(space, &self.setup).map_err(Bad::Lost)?;
        let found = machine.verify().map_err(|cause| Bad::Lost(format!("going on: {cause}")))?;
        if found == expected {
            return Ok(());
        }
        Err(Bad::Lost(format!("going on came to transactions {found:?}, not {expected:?}")))
    }
}

/// More than a table has transactions.
const NUMBERS: u64 = 1 << 10;

fn history(seed: u64, kinds: &mut Kinds) -> Result<Tried, Bad> {
    let random = &mut Random::new(seed);
    let program = Program::new(seed, random);
    match program.setup.logging {
        Logging::Redo => kinds.redo += 1,
        Logging::Undo => kinds.undo += 1,
    }
    kinds.threads += u64::from(program.threads);
    kinds.transactions += program.transactions * program.setup.tables as u64;
    let dimm = Dimm::new(SPACE_BYTES, domain(random));
    let rewind = dimm.before();
    let (space, cache) = dimm.boot();
    let machine = Machine::open(space, &program.setup).map_err(Bad::Violated)?;
    // Half of the histories are cut from their first step on, while the heap is made.
    let from = if random.chance(1, 2) { 0 } else { cache.now() };
    let timelines = program.run(&machine, &|| cache.now()).map_err(Bad::Violated)?;
    drop(machine);
    let examine = |space: Arc<Space>, step: usize| program.examine(space, step, &timelines);
    let go_on = |space: Arc<Space>, state: u64| program.go_on(space, state);
    let history = cache.history();
    Cuts { dimm: &dimm, rewind, history, from, examine: &examine, go_on: &go_on }.run(IMAGES, random)
}
