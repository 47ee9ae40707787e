//! Deterministic streams of operations over a memory, and what that memory must offer.
//!
//! Invariants, which a drill's oracle stands on:
//! - the same specification, seed and region size give the same writes, in the same order, step
//!   by step, on any memory: no clock, no address, no hash map decides anything;
//! - what a step does next never depends on what it read. Only YCSB-F carries read bytes into
//!   written ones, as a read-modify-write must;
//! - the bytes a step writes are a function of the step's number and the place (and, for F, of
//!   the record read), so every byte in memory can be explained.
//!
//! Does not know what keeps the memory, nor measure time.

mod any;
mod heap;
pub mod lines;
mod memory;
pub mod pattern;
pub(crate) mod random;
pub mod sequential;
pub mod table;
pub mod trace;
pub mod trace_file;
pub mod uniform;
pub mod ycsb;
pub mod zipf;

pub use any::{AnyWorkload, WorkloadError};
pub use heap::{HEAP_BYTES_MIN, HeapFound, HeapModel, HeapPlan, HeapTable};
pub use memory::{Blank, Recording, Write};

/// Bytes in a page: the unit in which a keeper tracks what a workload dirties.
pub const PAGE_BYTES: usize = 4096;

/// The smallest region a workload over plain memory accepts: a table's header page, and enough pages for the
/// request distributions to be defined.
pub const REGION_BYTES_MIN: u64 = 16 * PAGE_BYTES as u64;

/// The memory a workload runs on. Announces every write before it happens.
pub trait Memory {
    /// Bytes in the memory.
    fn len(&self) -> u64;

    /// Whether there is no memory at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes at `offset` out. The range lies inside the memory.
    fn read(&self, offset: u64, into: &mut [u8]);

    /// Copies `bytes` to `offset`. The range lies inside the memory, and may cross a page border.
    fn write(&mut self, offset: u64, bytes: &[u8]);
}

/// What a workload has done so far, its load not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that only read.
    pub reads: u64,
    /// Operations that wrote without reading.
    pub updates: u64,
    /// Operations that added a record.
    pub inserts: u64,
    /// Operations that read a record, then wrote part of it.
    pub read_modify_writes: u64,
    /// Bytes handed to [`Memory::write`].
    pub bytes_written: u64,
    /// Sum over every byte read: equal on two memories if and only if they gave equal bytes (up
    /// to a chance of 2^-64). Also what keeps the compiler from dropping the reads.
    pub read_sum: u64,
}

impl Counts {
    /// Operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.reads + self.updates + self.inserts + self.read_modify_writes
    }

    /// Takes the sum of the bytes just read in, in order.
    #[inline]
    fn fold_in(&mut self, sum: u64) {
        self.read_sum = std::hint::black_box(self.read_sum.rotate_left(5) ^ sum);
    }
}

/// A deterministic, seeded stream of operations over a [`Memory`].
///
/// A clone goes on from the same step: cloning before a step, and running the clone on a
/// [`Recording`], tells byte by byte what a half-done step may have left behind.
pub trait Workload {
    /// The name as a person types it.
    fn name(&self) -> &str;

    /// Writes every byte of the memory, a page at a time, so that nothing of what was there before
    /// shows through; calls `progress` with a share from 0 to 1.
    ///
    /// # Panics
    /// If the memory is not of the size the workload was made for.
    fn load<M: Memory + ?Sized>(&mut self, memory: &mut M, progress: &mut dyn FnMut(f64));

    /// Performs exactly one operation.
    fn step<M: Memory + ?Sized>(&mut self, memory: &mut M);

    /// Performs `steps` operations: the same as calling [`Workload::step`] as often, but a caller
    /// that holds an [`AnyWorkload`] chooses the workload once instead of each time.
    fn run<M: Memory + ?Sized>(&mut self, memory: &mut M, steps: u64) {
        for _ in 0..steps {
            self.step(memory);
        }
    }

    /// Operations done so far; the next one is number `steps() + 1`.
    fn steps(&self) -> u64;

    /// What was done so far.
    fn counts(&self) -> Counts;
}

/// Fills the whole memory with the pattern of step 0, for workloads without a layout of their own.
fn load_pattern<M: Memory + ?Sized>(memory: &mut M, progress: &mut dyn FnMut(f64)) {
    let bytes = memory.len();
    let mut page = [0; PAGE_BYTES];
    let mut offset = 0;
    while offset < bytes {
        // A region may end inside a page; the last write is then short.
        let length = usize::try_from(bytes - offset).map_or(PAGE_BYTES, |left| left.min(PAGE_BYTES));
        let chunk = &mut page[..length];
        pattern::fill(pattern::mix(0, offset), chunk);
        memory.write(offset, chunk);
        offset += length as u64;
        if offset.is_multiple_of(PROGRESS_EVERY_BYTES) {
            progress(offset as f64 / bytes as f64);
        }
    }
    progress(1.0);
}

/// Bytes loaded between two calls of `progress`: a few milliseconds of work.
const PROGRESS_EVERY_BYTES: u64 = 4 << 20;

const _: () = assert!(PROGRESS_EVERY_BYTES.is_multiple_of(PAGE_BYTES as u64));
