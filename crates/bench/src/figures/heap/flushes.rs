//! Cache lines that the allocator writes back for each entry inserted into a hash table: table 2 of the
//! paper, 5 for an allocator that keeps its metadata in persistent memory, 1 for a write-aware one.
//!
//! Counted, not measured: flushes are counted as they are asked for, whatever the domain makes of them.

use std::sync::Arc;

use wattkeep_heap::naive::NaiveHeap;
use wattkeep_persist::{Anonymous, DomainKind, Space};

use crate::figures::places::{HeapFailed, new_heap};
use crate::figures::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds};

const ID: &str = "heap.flushes";
const ENTRIES: u64 = 500_000;
const QUICK_ENTRIES: u64 = 5_000;

/// An entry of the paper's table: key and value of 64 bytes, and a link.
const ENTRY_BYTES: u64 = 64 + 64 + 8;

const NAIVE: &str = "our naive allocator, metadata in the space";

/// Counts both.
pub(super) fn run(bench: &Bench) -> Result<Vec<Figure>, BenchError> {
    if !bench.wants(ID) {
        return Ok(Vec::new());
    }
    let space = || {
        let bytes = Anonymous::new(bench.region_bytes as usize);
        Arc::new(Space::new(Arc::new(bytes), DomainKind::Adr.domain()).counting())
    };
    let entries = if bench.quick { QUICK_ENTRIES } else { ENTRIES };
    let (ours, naive) = (space(), space());
    let heap = new_heap(&ours, bench)?;
    let ours = lines_each(&ours, entries, || heap.alloc(ENTRY_BYTES).heap_failed())?;
    let heap = NaiveHeap::create(Arc::clone(&naive)).heap_failed()?;
    let naive = lines_each(&naive, entries, || heap.alloc(ENTRY_BYTES).heap_failed())?;
    let mut rounds = Rounds::default();
    rounds.push(ours, naive);
    let figure = Figure::beside(ID, NAIVE, "lines/insert", &rounds, &Reach::AtMost(0.2));
    Ok(vec![figure.with_note(format!("{entries} entries of {ENTRY_BYTES} bytes, counted"))])
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
