//! The figures we hold ourselves to, each measured beside its rival on this machine.
//!
//! | name | figures |
//! |---|---|
//! | `fault` | `fault.random`, `fault.sequential`, `fault.cycle` |
//! | `save` | `save.bandwidth`, `memory.overhead` |
//! | `restore` | `restore.bandwidth`, `open.first_touch` |
//! | `ycsb` | `ycsb.explicit.A` to `.F`, `ycsb.transparent.A` to `.F` |
//! | `rivals` | `rivals.mmap.speed`, `rivals.mmap.bytes` |
//! | `heap` | `heap.fragmentation`, `heap.alloc.*`, `heap.flushes`, `heap.open`, `heap.contiguity.*` |
//! | `tx` | `tx.hybrid.word`, `tx.hybrid.object`, `tx.redo`, in every place |
//! | `pht` | `pht.pmdk`, `pht.lmdb`, `pht.redb`, `pht.floor` |
//! | `sps` | `sps.tcs`, `sps.energy`, and every scheme, domain and threshold |
//!
//! Every report of a benchmark with budgets ends with `bound.max_dirty`: the highest dirty count of its own
//! runs against them. The stores are made in a directory of their own, which is removed at the end; what a
//! signal left is removed by the next benchmark in the same place.
//!
//! Does not judge: a figure carries what it has to reach, and whether it does follows from it.

mod bare;
mod contiguity;
mod dirty_limit;
mod fault;
mod heap;
mod kept;
mod memory;
mod meter;
mod pht;
mod places;
mod process;
mod put_back;
mod raw;
mod restore;
mod rivals;
mod rounds;
mod save;
mod scratch;
mod sps;
mod tx;
mod ycsb;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use wattkeep::{KeeperPlace, PolicyName};

use self::scratch::Scratch;
use crate::measure::{Figure, Reach, Report, Rounds};

/// The names that [`run`] knows, besides `all`.
pub const NAMES: [&str; 9] = ["fault", "save", "restore", "ycsb", "rivals", "heap", "tx", "pht", "sps"];

/// Share of the region that may be dirty: the paper's, for a battery a ninth of the DRAM's.
const BUDGET_PERCENT: usize = 11;
const BUDGET: &str = "11%";
const UNLIMITED: &str = "100%";

/// How much to measure, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds of each measurement; ours and the rival's take turns.
    pub rounds: usize,
    /// Size of the region that the workloads run on; the others follow from it.
    pub region_bytes: u64,
    /// Where the stores are made: on the SSD to be measured.
    pub directory: PathBuf,
    /// Small and short: shows that everything runs, and measures nothing.
    pub quick: bool,
    /// Where the keepers run. Figures are those of processes; a thread is for tests.
    pub keeper: KeeperPlace,
    /// Which page is cleaned next.
    pub policy: PolicyName,
    /// Where a benchmark that draws puts its pictures; nowhere if there is none.
    pub pictures: Option<PathBuf>,
    /// A program that calls [`crate::neighbour::process`] when it is run as `PROGRAM bench-neighbour SEED`:
    /// what allocates beside a measurement. None: threads of this one do.
    pub neighbour: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 7,
            region_bytes: 1 << 30,
            directory: PathBuf::from("."),
            quick: false,
            keeper: KeeperPlace::Process,
            policy: PolicyName::default(),
            pictures: None,
            neighbour: None,
        }
    }
}

/// Why there are no figures.
#[derive(Debug)]
pub enum BenchError {
    /// No benchmark has this name.
    UnknownName {
        /// What was asked for.
        name: String,
    },
    /// Our store refused.
    Store(wattkeep::Error),
    /// The system refused something the benchmark needs.
    System {
        /// What was being done.
        doing: String,
        /// The refusal.
        error: io::Error,
    },
    /// One of those who take turns failed.
    Side {
        /// Who.
        who: &'static str,
        /// What it said.
        why: String,
    },
    /// Pages stayed dirty although nobody wrote them.
    NotClean {
        /// How many.
        dirty_pages: u32,
    },
}

impl BenchError {
    fn while_(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::System { doing, error }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name } => {
                write!(f, "unknown benchmark '{name}': choose one of {}, all", NAMES.join(", "))
            }
            Self::Store(error) => error.fmt(f),
            Self::System { doing, error } => write!(f, "{doing}: {error}"),
            Self::Side { who, why } => write!(f, "{who} failed while it was measured: {why}"),
            Self::NotClean { dirty_pages } => write!(
                f,
                "{dirty_pages} pages stay dirty after checkpoints although nothing writes them: \
                 run 'wattkeep status'"
            ),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::System { error, .. } => Some(error),
            Self::UnknownName { .. } | Self::Side { .. } | Self::NotClean { .. } => None,
        }
    }
}

impl From<wattkeep::Error> for BenchError {
    fn from(error: wattkeep::Error) -> Self {
        Self::Store(error)
    }
}

/// What the measurements of one report share.
struct Bench {
    rounds: usize,
    region_bytes: u64,
    /// How long one side runs before the other takes its turn.
    slice: Duration,
    /// How long a workload runs before it is measured.
    warm_up: Duration,
    keeper: KeeperPlace,
    policy: PolicyName,
    neighbour: Option<PathBuf>,
    /// Where to draw.
    pictures: Option<PathBuf>,
    quick: bool,
    /// The one figure to measure; all of the benchmark's where there is none.
    only: Option<String>,
    /// Highest dirty counts, beside the budgets they had to stay below.
    bounds: Rounds,
    scratch: Scratch,
}

/// Region of a quick run.
const QUICK_REGION_BYTES_MAX: u64 = 16 << 20;

impl Bench {
    fn new(options: &Options) -> Result<Self, BenchError> {
        let (slice_ms, warm_up_ms) = if options.quick { (20, 40) } else { (500, 3_000) };
        let region_bytes = if options.quick {
            options.region_bytes.min(QUICK_REGION_BYTES_MAX)
        } else {
            options.region_bytes
        };
        Ok(Self {
            rounds: options.rounds.max(1),
            region_bytes,
            slice: Duration::from_millis(slice_ms),
            warm_up: Duration::from_millis(warm_up_ms),
            keeper: options.keeper,
            policy: options.policy,
            pictures: options.pictures.clone(),
            neighbour: options.neighbour.clone(),
            quick: options.quick,
            only: None,
            bounds: Rounds::default(),
            scratch: Scratch::new(&options.directory)?,
        })
    }

    /// Whether the figure `id` is to be measured.
    fn wants(&self, id: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == id)
    }
}

/// Measures the figures of benchmark `name`, or of all. `fault`, `ycsb` and `heap` also measure one
/// figure alone, by its id.
///
/// # Errors
/// The name is unknown, a store fails, or the system refuses what a measurement needs.
pub fn run(name: &str, options: &Options) -> Result<Vec<Report>, BenchError> {
    match name {
        "all" => NAMES.iter().map(|name| run_one(name, options)).collect(),
        name => Ok(vec![run_one(name, options)?]),
    }
}

fn run_one(name: &str, options: &Options) -> Result<Report, BenchError> {
    let (benchmark, figure) = match name.split_once('.') {
        Some((benchmark @ ("fault" | "ycsb" | "heap"), _)) => (benchmark, Some(name.to_owned())),
        _ => (name, None),
    };
    let measure = match benchmark {
        "fault" => fault::run,
        "save" => save::run,
        "restore" => restore::run,
        "ycsb" => ycsb::run,
        "rivals" => rivals::run,
        "heap" => heap::run,
        "tx" => tx::run,
        "pht" => pht::run,
        "sps" => sps::run,
        _ => return Err(BenchError::UnknownName { name: name.to_owned() }),
    };
    let mut bench = Bench { only: figure, ..Bench::new(options)? };
    let mut report = Report::new(benchmark);
    report.figures = measure(&mut bench)?;
    if report.figures.is_empty() {
        return Err(BenchError::UnknownName { name: name.to_owned() });
    }
    if !bench.bounds.is_empty() {
        let reach = Reach::AtMost(1.0);
        report.figures.push(Figure::worst("bound.max_dirty", "dirty budget", "pages", &bench.bounds, &reach));
    }
    Ok(report)
}
