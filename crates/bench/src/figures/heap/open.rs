//! How long a heap with ten million objects takes to open: its log is read, and its metadata is built anew.
//!
//! Opening only reads, so the persistence domain makes no difference: measured on the region; on a transparent
//! one and on plain memory beside it. The region is whole in memory; how long it takes to restore is
//! `restore`'s figure.

use std::sync::Arc;
use std::time::Instant;

use wattkeep_heap::{Heap, HeapError};

use crate::figures::places::{HeapFailed, Place, new_heap};
use crate::figures::{Bench, BenchError};
use crate::measure::{Figure, Reach};

const OBJECTS: u64 = 10_000_000;
const QUICK_OBJECTS: u64 = 10_000;
const OBJECT_BYTES: u64 = 64;

/// The root of an object that is read as soon as it can be.
const ROOT: &str = "first";

/// Measures it in each place.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    let shown = [Place::Transparent, Place::Memory].map(|place| (place, Reach::Shown));
    for (place, reach) in [(Place::Region, Reach::AtMost(1.0))].into_iter().chain(shown) {
        let ids = ["heap.open", "heap.open.lazy"].map(|id| format!("{id}{}", place.suffix()));
        if ids.iter().any(|id| bench.wants(id)) {
            figures.extend(open_in(bench, place, &ids, &reach)?);
        }
    }
    Ok(figures)
}

/// Seconds to the heap, and to the bytes of an object that is read while the log is.
fn open_in(
    bench: &mut Bench,
    place: Place,
    ids: &[String; 2],
    reach: &Reach,
) -> Result<[Figure; 2], BenchError> {
    let objects = if bench.quick { QUICK_OBJECTS } else { OBJECTS };
    let stand = place.make(bench, "open")?;
    let heap = new_heap(&stand.space, bench)?;
    for _ in 0..objects {
        heap.alloc(OBJECT_BYTES).heap_failed()?;
    }
    heap.persist_alloc(OBJECT_BYTES, Some(ROOT)).heap_failed()?;
    drop(heap);
    let (mut seconds, mut lazy_seconds) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let space = Arc::clone(&stand.space);
        let began = Instant::now();
        let heap = Heap::open(space).heap_failed()?;
        seconds.push(began.elapsed().as_secs_f64());
        drop(heap);
        let space = Arc::clone(&stand.space);
        let began = Instant::now();
        let opening = Heap::begin_open(space, None).heap_failed()?;
        let object = opening.object::<[u64; 8]>(ROOT).heap_failed()?.expect("linked above");
        let read = opening.space().read::<[u64; 8]>(object.offset() as usize).map_err(HeapError::from);
        std::hint::black_box(read.heap_failed()?);
        lazy_seconds.push(began.elapsed().as_secs_f64());
        opening.heap().heap_failed()?;
    }
    stand.close(bench)?;
    let note = format!("{objects} objects of {OBJECT_BYTES} bytes");
    let whole = Figure::alone(&ids[0], "s", &seconds, reach).with_note(note.clone());
    let lazy = Figure::alone(&ids[1], "s", &lazy_seconds, reach);
    Ok([whole, lazy.with_note(format!("{note}; until an object is read, the log is read beside"))])
}
