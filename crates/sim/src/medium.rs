//! The pages of a disk in memory, and what a power cut leaves of them.
//!
//! Pages are shared between images until one changes them, so that an image costs little more than
//! its table: a history is cut at every write of it, and each cut is a disk of its own.

use std::sync::Arc;

use crate::disk::{Cut, MemoryDisk};
use crate::random::Random;

pub(crate) const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// Pages by number; `None` for zeros.
#[derive(Clone, Debug, Default)]
pub(crate) struct Medium(Vec<Option<Arc<[u8; PAGE]>>>);

/// A write that no flush has covered yet.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) offset: u64,
    pub(crate) bytes: Arc<[u8]>,
    /// A flush covers what was reaped before it was submitted.
    pub(crate) reaped: bool,
}

impl Medium {
    pub(crate) fn page_mut(&mut self, number: u64) -> &mut [u8; PAGE] {
        let number = number as usize;
        if number >= self.0.len() {
            self.0.resize(number + 1, None);
        }
        Arc::make_mut(self.0[number].get_or_insert_with(|| Arc::new([0; PAGE])))
    }

    /// Copies the sectors of a write for which `keep` says so.
    pub(crate) fn apply(&mut self, write: &Write, mut keep: impl FnMut(usize) -> bool) {
        for (number, sector) in write.bytes.chunks(SECTOR).enumerate() {
            if keep(number) {
                let at = write.offset as usize + number * SECTOR;
                self.page_mut((at / PAGE) as u64)[at % PAGE..][..sector.len()].copy_from_slice(sector);
            }
        }
    }

    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) {
        assert!(offset.is_multiple_of(PAGE as u64), "reads are whole pages");
        for (number, out) in out.chunks_mut(PAGE).enumerate() {
            match self.0.get(offset as usize / PAGE + number) {
                Some(Some(page)) => out.copy_from_slice(&page[..out.len()]),
                _ => out.fill(0),
            }
        }
    }

    /// Makes the bytes from `from` to `to` zeros.
    pub(crate) fn clear(&mut self, from: u64, to: u64) {
        let pages = self.0.iter_mut().take((to / PAGE as u64) as usize);
        pages.skip((from / PAGE as u64) as usize).for_each(|page| *page = None);
    }
}

/// What the medium held at one instant, and the writes that it might still lose.
#[derive(Clone, Debug)]
pub struct Moment {
    pub(crate) durable: Medium,
    pub(crate) unflushed: Vec<Write>,
    pub(crate) size: u64,
}

impl Moment {
    /// What a machine finds whose power was cut then.
    pub fn after_cut(&self, cut: Cut, seed: u64) -> MemoryDisk {
        let mut random = Random::new(seed);
        let mut medium = self.durable.clone();
        for write in &self.unflushed {
            match cut {
                Cut::KeepAll => medium.apply(write, |_| true),
                Cut::DropAll => {}
                Cut::Mixed => match random.below(3) {
                    0 => medium.apply(write, |_| true),
                    1 => {}
                    _ => medium.apply(write, |_| random.chance(1, 2)),
                },
            }
        }
        MemoryDisk::with(medium, self.size, random.number())
    }

    /// Writes that a cut may keep, drop or tear.
    pub fn unflushed(&self) -> usize {
        self.unflushed.len()
    }
}
