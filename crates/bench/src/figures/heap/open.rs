//! How long a heap with ten million objects takes to open: its log is read, and its metadata is built anew.
//!
//! Opening only reads, so the persistence domain makes no difference: measured on the region, and on plain
//! memory beside it. The region is whole in memory; how long it takes to restore is `restore`'s figure.

use std::sync::Arc;
use std::time::Instant;

use wattkeep_heap::Heap;

use crate::figures::places::{HeapFailed, Place, new_heap};
use crate::figures::{Bench, BenchError};
use crate::measure::{Figure, Reach};

const OBJECTS: u64 = 10_000_000;
const QUICK_OBJECTS: u64 = 10_000;
const OBJECT_BYTES: u64 = 64;

/// Measures it in both places.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for (place, reach) in [(Place::Region, Reach::AtMost(1.0)), (Place::Memory, Reach::Shown)] {
        let id = format!("heap.open{}", place.suffix());
        if bench.wants(&id) {
            figures.push(open_in(bench, place, &id, &reach)?);
        }
    }
    Ok(figures)
}

fn open_in(bench: &mut Bench, place: Place, id: &str, reach: &Reach) -> Result<Figure, BenchError> {
    let objects = if bench.quick { QUICK_OBJECTS } else { OBJECTS };
    let stand = place.make(bench, "open")?;
    let heap = new_heap(&stand.space, bench)?;
    for _ in 0..objects {
        heap.alloc(OBJECT_BYTES).heap_failed()?;
    }
    drop(heap);
    let mut seconds = Vec::new();
    for _ in 0..bench.rounds {
        let space = Arc::clone(&stand.space);
        let began = Instant::now();
        let heap = Heap::open(space).heap_failed()?;
        seconds.push(began.elapsed().as_secs_f64());
        drop(heap);
    }
    stand.close(bench)?;
    Ok(Figure::alone(id, "s", &seconds, reach)
        .with_note(format!("{objects} objects of {OBJECT_BYTES} bytes")))
}
