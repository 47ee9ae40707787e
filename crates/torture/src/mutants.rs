//! Planted bugs: each must be found by a trial, or the trials prove nothing.
//!
//! A bug is a place in the product that asks [`wattkeep_sys::mutant::planted`] for its name. Without
//! the feature `mutants` that is the constant `false`; with it, the name in the environment decides.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use wattkeep_sys::mutant;

use crate::args::MutantOptions;
use crate::suite::{Job, run_jobs};
use crate::trials::find;

/// A planted bug, and the trials that should find it.
struct Mutant {
    name: &'static str,
    bug: &'static str,
    /// Trials and their counts, the likeliest first.
    trials: &'static [(&'static str, u64)],
}

/// All planted bugs.
const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "grant-while-frozen",
        bug: "a store after a save is granted, and lost with the power",
        trials: &[("histories", 400), ("crash", 6_000)],
    },
    Mutant {
        name: "hazards-unseen",
        bug: "the keeper copies pages, and cuts, without a look at who is amid an announced store",
        trials: &[("histories", 400), ("crash", 6_000)],
    },
    Mutant {
        name: "compare-under-flight",
        bug: "a page counts as stored while an older copy of it is about to become the store's",
        trials: &[("histories", 10)],
    },
    Mutant {
        name: "stale-arrival",
        bug: "the arrival of an old copy cleans a page that was written since",
        trials: &[("histories", 400), ("crash", 6_000)],
    },
    Mutant {
        name: "cut-leaves-open",
        bug: "a cut holds pages without closing them",
        trials: &[("histories", 400), ("crash", 6_000)],
    },
    Mutant {
        name: "checkpoint-answered-with-older",
        bug: "whoever asks behind a checkpoint's cut is told of its commit",
        trials: &[("histories", 400)],
    },
    Mutant {
        name: "resume-still-complete",
        bug: "writers go on after a save, and the store still says that it holds everything",
        trials: &[("histories", 400), ("crash", 6_000)],
    },
    Mutant {
        name: "tail-kept",
        bug: "what came after the last commit stays in the log, for a later commit to adopt",
        trials: &[("histories", 400), ("crash", 6_000)],
    },
    Mutant {
        name: "drop-flush",
        bug: "the store says that it flushed, and did not",
        trials: &[("store_crash", 500)],
    },
    Mutant {
        name: "commit-before-data",
        bug: "the superblock is written before the flush that makes its data durable",
        trials: &[("store_crash", 4_000)],
    },
    Mutant {
        name: "stale-slot-reuse",
        bug: "a segment that holds versions of the last commit is reused",
        trials: &[("store_crash", 1_000)],
    },
    Mutant {
        name: "acknowledge-out-of-order",
        bug: "a batch is acknowledged before an earlier one",
        trials: &[("store_crash", 500)],
    },
    Mutant {
        name: "fsync-retry",
        bug: "a failed flush is tried again, and its success believed",
        trials: &[("io_nth", 1_500)],
    },
    Mutant {
        name: "short-write-ignored",
        bug: "a write of fewer bytes than asked counts as a write",
        trials: &[("io_nth", 1_500)],
    },
    Mutant {
        name: "unsealed-memfd",
        bug: "the memory of a region is never sealed",
        trials: &[("escape", 12)],
    },
    Mutant {
        name: "child-shares-region",
        bug: "a forked child inherits the mapping, and not the protection",
        trials: &[("escape", 12)],
    },
    Mutant {
        name: "fail-open",
        bug: "the death of the keeper lifts the budget instead of stopping the writers",
        trials: &[("kill_keeper", 60)],
    },
    Mutant {
        name: "torn-cut",
        bug: "a page of a checkpoint may be written before it is copied",
        trials: &[("kill_keeper", 400)],
    },
    Mutant {
        name: "budget-plus-one",
        bug: "the ledger lets one page more become dirty than the budget has",
        trials: &[("auditor_live", 300)],
    },
    Mutant {
        name: "permit-back-before-ack",
        bug: "a permit comes back when a copy departs, not when it is on the SSD",
        trials: &[("auditor_live", 600)],
    },
    Mutant {
        name: "protect-after-copy",
        bug: "a page is copied first and protected afterwards",
        trials: &[("auditor_live", 300), ("kill_client", 40)],
    },
    Mutant {
        name: "freeze-forgets-a-region",
        bug: "a cut leaves the first region out",
        trials: &[("kill_client", 12)],
    },
    Mutant {
        name: "drain-forgets-a-dead-program",
        bug: "the keeper of a killed program ends without writing its pages out",
        trials: &[("kill_client", 12)],
    },
    Mutant {
        name: "crc-skipped",
        bug: "a page is handed out without a look at its checksum",
        trials: &[("bitflip", 5_500)],
    },
    Mutant {
        name: "superblock-newest-without-checksum",
        bug: "the superblock copy with the highest sequence is taken unchecked",
        trials: &[("bitflip", 5_500)],
    },
    Mutant {
        name: "summary-position-unchecked",
        bug: "a batch is believed about where it lies",
        trials: &[("bitflip", 22_000)],
    },
    Mutant {
        name: "digest-of-older-commit-believed",
        bug: "a digest stays valid when its store is written again",
        trials: &[("store_crash", 2_000)],
    },
    Mutant {
        name: "record-never-flushed",
        bug: "an allocation returns before the line of its record is written back",
        trials: &[("heap_crash", 1_000)],
    },
    Mutant {
        name: "published-before-records",
        bug: "a group of allocations counts before its records are durable",
        trials: &[("heap_crash", 1_500)],
    },
    Mutant {
        name: "freed-before-retired",
        bug: "what a transaction freed is used again while its log may still name it",
        trials: &[("heap_crash", 1_000)],
    },
    Mutant {
        name: "torn-group-padded-from-its-header",
        bug: "a recovery that is cut leaves records of a torn group without their header",
        trials: &[("heap_crash", 4_000)],
    },
    Mutant {
        name: "retired-before-copies",
        bug: "compaction gives a segment of the heap's log up before the copies of its records are durable",
        trials: &[("heap_crash", 4_000)],
    },
    Mutant {
        name: "tx-records-never-flushed",
        bug: "a transaction's records are not written back before its commit slot counts",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-slot-before-new-objects",
        bug: "a commit counts before the objects that it allocated are durable",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-commit-without-fence",
        bug: "a commit returns before its slot is durable",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-witness-before-its-slot",
        bug: "a slot is said to be durable before it is",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-truncate-before-homes",
        bug: "the log is emptied before the values that it holds are durable in their places",
        trials: &[("tx_crash", 40_000)],
    },
    Mutant {
        name: "tx-store-before-old-value",
        bug: "a store goes to its place before the old value is durable in the log",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-done-before-homes",
        bug: "an undo transaction counts as done before its stores are durable",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-replayed-by-lane",
        bug: "recovery replays one lane after the other, not in the order of transactions",
        trials: &[("tx_crash", 8_000)],
    },
    Mutant {
        name: "tx-publish-forgotten",
        bug: "recovery does not publish what a committed transaction allocated and freed",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-commit-before-versions",
        bug: "a transaction counts before the versions that it wrote are durable",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "tx-versions-beside-the-log",
        bug: "the versions that a transaction wrote count before the transaction does",
        trials: &[("tx_crash", 2_000)],
    },
    Mutant {
        name: "reader-looks-once",
        bug: "a reader beside a transaction takes what it read for committed without a second look",
        trials: &[("tx_kill", 400)],
    },
    Mutant {
        name: "tx-replayed-before-judged",
        bug: "recovery applies a transaction before it has read the rest of the log, and refuses the heap then",
        trials: &[("fuzz", 50_000)],
    },
    Mutant {
        name: "version-never-flushed",
        bug: "a version counts although its lines were never written back",
        trials: &[("versions_crash", 2_000)],
    },
    Mutant {
        name: "version-named-in-the-newer-word",
        bug: "the word of an object's persistent version is overwritten, not the one before it",
        trials: &[("versions_crash", 2_000)],
    },
    Mutant {
        name: "version-free-too-early",
        bug: "a version is written again before what replaced it is persistent",
        trials: &[("versions_crash", 2_000)],
    },
    Mutant {
        name: "epoch-before-versions",
        bug: "an epoch is persistent before the versions that belong to it",
        trials: &[("versions_crash", 2_000)],
    },
];

/// How the trials did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mutants {
    pub(crate) planted: u64,
    pub(crate) caught: u64,
    /// The bugs that no trial found.
    pub(crate) survivors: Vec<String>,
    /// Each bug, and the trial that found it.
    pub(crate) found: Vec<(String, String)>,
}

impl Mutants {
    /// Every planted bug was found.
    pub(crate) fn all_caught(&self) -> bool {
        self.caught == self.planted
    }
}

/// Lets another build of this program, with the bugs compiled in, try them all.
pub(crate) fn all(program: &Path, seed: u64) -> Result<Mutants, String> {
    let failed = |e| format!("cannot run {}: {e}; build it with '--features mutants'", program.display());
    let output = Command::new(program)
        .args(["mutants", "--json", "--seed", &seed.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|e| format!("{} told no result: {e}", program.display()))
}

/// Tries each planted bug. True when all were found.
pub(crate) fn run(options: &MutantOptions) -> Result<bool, String> {
    if !mutant::COMPILED_IN {
        return Err("this build has no planted bugs: build it with '--features mutants'".to_owned());
    }
    let mut mutants = Mutants::default();
    for mutant in MUTANTS {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == mutant.name) {
            continue;
        }
        mutants.planted += 1;
        match first_trial_that_fails(mutant, options.seed)? {
            Some(trial) => {
                mutants.caught += 1;
                mutants.found.push((mutant.name.to_owned(), trial.to_owned()));
                println!("{:<24} found by {trial}: {}", mutant.name, mutant.bug);
            }
            None => {
                println!("{:<24} NOT FOUND: {}", mutant.name, mutant.bug);
                mutants.survivors.push(mutant.name.to_owned());
            }
        }
    }
    if options.json {
        println!("{}", serde_json::to_string(&mutants).expect("strings and numbers"));
    }
    Ok(mutants.all_caught())
}

/// A trial that fails without the bug, too, finds nothing: that is an error.
fn first_trial_that_fails(mutant: &Mutant, seed: u64) -> Result<Option<&'static str>, String> {
    for (name, count) in mutant.trials {
        let trial = find(name)?;
        let job = Job { trial, count: *count, seed, limit: trial.limit };
        let healthy = run_jobs(vec![job.clone()], &[(mutant::VARIABLE, "")])?;
        if let Some(bad) = healthy.iter().find(|outcome| !outcome.is_clean()) {
            return Err(format!("trial '{name}' fails without a planted bug: {:?}", bad.failure));
        }
        let sick = run_jobs(vec![job], &[(mutant::VARIABLE, mutant.name)])?;
        if sick.iter().any(|outcome| outcome.bad() > 0) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
