//! Golden bytes of a summary, and every bit of it flipped.

use super::*;

const HEAD: SummaryHead =
    SummaryHead { uuid_low: 0x1234, sequence: Sequence(77), epoch: Epoch(5), position: 9 };
const EXPECTED: Expected = Expected { uuid_low: 0x1234, position: 9, pages_left: 1000 };

fn entry(number: u32) -> Entry {
    let page = PageId { region: RegionId(1), page: number };
    Entry { page, checksum: Checksum(u64::from(number) * 3) }
}

fn encoded(count: u32) -> Vec<u8> {
    let mut bytes = vec![0xff; 4 * PAGE_SIZE];
    let entries: Vec<_> = (0..count).map(entry).collect();
    let len = encode(&HEAD, entries.into_iter(), &Hasher::new(1), &mut bytes);
    bytes.truncate(len);
    bytes
}

fn validate(bytes: &[u8]) -> Result<(SummaryHead, Vec<Entry>), SummaryFault> {
    let mut entries = Vec::new();
    let head = UntrustedSummary(bytes).validate_into(&EXPECTED, &Hasher::new(1), &mut entries)?;
    Ok((head, entries))
}

#[test]
fn a_summary_comes_back_as_it_was_written() {
    for count in [1, 2, 252, 253, 508, 509, 900] {
        let bytes = encoded(count);
        assert_eq!(bytes.len(), summary_pages(count) as usize * PAGE_SIZE);
        let (head, entries) = validate(&bytes).expect("valid");
        assert_eq!(head, HEAD);
        assert!(entries.into_iter().eq((0..count).map(entry)));
    }
}

/// The bytes of format 1 never change: this number is part of the format.
#[test]
fn golden_summary() {
    let bytes = encoded(2);
    assert_eq!(&bytes[..8], b"WKBATCH1");
    assert_eq!(u64_at(&bytes, 16), 77, "sequence");
    assert_eq!(u32_at(&bytes, 32), 9, "position");
    assert_eq!(u32_at(&bytes, 36), 2, "entries");
    assert_eq!((u32_at(&bytes, 80), u32_at(&bytes, 84), u64_at(&bytes, 88)), (1, 1, 3));
    assert_eq!(u128_at(&bytes, CHECKSUM), GOLDEN, "{:#034x}", u128_at(&bytes, CHECKSUM));
}

const GOLDEN: u128 = 0xb835_c226_90cd_ba2a_526b_d131_016d_c31e;

#[test]
fn every_flipped_bit_of_a_summary_is_found() {
    let mut bytes = encoded(20);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(validate(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_summary_elsewhere_or_of_another_store_is_not_taken() {
    let bytes = encoded(3);
    let mut entries = Vec::new();
    for expected in [
        Expected { position: 10, ..EXPECTED },
        Expected { uuid_low: 1, ..EXPECTED },
        Expected { pages_left: 3, ..EXPECTED },
    ] {
        let found = UntrustedSummary(&bytes).validate_into(&expected, &Hasher::new(1), &mut entries);
        assert!(found.is_err());
    }
    let other_seed = UntrustedSummary(&bytes).validate_into(&EXPECTED, &Hasher::new(2), &mut entries);
    assert_eq!(other_seed, Err(SummaryFault::Damaged));
}

#[test]
fn a_long_summary_asks_for_its_bytes() {
    let bytes = encoded(300);
    assert_eq!(validate(&bytes[..PAGE_SIZE]), Err(SummaryFault::Longer(2)));
}
