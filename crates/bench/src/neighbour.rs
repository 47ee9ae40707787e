//! Another program that allocates: touches pages at random, and gives some back.
//!
//! What it leaves on the kernel's lists of free pages lies all over memory, as on a machine that has run
//! for a while.

use std::io::Read;
use std::time::{Duration, Instant};

use wattkeep_sys::map::Mapping;

use crate::workload::random::Random;

const PAGE: usize = 4096;

/// Its pages: 64 MiB.
const PAGES: u64 = 16 << 10;

/// Pages that one step touches or gives back, at most.
const STEP_PAGES: u64 = 8;

/// A neighbour whose parent forgot it ends by itself.
const LIFE: Duration = Duration::from_secs(600);

/// Allocates and frees until `enough` says so.
///
/// # Errors
/// There is no memory.
pub fn run(seed: u64, mut enough: impl FnMut() -> bool) -> std::io::Result<()> {
    let mut random = Random::new(seed);
    let memory = Mapping::private(PAGES as usize * PAGE, PAGE)?;
    while !enough() {
        let pages = 1 + random.below(STEP_PAGES);
        let first = random.below(PAGES - pages);
        let (at, len) = (first as usize * PAGE, pages as usize * PAGE);
        if random.below(2) == 0 { memory.populate(at, len)? } else { memory.give_back(at, len)? }
    }
    Ok(())
}

/// The whole life of a neighbour process: until its standard input ends, or ten minutes.
///
/// # Errors
/// There is no memory.
pub fn process(seed: u64) -> std::io::Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let began = Instant::now();
    run(seed, || began.elapsed() > LIFE)
}
