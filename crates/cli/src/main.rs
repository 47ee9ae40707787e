//! The `wattkeep` command: everything a person does with stores, budgets and drills.
//!
//! In the order a command flows through them: [`args`] reads what was typed, one file below
//! [`commands`] (or [`drill`]) does it, [`answer`] prints what came of it. Every error is one line that
//! names the cause and the next command, and has a documented exit code.

#![deny(unsafe_code)]

mod answer;
mod args;
mod calibrate;
mod commands;
mod drill;
mod failure;
mod keeper;
mod memory;
mod opened;
mod progress;
mod text;

use std::process::ExitCode;

use answer::{Answer, Output};
use args::{Cli, Command};
use clap::Parser;
use failure::Failure;

fn main() -> ExitCode {
    failure::report_bugs_in_one_line();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let output = Output { json: cli.json };
    match run(cli.command, output) {
        Ok(answer) => answer.print(output),
        Err(failure) => failure.print(),
    }
}

fn run(command: Command, output: Output) -> Result<Answer, Failure> {
    use commands::{
        bench, budget, check, create, dump, info, plan, policies, record, regions, remove, status, steer,
    };
    match command {
        Command::Create(args) => create::run(&args, output),
        Command::Info(args) => info::run(&args.store),
        Command::Check(args) => check::run(&args, output),
        Command::Dump(args) => dump::run(&args, output),
        Command::Rm(args) => remove::run(&args),
        Command::Resize(args) => regions::resize(&args),
        Command::Rename(args) => regions::rename(&args),
        Command::Calibrate(args) => commands::calibrate::run(&args, output),
        Command::Budget(args) => budget::run(&args),
        Command::Status(args) => status::run(&args, output),
        Command::Checkpoint(args) => steer::checkpoint(&args.store),
        Command::Save(args) => steer::save(&args.store),
        Command::Resume(args) => steer::resume(&args.store),
        Command::Drill(args) => drill::run(&args, output),
        Command::DrillChild(args) => drill::child::run(&args.config),
        Command::Plan(args) => plan::run(&args, output),
        Command::Policies(args) => policies::run(&args, output),
        Command::Record(args) => record::run(args, output),
        Command::Bench(args) => bench::run(&args, output),
        Command::BenchNeighbour(args) => bench::neighbour(&args),
        Command::Completions(args) => Ok(commands::completions(args.shell)),
    }
}
