//! Golden bytes of the superblock, and every bit of it flipped.

use super::*;

fn sample() -> Superblock {
    let committed = ImagePart { pages: 3, hash: 0x1111_2222 };
    Superblock {
        ro_compat: 0,
        sequence: 9,
        uuid: *b"0123456789abcdef",
        seed: 0x5eed,
        boot_id: [0xb0; 16],
        state: StoreState::Saved,
        session: 4,
        unsafe_shutdowns: 2,
        created_unix_s: 1_700_000_000,
        geometry: Geometry::new(1024, 77).expect("valid"),
        save_reserve_segments: 5,
        budget_pages: 3000,
        next_region: 8,
        commit: Commit {
            epoch: Epoch(6),
            last_sequence: Sequence(0x0400_0000_0007),
            pages: 3,
            hash: 0x1111_2222,
            unix_s: 1_700_000_001,
            kind: CommitKind::Save,
        },
        health: HealthRecord {
            last_save_ok: Some(true),
            last_save_ms: 120,
            last_save_pages: 3,
            worst_write_bandwidth: 1_000_000_000,
            budget_setting_bytes: 0,
            save_failures: 1,
        },
        digest: Some(DigestReference { first_slot: 2048, pages: 3, epoch: Epoch(6), checksum: 0xd1 }),
        regions: vec![RegionRecord {
            id: RegionId(7),
            name: "table".to_owned(),
            mode: RegionMode::Explicit,
            pages: 100,
            reserve_pages: 200,
            address: 0x7000_0000_0000,
            created_unix_s: 1_700_000_000,
            committed,
            cuts: Cuts::from_list(vec![Cut { page: 90, sequence: 5 }]).expect("one"),
        }],
    }
}

fn encoded(copy: u64) -> Vec<u8> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    sample().encode(copy, &mut bytes);
    bytes
}

#[test]
fn a_superblock_comes_back_as_it_was_written() {
    for copy in 0..SUPERBLOCK_COPIES {
        let bytes = encoded(copy);
        assert_eq!(UntrustedSuperblock::new(&bytes).validate(copy), Ok(sample()));
    }
}

/// The bytes of format 1 never change: this number is part of the format.
#[test]
fn golden_superblock() {
    let bytes = encoded(1);
    assert_eq!(&bytes[..16], b"WATTKEEP\x01\0\0\0\x01\0\0\0");
    assert_eq!(u64_at(&bytes, 56), 9, "sequence");
    assert_eq!(u32_at(&bytes, 104), 3, "state");
    assert_eq!(u32_at(&bytes, 132), 77, "segments");
    assert_eq!(u64_at(&bytes, 152), 6, "epoch");
    assert_eq!(u64_at(&bytes, 216), 120, "last save, ms");
    assert_eq!(&bytes[4096 + 128..4096 + 134], b"table\0");
    assert_eq!(u128_at(&bytes, 16), GOLDEN, "{:#034x}", u128_at(&bytes, 16));
}

const GOLDEN: u128 = 0x6a21_af90_0f7e_2636_82c7_2442_785c_fe8c;

/// Without a digest its bytes are zero.
#[test]
fn golden_superblock_without_a_digest() {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    Superblock { digest: None, ..sample() }.encode(1, &mut bytes);
    assert!(all_zero(&bytes[field::DIGEST..PAGE_SIZE]));
    assert_eq!(u128_at(&bytes, 16), 0x8752_9711_8acf_46c8_d4e1_5e8f_15d0_5feb);
}

#[test]
fn every_flipped_bit_of_a_superblock_is_found() {
    let mut bytes = encoded(0);
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        // Hashing 20 KiB for each bit of the empty catalogue adds nothing: a sample of it is enough.
        if bit > 8 * 4608 && !bit.is_multiple_of(37) {
            continue;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(UntrustedSuperblock::new(&bytes).validate(0).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_newer_format_and_unknown_features_are_named() {
    let reseal = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = encoded(0);
        change(&mut bytes);
        put_u128(&mut bytes, field::CHECKSUM, 0);
        let checksum = hash::superblock(&bytes);
        put_u128(&mut bytes, field::CHECKSUM, checksum);
        UntrustedSuperblock::new(&bytes).validate(0)
    };
    let newer = reseal(&|bytes| put_u32(bytes, field::VERSION, 2));
    assert_eq!(newer, Err(SuperblockFault::Newer(2)));
    let unknown = reseal(&|bytes| put_u64(bytes, field::INCOMPAT, 4));
    assert_eq!(unknown, Err(SuperblockFault::UnknownFeatures(4)));
    let ro_compat = reseal(&|bytes| put_u64(bytes, field::RO_COMPAT, 4)).expect("readable");
    assert!(!ro_compat.writable());
    let reserved = reseal(&|bytes| bytes[3000] = 1);
    assert_eq!(reserved, Err(SuperblockFault::Malformed("reserved bytes")));
    let twin = reseal(&|bytes| put_u32(bytes, field::COPY, 3));
    assert_eq!(twin, Err(SuperblockFault::Malformed("copy index")));
    // An index of that many pages would take 64 GiB of memory.
    let sizes = reseal(&|bytes| {
        put_u32(bytes, PAGE_SIZE + 12, u32::MAX);
        put_u32(bytes, PAGE_SIZE + 16, u32::MAX);
    });
    assert_eq!(sizes, Err(SuperblockFault::Malformed("region sizes")));
    let sum = reseal(&|bytes| put_u64(bytes, field::COMMIT + 16, 4));
    assert_eq!(sum, Err(SuperblockFault::Malformed("commit page count")));
}

#[test]
fn blank_and_foreign_bytes_are_told_apart() {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    assert_eq!(UntrustedSuperblock::new(&bytes).validate(0), Err(SuperblockFault::Blank));
    bytes[0] = b'E';
    assert_eq!(UntrustedSuperblock::new(&bytes).validate(0), Err(SuperblockFault::Foreign));
}
