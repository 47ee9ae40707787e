//! Hashes of pages, summaries, superblocks and images.
//!
//! Invariant: everything but the superblock is hashed with the store's secret seed, so that bytes
//! of another store, or of a program that writes what it likes, are not taken for ours.
//! Does not know what the bytes mean.

use twox_hash::{XxHash3_64, XxHash3_128};

use crate::types::{Checksum, PageId};

/// Hashes with one store's seed.
#[derive(Clone, Copy, Debug)]
pub struct Hasher {
    seed: u64,
}

impl Hasher {
    /// A hasher for the store whose superblock holds `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The checksum of a page's bytes.
    pub fn page(&self, bytes: &[u8]) -> Checksum {
        Checksum(XxHash3_64::oneshot_with_seed(self.seed, bytes))
    }

    /// The checksum of a summary, computed with its checksum field zero.
    pub fn summary(&self, bytes: &[u8]) -> u128 {
        XxHash3_128::oneshot_with_seed(self.seed, bytes)
    }

    /// One page's part of an image hash. The parts are added, wrapping: the order of pages does not
    /// matter, and a page's old part can be taken out again.
    pub fn image_part(&self, page: PageId, checksum: Checksum) -> u128 {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&page.region.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&page.page.to_le_bytes());
        bytes[8..].copy_from_slice(&checksum.0.to_le_bytes());
        XxHash3_128::oneshot_with_seed(self.seed, &bytes)
    }
}

/// The checksum of a superblock copy, computed with its checksum field zero. Unkeyed: the seed is
/// inside.
pub fn superblock(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}
