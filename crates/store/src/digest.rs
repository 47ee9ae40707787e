//! The index digest: the index of one commit, written out, so that an opening need not scan the log.
//!
//! Invariants: a digest is taken only when the superblock of its commit names it and its checksum
//! holds over every byte; each of its pages stands for itself, and pages come in the order of
//! regions and page numbers. `docs/format.md` draws the layout. Does no I/O and enters nothing.

use twox_hash::XxHash3_128;

use crate::bytes::{all_zero, put_u32, put_u64, u32_at, u64_at, u128_at};
use crate::types::{Checksum, Epoch, PAGE_SIZE, RegionId};

/// The first bytes of a digest.
const MAGIC: [u8; 8] = *b"WKINDEX1";
/// Pages of a region that one page of the digest covers.
pub(crate) const STRETCH_PAGES: u32 = 340;
const STRETCH_HEADER_BYTES: usize = 16;
const CHECKSUMS: usize = STRETCH_HEADER_BYTES + 4 * STRETCH_PAGES as usize;
/// Bytes of the reference in the superblock.
pub(crate) const REFERENCE_BYTES: usize = 32;

const _: () = assert!(CHECKSUMS + 8 * STRETCH_PAGES as usize == PAGE_SIZE);

/// What a superblock says about the digest of its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DigestReference {
    /// The slot of its header.
    pub(crate) first_slot: u32,
    /// Its length, header included.
    pub(crate) pages: u32,
    /// The commit whose index it holds.
    pub(crate) epoch: Epoch,
    /// Over all its pages.
    pub(crate) checksum: u128,
}

impl DigestReference {
    /// Writes the reference, or that there is none.
    pub(crate) fn encode(reference: Option<&Self>, out: &mut [u8]) {
        let Some(reference) = reference else { return out.fill(0) };
        put_u32(out, 0, reference.first_slot);
        put_u32(out, 4, reference.pages);
        put_u64(out, 8, reference.epoch.0);
        out[16..REFERENCE_BYTES].copy_from_slice(&reference.checksum.to_le_bytes());
    }

    /// Reads it back; the caller checks that it lies in the store.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        (!all_zero(bytes)).then(|| Self {
            first_slot: u32_at(bytes, 0),
            pages: u32_at(bytes, 4),
            epoch: Epoch(u64_at(bytes, 8)),
            checksum: u128_at(bytes, 16),
        })
    }
}

/// Sums a digest's bytes as they pass, keyed like everything that is in the log.
pub(crate) struct DigestSum(XxHash3_128);

impl DigestSum {
    pub(crate) fn new(seed: u64) -> Self {
        Self(XxHash3_128::with_seed(seed))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(crate) fn finish(&self) -> u128 {
        self.0.finish_128()
    }
}

/// Writes the header page. Zeroed, it is what makes a digest void.
pub(crate) fn encode_header(uuid_low: u64, reference: &DigestReference, out: &mut [u8]) {
    out.fill(0);
    out[..8].copy_from_slice(&MAGIC);
    put_u64(out, 8, uuid_low);
    put_u64(out, 16, reference.epoch.0);
    put_u32(out, 24, reference.first_slot);
    put_u32(out, 28, reference.pages);
}

/// Whether a page is the header that the reference stands for.
pub(crate) fn is_header(uuid_low: u64, reference: &DigestReference, page: &[u8]) -> bool {
    let mut expected = [0; PAGE_SIZE];
    encode_header(uuid_low, reference, &mut expected);
    page == expected
}

/// Consecutive pages of a region, at most [`STRETCH_PAGES`]: what one page of the digest covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) region: RegionId,
    pub(crate) first: u32,
    pub(crate) pages: u32,
}

/// Writes one page. For each page of the stretch comes its slot plus one, or 0 when it is not
/// stored, and its checksum.
pub(crate) fn encode_stretch(
    stretch: Stretch,
    versions: impl Iterator<Item = (u32, Checksum)>,
    out: &mut [u8],
) {
    out.fill(0);
    put_u32(out, 0, stretch.region.0);
    put_u32(out, 4, stretch.first);
    put_u32(out, 8, stretch.pages);
    for (number, (place, checksum)) in versions.enumerate() {
        put_u32(out, STRETCH_HEADER_BYTES + 4 * number, place);
        put_u64(out, CHECKSUMS + 8 * number, checksum.0);
    }
}

/// Reads one page back: the stretch, and slots and checksums as they were given. `None` when the
/// header cannot be.
pub(crate) fn decode_stretch(page: &[u8]) -> Option<(Stretch, impl Iterator<Item = (u32, Checksum)>)> {
    let stretch =
        Stretch { region: RegionId(u32_at(page, 0)), first: u32_at(page, 4), pages: u32_at(page, 8) };
    let known = (1..=STRETCH_PAGES).contains(&stretch.pages) && u32_at(page, 12) == 0;
    let places = page[STRETCH_HEADER_BYTES..CHECKSUMS].chunks_exact(4).map(|bytes| u32_at(bytes, 0));
    let checksums = page[CHECKSUMS..].chunks_exact(8).map(|bytes| Checksum(u64_at(bytes, 0)));
    known.then(|| (stretch, places.zip(checksums).take(stretch.pages as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> DigestReference {
        DigestReference { first_slot: 64, pages: 3, epoch: Epoch(6), checksum: 0x77 }
    }

    #[test]
    fn a_stretch_comes_back_as_it_was_written() {
        let stretch = Stretch { region: RegionId(7), first: 1000, pages: 3 };
        let versions = [(5, Checksum(50)), (0, Checksum(0)), (7, Checksum(70))];
        let mut page = [0xff; PAGE_SIZE];
        encode_stretch(stretch, versions.into_iter(), &mut page);
        let (found, read) = decode_stretch(&page).expect("it was just written");
        assert_eq!((found, read.collect::<Vec<_>>()), (stretch, versions.to_vec()));
    }

    /// The bytes of a digest are part of format 1.
    #[test]
    fn golden_digest() {
        let mut sum = DigestSum::new(0x5eed);
        let mut page = [0; PAGE_SIZE];
        encode_header(0x1234, &reference(), &mut page);
        assert_eq!(&page[..16], b"WKINDEX1\x34\x12\0\0\0\0\0\0");
        sum.add(&page);
        let stretch = Stretch { region: RegionId(7), first: 1000, pages: 2 };
        encode_stretch(stretch, [(5, Checksum(50)), (6, Checksum(60))].into_iter(), &mut page);
        assert_eq!((u32_at(&page, 4), u32_at(&page, 20), u64_at(&page, 1384)), (1000, 6, 60));
        sum.add(&page);
        assert_eq!(sum.finish(), GOLDEN, "{:#034x}", sum.finish());
    }

    const GOLDEN: u128 = 0xbdf1_a289_4fd3_42bd_1418_449c_a020_9fa2;

    #[test]
    fn a_header_of_another_commit_store_or_place_is_refused() {
        let mut page = [0; PAGE_SIZE];
        encode_header(1, &reference(), &mut page);
        assert!(is_header(1, &reference(), &page));
        assert!(!is_header(2, &reference(), &page));
        assert!(!is_header(1, &DigestReference { epoch: Epoch(7), ..reference() }, &page));
        assert!(!is_header(1, &DigestReference { first_slot: 65, ..reference() }, &page));
        assert!(!is_header(1, &reference(), &[0; PAGE_SIZE]));
    }
}
