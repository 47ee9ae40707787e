//! The program that is killed: stores stamps in a region until somebody ends it, and says how far it is.
//!
//! It first verifies what the last one left. It speaks in lines:
//! `keeper PID`, `recovered WHAT`, `found T K` for each thread, `at T K` again and again, `checkpoint T K` after each
//! checkpoint (every store up to K is in it), `wrong WHY` when the image is not exact; `forked PID`,
//! `region K` when K regions beside the first hold their mark, `grown PAGES` or `not-grown WHY`,
//! `keeper-gone` when a request found none. It takes [`orders`].

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use wattkeep::{FaultMode, Region, RegionOptions, Store};

use super::stamps::{Stamps, load, put};
use super::{orders, raw};

/// Pages of a region beside the first.
const BESIDE_PAGES: u64 = 8;

/// What the program does.
#[derive(Clone, Debug, Args)]
pub(crate) struct SubjectOptions {
    /// Directory of the store; made if missing.
    pub(crate) directory: PathBuf,
    /// Size of the region, in pages of 4 KiB.
    #[arg(long, default_value_t = 256)]
    pub(crate) pages: u64,
    /// Threads that store.
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: u64,
    /// Dirty budget.
    #[arg(long, default_value = "11%")]
    pub(crate) budget: String,
    /// Fault mode: signal, mprotect or monitor.
    #[arg(long, default_value = "signal", value_parser = fault_mode)]
    pub(crate) mode: FaultMode,
    /// An explicit region: stores are announced.
    #[arg(long)]
    pub(crate) explicit: bool,
    /// Names the walk.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Milliseconds between checkpoints; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub(crate) checkpoint_ms: u64,
    /// Milliseconds between two words about how far it is.
    #[arg(long, default_value_t = 1)]
    pub(crate) tell_ms: u64,
    /// Forks a child first, which sleeps.
    #[arg(long)]
    pub(crate) fork: bool,
    /// Regions beside the first that are known to be there.
    #[arg(long, default_value_t = 0)]
    pub(crate) regions_known: u64,
    /// Regions beside the first to make, the known ones counted.
    #[arg(long, default_value_t = 0)]
    pub(crate) regions: u64,
    /// Pages that the first region is to grow to while threads store; 0: it stays.
    #[arg(long, default_value_t = 0)]
    pub(crate) grow_pages: u64,
}

impl SubjectOptions {
    /// As words of a command line, without the directory.
    pub(crate) fn words(&self) -> Vec<String> {
        let numbers = [
            ("--pages", self.pages),
            ("--threads", self.threads),
            ("--seed", self.seed),
            ("--checkpoint-ms", self.checkpoint_ms),
            ("--tell-ms", self.tell_ms),
            ("--regions", self.regions),
            ("--regions-known", self.regions_known),
            ("--grow-pages", self.grow_pages),
        ];
        let mut words: Vec<String> =
            numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]).collect();
        words.extend([
            "--budget".to_owned(),
            self.budget.clone(),
            "--mode".to_owned(),
            self.mode.to_string(),
        ]);
        words.extend(self.explicit.then(|| "--explicit".to_owned()));
        words.extend(self.fork.then(|| "--fork".to_owned()));
        words
    }
}

pub(crate) fn fault_mode(name: &str) -> Result<FaultMode, String> {
    [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor]
        .into_iter()
        .find(|mode| mode.to_string() == name)
        .ok_or_else(|| "a fault mode is signal, mprotect or monitor".to_owned())
}

/// Stores until it is killed. False when the image it found is wrong.
pub(crate) fn run(options: &SubjectOptions) -> Result<bool, String> {
    let stamps = Stamps { seed: options.seed, pages: options.pages, threads: options.threads };
    let opened = Store::options()
        .create_if_missing(true)
        .checkpoint_interval_ms(0)
        .fault_mode(options.mode)
        .budget(&options.budget)
        .open(&options.directory);
    let store = opened.map_err(|e| e.to_string())?;
    say(format_args!("keeper {}", store.keeper_pid()));
    say(format_args!("recovered {}", store.recovered().unwrap_or("a new store")));
    let tracking = if options.explicit { RegionOptions::explicit() } else { RegionOptions::transparent() };
    if options.fork {
        say(format_args!("forked {}", raw::fork_sleeper()));
    }
    let region = store
        .region("stamps", tracking.create(options.pages * wattkeep::PAGE_SIZE as u64))
        .map_err(|e| e.to_string())?;
    let found = match stamps.verify(|slot| load(&region, slot)) {
        Ok(found) => found,
        Err(cause) => {
            say(format_args!("wrong {cause}"));
            return Ok(false);
        }
    };
    found.iter().enumerate().for_each(|(thread, number)| say(format_args!("found {thread} {number}")));
    let mut beside = Vec::new();
    for number in 0..options.regions_known {
        beside.push(region_beside(&store, number)?);
        if load(&beside[number as usize], 0) != number + 1 {
            say(format_args!("wrong region {number} beside the first has lost its mark"));
            return Ok(false);
        }
    }
    let counters: Vec<AtomicU64> = found.into_iter().map(AtomicU64::new).collect();
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let (counters, region) = (&counters, &region);
            scope.spawn(move || write_for_ever(&stamps, region, thread, &counters[thread as usize]));
        }
        if options.regions > options.regions_known || options.grow_pages > 0 {
            let (store, region) = (&store, &region);
            scope.spawn(move || make_room(store, region, options, beside));
        }
        if options.checkpoint_ms > 0 {
            scope.spawn(|| checkpoint_for_ever(&store, options.checkpoint_ms, &counters));
        }
        scope.spawn(|| orders::obey(&options.directory, &stamps, &region));
        loop {
            std::thread::sleep(Duration::from_millis(options.tell_ms));
            tell("at", &read(&counters));
        }
    })
}

fn write_for_ever(stamps: &Stamps, region: &Region, thread: u64, counter: &AtomicU64) {
    let explicit = region.tracking() != wattkeep::Tracking::Transparent;
    for number in counter.load(Ordering::Relaxed) + 1.. {
        if explicit {
            let offset = stamps.slot(thread, number) as usize * 8;
            let Ok(_announced) = region.will_write(offset, 8) else { return };
            stamps.store(region, thread, number);
        } else {
            stamps.store(region, thread, number);
        }
        counter.store(number, Ordering::Release);
    }
}

fn region_beside(store: &Store, number: u64) -> Result<Region, String> {
    let size = BESIDE_PAGES * wattkeep::PAGE_SIZE as u64;
    let options = RegionOptions::transparent().create(size);
    store.region(&format!("beside-{number}"), options).map_err(|e| e.to_string())
}

/// Makes the regions that it was told to make, each with a mark, and lets the first one grow.
fn make_room(store: &Store, region: &Region, options: &SubjectOptions, mut beside: Vec<Region>) {
    for number in options.regions_known..options.regions {
        match region_beside(store, number) {
            Ok(made) => {
                put(&made, 0, number + 1);
                beside.push(made);
                say(format_args!("region {} 0", number + 1));
            }
            Err(why) => return say(format_args!("no-region {why}")),
        }
    }
    if options.grow_pages > 0 {
        match region.grow(options.grow_pages * wattkeep::PAGE_SIZE as u64) {
            Ok(()) => say(format_args!("grown {} 0", options.grow_pages)),
            Err(why) => say(format_args!("not-grown {why}")),
        }
    }
    // The regions stay open as long as the program runs.
    loop {
        std::thread::park();
    }
}

pub(crate) fn checkpoint_for_ever(store: &Store, interval_ms: u64, counters: &[AtomicU64]) {
    loop {
        std::thread::sleep(Duration::from_millis(interval_ms));
        let before = read(counters);
        match store.checkpoint() {
            Ok(_) => tell("checkpoint", &before),
            Err(wattkeep::Error::KeeperGone) => return say(format_args!("keeper-gone")),
            Err(error) => say(format_args!("no-checkpoint {error}")),
        }
    }
}

fn read(counters: &[AtomicU64]) -> Vec<u64> {
    counters.iter().map(|counter| counter.load(Ordering::Acquire)).collect()
}

pub(crate) fn tell(word: &str, counters: &[u64]) {
    let lines: Vec<_> =
        counters.iter().enumerate().map(|(thread, number)| format!("{word} {thread} {number}")).collect();
    say(format_args!("{}", lines.join("\n")));
}

/// One write for one line: a killed program leaves no half of one in the pipe.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}
