//! Walks the concurrency models of the words that client and keeper share: every order of a few
//! preemptions with loom, many schedules by chance with shuttle.
//!
//! The models need builds of their own, so this trial runs `cargo xtask models` in the workspace. It
//! counts schedules. Without cargo it fails: a check that did not run has not passed.

use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// The last line of the run.
#[derive(Deserialize)]
struct Sum {
    models: u64,
    schedules: u64,
    violations: u64,
}

/// Models that shuttle walks: its schedules are shared out among them.
const SHUTTLE_MODELS: u64 = 12;

pub(super) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let each = assigned(assignment).div_ceil(SHUTTLE_MODELS);
    let ran = Command::new("cargo")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["xtask", "models"])
        .env("WATTKEEP_SCHEDULES", each.to_string())
        .env("WATTKEEP_SEED", assignment.seed.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let output = match ran {
        Ok(output) => output,
        Err(error) => return outcome.violate(format!("cannot run 'cargo xtask models': {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(sum) = text.lines().rev().find_map(|line| serde_json::from_str::<Sum>(line).ok()) else {
        return outcome.violate(format!("'cargo xtask models' ended without a sum: {}", output.status));
    };
    outcome.tried = sum.schedules;
    outcome.violations = sum.violations;
    outcome.note = format!("{} models", sum.models);
    if !output.status.success() {
        let from = text.find("---- ").unwrap_or(0);
        outcome.violations = outcome.violations.max(1);
        outcome.fail(text[from..].chars().take(2_000).collect::<String>());
    }
}
