//! Regions as what persistent heaps stand on, and the heap in a region.
//!
//! # Safety
//!
//! 1. A region's mapping keeps its address until the region is dropped, and its length only grows.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use wattkeep_heap::{self as heap, Heap};
use wattkeep_keep::types::Tracking;
use wattkeep_persist::announcer::Announcer;
use wattkeep_persist::{Backing, Domain, Refused, Space};
use wattkeep_tx::{self as tx, Manager, TxError};

use crate::{Error, Region, RegionOptions, Store};

impl Store {
    /// Opens the persistent heap in the region `name`, with its transactions: what they had committed is
    /// there, what they had not never was. An empty region becomes a heap.
    ///
    /// The heap and its log have their defaults; `region` says how large it is when it is made:
    ///
    /// ```no_run
    /// use wattkeep::collections::{HashMap, Structure};
    /// use wattkeep::persist::bytemuck::{Pod, Zeroable};
    /// use wattkeep::{RegionOptions, Store};
    ///
    /// #[derive(Clone, Copy, Pod, Zeroable)]
    /// #[bytemuck(crate = "wattkeep::persist::bytemuck")]
    /// #[repr(C)]
    /// struct Account {
    ///     cents: i64,
    /// }
    ///
    /// let store = Store::options().create_if_missing(true).open("store")?;
    /// let heap = store.heap("accounts", RegionOptions::explicit().create(1 << 30))?;
    /// let accounts: HashMap<u64, Account> = HashMap::open_or_create_root(&heap, "accounts")?;
    /// heap.run(|tx| accounts.insert(tx, &7, &Account { cents: 100 }))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The region cannot be opened; it holds something else; its heap or log is damaged, or of a newer version.
    pub fn heap(&self, name: &str, region: RegionOptions) -> Result<Manager, TxError> {
        self.heap_with(name, region, &heap::Options::default(), &tx::Options::default())
    }

    /// The same with options: of the heap, how large its logs are and whether objects are guarded when it is
    /// made, and how fresh pages come into memory; of its transactions, for this opening.
    ///
    /// # Errors
    /// As [`Self::heap`], and for options that make no sense.
    pub fn heap_with(
        &self,
        name: &str,
        region: RegionOptions,
        options: &heap::Options,
        transactions: &tx::Options,
    ) -> Result<Manager, TxError> {
        let space = self.region(name, region).map_err(refused)?.into_space(Domain::Battery);
        let heap = Heap::open_or_create(Arc::new(space), options)?;
        Manager::open(Arc::new(heap), transactions)
    }
}

impl Region {
    /// The region as a space of persistent bytes. Explicit regions are the faster ones here: all stores
    /// through a space are announced.
    pub fn into_space(self, domain: Domain) -> Space {
        Space::new(Arc::new(self), domain)
    }
}

fn refused(error: Error) -> Refused {
    Refused::Region(error.to_string())
}

// SAFETY: 1.
unsafe impl Backing for Region {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.as_ptr()).expect("an open region is mapped")
    }

    fn len(&self) -> usize {
        Region::len(self)
    }

    fn announces(&self) -> bool {
        self.tracking() != Tracking::Transparent
    }

    fn begin_write(&self, at: usize, len: usize) -> Result<(), Refused> {
        self.0.begin_write(at, len).map_err(refused)
    }

    fn announcer(&self) -> Option<Announcer> {
        self.0.announcer()
    }

    fn end_write(&self, at: usize, len: usize) {
        self.0.end_write(at, len);
    }

    fn piece(&self, at_least: usize) -> Option<usize> {
        self.0.piece(at_least)
    }

    fn populate(&self, at: usize, len: usize) -> Result<bool, Refused> {
        Ok(self.0.populate(at, len))
    }

    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        if bytes <= Region::len(self) {
            return Ok(());
        }
        Region::grow(self, bytes.next_multiple_of(crate::PAGE_SIZE) as u64).map_err(refused)
    }
}
