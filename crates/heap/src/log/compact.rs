//! Away from segments that are mostly garbage: what still counts moves, and the segment is free.
//!
//! The copies are a group that counts once the segment is gone, so the one store that retires its header moves
//! all of them at once: a cut leaves the old records or the new ones. One segment takes some microseconds,
//! under its stripe, and its records are held: whoever frees one of its objects meanwhile waits that long.

use std::sync::atomic::{AtomicU32, Ordering};

use wattkeep_persist::mutant;

use super::shelf::Shelf;
use super::{Log, OpenSegment, Position, SLOT_FIRST, SLOTS};
use crate::chunks::{Chunks, HELD, Place};
use crate::error::HeapError;
use crate::record::{Record, Word, phase_of};

/// A segment with more records that count is not worth it, unless the space is full.
const LIVE_MAX: usize = (SLOTS - SLOT_FIRST) as usize * 3 / 4;

/// One with more does not win a slot: a line of copies has a header. With fewer a copy needs one free segment at
/// most, and leaves one.
const FORCED_LIVE_MAX: usize = (SLOTS - SLOT_FIRST) as usize * 13 / 16;

const _: () = assert!(FORCED_LIVE_MAX.div_ceil(7) * 8 + 2 < (SLOTS - SLOT_FIRST) as usize);

/// Segments looked at for one that is wanted.
const TRIES_MAX: usize = 8;
/// The same when the space is full.
const FORCED_TRIES_MAX: usize = 256;

/// What came of a try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Freed,
    /// Too much of it counts, or somebody holds a record of it.
    Later,
}

/// A record that still counts, and who knows its place.
struct Live<'a> {
    record: Record,
    owner: Owner<'a>,
}

enum Owner<'a> {
    /// Held, and where the record was.
    Chunk(Place<'a>, Position),
    Run(&'a AtomicU32),
    Nobody,
}

/// The records of a segment that still count. Their chunks are held until this is dropped.
#[derive(Default)]
struct Victim<'a>(Vec<Live<'a>>);

impl Victim<'_> {
    /// The records count at these positions now.
    fn moved_to(mut self, positions: Vec<Position>) {
        for (live, position) in std::mem::take(&mut self.0).iter().zip(positions) {
            match &live.owner {
                Owner::Chunk(place, _) => place.slot().store(position.0, Ordering::Release),
                Owner::Run(run) => run.store(position.0, Ordering::Release),
                Owner::Nobody => {}
            }
        }
    }
}

impl Drop for Victim<'_> {
    fn drop(&mut self) {
        for live in &self.0 {
            if let Owner::Chunk(place, position) = &live.owner {
                place.slot().store(position.0, Ordering::Release);
            }
        }
    }
}

impl Log {
    /// Segments that were compacted.
    pub(crate) fn compacted(&self) -> u64 {
        self.lock_shelf().compacted
    }

    /// Tries to have more than the spare segments free.
    pub(super) fn compact_some(&self, shelf: &mut Shelf, chunks: &Chunks) -> Result<(), HeapError> {
        shelf.candidates.append(&mut *self.lock_crossed());
        for _ in 0..TRIES_MAX {
            if shelf.has_free() {
                return Ok(());
            }
            let (victim, ripening) = match shelf.candidates.pop_front() {
                Some(victim) => (victim, false),
                None => match shelf.ripening.pop_front() {
                    Some(victim) => (victim, true),
                    None => return Ok(()),
                },
            };
            if self.is_sealed(victim) && self.compact(shelf, chunks, victim, LIVE_MAX)? == Outcome::Later {
                shelf.ripening.push_back(victim);
                if ripening {
                    // The others became garbage later than this one.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The same where there is no other way: the emptiest segments first.
    pub(super) fn compact_forced(&self, shelf: &mut Shelf, chunks: &Chunks) -> Result<(), HeapError> {
        let sealed = (0..shelf.count).filter(|index| self.is_sealed(*index));
        let mut victims: Vec<(u32, u32)> =
            sealed.map(|index| (self.segment(index).garbage(), index)).collect();
        victims.sort_unstable_by_key(|victim| std::cmp::Reverse(*victim));
        for (_, victim) in victims.into_iter().take(FORCED_TRIES_MAX) {
            if shelf.has_free() {
                return Ok(());
            }
            self.compact(shelf, chunks, victim, FORCED_LIVE_MAX)?;
        }
        Ok(())
    }

    fn compact(
        &self,
        shelf: &mut Shelf,
        chunks: &Chunks,
        victim: u32,
        live_max: usize,
    ) -> Result<Outcome, HeapError> {
        let stripe = self.stripe(victim);
        let Some(live) = self.live(shelf, chunks, victim, live_max)? else {
            return Ok(Outcome::Later);
        };
        // Whatever fails below: copies may stand in the log, so the segment may not be moved again.
        self.segment(victim).sealed.store(0, Ordering::Relaxed);
        let seq = self.segment(victim).seq.load(Ordering::Relaxed);
        let mut full = Vec::new();
        let positions = self.copy(shelf, seq, &live.0, &mut full)?;
        let header = self.space.load(self.base(victim))?;
        let phase = phase_of(header);
        self.space.store(self.base(victim), Record::Retired { seq }.encode(false, phase))?;
        self.space.persist(self.base(victim), 8)?;
        live.moved_to(positions);
        drop(stripe);
        shelf.compacted += 1;
        shelf.by_seq.remove(&seq);
        shelf.free.push_back((victim, phase));
        for segment in full {
            self.put_down(shelf, chunks, segment)?;
        }
        Ok(Outcome::Freed)
    }

    /// The records that still count, unless there are too many, or somebody holds one, or a slot for one.
    fn live<'a>(
        &self,
        shelf: &Shelf,
        chunks: &'a Chunks,
        victim: u32,
        live_max: usize,
    ) -> Result<Option<Victim<'a>>, HeapError> {
        let page = self.read_page(victim)?;
        let own = self.segment(victim).seq.load(Ordering::Relaxed);
        let mut live = Victim::default();
        for slot in SLOT_FIRST..SLOTS {
            let damaged = || self.damaged("a record of the log", victim, slot);
            let word = Word::decode(page[slot as usize]).ok_or_else(damaged)?;
            let position = Position::new(victim, slot);
            let owner = match word.record {
                Record::Alloc { at } => match chunks.find(at) {
                    Some(place) => match place.hold(position.0) {
                        Ok(()) => Owner::Chunk(place, position),
                        Err(now) if now == position.0 | HELD => return Ok(None),
                        Err(_) => continue,
                    },
                    None => continue,
                },
                Record::Pad { was } if self.is_kept(chunks, was, position) => return Ok(None),
                Record::Exclude { seq, .. } if seq != own && shelf.by_seq.contains_key(&seq) => Owner::Nobody,
                Record::Slab { block, .. } => match chunks.block(block) {
                    Some((_, cells)) if cells.run().load(Ordering::Acquire) == position.0 => {
                        Owner::Run(cells.run())
                    }
                    _ => continue,
                },
                Record::Run { page, .. } => match chunks.run(page) {
                    Some(cells) if cells.run().load(Ordering::Acquire) == position.0 => {
                        // Its chunk's record may be in this segment, too, and held by now.
                        let chunk = cells.slots(1)[0].load(Ordering::Acquire);
                        if chunk & HELD != 0 && Position(chunk & !HELD).segment() != victim {
                            return Ok(None);
                        }
                        Owner::Run(cells.run())
                    }
                    _ => continue,
                },
                _ => continue,
            };
            live.0.push(Live { record: word.record, owner });
            if live.0.len() > live_max {
                return Ok(None);
            }
        }
        Ok(Some(live))
    }

    /// Copies records behind a header that names their segment, and makes them durable. Segments without room
    /// for a header and a record go to `full`.
    fn copy(
        &self,
        shelf: &mut Shelf,
        seq: u64,
        live: &[Live<'_>],
        full: &mut Vec<OpenSegment>,
    ) -> Result<Vec<Position>, HeapError> {
        let records: Vec<Record> = live.iter().map(|live| live.record).collect();
        let mut positions = Vec::with_capacity(live.len());
        while positions.len() < records.len() {
            let mut mover = match shelf.mover.take() {
                Some(mover) => mover,
                None => self.open_free(shelf)?,
            };
            mover.append_group(&self.space, Record::Moved { seq }, &records, &mut positions)?;
            if positions.len() < records.len() {
                full.push(mover);
            } else {
                shelf.mover = Some(mover);
            }
        }
        if !mutant::planted("retired-before-copies") {
            self.space.fence();
        }
        Ok(positions)
    }
}
