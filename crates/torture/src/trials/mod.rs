//! The trials. Each takes a count and a seed, and returns what it found.
//!
//! A trial is a row of [`TRIALS`] and a file beside this one.

mod heard;
mod lab;
mod log_reader;
mod orders;
mod outside;
pub(crate) mod power_cut;
mod raw;
mod small_disk;
mod stamps;
pub(crate) mod subject;
mod victim;

mod auditor_live;
mod damage;
pub(crate) mod escape;
mod fuzz;
mod guard;
mod io_nth;
mod kill_client;
mod kill_keeper;
mod models;
pub(crate) mod pmem;
mod simulated;
mod store_crash;
mod thin;
mod upgrade;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use clap::Args;

use crate::outcome::Outcome;

/// One trial: what it is called, what it proves, how much is tried.
pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) promise: &'static str,
    /// Tries in the fast slice, where 0 leaves it out, and in CI.
    pub(crate) fast: u64,
    pub(crate) ci: u64,
    /// A run at the CI count that takes longer than this hangs. The fast slice gets the same.
    pub(crate) limit: Duration,
    /// It runs several processes or threads of its own: nothing else runs beside it.
    pub(crate) alone: bool,
    run: fn(&Assignment, &mut Outcome),
}

/// One trial to run in this process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Assignment {
    /// Name of the trial; see 'torture list'.
    pub(crate) name: String,
    /// How many tries; the count for CI by default.
    #[arg(long)]
    pub(crate) count: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Assignment {
    fn count(&self, trial: &Trial) -> u64 {
        self.count.unwrap_or(trial.ci)
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// All trials, in the order in which they run.
pub(crate) const TRIALS: &[Trial] = &[
    Trial {
        name: "crash",
        promise: "after a power cut at any write the machine comes back to its last commit, whole",
        fast: 3_000,
        ci: 100_000,
        limit: seconds(900),
        alone: false,
        run: simulated::crash,
    },
    Trial {
        name: "histories",
        promise: "a machine that runs, cleans, saves, dies and comes back never shows a store that was not made",
        fast: 100,
        ci: 1_500,
        limit: seconds(600),
        alone: false,
        run: simulated::histories,
    },
    Trial {
        name: "enumerate",
        promise: "no history of up to three operations, cut at any write, loses anything",
        fast: 0,
        ci: 20_000,
        limit: seconds(600),
        alone: false,
        run: simulated::enumerate,
    },
    Trial {
        name: "recrash",
        promise: "a power cut inside recovery, and inside the next one, changes nothing",
        fast: 550,
        ci: 11_000,
        limit: seconds(600),
        alone: false,
        run: simulated::recrash,
    },
    Trial {
        name: "power",
        promise: "a save ends in its window as long as SSD and battery are as described, and a missed one is called so",
        fast: 500,
        ci: 10_000,
        limit: seconds(600),
        alone: false,
        run: simulated::power,
    },
    Trial {
        name: "auditor",
        promise: "dirty pages, counted without the ledger, never exceed the budget while it changes",
        fast: 50_000,
        ci: 1_000_000,
        limit: seconds(600),
        alone: false,
        run: simulated::auditor,
    },
    Trial {
        name: "models",
        promise: "no schedule of threads breaks the words that client and keeper share",
        fast: 0,
        ci: 600_000,
        limit: seconds(900),
        alone: true,
        run: models::run,
    },
    Trial {
        name: "store_crash",
        promise: "after a power cut at any moment a store shows its last commit, exactly",
        fast: 4_000,
        ci: 100_000,
        limit: seconds(600),
        alone: false,
        run: store_crash::run,
    },
    Trial {
        name: "io_nth",
        promise: "no failure of the disk is taken for success, and none loses a commit",
        fast: 1_500,
        ci: 20_000,
        limit: seconds(300),
        alone: false,
        run: io_nth::run,
    },
    Trial {
        name: "bitflip",
        promise: "damaged bytes, stale and misplaced writes are refused, or harmless; never silent",
        fast: 44_000,
        ci: 1_320_000,
        limit: seconds(600),
        alone: false,
        run: damage::run,
    },
    Trial {
        name: "heap_crash",
        promise: "after a power cut, the heap knows exactly the objects that were allocated, and their bytes are there",
        fast: 400,
        ci: 40_000,
        limit: seconds(900),
        alone: false,
        run: pmem::heap_crash::run,
    },
    Trial {
        name: "tx_crash",
        promise: "after a power cut, committed transactions are whole and others never were",
        fast: 400,
        ci: 60_000,
        limit: seconds(900),
        alone: false,
        run: pmem::tx_crash::run,
    },
    Trial {
        name: "versions_crash",
        promise: "after a power cut, versioned objects are as some operation left them, no older than promised",
        fast: 3_000,
        ci: 100_000,
        limit: seconds(600),
        alone: false,
        run: pmem::versions_crash::run,
    },
    Trial {
        name: "fuzz",
        promise: "bytes from outside are refused or keep their meaning; nothing panics",
        fast: 50_000,
        ci: 1_000_000,
        limit: seconds(300),
        alone: false,
        run: fuzz::run,
    },
    Trial {
        name: "upgrade",
        promise: "stores of every released format open, those of a future one are refused and untouched",
        fast: 300,
        ci: 3_000,
        limit: seconds(120),
        alone: false,
        run: upgrade::run,
    },
    Trial {
        name: "kill_client",
        promise: "the death of a program loses no store that it made",
        fast: 40,
        ci: 1_000,
        limit: seconds(300),
        alone: true,
        run: kill_client::run,
    },
    Trial {
        name: "tx_kill",
        promise: "a killed program goes on where its last committed transaction ended",
        fast: 40,
        ci: 2_000,
        limit: seconds(900),
        alone: true,
        run: pmem::tx_kill::kill,
    },
    Trial {
        name: "tx_power",
        promise: "a heap that was saved holds all that was committed, one that was not is its last checkpoint",
        fast: 20,
        ci: 500,
        limit: seconds(600),
        alone: true,
        run: pmem::tx_kill::power,
    },
    Trial {
        name: "heap_drill",
        promise: "a heap whose power is cut comes back from the SSD, every page and every committed transaction",
        fast: 2,
        ci: 25,
        limit: seconds(600),
        alone: true,
        run: pmem::heap_drill::run,
    },
    Trial {
        name: "kill_keeper",
        promise: "the death of the keeper stops the writers, and the store opens as its last checkpoint",
        fast: 20,
        ci: 500,
        limit: seconds(300),
        alone: true,
        run: kill_keeper::run,
    },
    Trial {
        name: "auditor_live",
        promise: "at every instant no more pages are unsaved than the budget, counted from outside",
        fast: 400,
        ci: 7_000,
        limit: seconds(300),
        alone: true,
        run: auditor_live::run,
    },
    Trial {
        name: "escape",
        promise: "every known way around the protection does what the documents say",
        fast: escape::ROWS,
        ci: escape::ROWS,
        limit: seconds(200),
        alone: true,
        run: escape::run,
    },
    Trial {
        name: "thin",
        promise: "a disk that fills up loses nothing that was promised",
        fast: 4,
        ci: 20,
        limit: seconds(200),
        alone: true,
        run: thin::run,
    },
];

/// The tries of an assignment whose trial runs.
fn assigned(assignment: &Assignment) -> u64 {
    assignment.count(find(&assignment.name).expect("it runs"))
}

/// The trial of that name.
pub(crate) fn find(name: &str) -> Result<&'static Trial, String> {
    TRIALS.iter().find(|trial| trial.name == name).ok_or_else(|| {
        let names: Vec<_> = TRIALS.iter().map(|trial| trial.name).collect();
        format!("no trial is called '{name}'; there are: {}", names.join(", "))
    })
}

/// Runs one trial here, prints its outcome as a line of JSON. True when nothing was lost.
pub(crate) fn run(assignment: &Assignment) -> Result<bool, String> {
    let trial = find(&assignment.name)?;
    let assignment = Assignment { count: Some(assignment.count(trial)), ..assignment.clone() };
    let began = Instant::now();
    let mut outcome = Outcome::new(trial.name, assignment.seed);
    let ended = catch_unwind(AssertUnwindSafe(|| (trial.run)(&assignment, &mut outcome)));
    if let Err(cause) = ended {
        let cause = cause.downcast_ref::<String>().cloned();
        outcome.panic(cause.unwrap_or_else(|| "a panic; its message is above".to_owned()));
    }
    let count = assignment.count.unwrap_or(trial.ci);
    if outcome.tried < count && outcome.bad() == 0 {
        outcome.violate(format!(
            "{} tries of {count} were made: the trial proves less than it says",
            outcome.tried
        ));
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&outcome).expect("strings and numbers"));
    Ok(outcome.is_clean())
}
