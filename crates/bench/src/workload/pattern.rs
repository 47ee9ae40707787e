//! Owns the bytes that workloads write: cheap, reproducible, and different everywhere.
//!
//! Invariant: the bytes are a function of the seed alone. They are no random numbers and no
//! checksum; they need only differ when step or place differ, and cost less than the copy.
//!
//! Does not know offsets, steps or records.

/// 2^64 divided by the golden ratio, odd: spreads neighbouring inputs.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What each of the eight words of a block grows by from one block to the next. All odd and all
/// different, so that no two blocks of a buffer are equal.
const GROWTH: [u64; 8] = [
    0x9E37_79B9_7F4A_7C15,
    0xBF58_476D_1CE4_E5B9,
    0x94D0_49BB_1331_11EB,
    0xD6E8_FEB8_6659_FD93,
    0xA076_1D64_78BD_642F,
    0xE703_7ED1_A0B4_28DB,
    0x8EBC_6AF0_9C88_C6E3,
    0x5899_65CC_7537_4CC3,
];

/// Bytes in a block: one cache line.
const BLOCK: usize = 64;

/// Makes one seed of two numbers.
#[inline]
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(GOLDEN) ^ b.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Fills `into` with the pattern of `seed`.
#[inline]
pub fn fill(seed: u64, into: &mut [u8]) {
    let mut words = [0_u64; 8];
    for (word, growth) in words.iter_mut().zip(GROWTH) {
        let spread = (seed ^ growth).wrapping_mul(GOLDEN);
        *word = spread ^ (spread >> 29);
    }
    let mut blocks = into.chunks_exact_mut(BLOCK);
    for block in &mut blocks {
        for ((place, word), growth) in block.chunks_exact_mut(8).zip(&mut words).zip(GROWTH) {
            place.copy_from_slice(&word.to_le_bytes());
            *word = word.wrapping_add(growth);
        }
    }
    for (place, word) in blocks.into_remainder().chunks_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes()[..place.len()]);
    }
}

/// Sum of all bytes of a buffer, in order: it changes when any of them does.
#[inline]
pub fn fold(bytes: &[u8]) -> u64 {
    // Four sums side by side, so that a 1 KB record costs a few nanoseconds.
    let mut sums = [0_u64; 4];
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (sum, word) in sums.iter_mut().zip(chunk.chunks_exact(8)) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            *sum = sum.rotate_left(1).wrapping_add(u64::from_le_bytes(bytes));
        }
    }
    let mut sum = mix(sums[0], sums[1]) ^ mix(sums[2], sums[3]).rotate_left(32);
    for &byte in chunks.remainder() {
        sum = sum.rotate_left(8) ^ u64::from(byte);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_blocks_of_a_page_are_equal_and_seeds_differ() {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let mut page = [0; 4096];
            fill(mix(seed, 7), &mut page);
            for block in page.chunks(BLOCK) {
                assert!(seen.insert(block.to_vec()));
            }
        }
    }

    #[test]
    fn a_shorter_buffer_holds_the_beginning_of_a_longer_one() {
        let mut long = [0; 200];
        fill(3, &mut long);
        for length in 0..200 {
            let mut short = vec![0; length];
            fill(3, &mut short);
            assert_eq!(short, long[..length]);
        }
    }

    #[test]
    fn the_sum_notices_each_single_byte() {
        let mut record = [0; 1003];
        fill(5, &mut record);
        let whole = fold(&record);
        for place in 0..record.len() {
            record[place] ^= 1;
            assert_ne!(fold(&record), whole, "byte {place}");
            record[place] ^= 1;
        }
    }
}
