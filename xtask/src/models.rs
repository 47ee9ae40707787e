//! Walks the models of `crates/keep/src/models` with both model checkers, and adds up what they say.
//!
//! Each checker brings its own atomics, so each has a build of its own, apart from all others. A model
//! ends with one line of JSON; so does the whole run.
//!
//! The bugs planted for them (`wattkeep_sys::mutant`) are compiled in, and off. `cargo xtask models
//! planted` switches each on in turn: a model that does not fail then proves nothing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const CHECKERS: [&str; 2] = ["loom", "shuttle"];

/// Each planted bug, and the checker and the model that find it.
const PLANTED: &[(&str, &str, &str)] = &[
    ("limit-looked-at-apart", "loom", "ledger"),
    ("ring-unordered", "loom", "ring"),
    ("bell-without-fence", "loom", "bell"),
    ("lost-news-unmarked", "shuttle", "bell"),
    ("progress-uncounted", "shuttle", "progress"),
    ("queued-unclosed", "shuttle", "keeping::a_clean_page"),
    ("copy-counts-anyway", "shuttle", "keeping::a_clean_page"),
    ("version-stays", "loom", "arrival"),
    ("permit-back-twice", "shuttle", "keeping::a_rescued_page"),
    ("freeze-seen-before-claim", "shuttle", "cuts::a_save_holds_all_of_memory"),
    ("withdrawn-while-visited", "shuttle", "regions"),
    ("hazards-unseen", "shuttle", "keeping::a_store_that_a_hazard"),
    ("hazards-without-barrier", "loom", "hazard"),
    ("bias-without-barrier", "loom", "biased"),
    ("bias-looked-at-first", "shuttle", "biased"),
    ("bias-revoked-by-two", "loom", "biased"),
];

/// What the models' last lines add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    models: u64,
    schedules: u64,
    violations: u64,
}

/// Runs the models whose test or module is named `name`; all of them when it is empty.
pub(crate) fn run(root: &Path, name: &str) -> ExitCode {
    let mut sum = Sum::default();
    let mut failed = false;
    for checker in CHECKERS {
        match walk(root, checker, name, &mut sum) {
            Ok(passed) => failed |= !passed,
            Err(e) => {
                eprintln!("cargo test for {checker} cannot run: {e}");
                failed = true;
            }
        }
    }
    let Sum { models, schedules, violations } = sum;
    println!(r#"{{"models":{models},"schedules":{schedules},"violations":{violations}}}"#);
    if models == 0 {
        eprintln!("no model is named '{name}': see crates/keep/src/models");
    }
    if failed || models == 0 || violations > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Switches each planted bug on, one at a time. Fails when a model does not find its bug.
pub(crate) fn planted(root: &Path) -> ExitCode {
    let mut caught = 0;
    for (bug, checker, model) in PLANTED.iter().copied() {
        let output = tests(root, checker, model).env("WATTKEEP_MUTANT", bug).output();
        let text =
            output.map_or_else(|e| e.to_string(), |output| String::from_utf8_lossy(&output.stdout).into());
        let mut sum = Sum::default();
        text.lines().for_each(|line| sum.add(line));
        let found = sum.violations > 0;
        caught += usize::from(found);
        println!("{bug:<26} {} by {checker}, {model}", if found { "found" } else { "NOT FOUND" });
    }
    println!(r#"{{"planted":{},"caught":{caught}}}"#, PLANTED.len());
    if caught == PLANTED.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests of one checker's build.
fn tests(root: &Path, checker: &str, name: &str) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tests
        .current_dir(root)
        .env("RUSTFLAGS", format!("--cfg {checker}"))
        .env("CARGO_TARGET_DIR", target.join("models").join(checker))
        .args(["test", "--release", "--package", "wattkeep-keep", "--lib"])
        .args(["--features", "wattkeep-sys/mutants", &format!("models::{name}")])
        .args(["--", "--nocapture", "--test-threads=2"]);
    tests
}

/// Runs one checker's build. True when all its tests passed.
fn walk(root: &Path, checker: &str, name: &str, sum: &mut Sum) -> std::io::Result<bool> {
    let mut tests = tests(root, checker, name).stdout(Stdio::piped()).spawn()?;
    if let Some(output) = tests.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            sum.add(&line);
            println!("{line}");
        }
    }
    Ok(tests.wait()?.success())
}

impl Sum {
    fn add(&mut self, line: &str) {
        if line.starts_with(r#"{"model":"#) {
            self.models += 1;
            self.schedules += number(line, "schedules");
            self.violations += number(line, "violations");
        }
    }
}

/// The number behind `key` in a line of JSON without spaces; 0 when there is none.
fn number(line: &str, key: &str) -> u64 {
    let Some((_, rest)) = line.split_once(&format!("\"{key}\":")) else { return 0 };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_models_add_up_and_others_are_passed_over() {
        let mut sum = Sum::default();
        sum.add(r#"{"model":"ring","checker":"loom","schedules":1014,"violations":0}"#);
        sum.add("test models::ring ... ok");
        sum.add(r#"{"model":"bell","checker":"loom","schedules":0,"violations":1}"#);
        assert_eq!(sum, Sum { models: 2, schedules: 1014, violations: 1 });
    }
}
