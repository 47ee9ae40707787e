//! Chores of this workspace: `cargo xtask tidy`.
//!
//! Depends on nothing, so that it builds in a moment and lints before anything else compiles.

use std::path::Path;
use std::process::ExitCode;

mod tidy;

const USAGE: &str = "usage: cargo xtask tidy    lint our own source: shape, unsafe, calls, imports, prose";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => match workspace_root() {
            Some(root) => tidy::run(root),
            None => fail("xtask does not lie in a workspace: run it from a checkout"),
        },
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => fail(USAGE),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(2)
}

fn workspace_root() -> Option<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent()
}
