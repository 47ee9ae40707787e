//! The YCSB under an 11 % budget beside the same program with an unlimited one.
//!
//! Both stores are open at once and take turns, slice by slice, on streams of the same seed; both
//! have reached their steady state before. The unlimited one holds a permit for every page, so that
//! its slices cost what the workload costs, plus the tracking that an unlimited budget still has.

use std::time::{Duration, Instant};

use wattkeep::{Error, Status, Tracking};

use super::kept::Kept;
use super::memory::{AnnouncedMemory, MappedMemory};
use super::meter::Meter;
use super::{BUDGET, Bench, BenchError, UNLIMITED};
use crate::measure::{Figure, Reach};
use crate::spec::YcsbMix;
use crate::workload::Workload;
use crate::workload::ycsb::{Ycsb, YcsbOptions};

/// Operations between two looks at the clock.
const STEPS_AT_ONCE: u64 = 1_000;

const SEED: u64 = 42;

/// The mixes, by letter, and what a limited budget has to leave of their speed: explicit, transparent.
const MIXES: [(YcsbMix, char, f64, f64); 5] = [
    (YcsbMix::A, 'A', 0.5, 0.15),
    (YcsbMix::B, 'B', 0.9, 0.5),
    (YcsbMix::C, 'C', 0.99, 0.99),
    (YcsbMix::D, 'D', 0.9, 0.5),
    (YcsbMix::F, 'F', 0.5, 0.15),
];

/// Measures all mixes in both tracking modes.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for tracking in [Tracking::Explicit, Tracking::Transparent] {
        let wanted: Vec<_> = MIXES
            .iter()
            .map(|&(mix, letter, explicit, transparent)| match tracking {
                Tracking::Explicit => (mix, format!("ycsb.explicit.{letter}"), explicit),
                _ => (mix, format!("ycsb.transparent.{letter}"), transparent),
            })
            .filter(|(_, id, _)| bench.wants(id))
            .collect();
        if !wanted.is_empty() {
            run_mixes(bench, tracking, &wanted, &mut figures)?;
        }
    }
    Ok(figures)
}

fn run_mixes(
    bench: &mut Bench,
    tracking: Tracking,
    wanted: &[(YcsbMix, String, f64)],
    figures: &mut Vec<Figure>,
) -> Result<(), BenchError> {
    let limited = Kept::open(bench, "limited", BUDGET, tracking, bench.region_bytes)?;
    let unlimited = Kept::open(bench, "unlimited", UNLIMITED, tracking, bench.region_bytes)?;
    load(&limited)?;
    load(&unlimited)?;
    for (mix, id, least) in wanted {
        figures.push(beside_unlimited(bench, id, *mix, *least, &limited, &unlimited)?);
    }
    for (kept, name) in [(limited, "limited"), (unlimited, "unlimited")] {
        kept.close(bench)?;
        let _ = std::fs::remove_dir_all(bench.scratch.path().join(name));
    }
    Ok(())
}

fn beside_unlimited(
    bench: &Bench,
    id: &str,
    mix: YcsbMix,
    least: f64,
    limited: &Kept,
    unlimited: &Kept,
) -> Result<Figure, BenchError> {
    let mut ours = stream(mix, bench.region_bytes);
    let mut theirs = ours.clone();
    run_for(unlimited, &mut theirs, bench.warm_up / 3)?;
    run_for(limited, &mut ours, bench.warm_up)?;
    let before = limited.store.status()?;
    let steps = ours.steps();
    let (mine, other) = (Meter::default(), Meter::default());
    let pids = [limited.store.keeper_pid(), unlimited.store.keeper_pid()];
    let measured = bench.alternate(
        bench.rounds,
        &pids,
        |_| metered(&mine, limited, &mut ours, bench.slice),
        |_| metered(&other, unlimited, &mut theirs, bench.slice),
    )?;
    let kept = beside_operations(&before, &limited.store.status()?, ours.steps() - steps);
    let figure = Figure::beside(id, "unlimited budget", "Mop/s", &measured.rounds, &Reach::AtLeast(least));
    Ok(figure.with_note(format!("{kept}; {}; {}", mine.beside(&other), measured.others)))
}

/// The stream of `mix` over a loaded region.
pub(super) fn stream(mix: YcsbMix, region_bytes: u64) -> Ycsb {
    Ycsb::new(mix, YcsbOptions::default(), SEED, region_bytes)
}

/// Writes the table that all mixes run on.
pub(super) fn load(kept: &Kept) -> Result<(), BenchError> {
    let mut table = stream(YcsbMix::C, kept.region.len() as u64);
    match kept.region.tracking() {
        Tracking::Transparent => table.load(&mut kept.memory(), &mut |_| ()),
        _ => {
            let mut memory = AnnouncedMemory::new(&kept.region, kept.memory());
            table.load(&mut memory, &mut |_| ());
            memory.finish()?;
        }
    }
    Ok(())
}

/// Runs the workload for `time`; answers with million operations per second.
pub(super) fn run_for(kept: &Kept, workload: &mut Ycsb, time: Duration) -> Result<f64, BenchError> {
    Ok(match kept.region.tracking() {
        Tracking::Transparent => run_mapped(kept.memory(), workload, time, STEPS_AT_ONCE),
        _ => run_announced(kept, workload, time)?,
    })
}

/// The same, its processor time metered.
fn metered(meter: &Meter, kept: &Kept, workload: &mut Ycsb, time: Duration) -> Result<f64, BenchError> {
    let before = workload.steps();
    meter.run(|| run_for(kept, workload, time).map(|rate| (rate, workload.steps() - before)))
}

fn run_announced(kept: &Kept, workload: &mut Ycsb, time: Duration) -> Result<f64, Error> {
    let mut memory = AnnouncedMemory::new(&kept.region, kept.memory());
    let (began, first) = (Instant::now(), workload.steps());
    while began.elapsed() < time {
        workload.run(&mut memory, STEPS_AT_ONCE);
    }
    let rate = (workload.steps() - first) as f64 / began.elapsed().as_secs_f64() / 1e6;
    memory.finish().map(|()| rate)
}

/// The same on memory that needs no announcements.
pub(super) fn run_mapped(
    mut memory: MappedMemory,
    workload: &mut Ycsb,
    time: Duration,
    steps_at_once: u64,
) -> f64 {
    let (began, first) = (Instant::now(), workload.steps());
    while began.elapsed() < time {
        workload.run(&mut memory, steps_at_once);
    }
    (workload.steps() - first) as f64 / began.elapsed().as_secs_f64() / 1e6
}

/// What the keeper did, beside the operations that caused it.
fn beside_operations(before: &Status, after: &Status, operations: u64) -> String {
    let each = |after: u64, before: u64| (after - before) as f64 / operations as f64;
    format!(
        "per operation: {:.4} pages dirtied, {:.4} faults, {:.4} permit waits of {:.1} µs, {:.0} SSD bytes, \
         {:.4} pages rescued, {:.4} unchanged",
        each(after.dirtied_pages, before.dirtied_pages),
        each(after.faults, before.faults),
        each(after.permit_waits, before.permit_waits),
        (after.permit_wait_ms - before.permit_wait_ms) * 1e3
            / (after.permit_waits - before.permit_waits).max(1) as f64,
        each(after.ssd_bytes, before.ssd_bytes),
        each(after.rescued_pages, before.rescued_pages),
        each(after.unchanged_pages, before.unchanged_pages),
    )
}
