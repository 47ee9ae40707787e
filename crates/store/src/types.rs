//! The words of the store: page, region, slot, epoch, checksum.
//!
//! Everything here is plain data. Does not know files, addresses in memory, or who is dirty.

use std::fmt;

/// Bytes in a page: the unit of tracking, checksumming and storing.
pub const PAGE_SIZE: usize = 4096;

/// Names a region inside one store. Never reused within a store, so that entries of a removed
/// region stay recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// A page of a region: the region and the page's number in it, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// The region that holds the page.
    pub region: RegionId,
    /// Offset of the page in the region, in pages.
    pub page: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region {} page {}", self.region.0, self.page)
    }
}

/// Keyed 64-bit hash of a page's bytes (XXH3-64, seeded with the store's secret).
///
/// Two equal checksums mean equal bytes, up to a chance of 2^-64: used to detect damage, and to
/// skip writing a page that was granted but not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum(pub u64);

/// Counts commits. A batch carries the epoch whose commit will make it part of the durable image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Orders the batches of a store: strictly increasing over its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);
