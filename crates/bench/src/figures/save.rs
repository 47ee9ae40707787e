//! How fast a save is beside raw writes, and what tracking costs in memory: `save.bandwidth`,
//! `memory.overhead`.
//!
//! Half of a region twice the size is dirtied, page by page in random order. A save's time is that of
//! the whole call: freeze, copies, checksums, writes, commit record, flush. The rival neither copies
//! nor flushes. `.huge` is the rival with buffers on huge pages: the most that the device takes.

use std::cell::RefCell;
use std::time::Instant;

use wattkeep::{PAGE_SIZE, SaveReport, Tracking};

use super::fault::{fill, shuffled, write_each};
use super::kept::Kept;
use super::process::resident_bytes;
use super::raw::{Pages, RawFile};
use super::rounds::Side;
use super::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds};

/// Above the dirty half, with what the keeper keeps free for the next epoch: nothing is cleaned ahead.
const BUDGET: &str = "60%";

/// Measures both.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let raw = RawFile::create(&bench.scratch.path().join("raw"), bench.region_bytes)
        .map_err(BenchError::while_("writing the rival's file"))?;
    let raw = RefCell::new(raw);
    let mut tracked = None;
    let mut bounds = Rounds::default();
    let mut last = SaveReport::default();
    let shared = &*bench;
    let ours = |round: usize| {
        let (kept, report, rate) = save_once(shared, round as u64)?;
        last = report;
        tracked = Some(overhead(&kept)?);
        kept.close_into(&mut bounds)?;
        let _ = std::fs::remove_dir_all(shared.scratch.path().join(NAME));
        Ok([rate])
    };
    let theirs = |pages| {
        let mut raw = raw.borrow_mut();
        let rate = raw.write(pages).map_err(BenchError::while_("writing the rival's file"))?;
        raw.flush().map_err(BenchError::while_("flushing the rival's file"))?;
        Ok([rate / 1e6])
    };
    let sides: Vec<Side<'_, 1>> =
        vec![Box::new(ours), Box::new(|_| theirs(Pages::Small)), Box::new(|_| theirs(Pages::Huge))];
    let turns = shared.take_turns(bench.rounds, &[], sides)?;
    bench.bounds = bounds;
    let note = format!(
        "of the last save's {:.0} ms, the last page was copied and submitted at {:.0} ms; flush and commit \
         took {:.1} ms; {}",
        last.total_ms, last.copy_ms, last.commit_ms, turns.others
    );
    let beside = |pages: Pages, side, reach| {
        let id = format!("save.bandwidth{}", pages.suffix());
        Figure::beside(&id, &pages.rival("writes"), "MB/s", &turns.rounds(0, side, 0), &reach)
    };
    let small = beside(Pages::Small, 1, Reach::AtLeast(0.9)).with_note(note);
    Ok(tracked.into_iter().chain([small, beside(Pages::Huge, 2, Reach::Shown)]).collect())
}

const NAME: &str = "save";

/// Saves a fresh store: MB per second of the pages saved, the whole call timed.
fn save_once(bench: &Bench, seed: u64) -> Result<(Kept, SaveReport, f64), BenchError> {
    let dirty_pages = (bench.region_bytes / PAGE_SIZE as u64) as usize;
    let kept = Kept::open(bench, NAME, BUDGET, Tracking::Transparent, 2 * bench.region_bytes)?;
    fill(kept.memory());
    kept.make_clean()?;
    write_each(kept.memory(), &shuffled(2 * dirty_pages, seed)[..dirty_pages], seed + 1);
    let began = Instant::now();
    let report = kept.store.save()?;
    let seconds = began.elapsed().as_secs_f64();
    kept.store.resume()?;
    let rate = f64::from(report.pages) * PAGE_SIZE as f64 / seconds / 1e6;
    Ok((kept, report, rate))
}

fn overhead(kept: &Kept) -> Result<Figure, BenchError> {
    let status = kept.store.status()?;
    let grown = resident_bytes(status.keeper_pid).saturating_sub(kept.keeper_bytes_before);
    let mut rounds = Rounds::default();
    rounds.push(status.tracking_bytes as f64, kept.region.len() as f64);
    let mebibytes = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let note = format!(
        "the keeper counts {:.1} MiB for words, notes, index, policy and queues; its resident memory \
         grew by {:.1} MiB ({:.2} % of the region), staging buffers of fixed size included, from {:.1} MiB \
         before the region was opened",
        mebibytes(status.tracking_bytes),
        mebibytes(grown),
        grown as f64 * 100.0 / kept.region.len() as f64,
        mebibytes(kept.keeper_bytes_before),
    );
    let figure = Figure::beside("memory.overhead", "region size", "bytes", &rounds, &Reach::AtMost(0.01));
    Ok(figure.with_note(note))
}
