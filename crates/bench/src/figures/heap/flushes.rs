//! Cache lines that the allocator writes back for each entry inserted into a hash table: table 2 of the
//! paper, 5 for an allocator that keeps its metadata in persistent memory, 1 for a write-aware one.
//!
//! Counted, not measured: flushes are counted as they are asked for, whatever the domain makes of them. So
//! `heap.flushes` is counted in ADR, where each costs; the other places show that both allocators ask for the
//! same there.

use std::sync::Arc;

use wattkeep_heap::naive::NaiveHeap;
use wattkeep_persist::Space;

use crate::figures::places::{HeapFailed, Place, new_heap};
use crate::figures::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds};

const ID: &str = "heap.flushes";
const ENTRIES: u64 = 500_000;
const QUICK_ENTRIES: u64 = 5_000;

/// A file is synced at each flush: as many would take minutes.
const FILE_ENTRIES: u64 = 5_000;
const QUICK_FILE_ENTRIES: u64 = 100;

/// An entry of the paper's table: key and value of 64 bytes, and a link.
const ENTRY_BYTES: u64 = 64 + 64 + 8;

const NAIVE: &str = "our naive allocator, metadata in the space";

fn id(place: Place) -> String {
    match place {
        Place::Adr => ID.to_owned(),
        Place::Region => format!("{ID}.region"),
        _ => format!("{ID}{}", place.suffix()),
    }
}

/// Counts both in every place.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for place in Place::ALL {
        if bench.wants(&id(place)) {
            figures.push(count(bench, place)?);
        }
    }
    Ok(figures)
}

fn count(bench: &mut Bench, place: Place) -> Result<Figure, BenchError> {
    let entries = match (place, bench.quick) {
        (Place::File, false) => FILE_ENTRIES,
        (Place::File, true) => QUICK_FILE_ENTRIES,
        (_, false) => ENTRIES,
        (_, true) => QUICK_ENTRIES,
    };
    let stand = place.make_counting(bench, "flushes")?;
    let heap = new_heap(&stand.space, bench)?;
    let ours = lines_each(&stand.space, entries, || heap.alloc(ENTRY_BYTES).heap_failed())?;
    drop(heap);
    stand.close(bench)?;
    let stand = place.make_counting(bench, "flushes-naive")?;
    let heap = NaiveHeap::create(Arc::clone(&stand.space)).heap_failed()?;
    let naive = lines_each(&stand.space, entries, || heap.alloc(ENTRY_BYTES).heap_failed())?;
    drop(heap);
    stand.close(bench)?;
    let mut rounds = Rounds::default();
    rounds.push(ours, naive);
    let reach = if place == Place::Adr { Reach::AtMost(0.2) } else { Reach::Shown };
    let figure = Figure::beside(&id(place), NAIVE, "lines/insert", &rounds, &reach);
    Ok(figure.with_note(format!("{entries} entries of {ENTRY_BYTES} bytes, counted")))
}

fn lines_each(
    space: &Space,
    entries: u64,
    mut insert: impl FnMut() -> Result<u64, BenchError>,
) -> Result<f64, BenchError> {
    let before = space.counted();
    for _ in 0..entries {
        insert()?;
    }
    Ok((space.counted() - before).flushed_lines as f64 / entries as f64)
}
