//! Segments that nobody writes to: free ones, unfilled ones, and those worth compacting.
//!
//! The log grows by extents of pages that the directory lists. Segments of an extent are opened in rising
//! order the first time, so those that never were are a suffix.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;
use wattkeep_persist::LINE;

use super::{Log, OpenSegment, SEGMENTS_MAX, SLOT_FIRST, SLOTS};
use crate::chunks::Chunks;
use crate::error::HeapError;
use crate::layout::{DIRECTORY_AT, DIRECTORY_WORDS, PAGE};
use crate::pages::Pages;
use crate::record::{Record, SEQ_BITS, Word, is_exclusion};

/// A sealed segment with so much garbage is worth compacting.
pub(super) const CANDIDATE_GARBAGE: u32 = (SLOTS - SLOT_FIRST) / 3 * 2;

/// One with so many gaps is written to again.
pub(super) const PADS_WORTH_FILLING: u32 = (SLOTS - SLOT_FIRST) / 2;

/// Up to so many segments, 4 MiB, records are overwritten in place: the log stays in the processor's cache, and
/// its pages are dirty anyway. In a longer log an overwrite would make a page dirty for eight bytes.
/// Fewer in builds with assertions, so that tests come to both.
const IN_PLACE_SEGMENTS: u32 = if cfg!(debug_assertions) { 16 } else { 1024 };

/// Free segments that only compaction may take.
pub(super) const SPARES: usize = 2;

/// Pages of the first extent.
const EXTENT_PAGES_MIN: u32 = if cfg!(miri) { 8 } else { 16 };
/// Pages of the largest extents: 16 MiB.
const EXTENT_PAGES_MAX: u32 = 4096;

/// What becomes of segments between their writers.
#[derive(Default)]
pub(crate) struct Shelf {
    /// Segments of all extents.
    pub(super) count: u32,
    /// Extents in the directory.
    pub(super) extents: u64,
    pub(super) next_seq: u64,
    /// Free segments, and the phase of their last pass.
    pub(super) free: VecDeque<(u32, bool)>,
    /// Opened, not full, and nobody's.
    pub(super) unfilled: Vec<OpenSegment>,
    /// Sealed segments that are worth compacting, perhaps.
    pub(super) candidates: VecDeque<u32>,
    /// Sealed segments that were not worth it when they were looked at.
    pub(super) ripening: VecDeque<u32>,
    /// What compaction writes to.
    pub(super) mover: Option<OpenSegment>,
    /// Segments that it made free.
    pub(super) compacted: u64,
    /// Segments by their sequence.
    pub(super) by_seq: FxHashMap<u64, u32>,
}

impl Shelf {
    /// There are segments for threads.
    pub(super) fn has_free(&self) -> bool {
        self.free.len() > SPARES
    }
}

impl Log {
    pub(super) fn lock_shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().expect("no panic while it is held")
    }

    /// A segment to write to, with room to append so many records; a single one may fill a gap.
    pub(crate) fn acquire(
        &self,
        pages: &mut Pages,
        chunks: &Chunks,
        records: u32,
    ) -> Result<OpenSegment, HeapError> {
        let mut shelf = self.lock_shelf();
        if let Some(index) = shelf.unfilled.iter().rposition(|segment| segment.has_room(records)) {
            return Ok(shelf.unfilled.swap_remove(index));
        }
        if records == 1
            && let Some(gappy) = self.reopen(&shelf, chunks)?
        {
            return Ok(gappy);
        }
        if !shelf.has_free() {
            self.compact_some(&mut shelf, chunks)?;
        }
        if !shelf.has_free() {
            self.lengthen(&mut shelf, pages, chunks)?;
        }
        self.in_place.store(shelf.count <= IN_PLACE_SEGMENTS, Ordering::Relaxed);
        self.open_free(&mut shelf)
    }

    /// A sealed segment with gaps: nothing must be moved to write to it again.
    fn reopen(&self, _shelf: &Shelf, chunks: &Chunks) -> Result<Option<OpenSegment>, HeapError> {
        loop {
            let Some(index) = self.gappy.lock().expect("no panic while it is held").pop() else {
                return Ok(None);
            };
            if !self.is_sealed(index) {
                continue;
            }
            let segment = self.segment(index);
            let _stripe = self.stripe(index);
            segment.pads.store(0, Ordering::Relaxed);
            let pads = self.gaps(chunks, index)?;
            if !pads.is_empty() {
                segment.sealed.store(0, Ordering::Relaxed);
                let (base, phase) = self.place(index);
                return Ok(Some(OpenSegment { index, base, phase, next: SLOTS, pads }));
            }
        }
    }

    /// Has a free segment, whatever it takes.
    fn lengthen(&self, shelf: &mut Shelf, pages: &mut Pages, chunks: &Chunks) -> Result<(), HeapError> {
        let added = self.add_extent(shelf, pages);
        if matches!(added, Err(HeapError::OutOfSpace { .. })) {
            self.compact_forced(shelf, chunks)?;
            self.in_place.store(true, Ordering::Relaxed);
            return if shelf.has_free() { Ok(()) } else { added };
        }
        added
    }

    /// Nobody writes to the segment any more: it may be compacted. Exclusions in it are counted as dead, for
    /// they will be when what they exclude is gone.
    pub(super) fn seal(&self, shelf: &mut Shelf, chunks: &Chunks, index: u32) -> Result<(), HeapError> {
        let segment = self.segment(index);
        let _stripe = self.stripe(index);
        let pads = self.gaps(chunks, index)?.len() as u32;
        segment.pads.store(pads, Ordering::Relaxed);
        let page = self.read_page(index)?;
        let exclusions = page[SLOT_FIRST as usize..].iter().filter(|word| is_exclusion(**word)).count();
        segment.exclusions.store(exclusions as u32, Ordering::Relaxed);
        segment.sealed.store(1, Ordering::Relaxed);
        if pads >= PADS_WORTH_FILLING {
            self.gappy.lock().expect("no panic while it is held").push(index);
        }
        if segment.garbage() >= CANDIDATE_GARBAGE {
            shelf.candidates.push_back(index);
        }
        Ok(())
    }

    /// Takes back a segment that its writer leaves.
    pub(crate) fn give_back(&self, chunks: &Chunks, segment: OpenSegment) -> Result<(), HeapError> {
        self.put_down(&mut self.lock_shelf(), chunks, segment)
    }

    /// Seals the segment if it is full: a slot that was not written in this pass would hold a record again in
    /// the one after the next.
    pub(super) fn put_down(
        &self,
        shelf: &mut Shelf,
        chunks: &Chunks,
        segment: OpenSegment,
    ) -> Result<(), HeapError> {
        if segment.has_room(1) {
            shelf.unfilled.push(segment);
            return Ok(());
        }
        self.seal(shelf, chunks, segment.index)
    }

    /// Opens a free segment: the next pass over it begins.
    pub(super) fn open_free(&self, shelf: &mut Shelf) -> Result<OpenSegment, HeapError> {
        let &(index, phase) = shelf.free.front().expect("a free segment, an extent was added");
        let seq = shelf.next_seq;
        assert!(seq >> SEQ_BITS == 0, "sequences last for 10^15 records");
        let base = self.base(index);
        if !phase && !self.is_written(index)? {
            self.clear(base)?;
        }
        let phase = !phase;
        self.space.store(base, Record::Open { seq }.encode(false, phase))?;
        self.space.persist(base, 8)?;
        shelf.free.pop_front();
        shelf.next_seq += 1;
        shelf.by_seq.insert(seq, index);
        let segment = self.segment(index);
        segment.seq.store(seq, Ordering::Relaxed);
        segment.dead.store(0, Ordering::Relaxed);
        segment.pads.store(0, Ordering::Relaxed);
        segment.exclusions.store(0, Ordering::Relaxed);
        self.set_phase(index, phase);
        Ok(OpenSegment { index, base, phase, next: SLOT_FIRST, pads: Vec::new() })
    }

    /// Whether the segment was opened before.
    fn is_written(&self, index: u32) -> Result<bool, HeapError> {
        Ok(self.space.load(self.base(index))? != 0)
    }

    /// Makes a segment empty that was never opened: its page may have held objects.
    fn clear(&self, base: usize) -> Result<(), HeapError> {
        let mut page = [0u64; SLOTS as usize];
        self.space.read_bytes(base, bytemuck::cast_slice_mut(&mut page))?;
        if page.iter().any(|word| *word != 0) {
            self.space.write_bytes(base, &[0; PAGE as usize])?;
            self.space.persist(base, PAGE as usize)?;
        }
        Ok(())
    }

    /// Makes the log longer: by an eighth, so that the directory never fills.
    fn add_extent(&self, shelf: &mut Shelf, pages: &mut Pages) -> Result<(), HeapError> {
        let wanted = (shelf.count / 8).clamp(EXTENT_PAGES_MIN, EXTENT_PAGES_MAX);
        let room = SEGMENTS_MAX as u32 - shelf.count;
        let full = HeapError::OutOfSpace { bytes: u64::from(wanted) * PAGE };
        if shelf.extents == DIRECTORY_WORDS || room == 0 {
            return Err(full);
        }
        let mut count = wanted.min(room);
        let page = loop {
            match pages.take(count, 1) {
                Some(page) => break page,
                None if count == 1 => return Err(full),
                None => count /= 2,
            }
        };
        let entered = self.enter_extent(shelf.extents, page, count);
        if entered.is_err() {
            pages.give(page, count);
        }
        entered?;
        self.know_extent(shelf, page, count);
        for index in shelf.count - count..shelf.count {
            shelf.free.push_back((index, false));
        }
        Ok(())
    }

    /// Adds the segments of an extent to the table.
    pub(super) fn know_extent(&self, shelf: &mut Shelf, page: u32, pages: u32) {
        for offset in 0..pages {
            self.set_place(shelf.count + offset, page + offset, false);
        }
        shelf.count += pages;
        shelf.extents += 1;
    }

    /// Enters an extent into the directory, after the headers of its segments say that they are blank.
    fn enter_extent(&self, entry: u64, page: u32, pages: u32) -> Result<(), HeapError> {
        for offset in 0..pages {
            let header = (page + offset) as usize * PAGE as usize;
            if self.space.load(header)? != 0 {
                self.space.write_bytes(header, &[0; LINE])?;
                self.space.flush(header, LINE)?;
            }
        }
        self.space.fence();
        let at = (DIRECTORY_AT + entry * 8) as usize;
        self.space.store(at, Record::Extent { page, pages }.encode(false, false))?;
        self.space.persist(at, 8)?;
        Ok(())
    }

    /// The extents in the directory, in the order in which they were added.
    pub(super) fn read_directory(&self) -> Result<Vec<(u32, u32)>, HeapError> {
        let mut extents = Vec::new();
        let mut ended = false;
        for entry in 0..DIRECTORY_WORDS {
            let at = DIRECTORY_AT + entry * 8;
            let damaged = HeapError::Damaged { what: "the log's directory", at };
            match self.space.load(at as usize)? {
                0 => ended = true,
                word => match Word::decode(word) {
                    Some(Word { record: Record::Extent { page, pages }, .. }) if !ended && pages > 0 => {
                        extents.push((page, pages));
                    }
                    _ => return Err(damaged),
                },
            }
        }
        Ok(extents)
    }
}
