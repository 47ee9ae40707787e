//! Batches that the device has not finished, acknowledged in the order of their sequences.
//!
//! Invariant: the acknowledged batches are always a prefix of the submitted ones, whatever the
//! order of the device's completions. Does no I/O.

use std::collections::{HashSet, VecDeque};

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::batch::Staged;
use crate::types::{PageId, Sequence};

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct FlyingBatch {
    pub(crate) sequence: Sequence,
    /// Whether it copies committed versions.
    pub(crate) committed_copy: bool,
    pub(crate) cleaning: bool,
    pub(crate) segment: u32,
    /// The slot of its first page of data.
    pub(crate) first_slot: u32,
    pub(crate) staged: Vec<Staged>,
    pub(crate) bytes: usize,
    /// The buffer, once the write has completed.
    pub(crate) landed: Option<AlignedBuffer>,
}

/// All of them, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Flight(VecDeque<FlyingBatch>);

impl Flight {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, batch: FlyingBatch) {
        let newer = self.0.back().is_none_or(|last| last.sequence < batch.sequence);
        assert!(newer, "sequences only grow");
        self.0.push_back(batch);
    }

    /// The batch whose write completed or failed.
    pub(crate) fn find(&mut self, sequence: Sequence) -> Option<&mut FlyingBatch> {
        self.0.iter_mut().find(|batch| batch.sequence == sequence)
    }

    /// Pages of the batches in flight that are not cleaning's.
    pub(crate) fn hot_pages(&self) -> HashSet<PageId> {
        let hot = self.0.iter().filter(|batch| !batch.cleaning);
        hot.flat_map(|batch| batch.staged.iter().map(|staged| staged.entry.page)).collect()
    }

    /// The oldest batch, when it has landed.
    pub(crate) fn take_landed(&mut self) -> Option<(FlyingBatch, AlignedBuffer)> {
        let landed = |batch: &FlyingBatch| batch.landed.is_some();
        let any = self.0.iter().position(landed).filter(|_| mutant::planted("acknowledge-out-of-order"));
        let oldest = any.unwrap_or(0);
        let buffer = self.0.get_mut(oldest)?.landed.take()?;
        let batch = self.0.remove(oldest).expect("it was just looked at");
        Some((batch, buffer))
    }
}
