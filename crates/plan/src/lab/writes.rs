//! What a policy meets of a trace: which page is written, and in which epoch.
//!
//! Reads are left out: a clean page costs nothing however often it is read. Pages are renumbered from
//! 0 in the order of their first write.

use std::path::Path;
use std::time::Duration;

use rustc_hash::FxHashMap;
use wattkeep_bench::workload::zipf::{ZIPF_CONSTANT, Zipf, scramble};

use crate::read::{FormatName, ReadError, TraceReader};
use crate::request::Access;

/// Volumes of one trace share the pages' names: this many bits are left to a page.
const PAGE_BITS: u32 = 52;

/// Records of 1 KB in a page, in the synthetic workload.
const RECORDS_PER_PAGE: u64 = 4;

/// Requests between two looks at the progress.
const PROGRESS_EVERY: u64 = 1 << 16;

/// How a trace is cut into epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EpochRule {
    /// By the trace's clock.
    Time(Duration),
    /// Every so many page writes: for traces that keep order alone.
    Writes(u64),
}

/// The page writes of a trace.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// The trace has times; otherwise its times are the order.
    pub timed: bool,
    /// Page of each write.
    pub pages: Vec<u32>,
    /// Nanoseconds of each write since the trace began.
    pub times_ns: Vec<u64>,
    /// Pages that are written at least once: their numbers are below this.
    pub distinct: u32,
    /// Pages that are read or written: the volume that a budget is a share of.
    pub touched: u64,
}

impl Writes {
    /// Keeps the writes of a stream of accesses.
    pub fn collect(accesses: impl Iterator<Item = Access>) -> Self {
        let mut keeper = WriteKeeper::default();
        accesses.for_each(|access| keeper.add(access));
        keeper.writes
    }

    /// Reads a trace file, all its volumes as one, and tells the progress in bytes.
    ///
    /// # Errors
    /// Those of [`TraceReader`].
    pub fn read(
        path: &Path,
        format: Option<FormatName>,
        tell: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, ReadError> {
        let mut reader = TraceReader::open(path, format)?;
        let mut keeper = WriteKeeper::default();
        keeper.writes.timed = reader.format().has_times();
        let mut requests = 0_u64;
        while let Some((volume, request)) = reader.next_request()? {
            for access in request.accesses() {
                keeper.add(Access { page: access.page | u64::from(volume) << PAGE_BITS, ..access });
            }
            requests += 1;
            if requests.is_multiple_of(PROGRESS_EVERY) {
                let (done, all) = reader.progress();
                tell(done, all);
            }
        }
        Ok(keeper.writes)
    }

    /// Updates of records of 1 KB by Zipf's law (0.99), the shape of the YCSB: ten for each record, one
    /// each microsecond.
    pub fn zipf(records: u64) -> Self {
        let zipf = Zipf::new(records, ZIPF_CONSTANT);
        let mut state = 1_u64;
        let accesses = (0..10 * records).map(|number| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = (state >> 11) as f64 / (1_u64 << 53) as f64;
            let record = scramble(zipf.rank(draw), records);
            Access { time_ns: number * 1000, page: record / RECORDS_PER_PAGE, write: true }
        });
        Self { timed: true, ..Self::collect(accesses) }
    }

    /// Page writes.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Nothing is written.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The epoch of each write, counted from 0.
    pub fn epochs(&self, rule: EpochRule) -> Vec<u64> {
        let first = self.times_ns.first().copied().unwrap_or(0);
        let epoch = |(index, time_ns): (usize, &u64)| match rule {
            EpochRule::Time(length) => time_ns.saturating_sub(first) / (length.as_nanos() as u64).max(1),
            EpochRule::Writes(count) => index as u64 / count.max(1),
        };
        self.times_ns.iter().enumerate().map(epoch).collect()
    }

    /// For each write, the index of the next one to the same page; the length where there is none.
    pub fn next_writes(&self) -> Vec<u32> {
        let none = self.len() as u32;
        let mut next_of_page = vec![none; self.distinct as usize];
        let mut next = vec![none; self.len()];
        for (index, page) in self.pages.iter().enumerate().rev() {
            next[index] = std::mem::replace(&mut next_of_page[*page as usize], index as u32);
        }
        next
    }

    /// Pages that a budget of `percent` of the touched pages allows, at least one.
    pub fn budget(&self, percent: f64) -> u32 {
        ((self.touched as f64 * percent / 100.0) as u32).max(1)
    }
}

/// Numbers pages while it keeps their writes.
#[derive(Default)]
struct WriteKeeper {
    writes: Writes,
    /// A page that was only read so far has no number.
    numbers: FxHashMap<u64, Option<u32>>,
}

impl WriteKeeper {
    fn add(&mut self, access: Access) {
        let number = self.numbers.entry(access.page).or_insert(None);
        if access.write {
            let page = *number.get_or_insert_with(|| {
                self.writes.distinct += 1;
                self.writes.distinct - 1
            });
            self.writes.pages.push(page);
            self.writes.times_ns.push(access.time_ns);
        }
        self.writes.touched = self.numbers.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered_by_first_write_and_reads_only_count_as_touched() {
        let access = |page, write| Access { time_ns: page * 10, page, write };
        let stream = [access(7, false), access(9, true), access(3, true), access(9, true), access(7, true)];
        let writes = Writes::collect(stream.into_iter());
        assert_eq!((writes.pages.as_slice(), writes.distinct, writes.touched), (&[0, 1, 0, 2][..], 3, 3));
        assert_eq!(writes.next_writes(), [2, 4, 4, 4]);
        assert_eq!(writes.epochs(EpochRule::Writes(3)), [0, 0, 0, 1]);
    }
}
