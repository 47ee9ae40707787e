//! From the log back into DRAM.
//!
//! The log is read twice: first what excludes records, and the runs of pages; then the chunks that are left.
//! Several threads read, each its own segments. Nothing is written before everything was read and made
//! sense: a damaged heap is refused as it is.
//!
//! What a cut may leave is told from damage so: a word is written whole, so one that fails its check is
//! damage. Words of a group may be missing if the group does not count; a missing word before a record that
//! does count is damage, and so is a record of a group without the group's header before it in its line.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use wattkeep_persist::mutant;

use super::{LINE_SLOTS, Log, OpenSegment, Position, SLOT_FIRST, SLOTS};
use crate::chunks::{Chunks, FREE, POSITION_MIN};
use crate::error::HeapError;
use crate::layout::{BLOCK, BLOCK_PAGES, PAGE};
use crate::pages::Pages;
use crate::record::{LANES_MAX, Record, Word, phase_of};

/// Segments from which on a second thread is worth its start.
const PARALLEL_SEGMENTS: usize = 64;
const THREADS_MAX: usize = 8;

/// A segment that holds records.
#[derive(Clone, Copy)]
struct Held {
    index: u32,
    phase: bool,
    /// First slot behind the last word of this pass; known after the first reading.
    next: u32,
}

/// What a thread found in its segments.
#[derive(Default)]
struct Found {
    /// Records of blocks and runs.
    runs: Vec<(Position, Record)>,
    /// Records that do not count, and gaps: nothing is to be left of them.
    discarded: Vec<Position>,
    pads: Vec<Position>,
}

/// How the log is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    /// Nothing is written, and nothing can be afterwards.
    pub(crate) read_only: bool,
    /// Records that are damaged or missing are passed over: objects will be traced.
    pub(crate) tolerant: bool,
}

/// What the log says.
#[derive(Default)]
pub(crate) struct Replayed {
    /// Runs of pages whose chunk nobody has, by their first page.
    pub(crate) vacant: Vec<u32>,
    /// Blocks that are cut, with their class.
    pub(crate) blocks: Vec<(u32, u8)>,
}

/// Which records are excluded: a bit each.
struct Excluded(Box<[AtomicU64]>);

impl Excluded {
    fn new(segments: u32) -> Self {
        Self(bytemuck::zeroed_slice_box(segments as usize * SLOTS as usize / 64))
    }

    fn set(&self, position: Position) {
        self.0[position.0 as usize / 64].fetch_or(1 << (position.0 % 64), Ordering::Relaxed);
    }

    fn get(&self, position: Position) -> bool {
        self.0[position.0 as usize / 64].load(Ordering::Relaxed) >> (position.0 % 64) & 1 == 1
    }
}

/// One reading of the log.
struct Replay<'a> {
    log: &'a Log,
    chunks: &'a Chunks,
    by_seq: rustc_hash::FxHashMap<u64, u32>,
    /// For each lane, the highest transaction that counts.
    published: &'a [u64; LANES_MAX as usize],
    excluded: Excluded,
    how: How,
}

impl Log {
    /// Reads the log: afterwards `chunks` and `pages` are what they were, and segments can be written.
    pub(crate) fn replay(
        &self,
        chunks: &Chunks,
        pages: &mut Pages,
        published: &[u64; LANES_MAX as usize],
        how: How,
    ) -> Result<Replayed, HeapError> {
        let mut held = self.read_headers(pages)?;
        let (by_seq, count) = {
            let shelf = self.lock_shelf();
            (shelf.by_seq.clone(), shelf.count)
        };
        let replay = Replay { log: self, chunks, by_seq, published, how, excluded: Excluded::new(count) };
        let first = in_parallel(&mut held, |held| replay.read_exclusions(held))?;
        let mut runs: Vec<_> = first.iter().flat_map(|found| found.runs.iter().copied()).collect();
        runs.retain(|(position, _)| !replay.excluded.get(*position));
        let mut replayed = replay.add_runs(&runs, pages)?;
        let second = in_parallel(&mut held, |held| replay.read_chunks(held))?;
        replayed.vacant.retain(|page| {
            let cells = chunks.run(*page).expect("just added");
            cells.slots(1)[0].load(Ordering::Relaxed) == FREE
        });
        let found = || first.iter().chain(&second);
        if how.read_only {
            return Ok(replayed);
        }
        self.discard(&held, found().flat_map(|found| found.discarded.iter().copied()).collect())?;
        let pads = found().flat_map(|found| found.pads.iter().chain(&found.discarded).copied()).collect();
        self.sort_held(&held, chunks, pads)?;
        Ok(replayed)
    }

    /// Reads the directory and the headers: which segments hold records, which are free.
    fn read_headers(&self, pages: &mut Pages) -> Result<Vec<Held>, HeapError> {
        let mut shelf = self.lock_shelf();
        let mut held = Vec::new();
        for (page, count) in self.read_directory()? {
            if !pages.take_at(page, count) {
                return Err(HeapError::Damaged { what: "the log's directory", at: u64::from(page) * PAGE });
            }
            let first = shelf.count;
            self.know_extent(&mut shelf, page, count);
            let mut blank = false;
            for index in first..first + count {
                let header = self.read_header(index)?;
                if blank && header.is_some() {
                    return Err(self.damaged("a segment's header", index, 0));
                }
                match header {
                    None => {
                        blank = true;
                        shelf.free.push_back((index, false));
                    }
                    Some(Word { record: Record::Retired { seq }, phase, .. }) => {
                        shelf.next_seq = shelf.next_seq.max(seq + 1);
                        shelf.free.push_back((index, phase));
                    }
                    Some(Word { record: Record::Open { seq }, phase, .. }) => {
                        shelf.next_seq = shelf.next_seq.max(seq + 1);
                        if shelf.by_seq.insert(seq, index).is_some() {
                            return Err(self.damaged("a segment's header", index, 0));
                        }
                        self.segment(index).seq.store(seq, Ordering::Relaxed);
                        self.set_phase(index, phase);
                        held.push(Held { index, phase, next: SLOT_FIRST });
                    }
                    Some(_) => return Err(self.damaged("a segment's header", index, 0)),
                }
            }
        }
        Ok(held)
    }

    fn read_header(&self, index: u32) -> Result<Option<Word>, HeapError> {
        match self.space.load(self.base(index))? {
            0 => Ok(None),
            word => match Word::decode(word) {
                Some(word) => Ok(Some(word)),
                None => Err(self.damaged("a segment's header", index, 0)),
            },
        }
    }

    /// Overwrites what does not count, a group's header behind its records: a cut in between must not leave
    /// records without it.
    fn discard(&self, held: &[Held], mut discarded: Vec<Position>) -> Result<(), HeapError> {
        discarded.sort_unstable();
        if !mutant::planted("torn-group-padded-from-its-header") {
            discarded.reverse();
        }
        let phases: rustc_hash::FxHashMap<u32, bool> =
            held.iter().map(|held| (held.index, held.phase)).collect();
        for position in discarded {
            let at = self.base(position.segment()) + position.slot() as usize * 8;
            self.space.store(at, Record::Pad { was: 0 }.encode(false, phases[&position.segment()]))?;
            self.space.flush(at, 8)?;
        }
        self.space.fence();
        Ok(())
    }

    /// Segments with room are written to again.
    fn sort_held(&self, held: &[Held], chunks: &Chunks, mut pads: Vec<Position>) -> Result<(), HeapError> {
        let mut shelf = self.lock_shelf();
        pads.sort_unstable();
        let mut pads = pads.as_slice();
        // Both rise: extents are read in the order of their segments.
        for held in held {
            let count = pads.partition_point(|pad| pad.segment() <= held.index);
            let (ours, others) = pads.split_at(count);
            pads = others;
            if held.next < SLOTS {
                shelf.unfilled.push(OpenSegment {
                    index: held.index,
                    base: self.base(held.index),
                    phase: held.phase,
                    next: held.next,
                    pads: ours.iter().map(|pad| pad.slot()).collect(),
                });
            } else {
                self.seal(&mut shelf, chunks, held.index)?;
            }
        }
        Ok(())
    }
}

/// Calls `read` on pieces of `held`, each in a thread of its own.
fn in_parallel(
    held: &mut [Held],
    read: impl Fn(&mut [Held]) -> Result<Found, HeapError> + Sync,
) -> Result<Vec<Found>, HeapError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    if threads == 1 || held.len() < PARALLEL_SEGMENTS {
        return Ok(vec![read(held)?]);
    }
    let piece = held.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let readers: Vec<_> = held.chunks_mut(piece).map(|piece| scope.spawn(|| read(piece))).collect();
        readers.into_iter().map(|reader| reader.join().expect("a reader does not panic")).collect()
    })
}

impl Replay<'_> {
    /// Whether what follows this header of a group counts.
    fn counts(&self, header: Record) -> bool {
        match header {
            Record::Group { lane, tid } => tid <= self.published[lane as usize],
            Record::Moved { seq } => !self.by_seq.contains_key(&seq),
            _ => false,
        }
    }

    /// First reading: exclusions, runs, and what does not count.
    fn read_exclusions(&self, segments: &mut [Held]) -> Result<Found, HeapError> {
        let mut found = Found::default();
        for held in segments {
            let page = self.log.read_page(held.index)?;
            let mut gaps = Vec::new();
            let mut group = None;
            for slot in SLOT_FIRST..SLOTS {
                let word = page[slot as usize];
                let position = Position::new(held.index, slot);
                if slot % LINE_SLOTS == 0 {
                    group = None;
                }
                if phase_of(word) != held.phase {
                    gaps.push(position);
                    continue;
                }
                held.next = slot + 1;
                let damaged = || self.log.damaged("a record of the log", held.index, slot);
                let word = match Word::decode(word) {
                    Some(word) => word,
                    None if self.how.tolerant => {
                        found.discarded.push(position);
                        continue;
                    }
                    None => return Err(damaged()),
                };
                if matches!(word.record, Record::Group { .. } | Record::Moved { .. }) {
                    group = Some(self.counts(word.record));
                }
                if word.grouped && !group.or(self.how.tolerant.then_some(false)).ok_or_else(damaged)? {
                    found.discarded.push(position);
                    continue;
                }
                if matches!(word.record, Record::Pad { .. }) {
                    found.pads.push(position);
                    continue;
                }
                if let Some(gap) = gaps.first().filter(|_| !self.how.tolerant) {
                    return Err(self.log.damaged("the middle of the log", held.index, gap.slot()));
                }
                match word.record {
                    Record::Exclude { seq, slot } => {
                        if let Some(segment) = self.by_seq.get(&seq) {
                            self.excluded.set(Position::new(*segment, slot));
                        }
                    }
                    Record::Slab { .. } | Record::Run { .. } => found.runs.push((position, word.record)),
                    Record::Alloc { .. } | Record::Group { .. } | Record::Moved { .. } => {}
                    _ => return Err(damaged()),
                }
            }
            gaps.retain(|gap| gap.slot() < held.next);
            found.discarded.append(&mut gaps);
        }
        Ok(found)
    }

    /// Blocks and runs, none over another. No run has a chunk yet.
    fn add_runs(&self, runs: &[(Position, Record)], pages: &mut Pages) -> Result<Replayed, HeapError> {
        let mut replayed = Replayed::default();
        for &(position, record) in runs {
            let (page, count) = match record {
                Record::Slab { block, class } if usize::from(class) < crate::classes::CLASSES => {
                    (block.saturating_mul(BLOCK_PAGES), BLOCK_PAGES)
                }
                Record::Run { page, pages } => (page, pages),
                _ => (0, 0),
            };
            if count == 0 || !pages.take_at(page, count) {
                return Err(self.log.damaged("a run's record", position.segment(), position.slot()));
            }
            match record {
                Record::Slab { block, class } => {
                    self.chunks.cut(block, class, position.0);
                    replayed.blocks.push((block, class));
                }
                _ => {
                    self.chunks.add_run(page, count, position.0);
                    replayed.vacant.push(page);
                }
            }
        }
        Ok(replayed)
    }

    /// Second reading: the chunks that are left.
    fn read_chunks(&self, segments: &mut [Held]) -> Result<Found, HeapError> {
        let mut found = Found::default();
        for held in segments {
            let page = self.log.read_page(held.index)?;
            let mut counts = false;
            let mut dead = 0;
            for slot in SLOT_FIRST..held.next {
                let word = page[slot as usize];
                if phase_of(word) != held.phase {
                    continue;
                }
                let damaged = || self.log.damaged("a record of the log", held.index, slot);
                let Some(word) = Word::decode(word) else {
                    // The first reading passed it over.
                    continue;
                };
                let position = Position::new(held.index, slot);
                match word.record {
                    Record::Group { .. } | Record::Moved { .. } => counts = self.counts(word.record),
                    Record::Alloc { at } if !word.grouped || counts => {
                        if self.excluded.get(position) {
                            dead += 1;
                        } else if !self.allocate(at, position).ok_or_else(damaged)? {
                            found.discarded.push(position);
                        }
                    }
                    Record::Slab { .. } | Record::Run { .. } if self.excluded.get(position) => dead += 1,
                    _ => {}
                }
            }
            self.log.segment(held.index).dead.store(dead, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Marks a chunk as allocated. `Some(false)`: its run was given up while it was being freed. `None`:
    /// that cannot be.
    fn allocate(&self, at: u64, position: Position) -> Option<bool> {
        let Some(place) = self.chunks.find(at) else {
            let uncut = self.chunks.block((at / BLOCK) as u32).is_none();
            return (uncut && at.is_multiple_of(PAGE)).then_some(false);
        };
        let slot: &AtomicU32 = place.slot();
        let free = slot.compare_exchange(FREE, position.0, Ordering::Relaxed, Ordering::Relaxed);
        debug_assert!(position.0 >= POSITION_MIN, "slots begin behind the header");
        free.is_ok().then_some(true)
    }
}
