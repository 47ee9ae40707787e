//! The command line: which trials, how much of each, from which seed.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use crate::trials::Assignment;
use crate::trials::escape::CaseOptions;
use crate::trials::pmem::subject::TxSubjectOptions;
use crate::trials::power_cut::PowerCutOptions;
use crate::trials::subject::SubjectOptions;

/// Tries to lose data, and counts what was lost.
#[derive(Debug, Parser)]
#[command(name = "torture", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    suite: SuiteOptions,
}

const EXAMPLES: &str = "Examples:
  torture                         all trials, at the size for CI
  torture --size fast             a slice of a minute or two
  torture --only crash,bitflip    two of them
  torture --hours 8               a soak: fresh seeds, larger counts, until the time is up
  torture trial crash --seed 7    one trial in this process: how a failure is replayed
  torture mutants                 the planted bugs, in a build with '--features mutants'";

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the trials, and the promise that each one holds us to.
    List,
    /// Runs one trial in this process and prints its outcome as JSON.
    Trial(Assignment),
    /// Runs the trials against each planted bug; fails if one of the bugs survives.
    Mutants(MutantOptions),
    /// Cuts the power of a virtual machine; needs QEMU, see 'make power-cut'.
    PowerCut(PowerCutOptions),
    /// The program that is killed in the trials of processes.
    #[command(hide = true)]
    Subject(SubjectOptions),
    /// The program that is killed while it makes transactions.
    #[command(hide = true)]
    TxSubject(TxSubjectOptions),
    /// One case of the trial 'escape', in a process of its own.
    #[command(hide = true)]
    EscapeCase(CaseOptions),
}

/// How much of each trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// For every change: a minute or two.
    Fast,
    /// What `docs/durability.md` names.
    #[default]
    Ci,
}

/// Options of a run of the suite.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SuiteOptions {
    /// How much of each trial.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) size: Size,
    /// Only these trials, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Leaves these trials out.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) without: Vec<String>,
    /// First seed; every trial counts on from it.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Repeats the suite with larger counts and fresh seeds until so many hours have passed.
    #[arg(long, value_name = "HOURS")]
    pub(crate) hours: Option<f64>,
    /// Writes the outcomes here, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// A build of this program with '--features mutants': its planted bugs are tried at the end.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) mutants: Option<PathBuf>,
}

/// Options of a run against the planted bugs.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MutantOptions {
    /// Only these bugs, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Seed of the trials.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do.
pub(crate) enum Action {
    List,
    Suite(SuiteOptions),
    Trial(Assignment),
    Mutants(MutantOptions),
    PowerCut(PowerCutOptions),
    Subject(SubjectOptions),
    TxSubject(TxSubjectOptions),
    EscapeCase(CaseOptions),
}

impl Args {
    pub(crate) fn action(self) -> Action {
        match self.command {
            None => Action::Suite(self.suite),
            Some(Command::List) => Action::List,
            Some(Command::Trial(assignment)) => Action::Trial(assignment),
            Some(Command::Mutants(options)) => Action::Mutants(options),
            Some(Command::PowerCut(options)) => Action::PowerCut(options),
            Some(Command::Subject(options)) => Action::Subject(options),
            Some(Command::TxSubject(options)) => Action::TxSubject(options),
            Some(Command::EscapeCase(options)) => Action::EscapeCase(options),
        }
    }
}
