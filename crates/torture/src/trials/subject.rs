//! The program that is killed: stores stamps in a region until somebody ends it, and says how far it is.
//!
//! It first verifies what the last one left. It speaks in lines:
//! `keeper PID`, `found T K` for each thread, `at T K` again and again, `checkpoint T K` after each
//! checkpoint (every store up to K is in it), `wrong WHY` when the image is not exact.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use wattkeep::{FaultMode, Region, RegionOptions, Store};

use super::stamps::{Stamps, load};

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
}

fn fault_mode(name: &str) -> Result<FaultMode, String> {
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
    let tracking = if options.explicit { RegionOptions::explicit() } else { RegionOptions::transparent() };
    let region = store
        .region("stamps", tracking.create(options.pages * wattkeep::PAGE_SIZE as u64))
        .map_err(|e| e.to_string())?;
    let found = match stamps.verify(|slot| load(&region, slot)) {
        Ok(found) => found,
        Err(cause) => {
            say(format_args!("wrong {cause}; recovered: {}", store.recovered().unwrap_or("a new store")));
            return Ok(false);
        }
    };
    found.iter().enumerate().for_each(|(thread, number)| say(format_args!("found {thread} {number}")));
    let counters: Vec<AtomicU64> = found.into_iter().map(AtomicU64::new).collect();
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let (counters, region) = (&counters, &region);
            scope.spawn(move || write_for_ever(&stamps, region, thread, &counters[thread as usize]));
        }
        if options.checkpoint_ms > 0 {
            scope.spawn(|| checkpoint_for_ever(&store, options.checkpoint_ms, &counters));
        }
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

fn checkpoint_for_ever(store: &Store, interval_ms: u64, counters: &[AtomicU64]) {
    loop {
        std::thread::sleep(Duration::from_millis(interval_ms));
        let before = read(counters);
        match store.checkpoint() {
            Ok(_) => tell("checkpoint", &before),
            Err(error) => say(format_args!("no-checkpoint {error}")),
        }
    }
}

fn read(counters: &[AtomicU64]) -> Vec<u64> {
    counters.iter().map(|counter| counter.load(Ordering::Acquire)).collect()
}

fn tell(word: &str, counters: &[u64]) {
    let lines: Vec<_> =
        counters.iter().enumerate().map(|(thread, number)| format!("{word} {thread} {number}")).collect();
    say(format_args!("{}", lines.join("\n")));
}

/// One write for one line: a killed program leaves no half of one in the pipe.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}
