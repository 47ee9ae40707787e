//! What a person can ask for, one file per command; the drill has a folder of its own.
//!
//! - [`create`], [`info`], [`check`], [`dump`], [`remove`], [`regions`]: stores at rest
//! - [`calibrate`], [`budget`]: what a save needs, and what may be dirty
//! - [`status`], [`steer`]: a running keeper
//! - [`plan`]: which budget and battery a trace needs
//! - [`record`]: what a live program writes
//! - [`policies`]: which page to clean next, by traces
//! - [`bench`]: figures beside their rivals

pub(crate) mod bench;
pub(crate) mod budget;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod dump;
pub(crate) mod heaps;
pub(crate) mod info;
pub(crate) mod plan;
pub(crate) mod policies;
pub(crate) mod record;
pub(crate) mod regions;
pub(crate) mod remove;
pub(crate) mod status;
pub(crate) mod steer;

use std::io::{BufRead, IsTerminal, Write};

use clap::CommandFactory;

use crate::answer::Answer;
use crate::args::Cli;
use crate::failure::Failure;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wattkeep", &mut script);
    Answer::new(
        String::from_utf8_lossy(&script),
        serde_json::json!({ "completions": String::from_utf8_lossy(&script) }),
    )
}

/// Asks a person before something is lost for ever.
fn confirm(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{what}: nobody is here to ask; say --yes")));
    }
    let mut error = std::io::stderr();
    let _ = write!(error, "{what}. Type 'yes': ").and_then(|()| error.flush());
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if answer.trim() == "yes" {
        Ok(())
    } else {
        Err(Failure::usage("nothing was changed; say 'yes' next time"))
    }
}
