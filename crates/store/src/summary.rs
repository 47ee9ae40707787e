//! The summary of a batch: which pages it holds, apart from the data. Format and its checks.
//!
//! Invariants: entries were returned from bytes whose checksum, store, position and counts hold; bytes
//! from a disk are an [`UntrustedSummary`] until then. An entry of region 0 is void: its data is to
//! be skipped. Does no I/O.

use crate::bytes::{all_zero, put_u32, put_u64, put_u128, u32_at, u64_at, u128_at};
use crate::hash::Hasher;
use crate::layout::{SUMMARY_ENTRY_BYTES, SUMMARY_HEADER_BYTES, summary_pages};
use crate::types::{Checksum, Epoch, PAGE_SIZE, PageId, RegionId, Sequence};

/// The first bytes of every summary.
pub const MAGIC: [u8; 8] = *b"WKBATCH1";

/// The region of void entries; no region ever has this id.
pub const VOID_REGION: RegionId = RegionId(0);

const CHECKSUM: usize = 40;

/// One stored page, as a summary names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The page, or any page of region 0 for a void entry.
    pub page: PageId,
    /// The checksum of its bytes.
    pub checksum: Checksum,
}

/// What the header of a batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryHead {
    /// The low half of the store's UUID.
    pub uuid_low: u64,
    /// The batch's place in the order of all batches.
    pub sequence: Sequence,
    /// The commit that makes the batch part of an image.
    pub epoch: Epoch,
    /// The slot of the summary's first page.
    pub position: u32,
}

/// What a reader knows before it reads.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The low half of the store's UUID.
    pub uuid_low: u64,
    /// Where it reads.
    pub position: u32,
    /// Pages from there to the end of the segment.
    pub pages_left: u32,
}

/// Why bytes are not a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryFault {
    /// Not the start of a batch of this store at this place.
    NoBatch,
    /// More bytes are needed: this many pages in all.
    Longer(u32),
    /// It says that it is a batch, and its checksum or fields do not hold.
    Damaged,
}

/// Bytes from a disk, at least one page.
pub struct UntrustedSummary<'a>(pub &'a [u8]);

/// Writes the summary of `entries` to the front of `out` and zeros up to the end of its last page.
/// Returns its length in bytes.
pub fn encode(
    head: &SummaryHead,
    entries: impl ExactSizeIterator<Item = Entry>,
    hasher: &Hasher,
    out: &mut [u8],
) -> usize {
    let count = entries.len();
    let len = summary_pages(count as u32) as usize * PAGE_SIZE;
    let out = &mut out[..len];
    out[..8].copy_from_slice(&MAGIC);
    put_u64(out, 8, head.uuid_low);
    put_u64(out, 16, head.sequence.0);
    put_u64(out, 24, head.epoch.0);
    put_u32(out, 32, head.position);
    put_u32(out, 36, count as u32);
    out[CHECKSUM..SUMMARY_HEADER_BYTES].fill(0);
    let (used, padding) = out[SUMMARY_HEADER_BYTES..].split_at_mut(count * SUMMARY_ENTRY_BYTES);
    for (entry, out) in entries.zip(used.chunks_exact_mut(SUMMARY_ENTRY_BYTES)) {
        put_u32(out, 0, entry.page.region.0);
        put_u32(out, 4, entry.page.page);
        put_u64(out, 8, entry.checksum.0);
    }
    padding.fill(0);
    let checksum = hasher.summary(out);
    put_u128(out, CHECKSUM, checksum);
    len
}

impl UntrustedSummary<'_> {
    /// Checks the header without its checksum: how many pages the summary has.
    fn pages(&self, expected: &Expected) -> Result<u32, SummaryFault> {
        let bytes = self.0;
        let ours = bytes[..8] == MAGIC
            && u64_at(bytes, 8) == expected.uuid_low
            && u32_at(bytes, 32) == expected.position;
        if !ours {
            return Err(SummaryFault::NoBatch);
        }
        let count = u32_at(bytes, 36);
        if count == 0 || count >= expected.pages_left {
            return Err(SummaryFault::Damaged);
        }
        let pages = summary_pages(count);
        if pages + count > expected.pages_left {
            return Err(SummaryFault::Damaged);
        }
        Ok(pages)
    }

    /// Checks everything and appends the entries to `entries`. Returns the header.
    pub fn validate_into(
        &self,
        expected: &Expected,
        hasher: &Hasher,
        entries: &mut Vec<Entry>,
    ) -> Result<SummaryHead, SummaryFault> {
        let pages = self.pages(expected)?;
        let Some(bytes) = self.0.get(..pages as usize * PAGE_SIZE) else {
            return Err(SummaryFault::Longer(pages));
        };
        let mut zeroed = [0; crate::limits::SUMMARY_PAGES_MAX as usize * PAGE_SIZE];
        let zeroed = &mut zeroed[..bytes.len()];
        zeroed.copy_from_slice(bytes);
        put_u128(zeroed, CHECKSUM, 0);
        let end = SUMMARY_HEADER_BYTES + u32_at(bytes, 36) as usize * SUMMARY_ENTRY_BYTES;
        let holds = hasher.summary(zeroed) == u128_at(bytes, CHECKSUM)
            && all_zero(&bytes[CHECKSUM + 16..SUMMARY_HEADER_BYTES])
            && all_zero(&bytes[end..]);
        if !holds {
            return Err(SummaryFault::Damaged);
        }
        entries.extend(unpack(&bytes[SUMMARY_HEADER_BYTES..end]));
        Ok(self.head(expected))
    }

    /// What a damaged summary still says: `None` when not even its length makes sense. An entry whose page,
    /// behind the summary, does not have its checksum is void here. Good for naming what may be lost, never
    /// for an image: a page number may be wrong all the same.
    pub fn salvage(
        &self,
        expected: &Expected,
        hasher: &Hasher,
        entries: &mut Vec<Entry>,
    ) -> Option<SummaryHead> {
        let summary_bytes = self.pages(expected).ok()? as usize * PAGE_SIZE;
        let end = SUMMARY_HEADER_BYTES + u32_at(self.0, 36) as usize * SUMMARY_ENTRY_BYTES;
        let data = self.0.get(summary_bytes..)?.chunks_exact(PAGE_SIZE);
        entries.extend(unpack(&self.0[SUMMARY_HEADER_BYTES..end]).zip(data).map(|(entry, page)| {
            let whole = hasher.page(page) == entry.checksum;
            let region = if whole { entry.page.region } else { VOID_REGION };
            Entry { page: PageId { region, ..entry.page }, ..entry }
        }));
        Some(self.head(expected))
    }

    fn head(&self, expected: &Expected) -> SummaryHead {
        SummaryHead {
            uuid_low: expected.uuid_low,
            sequence: Sequence(u64_at(self.0, 16)),
            epoch: Epoch(u64_at(self.0, 24)),
            position: expected.position,
        }
    }
}

fn unpack(packed: &[u8]) -> impl Iterator<Item = Entry> {
    packed.chunks_exact(SUMMARY_ENTRY_BYTES).map(|bytes| Entry {
        page: PageId { region: RegionId(u32_at(bytes, 0)), page: u32_at(bytes, 4) },
        checksum: Checksum(u64_at(bytes, 8)),
    })
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
