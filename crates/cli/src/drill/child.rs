//! The machine of a drill: a process that runs the workload on a region, or on a heap in it, until it is killed.
//!
//! Standard input is the board that it shares with its parent; standard output carries one JSON line
//! for each thing that happened. It publishes its operations after each one, so that the parent knows
//! what the memory held when the power failed.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wattkeep::persist::Domain;
use wattkeep::{Region, RegionOptions, Store};
use wattkeep_bench::workload::{HeapPlan, HeapTable};
use wattkeep_bench::{AnyWorkload, Memory, Workload, WorkloadSpec};
use wattkeep_keep::types::{FaultMode, PolicyName};

use super::mirror::Mirror;
use super::scratch::REGION;
use crate::answer::{Answer, write_out};
use crate::failure::{Exit, Failure};
use crate::memory::{Board, RegionMemory, Word};

/// What the child is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChildConfig {
    pub(crate) store: PathBuf,
    pub(crate) workload: String,
    pub(crate) seed: u64,
    pub(crate) budget_pages: u32,
    pub(crate) explicit: bool,
    pub(crate) policy: PolicyName,
    pub(crate) fault_mode: Option<FaultMode>,
}

/// What the child tells.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildNews {
    /// The region is mapped.
    Opened { keeper_pid: u32 },
    /// The workload is in the region; the child waits for the word to go.
    Loaded,
    /// It cannot go on.
    Failed { cause: String, exit: u8 },
}

impl ChildNews {
    fn tell(&self) {
        write_out(&(serde_json::to_string(self).expect("strings and numbers") + "\n"));
    }
}

pub(crate) fn run(config: &str) -> Result<Answer, Failure> {
    // A parent that is gone needs no workload.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let config = serde_json::from_str(config).map_err(|error| {
        Failure::usage(format!("this command is for 'wattkeep drill' only: {error}; run that"))
    })?;
    let Err(failure) = work(&config);
    ChildNews::Failed { cause: failure.cause.clone(), exit: failure.exit as u8 }.tell();
    Err(failure)
}

fn work(config: &ChildConfig) -> Result<std::convert::Infallible, Failure> {
    let board = Board::open(io::stdin().as_fd()).map_err(|error| no_shared_memory(&error))?;
    let mut options = Store::options().budget(&config.budget_pages.to_string()).policy(config.policy);
    if let Some(mode) = config.fault_mode {
        options = options.fault_mode(mode);
    }
    let store = options.open(&config.store)?;
    let region_options =
        if config.explicit { RegionOptions::explicit() } else { RegionOptions::transparent() };
    let region = store.region(REGION, region_options)?;
    ChildNews::Opened { keeper_pid: store.keeper_pid() }.tell();
    let spec: WorkloadSpec = config.workload.parse().map_err(Failure::usage)?;
    if spec == WorkloadSpec::Heap {
        transact(config, region, &board)
    } else {
        write(config, &spec, region, &board)
    }
}

/// Writes to the region, as the workload says.
fn write(
    config: &ChildConfig,
    spec: &WorkloadSpec,
    region: Region,
    board: &Board,
) -> Result<std::convert::Infallible, Failure> {
    let mut memory = RegionMemory::new(region);
    let mut workload = AnyWorkload::new(spec, config.seed, memory.len()).map_err(Failure::usage)?;
    workload.load(&mut memory, &mut |share| loaded(board, share));
    refused(&memory)?;
    wait_for_the_word(board);
    loop {
        workload.step(&mut memory);
        if memory.refused().is_some() {
            refused(&memory)?;
        }
        board.set(Word::Steps, workload.steps());
    }
}

/// Makes transactions on a heap in the region. What they store goes to the mirror as well.
fn transact(
    config: &ChildConfig,
    region: Region,
    board: &Board,
) -> Result<std::convert::Infallible, Failure> {
    let bytes = region.len() as u64;
    let mirror = Mirror::open(io::stdin().as_fd(), bytes).map_err(|error| no_shared_memory(&error))?;
    let plan = HeapPlan::new(config.seed, bytes).map_err(Failure::usage)?;
    let refused = |error| Failure::new(Exit::System, format!("the heap refused: {error}"));
    let space = Arc::new(region.into_space(Domain::Battery).watched_by(Arc::new(mirror)));
    let heap = HeapTable::open(space, &plan).map_err(refused)?;
    heap.load(&mut |share| loaded(board, share)).map_err(refused)?;
    wait_for_the_word(board);
    for number in 1.. {
        heap.step(number).map_err(refused)?;
        board.set(Word::Steps, number);
    }
    unreachable!("nobody makes 2^64 transactions")
}

fn loaded(board: &Board, share: f64) {
    board.set(Word::Loaded, (share * 1e6) as u64);
}

fn wait_for_the_word(board: &Board) {
    ChildNews::Loaded.tell();
    while board.get(Word::Go) == 0 {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn no_shared_memory(error: &io::Error) -> Failure {
    Failure::new(Exit::System, format!("no shared memory: {error}; see 'ulimit -a'"))
}

fn refused(memory: &RegionMemory) -> Result<(), Failure> {
    memory.refused().map_or(Ok(()), |cause| Err(Failure::new(Exit::System, cause)))
}
