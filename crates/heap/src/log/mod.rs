//! The operation log: which chunks are allocated, and where their pages lie. All that is persistent of them.
//!
//! The log is segments of a page each: a header, then 504 words (see [`crate::record`]). A thread appends to
//! its own segment, so threads share no line. The order of records means nothing: a record counts until
//! another excludes it by its sequence and slot, or until it is overwritten in place. So threads need not
//! agree on an order, and segments may be cleaned in any.
//!
//! Invariants:
//! 1. A segment's sequence is never used twice.
//! 2. Every slot of a segment was written in each of its passes before the next begins, so a word of the
//!    right phase was written in this pass.
//! 3. A slot that an appended record excluded is not used again in the same pass.
//! 4. A record of a group stands behind the group's header in its line. Of a line any beginning may be durable:
//!    so the record is never there without its header, and is never taken for one of the group before.
//! 5. A segment that a thread holds open is not compacted; any other only under its stripe.
//! 6. A slot that held a chunk's record, and holds nothing, is the chunk's as long as the chunk says so: its
//!    next record is written there. Nobody else writes there, and the segment is not compacted.
//!
//! The modules, in the order of a record's life:

pub(crate) mod compact; // away from segments that are mostly garbage
pub(crate) mod replay; // back into DRAM
pub(crate) mod shelf; // segments to write to

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytemuck::Zeroable;
use wattkeep_persist::{LINE, Refused, Space, Zeroed, mutant};

use crate::chunks::{Chunks, HELD};
use crate::error::{HeapError, Quick};
use crate::layout::PAGE;
use crate::record::{Record, SLOT_BITS, padded};
use shelf::Shelf;

/// Words of a segment, the header's line among them.
pub(crate) const SLOTS: u32 = (PAGE / 8) as u32;
/// First slot that holds a record: the header has a line of its own.
pub(crate) const SLOT_FIRST: u32 = (LINE / 8) as u32;
/// Segments that a position can name.
pub(crate) const SEGMENTS_MAX: usize = if cfg!(miri) { 1 << 8 } else { 1 << 22 };

/// Slots of a line.
const LINE_SLOTS: u32 = (LINE / 8) as u32;
/// Room that a record of a group and its headers need at most.
pub(crate) const GROUP_ROOM: u32 = 3;

const _: () = assert!(SLOTS == 1 << SLOT_BITS && SLOTS.is_multiple_of(LINE_SLOTS));

const STRIPES: usize = 64;

/// What is known of a segment. The counts say what compaction is worth, and no more: two threads that change
/// one at once may lose a change.
#[derive(Zeroable)]
#[repr(C)]
pub(crate) struct Segment {
    /// Its sequence, while it holds records.
    seq: AtomicU64,
    /// Records in it that another one excludes.
    dead: AtomicU32,
    /// Records in it that were overwritten in place, and whose slots nobody has.
    pads: AtomicU32,
    /// Records in it that exclude others, since it was sealed.
    exclusions: AtomicU32,
    /// Not 0: full, and nobody's. Changed under the shelf's lock.
    sealed: AtomicU32,
}

impl Segment {
    /// Slots that compaction would win, once what is excluded here is gone.
    fn garbage(&self) -> u32 {
        [&self.dead, &self.pads, &self.exclusions].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }
}

/// The log of one heap.
pub(crate) struct Log {
    pub(crate) space: Arc<Space>,
    segments: Zeroed<[Segment; SEGMENTS_MAX]>,
    /// Of each segment, twice its page in the space, and the phase of its present pass. Apart from what changes
    /// often: every free looks here.
    places: Zeroed<[AtomicU32; SEGMENTS_MAX]>,
    stripes: Box<[Mutex<()>]>,
    shelf: Mutex<Shelf>,
    /// Segments that have come to be worth compacting.
    crossed: Mutex<VecDeque<u32>>,
    /// Segments that have come to be worth writing to again.
    gappy: Mutex<Vec<u32>>,
    /// Records are overwritten in place, not excluded by others: the log is short, or there is no room.
    in_place: AtomicBool,
}

/// The place of a record: segment and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u32);

impl Position {
    pub(crate) fn new(segment: u32, slot: u32) -> Self {
        Self(segment << SLOT_BITS | slot)
    }

    #[inline]
    pub(crate) fn segment(self) -> u32 {
        self.0 >> SLOT_BITS
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.0 & (SLOTS - 1)
    }
}

/// A segment that one thread appends to.
pub(crate) struct OpenSegment {
    pub(crate) index: u32,
    base: usize,
    phase: bool,
    /// The first slot that was not written in this pass.
    next: u32,
    /// Slots before it that hold nothing.
    pads: Vec<u32>,
}

impl OpenSegment {
    /// Slots that can be appended to.
    pub(crate) fn room(&self) -> u32 {
        SLOTS - self.next
    }

    /// Whether so many records can be appended; a single one may fill a gap.
    #[inline]
    pub(crate) fn has_room(&self, records: u32) -> bool {
        self.room() >= records || (records == 1 && !self.pads.is_empty())
    }

    #[inline]
    fn at(&self, slot: u32) -> usize {
        self.base + slot as usize * 8
    }

    /// Writes the record to any slot that holds nothing. It is durable on return.
    #[inline]
    pub(crate) fn write(&mut self, space: &Space, record: Record) -> Result<Position, Refused> {
        let slot = self.pads.last().copied().unwrap_or(self.next);
        debug_assert!(slot < SLOTS, "room was made before");
        write_word(space, self.at(slot), record.encode(false, self.phase))?;
        if self.pads.pop().is_none() {
            self.next += 1;
        }
        Ok(Position::new(self.index, slot))
    }

    /// How many records of a group there is room for, with its headers, if it begins here.
    #[inline]
    pub(crate) fn fits_of_group(&self) -> usize {
        let headers = if self.next % LINE_SLOTS == LINE_SLOTS - 1 { 2 } else { 1 };
        let first = self.next + headers;
        if first >= SLOTS {
            return 0;
        }
        let behind = first.next_multiple_of(LINE_SLOTS);
        (behind - first + (SLOTS - behind) / LINE_SLOTS * (LINE_SLOTS - 1)) as usize
    }

    /// Appends those records of a group that have no position yet, as many as there is room for, and begins to
    /// write them back. They are announced at once: a segment is a page.
    pub(crate) fn append_group(
        &mut self,
        space: &Space,
        header: Record,
        records: &[Record],
        positions: &mut Vec<Position>,
    ) -> Result<(), Refused> {
        let (begins, header) = (self.next, header.encode(true, self.phase));
        {
            let window = space.window(self.at(begins), self.room() as usize * 8)?;
            for record in &records[positions.len()..] {
                let headers = match (self.next == begins, self.next % LINE_SLOTS) {
                    // The record would be in the next line.
                    (true, slot) if slot == LINE_SLOTS - 1 => 2,
                    (true, _) | (false, 0) => 1,
                    (false, _) => 0,
                };
                if self.room() < headers + 1 {
                    break;
                }
                for _ in 0..headers {
                    window.store(self.at(self.next), header)?;
                    self.next += 1;
                }
                window.store(self.at(self.next), record.encode(true, self.phase))?;
                positions.push(Position::new(self.index, self.next));
                self.next += 1;
            }
        }
        space.flush(self.at(begins), (self.next - begins) as usize * 8)
    }

    /// Appends two records in one line, so that one flush makes them durable.
    pub(crate) fn write_pair(&mut self, space: &Space, records: [Record; 2]) -> Result<(), Refused> {
        if self.next % LINE_SLOTS == LINE_SLOTS - 1 {
            let at = self.at(self.next);
            space.store(at, Record::Pad { was: 0 }.encode(false, self.phase))?;
            // First, for it is in another line than theirs: a gap before records that count would be damage.
            space.persist(at, 8)?;
            self.pads.push(self.next);
            self.next += 1;
        }
        let at = self.at(self.next);
        for record in records {
            space.store(self.at(self.next), record.encode(false, self.phase))?;
            self.next += 1;
        }
        space.persist(at, 16)
    }

    /// Has a slot of this segment to write to, which its last owner leaves.
    pub(crate) fn fill_later(&mut self, position: Position) {
        debug_assert!(position.segment() == self.index, "one's own segment");
        self.pads.push(position.slot());
    }
}

/// Writes a word of the log. It is durable on return.
#[inline(always)]
fn write_word(space: &Space, at: usize, word: u64) -> Result<(), Refused> {
    space.store(at, word)?;
    if !mutant::planted("record-never-flushed") {
        space.flush(at, 8)?;
    }
    space.fence();
    Ok(())
}

impl Log {
    /// A log without segments.
    pub(crate) fn new(space: Arc<Space>) -> Self {
        Self {
            space,
            segments: Zeroed::new(),
            places: Zeroed::new(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            shelf: Mutex::new(Shelf::default()),
            crossed: Mutex::default(),
            gappy: Mutex::default(),
            in_place: AtomicBool::new(true),
        }
    }

    /// How many segments there are.
    pub(crate) fn segments(&self) -> u64 {
        self.lock_shelf().count.into()
    }

    #[inline]
    fn segment(&self, index: u32) -> &Segment {
        &self.segments[index as usize]
    }

    /// Where the segment begins, and the phase of its present pass.
    #[inline(always)]
    fn place(&self, index: u32) -> (usize, bool) {
        let place = self.places[index as usize].load(Ordering::Relaxed);
        ((place >> 1) as usize * PAGE as usize, place & 1 != 0)
    }

    fn set_place(&self, index: u32, page: u32, phase: bool) {
        self.places[index as usize].store(page << 1 | u32::from(phase), Ordering::Relaxed);
    }

    fn set_phase(&self, index: u32, phase: bool) {
        self.set_place(index, (self.base(index) / PAGE as usize) as u32, phase);
    }

    fn base(&self, index: u32) -> usize {
        self.place(index).0
    }

    fn stripe_of(segment: u32) -> usize {
        segment as usize % STRIPES
    }

    /// Keeps the segment from being compacted. Records whose chunk is marked as [`crate::chunks::HELD`] are
    /// not moved anyway.
    pub(crate) fn stripe(&self, segment: u32) -> MutexGuard<'_, ()> {
        self.stripes[Self::stripe_of(segment)].lock().expect("no panic while it is held")
    }

    /// The same for two of them.
    pub(crate) fn stripes(&self, segments: [u32; 2]) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let [first, second] = segments.map(Self::stripe_of);
        let low = self.stripe(first.min(second) as u32);
        let high = (first != second).then(|| self.stripe(first.max(second) as u32));
        (low, high)
    }

    /// What excludes the record at `position`. Under the stripe of its segment.
    pub(crate) fn exclusion(&self, position: Position) -> Record {
        let seq = self.segment(position.segment()).seq.load(Ordering::Relaxed);
        Record::Exclude { seq, slot: position.slot() }
    }

    /// Counts a record that was excluded.
    pub(crate) fn count_dead(&self, position: Position) {
        let segment = self.segment(position.segment());
        segment.dead.store(segment.dead.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if segment.garbage() == shelf::CANDIDATE_GARBAGE {
            self.lock_crossed().push_back(position.segment());
        }
    }

    /// The same for one that was overwritten, and whose slot nobody has.
    pub(crate) fn count_pad(&self, position: Position) {
        let segment = self.segment(position.segment());
        let pads = segment.pads.load(Ordering::Relaxed) + 1;
        segment.pads.store(pads, Ordering::Relaxed);
        if pads == shelf::PADS_WORTH_FILLING {
            self.gappy.lock().expect("no panic while it is held").push(position.segment());
        }
        if segment.garbage() == shelf::CANDIDATE_GARBAGE {
            self.lock_crossed().push_back(position.segment());
        }
    }

    fn lock_crossed(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.crossed.lock().expect("no panic while it is held")
    }

    fn is_sealed(&self, segment: u32) -> bool {
        self.segment(segment).sealed.load(Ordering::Relaxed) != 0
    }

    fn read_page(&self, segment: u32) -> Result<[u64; SLOTS as usize], HeapError> {
        let mut page = [0; SLOTS as usize];
        self.space.read_bytes(self.base(segment), bytemuck::cast_slice_mut(&mut page))?;
        Ok(page)
    }

    fn damaged(&self, what: &'static str, segment: u32, slot: u32) -> HeapError {
        HeapError::Damaged { what, at: self.base(segment) as u64 + u64::from(slot) * 8 }
    }

    /// Whether records are to be overwritten, not excluded.
    #[inline]
    pub(crate) fn frees_in_place(&self) -> bool {
        self.in_place.load(Ordering::Relaxed)
    }

    /// Overwrites what is at `position`, in whatever segment that is. Durable on return. For whoever holds the
    /// record (see [`crate::chunks::HELD`]) or the stripe of its segment.
    #[inline(always)]
    pub(crate) fn overwrite(&self, position: Position, record: Record) -> Quick<()> {
        let (base, phase) = self.place(position.segment());
        let (at, word) = (base + position.slot() as usize * 8, record.encode(false, phase));
        if self.space.store_at_once(at, word) { Ok(()) } else { self.overwrite_announced(at, word) }
    }

    #[inline(never)]
    fn overwrite_announced(&self, at: usize, word: u64) -> Quick<()> {
        Ok(write_word(&self.space, at, word)?)
    }

    /// Overwrites a record in place, and leaves its slot to whoever writes to its segment. Under its stripe.
    pub(crate) fn erase(&self, position: Position) -> Quick<()> {
        self.overwrite(position, Record::Pad { was: 0 })?;
        self.count_pad(position);
        Ok(())
    }

    /// Whether a slot that held the record of `was`, and that holds nothing, belongs to whoever has that chunk.
    /// What says no once says no as long as nobody writes there.
    fn is_kept(&self, chunks: &Chunks, was: u64, position: Position) -> bool {
        was != 0
            && chunks
                .find(was)
                .is_some_and(|place| place.slot().load(Ordering::Acquire) & !HELD == position.0)
    }

    /// Slots of a segment that nobody writes to, and that hold nothing and are nobody's. Under its stripe.
    fn gaps(&self, chunks: &Chunks, segment: u32) -> Result<Vec<u32>, HeapError> {
        let page = self.read_page(segment)?;
        let mut gaps = Vec::with_capacity(SLOTS as usize);
        for slot in (SLOT_FIRST..SLOTS).rev() {
            let word = page[slot as usize];
            if let Some(was) = padded(word)
                && !self.is_kept(chunks, was, Position::new(segment, slot))
                // It may have held a record again, and the chunk's slot may have told of what came then.
                && self.space.load(self.base(segment) + slot as usize * 8)? == word
            {
                gaps.push(slot);
            }
        }
        Ok(gaps)
    }
}
