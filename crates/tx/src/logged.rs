//! What transactions wrote to their logs, by kind: the figures of the paper are ratios of these.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::{OBJECT_RECORD, Slot, WORD_RECORD};

/// Counts of records and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Records of a word.
    pub word_records: u64,
    /// Bytes of these records: 24 each.
    pub word_metadata_bytes: u64,
    /// Bytes of their data: 8 each.
    pub word_data_bytes: u64,
    /// Records of an object.
    pub object_records: u64,
    /// Bytes of these records: 28 each.
    pub object_metadata_bytes: u64,
    /// Bytes of their data.
    pub object_data_bytes: u64,
    /// Bytes of commit slots.
    pub slot_bytes: u64,
    /// Bytes of lists of objects allocated and freed.
    pub list_bytes: u64,
}

impl Logged {
    /// Bytes of records of both kinds, without their data.
    pub fn metadata_bytes(&self) -> u64 {
        self.word_metadata_bytes + self.object_metadata_bytes
    }

    /// Bytes of records and data of both kinds: what the granularity decides.
    pub fn bytes(&self) -> u64 {
        self.metadata_bytes() + self.word_data_bytes + self.object_data_bytes
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            word_records: with(self.word_records, other.word_records),
            word_metadata_bytes: with(self.word_metadata_bytes, other.word_metadata_bytes),
            word_data_bytes: with(self.word_data_bytes, other.word_data_bytes),
            object_records: with(self.object_records, other.object_records),
            object_metadata_bytes: with(self.object_metadata_bytes, other.object_metadata_bytes),
            object_data_bytes: with(self.object_data_bytes, other.object_data_bytes),
            slot_bytes: with(self.slot_bytes, other.slot_bytes),
            list_bytes: with(self.list_bytes, other.list_bytes),
        }
    }
}

impl Add for Logged {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

impl Sub for Logged {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, |a, b| a - b)
    }
}

/// The counters of one lane: only whoever holds the lane changes them, anybody may read.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    word_records: AtomicU64,
    object_records: AtomicU64,
    object_data_bytes: AtomicU64,
    slots: AtomicU64,
    list_bytes: AtomicU64,
}

/// One writer: no locked instruction is needed.
fn raise(counter: &AtomicU64, by: usize) {
    counter.store(counter.load(Ordering::Relaxed) + by as u64, Ordering::Relaxed);
}

impl LaneCounters {
    pub(crate) fn words(&self, records: usize) {
        raise(&self.word_records, records);
    }

    pub(crate) fn objects(&self, records: usize, data_bytes: usize) {
        raise(&self.object_records, records);
        raise(&self.object_data_bytes, data_bytes);
    }

    pub(crate) fn slot(&self) {
        raise(&self.slots, 1);
    }

    pub(crate) fn list(&self, bytes: usize) {
        raise(&self.list_bytes, bytes);
    }

    pub(crate) fn now(&self) -> Logged {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (word_records, object_records) = (read(&self.word_records), read(&self.object_records));
        Logged {
            word_records,
            word_metadata_bytes: word_records * WORD_RECORD as u64,
            word_data_bytes: word_records * 8,
            object_records,
            object_metadata_bytes: object_records * OBJECT_RECORD as u64,
            object_data_bytes: read(&self.object_data_bytes),
            slot_bytes: read(&self.slots) * size_of::<Slot>() as u64,
            list_bytes: read(&self.list_bytes),
        }
    }
}
