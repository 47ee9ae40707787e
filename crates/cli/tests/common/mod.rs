//! Runs the `wattkeep` command as a person does.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The keeper beside the command: `cargo build --workspace` makes it before the tests run.
pub fn keeper() -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_wattkeep"));
    let keeper = command.with_file_name("wattkeepd");
    assert!(keeper.is_file(), "run 'cargo build --workspace' first: {} is missing", keeper.display());
    keeper
}

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wattkeep"));
    command.env("WATTKEEP_KEEPER", keeper());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    command().args(arguments).output().expect("the command starts")
}

/// Runs what must succeed, and gives its standard output.
pub fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?}: {error}", output.status.code());
    String::from_utf8(output.stdout).expect("text")
}

/// The one JSON object that a command prints.
pub fn json(arguments: &[&str]) -> Value {
    let mut with_json = arguments.to_vec();
    with_json.push("--json");
    let text = ok(&with_json);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Runs what must fail with `code`: nothing on standard output, one line that names the next command.
pub fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(error.starts_with("wattkeep: "), "{error}");
    assert!(!error.contains("panicked") && !error.contains("bug"), "{error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary path is text")
}
