//! How soon a store can be used, and how soon all of it is back in memory: `open.first_touch`,
//! `restore.bandwidth`.
//!
//! A restore's time runs from the call that opens the store, the keeper's start and the scan of the log
//! included, until no page is left to be filled. Nothing touches the region meanwhile. `.huge` is the rival
//! with buffers on huge pages: the most that the device gives.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use wattkeep::{PAGE_SIZE, Tracking};

use super::fault::fill;
use super::kept::Kept;
use super::raw::{Pages, RawFile};
use super::rounds::Side;
use super::{BUDGET, Bench, BenchError};
use crate::measure::{Figure, Reach, median};
use crate::workload::random::Random;

/// The restored region beside the workloads' one.
const REGION_FACTOR: u64 = 4;

/// Between two looks at a restore: each interrupts the keeper for some microseconds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Measures both.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let bytes = REGION_FACTOR * bench.region_bytes;
    let kept = open(bench, bytes)?;
    fill(kept.memory());
    kept.close(bench)?;
    let touches = first_touches(bench, bytes)?;
    let raw = RawFile::create(&bench.scratch.path().join("raw"), bytes)
        .map_err(BenchError::while_("writing the rival's file"))?;
    let raw = RefCell::new(raw);
    let mut opened_ms = 0.0;
    let ours = |_| {
        let began = Instant::now();
        let kept = open(bench, bytes)?;
        opened_ms = began.elapsed().as_secs_f64() * 1e3;
        wait_until_full(&kept)?;
        let seconds = began.elapsed().as_secs_f64();
        kept.discard()?;
        Ok([bytes as f64 / seconds / 1e6])
    };
    let theirs = |pages| {
        let read = raw.borrow_mut().read(pages).map_err(BenchError::while_("reading the rival's file"))?;
        Ok([read / 1e6])
    };
    let sides: Vec<Side<'_, 1>> =
        vec![Box::new(ours), Box::new(|_| theirs(Pages::Small)), Box::new(|_| theirs(Pages::Huge))];
    let turns = bench.take_turns(bench.rounds, &[], sides)?;
    let beside = |pages: Pages, side, reach| {
        let id = format!("restore.bandwidth{}", pages.suffix());
        Figure::beside(&id, &pages.rival("reads"), "MB/s", &turns.rounds(0, side, 0), &reach)
    };
    let note = format!("of the last restore, {opened_ms:.0} ms went into opening; {}", turns.others);
    Ok(vec![
        touches,
        beside(Pages::Small, 1, Reach::AtLeast(0.9)).with_note(note),
        beside(Pages::Huge, 2, Reach::Shown),
    ])
}

fn open(bench: &Bench, bytes: u64) -> Result<Kept, BenchError> {
    Kept::open(bench, "restore", BUDGET, Tracking::Transparent, bytes)
}

fn wait_until_full(kept: &Kept) -> Result<(), BenchError> {
    while kept.store.status()?.restore_pages_left > 0 {
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

/// Milliseconds from opening the store to the first byte of a random page.
fn first_touches(bench: &Bench, bytes: u64) -> Result<Figure, BenchError> {
    let mut random = Random::new(1);
    let (mut touches, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let page = random.below(bytes / PAGE_SIZE as u64) as usize;
        let began = Instant::now();
        let kept = open(bench, bytes)?;
        let opened = began.elapsed();
        let first = kept.memory().load(page * PAGE_SIZE);
        let touched = began.elapsed();
        touches.push(touched.as_secs_f64() * 1e3);
        waits.push((touched - opened).as_secs_f64() * 1e3);
        assert_eq!(first, (page + 1) as u8, "the page came back as it was written");
        wait_until_full(&kept)?;
        kept.discard()?;
    }
    let figure = Figure::alone("open.first_touch", "ms", &touches, &Reach::AtMost(50.0));
    let wait = median(&waits).unwrap_or_default();
    Ok(figure.with_note(format!("of it, {wait:.1} ms from the open region to the touched page")))
}
