//! Power cuts of a heap, as a person rehearses them: the real command, `wattkeep drill --workload heap`.
//!
//! Each drill runs transactions on a hash table in a process of its own, saves at a random moment, kills program
//! and keeper, restores from the SSD alone, compares every page, opens the heap, and verifies every transaction.
//! A drill that is not kept is a loss.

use std::process::{Command, Stdio};

use serde_json::Value;
use wattkeep_sim::random::Random;

use crate::outcome::Outcome;
use crate::trials::lab::wattkeep_program;
use crate::trials::{Assignment, assigned};

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let (mut transactions, mut under_way, mut half_done) = (0, 0, 0);
    while outcome.tried < count && outcome.bad() == 0 {
        let arguments = arguments(&mut random);
        let story = format!("wattkeep drill DIR {}", arguments.join(" "));
        let report = match drill(&arguments) {
            Ok(report) => report,
            Err(cause) => return outcome.violate(format!("{story}: {cause}")),
        };
        if report["verdict"] != "kept" {
            return outcome.lose(1, format!("{story}: {}", report["verdict"]));
        }
        let number = |name: &str| report["heap"][name].as_u64().unwrap_or(0);
        transactions += number("transactions_reported");
        under_way += u64::from(number("transactions_found") > number("transactions_reported"));
        half_done += u64::from(report["half_done"] == true);
        outcome.tried += 1;
    }
    outcome.note = format!(
        "{transactions} transactions promised; {under_way} cuts kept the one under way, {half_done} a part of it"
    );
}

/// Of a drill that is over soon, with a window that is no matter.
fn arguments(random: &mut Random) -> Vec<String> {
    let one = |choices: &[&str], random: &mut Random| {
        choices[random.below(choices.len() as u64) as usize].to_owned()
    };
    let pairs = [
        ("--workload", "heap".to_owned()),
        ("--window", "60s".to_owned()),
        ("--size", one(&["8MiB", "16MiB", "32MiB"], random)),
        ("--budget", one(&["1", "16", "11%", "50%", "100%"], random)),
        ("--seconds", one(&["0.2", "0.5", "1"], random)),
        ("--fault-mode", one(&["signal", "mprotect", "monitor"], random)),
        ("--policy", one(&["fifo", "s3-fifo", "second-chance", "least-recently-updated"], random)),
        ("--seed", random.below(1 << 32).to_string()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn drill(arguments: &[String]) -> Result<Value, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = Command::new(wattkeep_program()?)
        .arg("drill")
        .arg(scratch.path().join("drill"))
        .args(arguments)
        .args(["--no-unlimited", "--json"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        format!("no report: {error}; {}; {}", output.status, String::from_utf8_lossy(&output.stderr))
    })
}
