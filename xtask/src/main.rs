//! Chores of this workspace: `cargo xtask tidy`, `cargo xtask models`.
//!
//! Depends on nothing, so that it builds in a moment and lints before anything else compiles.

use std::path::Path;
use std::process::ExitCode;

mod models;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy             lint our own source: shape, unsafe, calls, imports, prose
       cargo xtask models [name]    walk the models of client, keeper and biased locks with loom and shuttle
       cargo xtask models planted   switch planted bugs on, one by one: the models must find each";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => in_workspace(tidy::run),
        ["models"] => in_workspace(|root| models::run(root, "")),
        ["models", "planted"] => in_workspace(models::planted),
        ["models", name] if !name.starts_with('-') => in_workspace(|root| models::run(root, name)),
        ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => fail(USAGE),
    }
}

fn in_workspace(chore: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    match workspace_root() {
        Some(root) => chore(root),
        None => fail("xtask does not lie in a workspace: run it from a checkout"),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}

fn workspace_root() -> Option<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent()
}
