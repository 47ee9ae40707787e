//! The program that is killed while it makes transactions on a heap in a region.
//!
//! It opens the store, the heap, the transactions, and verifies every table before it goes on where that
//! table's last committed transaction ended. A thread reads beside those that change. After each commit it
//! notes the transaction's number in a file beside the store, which outlives it: what is noted there was
//! promised. It speaks as [`crate::trials::subject`] does, and asks for checkpoints when it is told to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use wattkeep::{FaultMode, RegionOptions, Store};
use wattkeep_persist::{Domain, MappedFile, Space};
use wattkeep_tx::Logging;

use super::machine::{Machine, Setup};
use crate::trials::subject::{checkpoint_for_ever, fault_mode, say, tell};

/// Size of the region.
const REGION_BYTES: u64 = 4 << 20;
/// Bytes of its transaction logs: small, so that they are truncated often.
const LOG_BYTES: u64 = 192 << 10;
/// The file of promises, beside the store.
const NOTES: &str = "acknowledged";
/// How often it says how far it is.
const TELL: Duration = Duration::from_millis(1);

/// What the program does.
#[derive(Clone, Debug, Args)]
pub(crate) struct TxSubjectOptions {
    /// Directory of the store; made if missing.
    pub(crate) directory: PathBuf,
    /// Threads, each with a table of its own.
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: u64,
    /// Dirty budget.
    #[arg(long, default_value = "50%")]
    pub(crate) budget: String,
    /// Fault mode: signal, mprotect or monitor.
    #[arg(long, default_value = "signal", value_parser = fault_mode)]
    pub(crate) mode: FaultMode,
    /// A transparent region; else stores are announced.
    #[arg(long)]
    pub(crate) transparent: bool,
    /// Undo logs instead of redo logs.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Names the transactions.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Milliseconds between checkpoints; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub(crate) checkpoint_ms: u64,
}

impl TxSubjectOptions {
    /// As words of a command line, without the directory.
    pub(crate) fn words(&self) -> Vec<String> {
        let pairs = [
            ("--threads", self.threads.to_string()),
            ("--budget", self.budget.clone()),
            ("--mode", self.mode.to_string()),
            ("--seed", self.seed.to_string()),
            ("--checkpoint-ms", self.checkpoint_ms.to_string()),
        ];
        let mut words: Vec<_> =
            pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        words.extend(self.transparent.then(|| "--transparent".to_owned()));
        words.extend(self.undo.then(|| "--undo".to_owned()));
        words
    }

    /// How its heap is made and opened.
    fn setup(&self) -> Setup {
        let logging = if self.undo { Logging::Undo } else { Logging::Redo };
        Setup {
            seed: self.seed,
            tables: self.threads as usize,
            logging,
            log_bytes: LOG_BYTES,
            truncate_bytes: LOG_BYTES as usize / 4,
            guard: false,
        }
    }
}

/// What was promised, a number a table: a file that outlives its writer, shared with whoever kills it.
pub(crate) struct Notes(Space);

impl Notes {
    /// The notes beside the store in `directory`.
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        let file = MappedFile::open(&directory.with_extension(NOTES), 4096).map_err(|e| e.to_string())?;
        Ok(Self(Space::new(Arc::new(file), Domain::Battery)))
    }

    fn promise(&self, table: usize, number: u64) {
        self.0.store(table * 8, number).expect("a word for each table");
    }

    /// Number of the last transaction of the table that was promised.
    pub(crate) fn promised(&self, table: usize) -> u64 {
        self.0.load(table * 8).expect("a word for each table")
    }
}

/// Makes transactions until it is killed. False when what it found is wrong.
pub(crate) fn run(options: &TxSubjectOptions) -> Result<bool, String> {
    let opened = Store::options()
        .create_if_missing(true)
        .checkpoint_interval_ms(0)
        .fault_mode(options.mode)
        .budget(&options.budget)
        .open(&options.directory);
    let store = opened.map_err(|e| e.to_string())?;
    say(format_args!("keeper {}", store.keeper_pid()));
    say(format_args!("recovered {}", store.recovered().unwrap_or("a new store")));
    let tracking = if options.transparent { RegionOptions::transparent() } else { RegionOptions::explicit() };
    let region = store.region("heap", tracking.create(REGION_BYTES)).map_err(|e| e.to_string())?;
    let notes = Notes::open(&options.directory)?;
    let found = Machine::open(Arc::new(region.into_space(Domain::Battery)), &options.setup())
        .and_then(|machine| machine.verify().map(|found| (machine, found)));
    let (machine, found) = match found {
        Ok(found) => found,
        Err(cause) => {
            say(format_args!("wrong {}", cause.replace('\n', " ")));
            return Ok(false);
        }
    };
    for (table, number) in found.iter().enumerate() {
        say(format_args!("found {table} {number}"));
        notes.promise(table, *number);
    }
    let counters: Vec<AtomicU64> = found.into_iter().map(AtomicU64::new).collect();
    std::thread::scope(|scope| {
        for (table, counter) in counters.iter().enumerate() {
            let (machine, notes) = (&machine, &notes);
            scope.spawn(move || {
                if let Err(error) = work(machine, table, counter, notes) {
                    // With the keeper's death writers may be refused; any other cause is the killer's to judge.
                    say(format_args!("ended {table} {error}"));
                }
            });
        }
        scope.spawn(|| {
            for turn in 0.. {
                if let Err(cause) = machine.read(turn) {
                    return say(format_args!("wrong {cause}"));
                }
            }
        });
        if options.checkpoint_ms > 0 {
            scope.spawn(|| checkpoint_for_ever(&store, options.checkpoint_ms, &counters));
        }
        loop {
            let now: Vec<_> = counters.iter().map(|counter| counter.load(Ordering::Acquire)).collect();
            tell("at", &now);
            std::thread::sleep(TELL);
        }
    })
}

fn work(machine: &Machine, table: usize, counter: &AtomicU64, notes: &Notes) -> Result<(), String> {
    machine.catch_up(table, counter.load(Ordering::Acquire))?;
    for number in counter.load(Ordering::Acquire) + 1.. {
        if machine.step(table, number)? {
            notes.promise(table, number);
            counter.store(number, Ordering::Release);
        }
    }
    Ok(())
}
