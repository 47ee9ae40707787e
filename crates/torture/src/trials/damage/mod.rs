//! Damages a store, bit by bit and write by write: no damage may be silent.
//!
//! Ten of eleven tries flip one bit: every bit of all superblock copies, of the digest and of every
//! summary, then bits of live pages and of free space. One of eleven puts a write where it does not
//! belong, or leaves out one that was reported as done. Every time the store must refuse what is
//! damaged, or hand out the exact image. Flips of free space, of a digest and of one superblock copy
//! are harmless by promise: the store must open as if nothing had happened.

mod misplace;
mod sample;
mod verdict;

use std::ops::Range;

use wattkeep_sim::random::Random;
use wattkeep_store::types::PAGE_SIZE;
use wattkeep_store::{OpenError, ReadError, Store};

use self::misplace::Misplaced;
use self::sample::{Ending, Sample, slot_offset};
use super::guard::{Bad, guarded};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Flips of one store, before a new one is made; every bit of its metadata is among them.
const FLIPS_PER_STORE: u64 = 1_200_000;

/// What a bit belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Superblock,
    Digest,
    Summary,
    Data,
    Free,
}

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut flipped = [0u64; 5];
    let mut misplaced = Misplaced::default();
    while outcome.tried < count && outcome.bad() == 0 {
        let seed = random.number();
        let tries = (count - outcome.tried).min(FLIPS_PER_STORE / 10 * 11);
        let flips = tries - tries / 11;
        let story = format!("store of seed {seed}");
        let done = guarded(outcome, &story, || {
            flip_bits(seed, flips, &mut flipped)?;
            misplaced.run(seed, tries / 11)
        });
        outcome.tried += if done.is_some() { tries } else { 1 };
    }
    let [superblocks, digest, summaries, data, free] = flipped;
    outcome.note = format!(
        "bits: {superblocks} of superblocks, {digest} of the digest, {summaries} of summaries, {data} of \
         pages, {free} of free space; {misplaced}"
    );
}

/// Every bit of the metadata once, if there are tries enough, else a sample; the rest in pages and free
/// space.
fn flip_bits(seed: u64, flips: u64, flipped: &mut [u64; 5]) -> Result<(), Bad> {
    let sample = Sample::new(seed, Ending::Closed).map_err(Bad::Violated)?;
    let mut random = Random::new(seed);
    let mut metadata: Vec<(Part, Range<usize>)> = vec![(Part::Digest, sample.digest())];
    metadata.extend(sample.superblocks().into_iter().map(|bytes| (Part::Superblock, bytes)));
    let page = |slot: u32| slot_offset(slot)..slot_offset(slot) + PAGE_SIZE;
    metadata.extend(sample.summaries().into_iter().map(|slot| (Part::Summary, page(slot))));
    let bits: u64 = metadata.iter().map(|(_, bytes)| bytes.len() as u64 * 8).sum();
    let stride = if bits < flips { 1 } else { (bits * 5).div_ceil(flips * 4) };
    let mut left = flips;
    // From a random bit on, so that no two samples are the same.
    let mut skip = random.below(stride);
    for (part, bytes) in metadata {
        let bits = bytes.len() as u64 * 8;
        while skip < bits {
            flip(&sample, part, bytes.start + (skip / 8) as usize, skip as u32 % 8)?;
            flipped[part as usize] += 1;
            left -= 1;
            skip += stride;
        }
        skip -= bits;
    }
    let (mut store, _) = Store::open_read_only(sample.disk.clone()).map_err(|e| Bad::Lost(e.to_string()))?;
    for number in 0..left {
        let bit = random.below(8) as u32;
        let part = if number % 64 == 0 { Part::Free } else { Part::Data };
        if part == Part::Free {
            let offset = free_byte(&sample, &mut random);
            flip(&sample, part, offset, bit)?;
        } else {
            let (page, slot) = sample.slots[random.below(sample.slots.len() as u64) as usize];
            let offset = slot_offset(slot) + random.below(PAGE_SIZE as u64) as usize;
            sample.disk.flip_bit(offset, bit);
            match store.read_page_blocking(page, &mut [0; PAGE_SIZE]) {
                Err(ReadError::Damaged { page: named, .. }) if named == page => {}
                other => return Err(silent(part, offset, bit, &format!("{page} was read: {other:?}"))),
            }
            sample.disk.rewind();
        }
        flipped[part as usize] += 1;
    }
    Ok(())
}

fn silent(part: Part, offset: usize, bit: u32, cause: &str) -> Bad {
    Bad::Violated(format!("{part:?}, byte {offset}, bit {bit} flipped: {cause}"))
}

/// A byte that no promise covers: between the superblock copies, or in a segment without a batch.
fn free_byte(sample: &Sample, random: &mut Random) -> usize {
    let len = sample.disk.bytes().len() as u64;
    let used: Vec<_> = sample.superblocks();
    let batches: Vec<_> = sample.summaries().into_iter().map(|slot| sample.batch_at(slot)).collect();
    loop {
        let byte = random.below(len) as usize;
        let covered =
            used.iter().chain(&batches).chain([&sample.digest()]).any(|bytes| bytes.contains(&byte));
        if !covered {
            return byte;
        }
    }
}

fn flip(sample: &Sample, part: Part, offset: usize, bit: u32) -> Result<(), Bad> {
    sample.disk.flip_bit(offset, bit);
    let verdict = match part {
        // Found, and the other copies are there.
        Part::Superblock => sample.must_be_whole(false).and_then(|recovery| {
            let valid = recovery.superblock_copies_valid;
            if valid == 3 { Ok(()) } else { Err(format!("{valid} copies count as whole")) }
        }),
        // Found, and the log is scanned.
        Part::Digest => sample.must_be_whole(false).and_then(|recovery| {
            if recovery.by_digest { Err("the digest was believed".to_owned()) } else { Ok(()) }
        }),
        Part::Summary => match Store::open_scanned(sample.disk.clone()) {
            Err(OpenError::Incomplete { .. }) => Ok(()),
            Err(error) => Err(format!("refused for another reason: {error}")),
            // The batch held nothing that is in the image.
            Ok(_) => sample.must_be_whole(true).map(drop),
        },
        Part::Data | Part::Free => sample.must_be_whole(true).map(drop),
    };
    sample.disk.rewind();
    verdict.map_err(|cause| silent(part, offset, bit, &cause))
}
