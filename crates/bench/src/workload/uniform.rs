//! Writes of 64 bytes to one page, anywhere in the region, at any byte.
//!
//! The worst case for a dirty budget: no page is wanted more than another. A write crosses a page
//! border about every second time, so one operation may need two pages.
//!
//! Invariants: those of [`super`]; a write lies inside the region.

use super::pattern::{fill, mix};
use super::random::Random;
use super::{Counts, Memory, PAGE_BYTES, Workload, load_pattern};

/// Bytes of the shortest write.
const WRITE_BYTES_MIN: usize = 64;

/// Writes of 64 bytes to one page, at evenly distributed places.
#[derive(Clone, Debug)]
pub struct Uniform {
    region_bytes: u64,
    random: Random,
    step: u64,
    counts: Counts,
}

impl Uniform {
    /// Over a region of `region_bytes`, at least [`super::REGION_BYTES_MIN`].
    pub fn new(seed: u64, region_bytes: u64) -> Self {
        Self { region_bytes, random: Random::new(seed), step: 0, counts: Counts::default() }
    }
}

impl Workload for Uniform {
    fn name(&self) -> &str {
        "uniform"
    }

    fn load<M: Memory + ?Sized>(&mut self, memory: &mut M, progress: &mut dyn FnMut(f64)) {
        assert_eq!(memory.len(), self.region_bytes, "made for another region");
        load_pattern(memory, progress);
    }

    #[inline]
    fn step<M: Memory + ?Sized>(&mut self, memory: &mut M) {
        self.step += 1;
        let lengths = (PAGE_BYTES - WRITE_BYTES_MIN + 1) as u64;
        let length = WRITE_BYTES_MIN + self.random.below(lengths) as usize;
        let offset = self.random.below(self.region_bytes - length as u64 + 1);
        let mut buffer = [0; PAGE_BYTES];
        let bytes = &mut buffer[..length];
        fill(mix(self.step, offset), bytes);
        memory.write(offset, bytes);
        self.counts.updates += 1;
        self.counts.bytes_written += length as u64;
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
    use crate::workload::{Blank, Recording};

    #[test]
    fn writes_reach_every_page_and_stay_inside_the_region() {
        let bytes = 64 * PAGE_BYTES as u64 + 100;
        let mut blank = Blank::new(bytes);
        let mut recording = Recording::new(&mut blank);
        Uniform::new(3, bytes).run(&mut recording, 10_000);
        let writes = recording.into_writes();
        let mut pages: Vec<u64> = writes.iter().map(|w| w.offset / PAGE_BYTES as u64).collect();
        pages.sort_unstable();
        pages.dedup();
        assert!(pages.len() >= 64);
        let lengths = writes.iter().map(|w| w.bytes.len());
        assert_eq!(lengths.clone().min(), Some(64));
        assert_eq!(lengths.max(), Some(PAGE_BYTES));
    }
}
