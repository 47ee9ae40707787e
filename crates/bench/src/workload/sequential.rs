//! Stores whole pages one after the other, and starts again at the end of the region.
//!
//! Every page is written once per round: the densest stream of first writes there is, and no
//! gain from keeping any page dirty.
//!
//! Invariants: those of [`super`]; a region's last, partial page is never written.

use super::pattern::{fill, mix};
use super::{Counts, Memory, PAGE_BYTES, Workload, load_pattern};

/// Stores of one page, in the order of pages, round and round.
#[derive(Clone, Debug)]
pub struct Sequential {
    region_bytes: u64,
    next_page: u64,
    step: u64,
    counts: Counts,
}

impl Sequential {
    /// Over a region of `region_bytes`, at least [`super::REGION_BYTES_MIN`].
    pub fn new(region_bytes: u64) -> Self {
        Self { region_bytes, next_page: 0, step: 0, counts: Counts::default() }
    }
}

impl Workload for Sequential {
    fn name(&self) -> &str {
        "sequential"
    }

    fn load<M: Memory + ?Sized>(&mut self, memory: &mut M, progress: &mut dyn FnMut(f64)) {
        assert_eq!(memory.len(), self.region_bytes, "made for another region");
        load_pattern(memory, progress);
    }

    #[inline]
    fn step<M: Memory + ?Sized>(&mut self, memory: &mut M) {
        self.step += 1;
        let offset = self.next_page * PAGE_BYTES as u64;
        let mut page = [0; PAGE_BYTES];
        fill(mix(self.step, offset), &mut page);
        memory.write(offset, &page);
        self.next_page += 1;
        if self.next_page == self.region_bytes / PAGE_BYTES as u64 {
            self.next_page = 0;
        }
        self.counts.updates += 1;
        self.counts.bytes_written += PAGE_BYTES as u64;
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
    fn each_round_writes_every_page_once_in_order() {
        let bytes = 16 * PAGE_BYTES as u64 + 5;
        let mut blank = Blank::new(bytes);
        let mut recording = Recording::new(&mut blank);
        Sequential::new(bytes).run(&mut recording, 40);
        for (step, write) in recording.into_writes().iter().enumerate() {
            assert_eq!(write.offset, (step % 16 * PAGE_BYTES) as u64);
            assert_eq!(write.bytes.len(), PAGE_BYTES);
        }
    }
}
