//! What a first write to a page costs beside a bare handler: `fault.random`, `fault.sequential`,
//! `fault.cycle`.
//!
//! All pages are present, clean and protected before a round; a round writes eight bytes to each of
//! an eighth of them, so that permits stay free and nothing has to be cleaned. In the cycle every page
//! written needs a victim, whose copy goes to the SSD.

use std::time::Instant;

use wattkeep::{PAGE_SIZE, Tracking};

use super::bare::BareTracker;
use super::kept::Kept;
use super::memory::MappedMemory;
use super::meter::Meter;
use super::rounds::Measured;
use super::{BUDGET, BUDGET_PERCENT, Bench, BenchError, UNLIMITED};
use crate::measure::{Figure, Reach};
use crate::workload::Memory;
use crate::workload::random::Random;

/// Region of the fault benchmarks: far more pages than the processor's caches and TLBs cover.
const REGION_BYTES_MAX: u64 = 256 << 20;

/// Rounds are short here, so there are more of them.
const ROUNDS_FACTOR: usize = 5;

/// A round writes one page of so many.
const PART: usize = 8;

const RANDOM: &str = "fault.random";
const SEQUENTIAL: &str = "fault.sequential";
const CYCLE: &str = "fault.cycle";
const BARE: &str = "bare SIGBUS handler";
const BARE_CYCLE: &str = "bare SIGBUS handler and one protect";

/// Measures all of them.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let bytes = bench.region_bytes.min(REGION_BYTES_MAX);
    let mut figures = with_free_permits(bench, bytes)?;
    if bench.wants(CYCLE) {
        figures.push(figure(CYCLE, BARE_CYCLE, cycle(bench, bytes)?, 1.25));
    }
    Ok(figures)
}

fn figure(id: &str, rival: &str, measured: Measured, reach: f64) -> Figure {
    Figure::beside(id, rival, "µs", &measured.rounds, &Reach::AtMost(reach)).with_note(measured.others)
}

fn with_free_permits(bench: &mut Bench, bytes: u64) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    if !bench.wants(RANDOM) && !bench.wants(SEQUENTIAL) {
        return Ok(figures);
    }
    let kept = Kept::open(bench, "fault", UNLIMITED, Tracking::Transparent, bytes)?;
    let bare =
        BareTracker::new(bytes as usize, 0).map_err(BenchError::while_("preparing the bare handler"))?;
    fill(kept.memory());
    let pages = bytes as usize / PAGE_SIZE;
    if bench.wants(RANDOM) {
        let random = beside_bare(bench, &kept, &bare, |round| shuffled(pages, round as u64))?;
        figures.push(figure(RANDOM, BARE, random, 1.2));
    }
    if bench.wants(SEQUENTIAL) {
        let sequential = beside_bare(bench, &kept, &bare, |_| (0..pages).collect())?;
        figures.push(figure(SEQUENTIAL, BARE, sequential, 0.25));
    }
    drop(bare);
    kept.close(bench)?;
    Ok(figures)
}

/// Gives every page bytes of its own.
pub(super) fn fill(mut memory: MappedMemory) {
    let pages = memory.len() as usize / PAGE_SIZE;
    (0..pages).for_each(|page| memory.store(page * PAGE_SIZE, page as u64 + 1));
}

/// All pages in an order that `seed` decides.
pub(super) fn shuffled(pages: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pages).collect();
    let mut random = Random::new(seed);
    for last in (1..pages).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// Microseconds a page to write eight bytes to each page of `order`.
pub(super) fn write_each(mut memory: MappedMemory, order: &[usize], value: u64) -> f64 {
    let began = Instant::now();
    for &page in order {
        memory.store(page * PAGE_SIZE + 8, value);
    }
    began.elapsed().as_secs_f64() * 1e6 / order.len() as f64
}

/// The same, its processor time metered.
fn metered(meter: &Meter, memory: MappedMemory, order: &[usize], value: u64) -> Result<f64, BenchError> {
    meter.run(|| Ok((write_each(memory, order, value), order.len() as u64)))
}

fn rounds(bench: &Bench) -> usize {
    bench.rounds * if bench.quick { 1 } else { ROUNDS_FACTOR }
}

fn beside_bare(
    bench: &Bench,
    kept: &Kept,
    bare: &BareTracker,
    order: impl Fn(usize) -> Vec<usize>,
) -> Result<Measured, BenchError> {
    let (mine, other) = (Meter::default(), Meter::default());
    let ours = |round: usize| {
        let order = order(round);
        kept.make_clean()?;
        metered(&mine, kept.memory(), &order[..order.len() / PART], round as u64 + 1)
    };
    let theirs = |round: usize| {
        let order = order(round);
        let part = &order[..order.len() / PART];
        bare.protect_all().map_err(BenchError::while_("protecting the rival's pages"))?;
        let (micros, faults) = bare
            .with_handler(|| metered(&other, bare.memory(), part, round as u64 + 1))
            .map_err(BenchError::while_("installing the bare handler"))?;
        assert_eq!(faults, part.len(), "each first write of the rival faults once");
        micros
    };
    let mut measured = bench.alternate(rounds(bench), &[kept.store.keeper_pid()], ours, theirs)?;
    measured.others = format!("{}; {}", mine.beside(&other), measured.others);
    Ok(measured)
}

/// In the steady state at the budget: a page comes, a page goes.
fn cycle(bench: &mut Bench, bytes: u64) -> Result<Measured, BenchError> {
    let pages = bytes as usize / PAGE_SIZE;
    let open_max = (pages * BUDGET_PERCENT / 100).max(1);
    let kept = Kept::open(bench, "cycle", BUDGET, Tracking::Transparent, bytes)?;
    let bare = BareTracker::new(bytes as usize, open_max)
        .map_err(BenchError::while_("preparing the bare handler"))?;
    fill(kept.memory());
    // One order, round and round: a page comes again when it has long been cleaned.
    let order = shuffled(pages, 1);
    write_each(kept.memory(), &order, 1);
    bare.with_handler(|| write_each(bare.memory(), &order, 1))
        .map_err(BenchError::while_("installing the bare handler"))?;
    let before = kept.store.status()?;
    let half = pages / 2;
    let part = |round: usize| &order[(round % 2) * half..(round % 2) * half + half];
    let (mine, other) = (Meter::default(), Meter::default());
    let ours = |round: usize| metered(&mine, kept.memory(), part(round), round as u64 + 2);
    let theirs = |round: usize| {
        bare.with_handler(|| metered(&other, bare.memory(), part(round), round as u64 + 2))
            .map_err(BenchError::while_("installing the bare handler"))?
            .0
    };
    let mut measured = bench.alternate(rounds(bench), &[kept.store.keeper_pid()], ours, theirs)?;
    let after = kept.store.status()?;
    let written = (after.dirtied_pages - before.dirtied_pages) as f64;
    let share = |after: u64, before: u64| 100.0 * (after - before) as f64 / written;
    let note = format!(
        "of the pages written: {:.1} % faulted, {:.1} % waited for a permit ({:.2} µs a page in all), \
         {:.1} % of the victims were protected by the faulting thread",
        share(after.faults, before.faults),
        share(after.permit_waits, before.permit_waits),
        (after.permit_wait_ms - before.permit_wait_ms) * 1e3 / written,
        share(after.protected_by_client, before.protected_by_client),
    );
    drop(bare);
    kept.close(bench)?;
    measured.others = format!("{}; {note}; {}", mine.beside(&other), measured.others);
    Ok(measured)
}
