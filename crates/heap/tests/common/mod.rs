//! What the tests share: spaces of plain memory, and copies of them as a cut would leave them.

use std::sync::Arc;

use wattkeep_heap::{Heap, Options};
use wattkeep_persist::{Anonymous, Domain, Space};

/// A space of zeros.
pub(crate) fn space(bytes: usize) -> Arc<Space> {
    Arc::new(Space::new(Arc::new(Anonymous::new(bytes)), Domain::Battery))
}

#[allow(dead_code, reason = "not every test needs no more")]
/// A heap without an area for transaction logs.
pub(crate) fn heap(bytes: usize) -> Heap {
    Heap::create(space(bytes), &small()).expect("room for a heap")
}

/// Options for small spaces.
pub(crate) fn small() -> Options {
    Options { log_area_bytes: 0, ..Options::default() }
}

/// Another space with the same bytes: what a save and a restore would leave.
#[allow(dead_code, reason = "not every test cuts")]
pub(crate) fn copy(of: &Space) -> Arc<Space> {
    let mut bytes = vec![0; of.len()];
    of.read_bytes(0, &mut bytes).expect("inside");
    let copy = space(bytes.len());
    copy.write_bytes(0, &bytes).expect("inside");
    copy
}

/// The heap as it is after a cut now.
#[allow(dead_code, reason = "not every test cuts")]
pub(crate) fn reopened(heap: &Heap) -> Heap {
    Heap::open(copy(heap.space())).expect("a heap that a cut left")
}
