//! The allocator that everything else is measured against: all of its metadata lies in the space.
//!
//! As a volatile allocator that is made persistent the plain way: runs of chunks of one size class, as in
//! jemalloc, with a bitmap and a count in their header; a list of runs with room and a count for each class;
//! a header before each chunk; totals. Each change of each is flushed when it is made: five lines an
//! allocation, as in table 2 of Kannan, Gavrilovska, Schwan, "Reducing the Cost of Persistence for
//! Nonvolatile Heaps in End User Devices". It is a rival in benches and not meant to survive a cut between
//! two of its flushes, for which it would need more of them.

use std::sync::{Arc, Mutex, MutexGuard};

use wattkeep_persist::{LINE, Space};

use crate::classes::{ALL, CLASSES, class_of};
use crate::error::HeapError;

const PAGE: u64 = 4096;
/// Bytes before each chunk: the run it belongs to, and the bytes that were asked for.
const CHUNK_HEADER: u64 = 16;

/// Objects and bytes, in a line of their own.
const TOTALS_AT: u64 = LINE as u64;
/// The first page that was never used, in a line of its own.
const NEXT_AT: u64 = 2 * LINE as u64;
/// For each class a line: the first run with room, and how many objects there are.
const BINS_AT: u64 = 3 * LINE as u64;
const RUNS_AT: u64 = PAGE;

/// In a run's header, a line: its class, free chunks, the next run with room. The bitmap lies behind it.
const RUN_CLASS: u64 = 0;
const RUN_FREE: u64 = 8;
const RUN_NEXT: u64 = 16;
const RUN_BITMAP: u64 = LINE as u64;

const _: () = assert!(BINS_AT + CLASSES as u64 * LINE as u64 <= RUNS_AT);

/// A heap whose metadata is all persistent.
pub struct NaiveHeap {
    space: Arc<Space>,
    one_at_a_time: Mutex<()>,
}

/// How a run of a class is cut.
struct Shape {
    bytes: u64,
    chunk: u64,
    count: u64,
    first: u64,
}

impl Shape {
    /// The smallest run of whole pages that holds eight chunks.
    fn of(class: u64) -> Result<Self, HeapError> {
        let shape = ALL.get(class as usize).ok_or(HeapError::Damaged { what: "a run", at: class })?;
        let chunk = u64::from(shape.bytes) + CHUNK_HEADER;
        let bytes = (chunk * 8).next_power_of_two().max(PAGE);
        let bitmap = (bytes / chunk).div_ceil(8).next_multiple_of(LINE as u64);
        let first = RUN_BITMAP + bitmap;
        Ok(Self { bytes, chunk, count: (bytes - first) / chunk, first })
    }
}

impl NaiveHeap {
    /// Makes one in a space of zeros.
    ///
    /// # Errors
    /// A store is refused.
    pub fn create(space: Arc<Space>) -> Result<Self, HeapError> {
        let heap = Self { space, one_at_a_time: Mutex::new(()) };
        heap.set(NEXT_AT, RUNS_AT)?;
        Ok(heap)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock().expect("no panic while it is held")
    }

    fn get(&self, at: u64) -> Result<u64, HeapError> {
        Ok(self.space.load(at as usize)?)
    }

    /// Stores a word, and makes it durable.
    fn set(&self, at: u64, word: u64) -> Result<(), HeapError> {
        self.space.store(at as usize, word)?;
        Ok(self.space.persist(at as usize, 8)?)
    }

    /// Stores two words of a line, and makes them durable.
    fn set_both(&self, at: u64, words: [u64; 2]) -> Result<(), HeapError> {
        self.space.write(at as usize, &words)?;
        Ok(self.space.persist(at as usize, 16)?)
    }

    /// Allocates an object.
    ///
    /// # Errors
    /// It is too large for a class, or there is no room.
    pub fn alloc(&self, bytes: u64) -> Result<u64, HeapError> {
        let most = crate::classes::CLASS_BYTES_MAX;
        let class = class_of(bytes).ok_or(HeapError::TooLarge { bytes, most })?;
        let shape = Shape::of(class.into())?;
        let bin = BINS_AT + u64::from(class) * LINE as u64;
        let _lock = self.lock();
        let run = match self.get(bin)? {
            0 => self.add_run(class.into(), &shape)?,
            run => run,
        };
        let index = self.take_bit(run, shape.count)?;
        let free = self.get(run + RUN_FREE)? - 1;
        self.set(run + RUN_FREE, free)?;
        let head = if free == 0 { self.get(run + RUN_NEXT)? } else { run };
        self.set_both(bin, [head, self.get(bin + 8)? + 1])?;
        let header = run + shape.first + index * shape.chunk;
        self.set_both(header, [run, bytes])?;
        let totals = [self.get(TOTALS_AT)? + 1, self.get(TOTALS_AT + 8)? + bytes];
        self.set_both(TOTALS_AT, totals)?;
        Ok(header + CHUNK_HEADER)
    }

    fn add_run(&self, class: u64, shape: &Shape) -> Result<u64, HeapError> {
        let run = self.get(NEXT_AT)?;
        if run + shape.bytes > self.space.len() as u64 {
            return Err(HeapError::OutOfSpace { bytes: shape.bytes });
        }
        self.set(NEXT_AT, run + shape.bytes)?;
        self.set_both(run + RUN_CLASS, [class, shape.count])?;
        Ok(run)
    }

    /// Sets the first bit that is not set.
    fn take_bit(&self, run: u64, count: u64) -> Result<u64, HeapError> {
        for first in (0..count).step_by(64) {
            let at = run + RUN_BITMAP + first / 8;
            let word = self.get(at)?;
            let index = first + u64::from(word.trailing_ones());
            if word != u64::MAX && index < count {
                self.set(at, word | 1 << (index - first))?;
                return Ok(index);
            }
        }
        Err(HeapError::Damaged { what: "a run's bitmap", at: run + RUN_BITMAP })
    }

    /// Frees an object.
    ///
    /// # Errors
    /// There is none at `at`.
    pub fn free(&self, at: u64) -> Result<(), HeapError> {
        let _lock = self.lock();
        let header = at.checked_sub(CHUNK_HEADER).ok_or(HeapError::Foreign { at })?;
        let (run, bytes) = (self.get(header)?, self.get(header + 8)?);
        if run == 0 {
            return Err(HeapError::DoubleFree { at });
        }
        let class = self.get(run + RUN_CLASS)?;
        let shape = Shape::of(class)?;
        let index = (header - run - shape.first) / shape.chunk;
        let word = run + RUN_BITMAP + index / 64 * 8;
        self.set(word, self.get(word)? & !(1 << (index % 64)))?;
        let bin = BINS_AT + class * LINE as u64;
        let (head, objects) = (self.get(bin)?, self.get(bin + 8)?);
        let free = self.get(run + RUN_FREE)?;
        if free == 0 {
            self.set_both(run + RUN_FREE, [1, head])?;
        } else {
            self.set(run + RUN_FREE, free + 1)?;
        }
        self.set_both(bin, [if free == 0 { run } else { head }, objects - 1])?;
        self.set_both(header, [0, 0])?;
        self.set_both(TOTALS_AT, [self.get(TOTALS_AT)? - 1, self.get(TOTALS_AT + 8)? - bytes])
    }
}
