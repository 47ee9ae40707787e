//! What a person can type. Values are checked here, so that a wrong one is a usage error.

mod traces;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use wattkeep_bench::WorkloadSpec;
use wattkeep_keep::types::{FaultMode, PolicyName};
use wattkeep_power::energy::{Fraction, Millijoules, Milliwatts};
use wattkeep_power::spec::{BudgetSpec, parse_budget};
use wattkeep_power::units::{parse_duration_ns, parse_size_bytes};
use wattkeep_store::types::PAGE_SIZE;

pub(crate) use traces::{PlanArgs, PoliciesArgs, RecordArgs};

const EXIT_CODES: &str = "\
Exit codes:
  0   done, or so
  1   what was asked about is not so: a drill was not kept, a check found damage, a store is not armed
  2   the command line, or a value in it, makes no sense
  3   the store, region or trace is missing; or it is foreign, newer or damaged
  4   in use by another process, or the place is occupied
  5   the system refused: no space, no permission, an I/O error, no userfaultfd
  70  a bug in wattkeep: please report it

Examples:
  wattkeep drill /mnt/ssd/try --workload ycsb-a --size 1GiB --budget 11% --seconds 10
  wattkeep create /mnt/ssd/store --region table=4GiB --budget 11%
  wattkeep status /mnt/ssd/store";

/// Software persistent memory: bytes in DRAM that a known battery can always still save.
#[derive(Debug, Parser)]
#[command(name = "wattkeep", version, about, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a store, with regions in it
    #[command(after_help = "\
Examples:
  wattkeep create /mnt/ssd/store --region table=4GiB --region log=256MiB:explicit --budget 11%")]
    Create(CreateArgs),
    /// Show what a store holds
    #[command(after_help = "Example:\n  wattkeep info /mnt/ssd/store --json")]
    Info(StoreArgs),
    /// Read and verify every page of a store
    #[command(after_help = "\
Exits with 1 when damage was found.

Examples:
  wattkeep check /mnt/ssd/store
  wattkeep check /mnt/ssd/store --accept-incomplete")]
    Check(CheckArgs),
    /// Write out the bytes of a region, from the SSD
    #[command(after_help = "\
Examples:
  wattkeep dump /mnt/ssd/store table --output table.bin
  wattkeep dump /mnt/ssd/store table --page 0..2")]
    Dump(DumpArgs),
    /// Remove a region, or the whole store
    #[command(after_help = "\
Examples:
  wattkeep rm /mnt/ssd/store scratch
  wattkeep rm /mnt/ssd/store --yes")]
    Rm(RmArgs),
    /// Change the size of a region
    #[command(after_help = "Example:\n  wattkeep resize /mnt/ssd/store table 8GiB")]
    Resize(ResizeArgs),
    /// Give a region another name
    #[command(after_help = "Example:\n  wattkeep rename /mnt/ssd/store table users")]
    Rename(RenameArgs),
    /// Measure how fast the store's SSD takes a save
    #[command(after_help = "Example:\n  wattkeep calibrate /mnt/ssd/store --seconds 5")]
    Calibrate(CalibrateArgs),
    /// Show the dirty budget, or set it
    #[command(after_help = "\
Examples:
  wattkeep budget /mnt/ssd/store
  wattkeep budget /mnt/ssd/store 11%
  wattkeep budget /mnt/ssd/store --energy 12Wh --power 300W --derating 80%
  wattkeep budget /mnt/ssd/store --window 2s")]
    Budget(BudgetArgs),
    /// Say whether the data is safe right now, and why
    #[command(after_help = "\
Exits with 0 when it is, with 1 when it is not.

Examples:
  wattkeep status /mnt/ssd/store
  wattkeep status /mnt/ssd/store --watch")]
    Status(StatusArgs),
    /// Commit a consistent image while the program runs on
    #[command(after_help = "Example:\n  wattkeep checkpoint /mnt/ssd/store")]
    Checkpoint(StoreArgs),
    /// Save now, as if the power went: writers wait for 'resume'
    #[command(after_help = "Example:\n  wattkeep save /mnt/ssd/store")]
    Save(StoreArgs),
    /// Let writers go on after a save
    #[command(after_help = "Example:\n  wattkeep resume /mnt/ssd/store")]
    Resume(StoreArgs),
    /// Rehearse a power cut: run, cut, save, restore, compare every page
    #[command(after_help = "\
Exits with 0 only when no page was lost, the budget was never passed, and the save fitted its window.

Examples:
  wattkeep drill /mnt/ssd/try --workload ycsb-a --size 1GiB --budget 11% --seconds 10 --seed 1
  wattkeep drill /mnt/ssd/try --workload uniform --size 64MiB --budget 16 --window 50ms --svg drill.svg
  wattkeep drill /mnt/ssd/try --workload heap --size 256MiB --seconds 5
  wattkeep drill /mnt/ssd/try --workload trace:requests.csv --energy 50J --power 75W --json")]
    Drill(DrillArgs),
    #[command(hide = true)]
    DrillChild(DrillChildArgs),
    #[command(hide = true)]
    BenchNeighbour(BenchNeighbourArgs),
    /// Say which budget and battery a trace of writes needs
    #[command(after_help = "\
Formats, recognised from what stands in the file, also within .gz, .xz and .zst:
  drill     time,operation,offset,length (CSV; seconds, read or write, bytes)
  msr       Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (MSR Cambridge)
  msr-text  ms disk offset bytes type (0 writes, 1 reads)
  mqsim     ns device sector sectors type (0 writes, 1 reads)
  blkparse  what blkparse prints
  vscsi     CloudPhysics' binary records, versions 1 and 2
  address   s 0xADDRESS n, l 0xADDRESS n (stores and loads, in order, without times)

Damaged lines are left out, counted and listed. A file that is cut off, empty, or of another format is
an error (3).

Several traces are several tenants: what does one battery for all save?

Examples:
  wattkeep plan requests.csv
  wattkeep plan hm_0.csv.gz --volume 14GiB --store /mnt/ssd/store --power 300W --html plan.html
  wattkeep plan trace.vscsi.xz --bandwidth 350MB/s --json
  wattkeep plan tenant1.csv tenant2.csv tenant3.csv")]
    Plan(PlanArgs),
    /// Record which pages a live program writes, as a trace for 'drill' and 'plan'
    #[command(after_help = "\
Runs the program, and exits as it does. Its private writable memory is looked at once an epoch; memory
that it shares, and its children, are not recorded. Statically linked programs cannot be.

Examples:
  wattkeep record -- python3 job.py
  wattkeep record --out sort.csv --epoch 50ms -- sort -o sorted.txt words.txt")]
    Record(RecordArgs),
    /// Compare the policies that choose the page to clean next, on a trace
    #[command(after_help = "\
The engine's own policies, others, and two bounds: the clairvoyant, which copies least, and exact recency.
'history' is Viyojit's, with every page looked at in every epoch, at no price; 'stale' reads dirty bits
without flushing the TLB. Formats are those of 'wattkeep plan'.

Examples:
  wattkeep policies requests.csv
  wattkeep policies hm_0.csv.gz --budgets 5,11,25
  wattkeep policies zipf:65536 --json")]
    Policies(PoliciesArgs),
    /// Measure beside the rivals, in the same run
    #[command(after_help = "\
Examples:
  wattkeep bench fault
  wattkeep bench all --json")]
    Bench(BenchArgs),
    /// Print the completions of a shell
    #[command(after_help = "Example:\n  wattkeep completions bash > /etc/bash_completion.d/wattkeep")]
    Completions(CompletionsArgs),
}

#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Directory of the store; made if it is missing
    pub(crate) store: PathBuf,
    /// A region: its name, its size, and how its stores are noticed (transparent, if not said)
    #[arg(long = "region", value_name = "NAME=SIZE[:explicit]", value_parser = region)]
    pub(crate) regions: Vec<RegionSpec>,
    /// Dirty budget: pages (4096), bytes (64MiB), or a share of the regions (11%)
    #[arg(long, value_name = "BUDGET", value_parser = parse_budget)]
    pub(crate) budget: Option<BudgetSpec>,
}

/// A region to make.
#[derive(Clone, Debug)]
pub(crate) struct RegionSpec {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) explicit: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// Give up what is lost: name it, and make the rest a good store again
    #[arg(long)]
    pub(crate) accept_incomplete: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// Name of the region
    pub(crate) region: String,
    /// File to write; standard output otherwise
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print these pages in hexadecimal instead: 7, or 0..4 (without 4)
    #[arg(long, value_name = "N..M", value_parser = page_range, conflicts_with = "output")]
    pub(crate) page: Option<(u32, u32)>,
}

#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// Region to remove; the whole store otherwise
    pub(crate) region: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// Name of the region
    pub(crate) region: String,
    /// New size
    #[arg(value_parser = region_size)]
    pub(crate) size: u64,
    /// Do not ask before bytes are cut off
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RenameArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// Name of the region
    pub(crate) region: String,
    /// New name
    pub(crate) new: String,
}

#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// How long to measure
    #[arg(long, value_name = "N", default_value = "3", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Power that is drawn while a save runs
    #[arg(long, value_name = "POWER", default_value = "100W")]
    pub(crate) power: Milliwatts,
}

#[derive(Args, Debug)]
pub(crate) struct BudgetArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// New budget: pages (4096), bytes (64MiB), or a share of the regions (11%)
    #[arg(value_parser = parse_budget, conflicts_with_all = ["energy", "window"])]
    pub(crate) budget: Option<BudgetSpec>,
    /// Energy that is left when the mains fail: 12Wh, 50kJ
    #[arg(long, value_name = "ENERGY", requires = "power", conflicts_with = "window")]
    pub(crate) energy: Option<Millijoules>,
    /// Power that is drawn while a save runs: 300W
    #[arg(long, value_name = "POWER")]
    pub(crate) power: Option<Milliwatts>,
    /// Share of the energy that is counted on
    #[arg(long, value_name = "SHARE", default_value = "80%")]
    pub(crate) derating: Fraction,
    /// Time that is left when the mains fail: 2s
    #[arg(long, value_name = "TIME", value_parser = window)]
    pub(crate) window: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Directory of the store
    pub(crate) store: PathBuf,
    /// Repeat every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DrillArgs {
    /// Directory on the SSD to drill on; made if it is missing
    pub(crate) directory: PathBuf,
    /// ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-f, uniform, sequential, heap (transactions on a persistent
    /// heap), or trace:FILE (a CSV with the header time,operation,offset,length)
    #[arg(long, value_name = "W", default_value = "ycsb-a")]
    pub(crate) workload: WorkloadSpec,
    /// Size of the region
    #[arg(long, value_name = "S", default_value = "1GiB", value_parser = region_size)]
    pub(crate) size: u64,
    /// Dirty budget: pages (4096), bytes (64MiB), or a share of the region (11%)
    #[arg(long, value_name = "B", default_value = "11%", value_parser = parse_budget)]
    pub(crate) budget: BudgetSpec,
    /// Longest run; the mains fail at a random moment of its last 40 %
    #[arg(long, value_name = "N", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seed of the workload and of the moment of the cut
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub(crate) seed: u64,
    /// How stores are noticed; transparent by default, explicit for a heap
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Which page is cleaned next
    #[arg(long, value_enum, default_value_t)]
    pub(crate) policy: Policy,
    /// How first stores reach us; chosen by a self-test otherwise
    #[arg(long, value_enum)]
    pub(crate) fault_mode: Option<Fault>,
    /// Save window; by default what the budget needs at the bandwidth measured now, divided by 0.8
    #[arg(long, value_name = "T", value_parser = window, conflicts_with = "energy")]
    pub(crate) window: Option<u64>,
    /// Energy of the battery, which with the power gives the window
    #[arg(long, value_name = "E")]
    pub(crate) energy: Option<Millijoules>,
    /// Power that is drawn while a save runs; 100W is assumed
    #[arg(long, value_name = "P")]
    pub(crate) power: Option<Milliwatts>,
    /// Draw the drill into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Leave the restored store in DIR/drill-store
    #[arg(long)]
    pub(crate) keep: bool,
    /// Leave out the run without a bound that the throughput is compared with
    #[arg(long)]
    pub(crate) no_unlimited: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DrillChildArgs {
    /// What to do, as JSON
    pub(crate) config: String,
}

#[derive(Args, Debug)]
pub(crate) struct BenchNeighbourArgs {
    /// Of what it touches
    pub(crate) seed: u64,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) name: BenchName,
    /// Rounds of ours and theirs, alternating
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Size of the region, where the benchmark has a choice
    #[arg(long, value_name = "S", value_parser = region_size)]
    pub(crate) size: Option<u64>,
    /// Which page is cleaned next
    #[arg(long, value_enum, default_value_t)]
    pub(crate) policy: Policy,
    /// Directory on the SSD to measure
    #[arg(long, value_name = "D")]
    pub(crate) dir: Option<PathBuf>,
    /// Draw the pictures of a benchmark that has some (sps) into this directory
    #[arg(long, value_name = "P")]
    pub(crate) pictures: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchName {
    /// First writes
    Fault,
    /// The save
    Save,
    /// The restore
    Restore,
    /// YCSB against an unlimited budget
    Ycsb,
    /// The kernel's own mmap
    Rivals,
    /// The persistent heap beside other allocators
    Heap,
    /// Transactions: bytes of the hybrid log, redo beside undo
    Tx,
    /// The persistent hash table beside other tables
    Pht,
    /// Swaps of strings, by schemes of fault tolerance
    Sps,
    /// All of them
    All,
}

/// How a drill's stores are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// First stores fault
    Transparent,
    /// The workload announces its stores
    Explicit,
}

/// Victim policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// First in, first out
    Fifo,
    /// A small queue for pages written once, a main queue for the others
    #[default]
    S3Fifo,
    /// First in, first out, with a second chance for pages written again
    SecondChance,
    /// By a history of 64 epochs
    LeastRecentlyUpdated,
}

impl From<Policy> for PolicyName {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fifo => Self::Fifo,
            Policy::S3Fifo => Self::S3Fifo,
            Policy::SecondChance => Self::SecondChance,
            Policy::LeastRecentlyUpdated => Self::LeastRecentlyUpdated,
        }
    }
}

/// Fault modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// userfaultfd and SIGBUS
    Signal,
    /// mprotect and SIGSEGV
    Mprotect,
    /// userfaultfd and a thread
    Monitor,
}

impl From<Fault> for FaultMode {
    fn from(mode: Fault) -> Self {
        match mode {
            Fault::Signal => Self::Signal,
            Fault::Mprotect => Self::Mprotect,
            Fault::Monitor => Self::Monitor,
        }
    }
}

fn region(text: &str) -> Result<RegionSpec, String> {
    let (name, rest) = text.split_once('=').ok_or("write NAME=SIZE, as in table=1GiB")?;
    let (size, explicit) = match rest.split_once(':') {
        None => (rest, false),
        Some((size, "transparent")) => (size, false),
        Some((size, "explicit")) => (size, true),
        Some((_, mode)) => return Err(format!("a region is transparent or explicit, not '{mode}'")),
    };
    if name.is_empty() {
        return Err("a region needs a name, as in table=1GiB".to_owned());
    }
    Ok(RegionSpec { name: name.to_owned(), bytes: region_size(size)?, explicit })
}

fn region_size(text: &str) -> Result<u64, String> {
    let page = PAGE_SIZE as u64;
    let bytes = parse_size_bytes(text).map_err(|error| error.to_string())?;
    if bytes == 0 || !bytes.is_multiple_of(page) {
        return Err(format!("a region has a whole number of pages of {page} bytes, and at least one"));
    }
    let most = (u64::from(u32::MAX) - 1) * page;
    if bytes > most {
        return Err("a region has at most 16 TiB".to_owned());
    }
    Ok(bytes)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if (0.1..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.1 to 86400".to_owned()) }
}

fn window(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text) {
        Ok(0) => Err("no save ends in no time".to_owned()),
        Ok(window_ns) => Ok(window_ns),
        Err(error) => Err(error.to_string()),
    }
}

fn power(text: &str) -> Result<Milliwatts, String> {
    match text.parse() {
        Ok(Milliwatts(0)) => Err("a machine that draws nothing needs no battery".to_owned()),
        Ok(power) => Ok(power),
        Err(error) => Err(format!("{error}")),
    }
}

fn page_range(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("'{text}' is not a page number"));
    let (first, end) = match text.split_once("..") {
        Some((first, end)) => (number(first)?, number(end)?),
        None => (number(text)?, number(text)?.saturating_add(1)),
    };
    if first < end { Ok((first, end)) } else { Err("the range is empty: write FIRST..END".to_owned()) }
}
