//! A simulated memory system: what loads, stores and flushes cost in accesses and energy.
//!
//! Stands in for what this machine cannot count. A [`MemorySystem`] is a [`Witness`]: it sees every load,
//! store and flush of a space, walks them through the first-level caches of two cores and a shared last-level
//! cache, and counts what reaches the memory behind, by row-buffer hits and misses.
//!
//! Sees persistent bytes only: what a program keeps elsewhere, on its stack or in tables, is not simulated.
//! No prefetchers, and no write queue: lines reach the memory in the order in which they leave the cache.

mod cache;
mod rows;

use std::ops::Sub;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cache::{Cache, Evicted};
use rows::RowBuffers;
use wattkeep_persist::{LINE, LineFlush, WORD, Witness};

/// First-level cache of a core, and the shared last level, of the paper's machine: bytes and ways.
const L1: (usize, usize) = (32 << 10, 8);
const LAST: (usize, usize) = (8 << 20, 16);
const CORES: usize = 2;

/// Energy of spin-transfer torque memory, pJ a bit: Zhao et al., "Kiln", as the paper uses it. A row-buffer
/// hit costs the buffer's energy, a miss the array's.
const BUFFER_READ: f64 = 0.93;
const BUFFER_WRITE: f64 = 1.02;
const ARRAY_READ: f64 = 1.00;
const ARRAY_WRITE: f64 = 2.89;
const LINE_BITS: f64 = (LINE * 8) as f64;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Words loaded and stored.
    pub words: u64,
    /// Of them, those whose line was not in the core's first-level cache.
    pub l1_misses: u64,
    /// Lines read from memory, whose row was open.
    pub read_hits: u64,
    /// Lines read from memory, whose row was not.
    pub read_misses: u64,
    /// Lines written to memory, whose row was open.
    pub write_hits: u64,
    /// Lines written to memory, whose row was not.
    pub write_misses: u64,
}

impl Accesses {
    /// Lines that went to or came from memory.
    pub fn memory(&self) -> u64 {
        self.read_hits + self.read_misses + self.write_hits + self.write_misses
    }

    /// Dynamic energy of reads, in picojoules.
    pub fn read_picojoules(&self) -> f64 {
        LINE_BITS * (self.read_hits as f64 * BUFFER_READ + self.read_misses as f64 * ARRAY_READ)
    }

    /// Dynamic energy of writes, in picojoules.
    pub fn write_picojoules(&self) -> f64 {
        LINE_BITS * (self.write_hits as f64 * BUFFER_WRITE + self.write_misses as f64 * ARRAY_WRITE)
    }

    /// Dynamic energy of the memory, in picojoules.
    pub fn picojoules(&self) -> f64 {
        self.read_picojoules() + self.write_picojoules()
    }
}

impl Sub for Accesses {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            words: self.words - earlier.words,
            l1_misses: self.l1_misses - earlier.l1_misses,
            read_hits: self.read_hits - earlier.read_hits,
            read_misses: self.read_misses - earlier.read_misses,
            write_hits: self.write_hits - earlier.write_hits,
            write_misses: self.write_misses - earlier.write_misses,
        }
    }
}

/// Two cores' caches, the shared one, and the memory.
pub struct MemorySystem {
    core: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    first: [Cache; CORES],
    last: Cache,
    rows: RowBuffers,
    flush: Option<LineFlush>,
    counted: Accesses,
}

impl MemorySystem {
    /// Empty caches. `flush` is what a flush does; nothing, where the domain needs none.
    pub fn new(flush: Option<LineFlush>) -> Self {
        let state = State {
            first: std::array::from_fn(|_| Cache::new(L1.0, L1.1)),
            last: Cache::new(LAST.0, LAST.1),
            rows: RowBuffers::default(),
            flush,
            counted: Accesses::default(),
        };
        Self { core: AtomicUsize::new(0), state: state.into() }
    }

    /// Which core the next accesses are from: 0 or 1.
    pub fn run_on(&self, core: usize) {
        assert!(core < CORES, "there are two cores");
        self.core.store(core, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn counted(&self) -> Accesses {
        self.state().counted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn access(&self, at: usize, len: usize, stores: bool) {
        let core = self.core.load(Ordering::Relaxed);
        let mut state = self.state();
        for line in (at / LINE * LINE..at + len).step_by(LINE) {
            let bytes = (at + len).min(line + LINE) - at.max(line);
            state.counted.words += bytes.div_ceil(WORD) as u64;
            state.touch(core, line, stores);
        }
    }
}

impl State {
    fn touch(&mut self, core: usize, line: usize, stores: bool) {
        let other = 1 - core;
        if self.first[core].touch(line, stores) {
            if stores {
                // Ours alone from now on; the other's copy is no newer than ours was.
                self.first[other].remove(line);
            }
            return;
        }
        self.counted.l1_misses += 1;
        // The other core may have it newer than the shared cache.
        if self.first[other].remove(line) == Some(true) {
            self.put_in_last(line, true);
        }
        if !self.last.touch(line, false) {
            match self.rows.access(line) {
                true => self.counted.read_hits += 1,
                false => self.counted.read_misses += 1,
            }
            self.put_in_last(line, false);
        }
        if let Some(Evicted { line, dirty: true }) = self.first[core].put(line, stores) {
            self.put_in_last(line, true);
        }
    }

    fn put_in_last(&mut self, line: usize, dirty: bool) {
        if self.last.touch(line, dirty) {
            return;
        }
        if let Some(evicted) = self.last.put(line, dirty) {
            // What leaves the shared cache leaves the others.
            let newer = self.first.iter_mut().any(|first| first.remove(evicted.line) == Some(true));
            if evicted.dirty || newer {
                self.write(evicted.line);
            }
        }
    }

    fn write(&mut self, line: usize) {
        match self.rows.access(line) {
            true => self.counted.write_hits += 1,
            false => self.counted.write_misses += 1,
        }
    }

    fn flush(&mut self, line: usize) {
        let Some(how) = self.flush else { return };
        let mut dirty = false;
        for cache in self.first.iter_mut().chain([&mut self.last]) {
            dirty |= match how {
                LineFlush::Clwb => cache.clean(line),
                LineFlush::Clflush | LineFlush::Clflushopt => cache.remove(line) == Some(true),
            };
        }
        if dirty {
            self.write(line);
        }
    }
}

impl Witness for MemorySystem {
    fn stored(&self, at: usize, bytes: &[u8]) {
        self.access(at, bytes.len(), true);
    }

    fn loaded(&self, at: usize, len: usize) {
        self.access(at, len, false);
    }

    fn flushed(&self, line: usize) {
        self.state().flush(line);
    }

    fn fenced(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_once_and_written_when_it_is_flushed() {
        let memory = MemorySystem::new(Some(LineFlush::Clflush));
        memory.stored(0, &[0; 64]);
        memory.loaded(8, 16);
        let counted = memory.counted();
        assert_eq!((counted.words, counted.l1_misses, counted.memory()), (10, 1, 1));
        memory.flushed(0);
        memory.flushed(0);
        let counted = memory.counted();
        assert_eq!((counted.write_hits, counted.write_misses), (1, 0), "its row is still open");
        memory.loaded(0, 8);
        assert_eq!(memory.counted().read_hits, 1, "clflush threw it out");
        let keeps = MemorySystem::new(Some(LineFlush::Clwb));
        keeps.stored(0, &[0; 8]);
        keeps.flushed(0);
        keeps.loaded(0, 8);
        keeps.flushed(0);
        assert_eq!(keeps.counted().memory(), 2, "clwb keeps it, and it is clean");
        let battery = MemorySystem::new(None);
        battery.stored(0, &[0; 8]);
        battery.flushed(0);
        assert_eq!(battery.counted().memory(), 1);
    }

    #[test]
    fn what_one_core_stored_is_flushed_and_loaded_by_the_other() {
        let memory = MemorySystem::new(Some(LineFlush::Clflush));
        memory.stored(128, &[0; 8]);
        memory.run_on(1);
        memory.loaded(128, 8);
        assert_eq!(memory.counted().memory(), 1, "from the other core, through the shared cache");
        memory.flushed(128);
        assert_eq!(memory.counted().write_hits, 1);
        memory.run_on(0);
        memory.loaded(128, 8);
        let counted = memory.counted();
        assert_eq!((counted.l1_misses, counted.memory()), (3, 3));
    }

    #[test]
    fn more_than_the_last_level_holds_is_written_back() {
        let memory = MemorySystem::new(None);
        let lines = 2 * LAST.0 / LINE;
        (0..lines).for_each(|line| memory.stored(line * LINE, &[0; 8]));
        let counted = memory.counted();
        assert_eq!(counted.read_hits + counted.read_misses, lines as u64);
        assert_eq!(counted.write_hits + counted.write_misses, (lines - LAST.0 / LINE) as u64);
        // The rest is there.
        (lines - LAST.0 / LINE..lines).for_each(|line| memory.loaded(line * LINE, 8));
        assert_eq!(memory.counted().memory(), counted.memory());
    }

    #[test]
    fn energy_follows_the_papers_model() {
        let counted = Accesses {
            read_hits: 1,
            read_misses: 10,
            write_hits: 100,
            write_misses: 1000,
            ..Accesses::default()
        };
        let expected = 512.0 * (0.93 + 10.0 * 1.00 + 100.0 * 1.02 + 1000.0 * 2.89);
        assert!((counted.picojoules() - expected).abs() < 1e-6 * expected);
    }
}
