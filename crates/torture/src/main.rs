//! The suite that tries to lose data: every trial counts what it tried and what was lost.
//!
//! The modules, in the order of a run: [`args`] say what to try and how much, [`suite`] starts each
//! trial as a process of its own, with a time limit, [`trials`] do the work, [`outcome`] is what they
//! find, [`report`] tells it. [`mutants`] runs the trials against planted bugs: one that is not found
//! fails the suite.

mod args;
mod mutants;
mod outcome;
mod report;
mod suite;
mod trials;

use std::process::ExitCode;

use args::{Action, Args};
use clap::Parser;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.action() {
        Action::List => Ok(suite::list()),
        Action::Suite(options) => suite::run(&options),
        Action::Trial(assignment) => trials::run(&assignment),
        Action::Mutants(options) => mutants::run(&options),
        Action::PowerCut(options) => trials::power_cut::run(&options),
        Action::Subject(options) => trials::subject::run(&options),
        Action::TxSubject(options) => trials::pmem::subject::run(&options),
        Action::EscapeCase(options) => trials::escape::run_case(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::from(2)
        }
    }
}
