//! What every page must hold after a cut: the same workload, replayed on plain memory.
//!
//! The image of a cut holds every operation that was complete, and of the one under way a prefix of
//! its writes, the last of them perhaps in part. So a page is as it must be when one such prefix
//! explains *all* pages at once; a page that no common prefix explains is lost.
//!
//! Never sees the store.

use std::collections::{BTreeMap, BTreeSet};

use wattkeep_bench::workload::{Recording, Write};
use wattkeep_bench::{AnyWorkload, Workload};

use crate::text::PAGE;

const PAGE_BYTES: usize = PAGE as usize;

/// Operations replayed between two reports of progress.
const CHUNK: u64 = 1 << 18;

/// A memory that can be asked for its pages.
pub(crate) trait Image {
    /// Copies a page out; `false` when it cannot be read.
    fn page(&self, page: u32, into: &mut [u8]) -> bool;
}

/// What a comparison found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Pages compared: all of them.
    pub(crate) pages_verified: u32,
    /// Pages that are not as they must be.
    pub(crate) lost: Vec<u32>,
    /// The image holds part of an operation that was under way.
    pub(crate) half_done: bool,
}

/// The memory as it was after so many operations, and the workload that goes on from there.
pub(crate) struct Oracle {
    bytes: Vec<u8>,
    workload: AnyWorkload,
}

impl Oracle {
    /// Loads, and does `steps` operations.
    pub(crate) fn replay(
        mut workload: AnyWorkload,
        region_bytes: u64,
        steps: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Self {
        let mut bytes = vec![0; usize::try_from(region_bytes).expect("a region fits the address space")];
        workload.load(&mut bytes, &mut |_| ());
        while workload.steps() < steps {
            workload.run(&mut bytes, CHUNK.min(steps - workload.steps()));
            progress(workload.steps(), steps);
        }
        Self { bytes, workload }
    }

    fn pages(&self) -> u32 {
        u32::try_from(self.bytes.len() / PAGE_BYTES).expect("a region has fewer than 2^32 pages")
    }

    /// Compares every page. Moves the oracle past the operation that was under way.
    pub(crate) fn compare(&mut self, image: &impl Image, progress: &mut dyn FnMut(u64, u64)) -> Comparison {
        let pages = self.pages();
        let mut found = [0; PAGE_BYTES];
        let mut different = BTreeSet::new();
        for page in 0..pages {
            if !image.page(page, &mut found) || found != self.bytes[range(page)] {
                different.insert(page);
            }
            if page.is_multiple_of(4096) {
                progress(page.into(), pages.into());
            }
        }
        let writes = self.next_writes();
        let half_done = !different.is_empty();
        let lost = if half_done { self.unexplained(image, different, &writes) } else { Vec::new() };
        Comparison { pages_verified: pages, half_done: half_done && lost.is_empty(), lost }
    }

    /// The writes of the operation under way, cut at page borders; the bytes stay as they were.
    fn next_writes(&mut self) -> Vec<Write> {
        let mut undo = UndoLog { bytes: &mut self.bytes, before: Vec::new() };
        let mut recording = Recording::new(&mut undo);
        self.workload.clone().step(&mut recording);
        let writes = recording.into_writes();
        for write in std::mem::take(&mut undo.before).into_iter().rev() {
            let at = write.offset as usize;
            undo.bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        writes.iter().flat_map(pieces).collect()
    }

    /// The pages that no prefix of the writes explains, for the prefix that explains most.
    fn unexplained(&mut self, image: &impl Image, different: BTreeSet<u32>, writes: &[Write]) -> Vec<u32> {
        let touched: BTreeSet<u32> = writes.iter().map(page_of).collect();
        let mut images: BTreeMap<u32, Option<Vec<u8>>> = BTreeMap::new();
        for page in &touched {
            let mut bytes = vec![0; PAGE_BYTES];
            images.insert(*page, image.page(*page, &mut bytes).then_some(bytes));
        }
        let mut wrong = different;
        let mut best = wrong.clone();
        for write in writes {
            let page = page_of(write);
            let found = images.get(&page).and_then(Option::as_ref);
            let expected = &self.bytes[range(page)];
            // This write may be there in part: each of its bytes old or new.
            if wrong.contains(&page) && found.is_some_and(|found| in_part(found, expected, write)) {
                let mut left = wrong.clone();
                left.remove(&page);
                best = if left.len() < best.len() { left } else { best };
            }
            let at = write.offset as usize;
            self.bytes[at..at + write.bytes.len()].copy_from_slice(&write.bytes);
            // It is there in full, and the next ones may follow.
            if found.is_some_and(|found| *found == self.bytes[range(page)]) {
                wrong.remove(&page);
            } else {
                wrong.insert(page);
            }
            best = if wrong.len() < best.len() { wrong.clone() } else { best };
        }
        best.into_iter().collect()
    }
}

/// Whether `found` is `expected` with any of the bytes of `write`.
fn in_part(found: &[u8], expected: &[u8], write: &Write) -> bool {
    let start = write.offset as usize % PAGE_BYTES;
    let new = |at: usize| at.checked_sub(start).and_then(|at| write.bytes.get(at));
    found.iter().zip(expected).enumerate().all(|(at, (found, old))| found == old || new(at) == Some(found))
}

fn range(page: u32) -> std::ops::Range<usize> {
    let start = page as usize * PAGE_BYTES;
    start..start + PAGE_BYTES
}

fn page_of(write: &Write) -> u32 {
    u32::try_from(write.offset / PAGE).expect("a region has fewer than 2^32 pages")
}

/// A write as one write for each page it touches: a store to each may wait by itself.
fn pieces(write: &Write) -> Vec<Write> {
    let mut pieces = Vec::new();
    let (mut offset, mut rest) = (write.offset, &write.bytes[..]);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - offset as usize % PAGE_BYTES));
        pieces.push(Write { offset, bytes: now.to_vec() });
        (offset, rest) = (offset + now.len() as u64, later);
    }
    pieces
}

/// Remembers what writes overwrote.
struct UndoLog<'a> {
    bytes: &'a mut Vec<u8>,
    before: Vec<Write>,
}

impl wattkeep_bench::Memory for UndoLog<'_> {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.bytes.read(offset, into);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut old = vec![0; bytes.len()];
        self.bytes.read(offset, &mut old);
        self.before.push(Write { offset, bytes: old });
        self.bytes.write(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wattkeep_bench::{Memory, WorkloadSpec};

    const BYTES: u64 = 64 * PAGE;

    struct Plain(Vec<u8>);

    impl Image for Plain {
        fn page(&self, page: u32, into: &mut [u8]) -> bool {
            into.copy_from_slice(&self.0[range(page)]);
            true
        }
    }

    fn workload(name: &str) -> AnyWorkload {
        let spec: WorkloadSpec = name.parse().expect("a workload");
        AnyWorkload::new(&spec, 7, BYTES).expect("large enough")
    }

    fn oracle(name: &str, steps: u64) -> Oracle {
        Oracle::replay(workload(name), BYTES, steps, &mut |_, _| ())
    }

    fn lost(name: &str, steps: u64, image: Vec<u8>) -> Comparison {
        oracle(name, steps).compare(&Plain(image), &mut |_, _| ())
    }

    #[test]
    fn what_was_done_is_explained() {
        for name in ["ycsb-a", "ycsb-c", "ycsb-d", "ycsb-f", "uniform", "sequential"] {
            let found = lost(name, 500, oracle(name, 500).bytes);
            assert_eq!(found, Comparison { pages_verified: 64, lost: vec![], half_done: false }, "{name}");
        }
    }

    /// Every byte prefix of the operation under way is explained; and nothing that comes after it.
    #[test]
    fn half_of_an_operation_is_explained_and_more_is_not() {
        for name in ["ycsb-d", "ycsb-f", "uniform", "sequential"] {
            for steps in 500..540 {
                let mut image = oracle(name, steps);
                for write in image.next_writes() {
                    for len in [1, write.bytes.len() / 2, write.bytes.len()] {
                        image.bytes.write(write.offset, &write.bytes[..len]);
                        assert_eq!(lost(name, steps, image.bytes.clone()).lost, [0; 0], "{name} {steps}");
                    }
                }
            }
            let much_later = lost(name, 500, oracle(name, 560).bytes);
            assert!(!much_later.lost.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_later_write_without_an_earlier_one_is_a_lost_page() {
        // An insert writes a record, then the table's header page: the second alone is not a prefix.
        let mut image = oracle("ycsb-d", 0);
        let (mut steps, mut writes) = (0, image.next_writes());
        while writes.iter().map(page_of).collect::<BTreeSet<_>>().len() < 2 {
            steps += 1;
            image = oracle("ycsb-d", steps);
            writes = image.next_writes();
        }
        let last = writes.last().expect("an insert writes");
        image.bytes.write(last.offset, &last.bytes);
        assert_eq!(lost("ycsb-d", steps, image.bytes).lost.len(), 1);
    }

    #[test]
    fn one_flipped_bit_is_one_lost_page() {
        for name in ["ycsb-a", "uniform", "sequential"] {
            let mut image = oracle(name, 500).bytes;
            image[40 * PAGE_BYTES + 17] ^= 4;
            assert_eq!(lost(name, 500, image).lost, [40], "{name}");
        }
    }

    #[test]
    fn an_old_version_of_a_page_is_a_lost_page() {
        let mut image = oracle("sequential", 200).bytes;
        let older = oracle("sequential", 100).bytes;
        image[range(9)].copy_from_slice(&older[range(9)]);
        assert_eq!(lost("sequential", 200, image).lost, [9]);
    }

    #[test]
    fn a_page_that_cannot_be_read_is_lost() {
        struct Holed(Vec<u8>);
        impl Image for Holed {
            fn page(&self, page: u32, into: &mut [u8]) -> bool {
                into.copy_from_slice(&self.0[range(page)]);
                page != 3
            }
        }
        let image = Holed(oracle("uniform", 50).bytes);
        assert_eq!(oracle("uniform", 50).compare(&image, &mut |_, _| ()).lost, [3]);
    }
}
