//! Writes that went astray, did not happen, or changed places, though the device said that they were
//! done.

use std::fmt;
use std::ops::Range;

use wattkeep_sim::random::Random;
use wattkeep_store::types::PAGE_SIZE;

use super::sample::{Ending, SEGMENT_PAGES, Sample, slot_offset};
use super::verdict::Found;
use crate::trials::guard::Bad;

/// What is wrong with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    StalePage,
    SwappedPages,
    PageElsewhere,
    StaleBatch,
    BatchElsewhere,
    SwappedSegments,
    StaleSuperblock,
    SuperblockElsewhere,
    StaleDigest,
    NewestStateLost,
}

const KINDS: [Kind; 10] = [
    Kind::StalePage,
    Kind::SwappedPages,
    Kind::PageElsewhere,
    Kind::StaleBatch,
    Kind::BatchElsewhere,
    Kind::SwappedSegments,
    Kind::StaleSuperblock,
    Kind::SuperblockElsewhere,
    Kind::StaleDigest,
    Kind::NewestStateLost,
];

/// One of so many tries goes on writing afterwards.
const GO_ON_EVERY: u64 = 3;

/// Counts of the verdicts.
#[derive(Default)]
pub(crate) struct Misplaced {
    refused: u64,
    named: u64,
    harmless: u64,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refused, named, harmless } = self;
        write!(f, "writes misplaced: {refused} refused, {named} pages named, {harmless} harmless")
    }
}

impl Misplaced {
    pub(crate) fn run(&mut self, seed: u64, count: u64) -> Result<(), Bad> {
        let made = [Ending::Closed, Ending::Killed, Ending::Reopened].map(|ending| Sample::new(seed, ending));
        let mut samples = Vec::new();
        for sample in made {
            samples.push(sample.map_err(Bad::Violated)?);
        }
        let mut random = Random::new(seed);
        let mut done = 0;
        while done < count {
            let chosen = random.below(samples.len() as u64) as usize;
            let (sample, number) = (&samples[chosen], random.number());
            let kind = KINDS[random.below(KINDS.len() as u64) as usize];
            if kind == Kind::NewestStateLost && chosen != 2 {
                continue;
            }
            if let Some(what) = misplace(sample, kind, &mut random) {
                done += 1;
                let verdict = self.judge(sample, kind, number);
                let story = |cause| format!("{kind:?} in sample {chosen}: {what}: {cause}");
                verdict.map_err(|cause| Bad::Violated(story(cause)))?;
            }
            sample.disk.rewind();
        }
        Ok(())
    }

    fn judge(&mut self, sample: &Sample, kind: Kind, number: u64) -> Result<(), String> {
        let mut accepted = false;
        for scan in [false, true] {
            let found = sample.look(scan)?;
            accepted = matches!(found, Found::Opened { .. });
            match (found, kind) {
                (Found::Refused(_), Kind::NewestStateLost) => self.refused += 1,
                (_, Kind::NewestStateLost) => return Err("an older state was opened".to_owned()),
                (
                    Found::Refused(error),
                    Kind::StaleSuperblock | Kind::SuperblockElsewhere | Kind::StaleDigest,
                ) => {
                    return Err(format!("one copy is what the others are for: {error}"));
                }
                (Found::Refused(_), _) => self.refused += 1,
                (Found::Opened { damaged, .. }, Kind::StalePage | Kind::SwappedPages)
                    if damaged.is_empty() =>
                {
                    return Err("every page reads as if it were whole".to_owned());
                }
                (Found::Opened { recovery, .. }, Kind::SuperblockElsewhere)
                    if recovery.superblock_copies_valid == 4 =>
                {
                    return Err("a copy in another's place counts as whole".to_owned());
                }
                (Found::Opened { damaged, .. }, _) if damaged.is_empty() => self.harmless += 1,
                (Found::Opened { damaged, .. }, _) => self.named += damaged.len() as u64,
            }
        }
        // What a scan has accepted, no later scan may refuse.
        if accepted && number.is_multiple_of(GO_ON_EVERY) { sample.go_on(number) } else { Ok(()) }
    }
}

/// Damages the disk and says how. `None` when these bytes were there anyway.
fn misplace(sample: &Sample, kind: Kind, random: &mut Random) -> Option<String> {
    let one = |random: &mut Random| sample.slots[random.below(sample.slots.len() as u64) as usize].1;
    let page = |slot: u32| slot_offset(slot)..slot_offset(slot) + PAGE_SIZE;
    let slots = ((sample.disk.bytes().len() - slot_offset(0)) / PAGE_SIZE) as u64;
    match kind {
        Kind::StalePage => stale(sample, page(one(random))),
        Kind::SwappedPages => swap(sample, page(one(random)), page(one(random))),
        Kind::PageElsewhere => {
            let from = one(random);
            copy(sample, page(from), slot_offset(random.below(slots) as u32))
        }
        Kind::StaleBatch => {
            let batches = sample.summaries();
            stale(sample, sample.batch_at(batches[random.below(batches.len() as u64) as usize]))
        }
        Kind::BatchElsewhere => {
            let batches = sample.summaries();
            let from = sample.batch_at(batches[random.below(batches.len() as u64) as usize]);
            let to = random.below(slots) as u32;
            // Half of them where a chain begins.
            let to = if random.chance(1, 2) { to / SEGMENT_PAGES * SEGMENT_PAGES } else { to };
            copy(sample, from, slot_offset(to))
        }
        Kind::SwappedSegments => {
            let segment = |random: &mut Random| {
                let first = random.below(slots) as u32 / SEGMENT_PAGES * SEGMENT_PAGES;
                slot_offset(first)..slot_offset(first + SEGMENT_PAGES)
            };
            swap(sample, segment(random), segment(random))
        }
        Kind::StaleSuperblock => {
            let copies = sample.superblocks();
            stale(sample, copies[random.below(4) as usize].clone())
        }
        Kind::SuperblockElsewhere => {
            let copies = sample.superblocks();
            let from = random.below(4) as usize;
            let to = (from + 1 + random.below(3) as usize) % 4;
            // Not over one of the newest two: the other one would be all that is left of the state.
            let newest = sample.newest_copies().contains(&copies[to]);
            if newest { None } else { copy(sample, copies[from].clone(), copies[to].start) }
        }
        Kind::StaleDigest => stale(sample, sample.digest()),
        Kind::NewestStateLost => {
            let done: Vec<_> =
                sample.newest_copies().into_iter().filter_map(|copy| stale(sample, copy)).collect();
            (done.len() == 2).then(|| done.join(", "))
        }
    }
}

/// The write did not happen.
fn stale(sample: &Sample, bytes: Range<usize>) -> Option<String> {
    let old = &sample.older[bytes.clone()];
    if sample.disk.bytes()[bytes.clone()] == *old {
        return None;
    }
    sample.disk.put(bytes.start, old);
    Some(format!("bytes {bytes:?} as they were before"))
}

/// The write went elsewhere, too.
fn copy(sample: &Sample, from: Range<usize>, to: usize) -> Option<String> {
    let bytes = sample.disk.bytes()[from.clone()].to_vec();
    let same = sample.disk.bytes().get(to..to + bytes.len()).is_none_or(|there| *there == bytes[..]);
    if same {
        return None;
    }
    sample.disk.put(to, &bytes);
    Some(format!("bytes {from:?} written to {to}"))
}

fn swap(sample: &Sample, one: Range<usize>, other: Range<usize>) -> Option<String> {
    let (first, second) =
        (sample.disk.bytes()[one.clone()].to_vec(), sample.disk.bytes()[other.clone()].to_vec());
    if first == second {
        return None;
    }
    sample.disk.put(one.start, &second);
    sample.disk.put(other.start, &first);
    Some(format!("bytes {one:?} and {other:?} changed places"))
}
