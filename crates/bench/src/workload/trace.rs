//! Replays a trace as fast as the memory allows, over and over.
//!
//! One request is one step, done as one write or read per page it touches. Offsets beyond the
//! region wrap around, as does a request that crosses its end. At the end of the trace it starts
//! again from the first request; written bytes depend on the step's number, so the second round
//! writes new ones. The times in the trace give the order, and nothing else.
//!
//! Invariants: those of [`super`]; the seed has no effect, there is no chance in a trace.

use std::path::Path;
use std::sync::Arc;

use super::pattern::{fill, fold, mix};
use super::trace_file::Trace;
use super::{Counts, Memory, PAGE_BYTES, Workload, load_pattern};

/// A trace being replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    name: Arc<str>,
    trace: Arc<Trace>,
    region_bytes: u64,
    next: usize,
    step: u64,
    counts: Counts,
}

impl Replay {
    /// Replays `trace`, read from `path`, over a region of `region_bytes`.
    ///
    /// # Panics
    /// If the trace has no request; a parsed one always has.
    pub fn new(path: &Path, trace: Arc<Trace>, region_bytes: u64) -> Self {
        assert!(!trace.is_empty(), "a trace to replay has requests");
        Self {
            name: format!("trace:{}", path.display()).into(),
            trace,
            region_bytes,
            next: 0,
            step: 0,
            counts: Counts::default(),
        }
    }
}

impl Workload for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn load<M: Memory + ?Sized>(&mut self, memory: &mut M, progress: &mut dyn FnMut(f64)) {
        assert_eq!(memory.len(), self.region_bytes, "made for another region");
        load_pattern(memory, progress);
    }

    #[inline]
    fn step<M: Memory + ?Sized>(&mut self, memory: &mut M) {
        self.step += 1;
        let request = self.trace.request(self.next);
        self.next += 1;
        if self.next == self.trace.len() {
            self.next = 0;
        }
        let mut buffer = [0; PAGE_BYTES];
        let mut offset = request.offset % self.region_bytes;
        let mut left = u64::from(request.length);
        while left > 0 {
            let to_page_end = PAGE_BYTES as u64 - offset % PAGE_BYTES as u64;
            let length = left.min(to_page_end).min(self.region_bytes - offset);
            let bytes = &mut buffer[..length as usize];
            if request.write {
                fill(mix(self.step, offset), bytes);
                memory.write(offset, bytes);
                self.counts.bytes_written += length;
            } else {
                memory.read(offset, bytes);
                self.counts.fold_in(fold(bytes));
            }
            left -= length;
            offset += length;
            if offset == self.region_bytes {
                offset = 0;
            }
        }
        if request.write {
            self.counts.updates += 1;
        } else {
            self.counts.reads += 1;
        }
    }

    fn steps(&self) -> u64 {
        self.step
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Blank, Recording, Write};

    const BYTES: u64 = 16 * PAGE_BYTES as u64;

    fn writes_of(lines: &str, steps: u64) -> Vec<Write> {
        let text = format!("time,operation,offset,length\n{lines}");
        let path = Path::new("t.csv");
        let trace = Trace::parse(text.as_bytes(), path).expect("valid");
        let mut blank = Blank::new(BYTES);
        let mut recording = Recording::new(&mut blank);
        Replay::new(path, Arc::new(trace), BYTES).run(&mut recording, steps);
        recording.into_writes()
    }

    fn places(writes: &[Write]) -> Vec<(u64, usize)> {
        writes.iter().map(|w| (w.offset, w.bytes.len())).collect()
    }

    #[test]
    fn offsets_beyond_the_region_wrap_around() {
        let writes = writes_of(&format!("0,write,{},100\n", 3 * BYTES + 8192), 1);
        assert_eq!(places(&writes), [(8192, 100)]);
    }

    #[test]
    fn a_request_that_crosses_the_end_goes_on_at_the_start() {
        let writes = writes_of(&format!("0,write,{},5000\n", BYTES - 4100), 1);
        assert_eq!(places(&writes), [(BYTES - 4100, 4), (BYTES - 4096, 4096), (0, 900)]);
    }

    #[test]
    fn a_request_is_split_at_page_borders_only() {
        let writes = writes_of("0,write,4095,4098\n", 1);
        assert_eq!(places(&writes), [(4095, 1), (4096, 4096), (8192, 1)]);
    }

    #[test]
    fn the_trace_starts_again_at_its_end_with_new_bytes() {
        let writes = writes_of("0,write,0,64\n1,read,0,9000\n2,write,4096,64\n", 6);
        assert_eq!(places(&writes), [(0, 64), (4096, 64), (0, 64), (4096, 64)]);
        assert_ne!(writes[0].bytes, writes[2].bytes);
    }

    #[test]
    fn reads_are_really_done() {
        let text = "time,operation,offset,length\n0,read,0,9000\n";
        let path = Path::new("t.csv");
        let trace = Arc::new(Trace::parse(text.as_bytes(), path).expect("valid"));
        let sum = |byte| {
            let mut memory = vec![0_u8; BYTES as usize];
            memory[8999] = byte;
            let mut replay = Replay::new(path, Arc::clone(&trace), BYTES);
            replay.step(&mut memory);
            replay.counts().read_sum
        };
        assert_ne!(sum(0), sum(1));
    }
}
