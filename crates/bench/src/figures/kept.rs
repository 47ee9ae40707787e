//! A store with one region, as the benchmarks use it, and what it owes: its highest dirty count.
//!
//! Does not measure.
//!
//! # Safety
//!
//! 1. A region is mapped as long as its [`Kept`] lives; faults on it are resolved by the library.
//! 2. Each benchmark writes a region from one thread.
#![allow(unsafe_code)]

use std::time::Duration;

use wattkeep::{Region, RegionOptions, Status, Store, Tracking};
use wattkeep_sys::map::Mapping;

use super::memory::MappedMemory;
use super::process::resident_bytes;
use super::{Bench, BenchError};
use crate::measure::Rounds;

/// Checkpoints tried before pages that stay dirty are an error.
const CHECKPOINTS_MAX: usize = 20;

/// How often a settling keeper is looked at, and how many times at most.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const LOOKS_MAX: usize = 500;

/// An open store with its one region.
pub(super) struct Kept {
    // Before the store: a region is closed first.
    pub(super) region: Region,
    pub(super) store: Store,
    /// Resident memory of the keeper before the region was opened.
    pub(super) keeper_bytes_before: u64,
}

impl Kept {
    /// Opens the store `name` of the benchmark's directory, creating what is missing. No automatic
    /// checkpoints: they would fall into some rounds and not into others.
    pub(super) fn open(
        bench: &Bench,
        name: &str,
        budget: &str,
        tracking: Tracking,
        bytes: u64,
    ) -> Result<Self, BenchError> {
        let store = Store::options()
            .create_if_missing(true)
            .budget(budget)
            .keeper(bench.keeper)
            .policy(bench.policy)
            .checkpoint_interval_ms(0)
            .open(bench.scratch.path().join(name))?;
        let options = match tracking {
            Tracking::Transparent => RegionOptions::transparent(),
            Tracking::Explicit => RegionOptions::explicit(),
            Tracking::Checking => RegionOptions::checking(),
        };
        let keeper_bytes_before = resident_bytes(store.keeper_pid());
        let region = store.region("table", options.create(bytes))?;
        Ok(Self { region, store, keeper_bytes_before })
    }

    /// The region's bytes. Stop using them before the store is closed.
    pub(super) fn memory(&self) -> MappedMemory {
        // SAFETY: 1, 2: mapped as long as `self`, written by the thread that measures.
        unsafe { MappedMemory::new(self.region.as_ptr(), self.region.len()) }
    }

    /// Makes every page clean, and protected where stores fault.
    pub(super) fn make_clean(&self) -> Result<(), BenchError> {
        for _ in 0..CHECKPOINTS_MAX {
            self.store.checkpoint()?;
            if self.settle()?.dirty_pages == 0 {
                return Ok(());
            }
        }
        Err(BenchError::NotClean { dirty_pages: self.store.status()?.dirty_pages })
    }

    /// Waits until the keeper has no log left to clean, so that it does not do so in the next round.
    pub(super) fn settle(&self) -> Result<Status, BenchError> {
        let mut status = self.store.status()?;
        for _ in 0..LOOKS_MAX {
            std::thread::sleep(BETWEEN_LOOKS);
            let before = std::mem::replace(&mut status, self.store.status()?);
            if before.ssd_bytes == status.ssd_bytes && before.segments_free == status.segments_free {
                break;
            }
        }
        Ok(status)
    }

    /// Closes a store that was only read.
    pub(super) fn discard(self) -> Result<(), BenchError> {
        drop(self.region);
        Ok(self.store.close()?)
    }

    /// Closes the store, and keeps the highest dirty count for the bound.
    pub(super) fn close(self, bench: &mut Bench) -> Result<(), BenchError> {
        self.close_into(&mut bench.bounds)
    }

    /// The same, where `bounds` are kept elsewhere.
    pub(super) fn close_into(self, bounds: &mut Rounds) -> Result<(), BenchError> {
        let status = self.store.status()?;
        bounds.push(f64::from(status.max_dirty_pages), f64::from(status.budget_pages));
        self.discard()
    }
}

/// The bytes of a mapping that the benchmark keeps as long as it uses them.
pub(super) fn mapped(mapping: &Mapping) -> MappedMemory {
    // SAFETY: 1, 2: the caller keeps the mapping, and writes it from the thread that measures.
    unsafe { MappedMemory::new(mapping.start(), mapping.len()) }
}
