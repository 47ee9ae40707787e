//! A lane: the log of one transaction at a time, and where its next record goes.
//!
//! Invariant: what lies before a cursor is part of the log until the lane is truncated. A record counts only
//! with its commit slot (redo), or with a TID above the lane's done mark (undo): so a cursor need not be
//! durable, and what was appended in vain is overwritten.
//!
//! Never holds a window while it waits for another.

use std::sync::Arc;

use wattkeep_persist::{LINE, Refused, Space, WORD, Window, bytemuck, mutant};

use crate::layout::{LaneLayout, Layout, Part};
use crate::logged::LaneCounters;
use crate::options::Logging;
use crate::record::{Kind, Mark, OBJECT_RECORD, ObjectRecord, Record, Slot, WORD_RECORD, WordRecord, mix};

/// Stores are announced in pieces of this size at most: a page.
pub(crate) const PAGE: usize = 4096;

/// Stores bytes of any length, announcing a page at a time: a large object must not need a large budget.
#[inline]
pub(crate) fn put(space: &Space, at: usize, bytes: &[u8]) -> Result<(), Refused> {
    if at % PAGE + bytes.len() <= PAGE { space.write_bytes(at, bytes) } else { put_pages(space, at, bytes) }
}

fn put_pages(space: &Space, at: usize, bytes: &[u8]) -> Result<(), Refused> {
    let mut done = 0;
    while done < bytes.len() {
        let piece = (PAGE - (at + done) % PAGE).min(bytes.len() - done);
        space.write_bytes(at + done, &bytes[done..done + piece])?;
        done += piece;
    }
    Ok(())
}

/// Bytes of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes([usize; Part::ALL.len()]);

impl Bytes {
    pub(crate) fn of(&self, part: Part) -> usize {
        self.0[part as usize]
    }

    pub(crate) fn add(&mut self, part: Part, bytes: usize) {
        self.0[part as usize] += bytes;
    }

    fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// Records that are made in DRAM and stored together.
#[derive(Debug, Default)]
struct Buffers {
    word_records: Vec<WordRecord>,
    words: Vec<[u8; WORD]>,
    object_records: Vec<ObjectRecord>,
    objects: Vec<u8>,
    list: Vec<u64>,
}

/// One lane, in the hands of whoever may write it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) number: u32,
    pub(crate) place: LaneLayout,
    /// Where the next entry of each part goes, from the part's beginning.
    used: Bytes,
    buffers: Buffers,
    word_digest: u64,
    object_digest: u64,
    /// Redo: the TID of the last slot, or the floor.
    behind: u64,
    /// Redo: the last transaction's slot and where its records begin, and the thread whose flushes of its
    /// homes no fence has followed.
    pub(crate) unfenced: Option<(Slot, Bytes, u64)>,
    /// What the lane logged since the manager was opened.
    logged: Arc<LaneCounters>,
    /// Undo: which half of slots and lists is next. The other one is that of the last transaction.
    second_half: bool,
}

impl Lane {
    pub(crate) fn new(layout: &Layout, number: u32, floor: u64) -> Self {
        Self {
            number,
            place: layout.lane(number),
            used: Bytes::default(),
            buffers: Buffers::default(),
            word_digest: 0,
            object_digest: 0,
            behind: floor,
            unfenced: None,
            logged: Arc::default(),
            second_half: false,
        }
    }

    /// Where the next entry of each part goes.
    pub(crate) fn used(&self) -> Bytes {
        self.used
    }

    /// Nothing lies in the lane.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == Bytes::default()
    }

    /// The next record goes to the beginning; up to `floor`, transactions are over.
    pub(crate) fn rewind(&mut self, floor: u64) {
        self.used = Bytes::default();
        self.behind = floor;
        self.unfenced = None;
    }

    /// The next record goes to the beginning, but slot and list go where those of the last transaction are not:
    /// they are kept until the one behind it has ended.
    pub(crate) fn rewind_for_undo(&mut self) {
        self.used = Bytes::default();
        if self.second_half {
            self.used.add(Part::Slots, size_of::<Slot>());
            self.used.add(Part::Lists, self.place.room_of_one(Part::Lists, Logging::Undo));
        }
        self.second_half = !self.second_half;
    }

    /// What it logs, for whoever adds it up.
    pub(crate) fn counters(&self) -> Arc<LaneCounters> {
        Arc::clone(&self.logged)
    }

    /// Whether `need` fits behind what is used, with no more than `bytes_max` in all parts then.
    #[inline]
    pub(crate) fn has_room(&self, need: &Bytes, bytes_max: usize) -> bool {
        let used = self.used.total();
        self.short_of(need).is_none() && (used == 0 || used + need.total() <= bytes_max)
    }

    /// The part where `need` does not fit behind what is used.
    #[inline]
    pub(crate) fn short_of(&self, need: &Bytes) -> Option<Part> {
        let is_short = |part: Part| self.used.of(part) + need.of(part) > self.place.room(part);
        // All of them first: nearly always none is.
        if !Part::ALL.into_iter().fold(false, |any, part| any | is_short(part)) {
            return None;
        }
        Part::ALL.into_iter().find(|part| need.of(*part) > 0 && is_short(*part))
    }

    /// Makes a record of `data`, in DRAM. There is room for it. The TID may carry an ordinal.
    #[inline]
    pub(crate) fn record(&mut self, kind: Kind, tid: u64, home: u64, data: &[u8]) {
        let buffers = &mut self.buffers;
        match kind {
            Kind::Word => {
                // Of a length that is known from here on.
                let word: &[u8; WORD] = data.try_into().expect("a word's record is of a word");
                let place = self.used.of(Part::Words) + buffers.words.len() * WORD;
                let (record, hash) = Record::of(tid, place as u32, home, word);
                buffers.word_records.push(record.to_word());
                buffers.words.push(*word);
                self.word_digest = mix([self.word_digest, hash]);
            }
            Kind::Object => {
                let place = self.used.of(Part::Objects) + buffers.objects.len();
                let (record, hash) = Record::of(tid, place as u32, home, data);
                buffers.object_records.push(record.to_object());
                buffers.objects.extend_from_slice(data);
                self.object_digest = mix([self.object_digest, hash]);
            }
        }
    }

    /// Stores the records that were made, and begins to write them back. Data first: a record is never
    /// there without it where the order of the program counts.
    pub(crate) fn append_records(&mut self, space: &Space) -> Result<(), Refused> {
        let Buffers { word_records, words, object_records, objects, .. } = &mut self.buffers;
        let (used, place) = (&mut self.used, &self.place);
        if !word_records.is_empty() {
            self.logged.words(word_records.len());
            append(space, place, used, Part::Words, words.as_flattened())?;
            append(space, place, used, Part::WordRecords, bytemuck::cast_slice(word_records))?;
            word_records.clear();
            words.clear();
        }
        if !object_records.is_empty() {
            self.logged.objects(object_records.len(), objects.len());
            objects.resize(objects.len().next_multiple_of(8), 0);
            append(space, place, used, Part::Objects, objects)?;
            append(space, place, used, Part::ObjectRecords, bytemuck::cast_slice(object_records))?;
            object_records.clear();
            objects.clear();
        }
        Ok(())
    }

    /// Stores the list of objects allocated and freed, and begins to write it back.
    pub(crate) fn append_list(
        &mut self,
        space: &Space,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), Refused> {
        let list = &mut self.buffers.list;
        list.clear();
        if allocated.is_empty() && freed.is_empty() {
            return Ok(());
        }
        list.extend_from_slice(allocated);
        list.extend_from_slice(freed);
        self.logged.list(list.len() * 8);
        append(space, &self.place, &mut self.used, Part::Lists, bytemuck::cast_slice(list))
    }

    /// The slot of a transaction whose records were made since [`Self::begin`].
    pub(crate) fn slot(&self, tid: u64, flags: u32, before: &Bytes, lists: (usize, usize)) -> Slot {
        let (words, objects) = self.counts_since(before);
        let slot = Slot {
            tid,
            words,
            objects,
            allocated: lists.0 as u32,
            freed: lists.1 as u32,
            list: before.of(Part::Lists) as u32,
            flags,
            digest: digest(self.word_digest, self.object_digest, &self.buffers.list),
            ..bytemuck::Zeroable::zeroed()
        };
        slot.sealed(self.number)
    }

    /// The slot of a transaction that only has a list.
    pub(crate) fn slot_of_list(&self, tid: u64, before: &Bytes, lists: (usize, usize)) -> Slot {
        let slot = Slot {
            tid,
            allocated: lists.0 as u32,
            freed: lists.1 as u32,
            list: before.of(Part::Lists) as u32,
            digest: digest(0, 0, &self.buffers.list),
            ..bytemuck::Zeroable::zeroed()
        };
        slot.sealed(self.number)
    }

    /// Records behind `before`: words and objects.
    pub(crate) fn counts_since(&self, before: &Bytes) -> (u32, u32) {
        let count = |part, entry| (self.used.of(part) - before.of(part)) / entry;
        (count(Part::WordRecords, WORD_RECORD) as u32, count(Part::ObjectRecords, OBJECT_RECORD) as u32)
    }

    /// A new transaction begins: its digest is that of nothing, and buffers hold nothing.
    pub(crate) fn begin(&mut self) {
        (self.word_digest, self.object_digest) = (0, 0);
        let buffers = &mut self.buffers;
        buffers.word_records.clear();
        buffers.words.clear();
        buffers.object_records.clear();
        buffers.objects.clear();
        buffers.list.clear();
    }

    /// Announces stores to the next slot, and to the one behind it, where its witness lies, if that is in the same
    /// page: a dirty budget may have no more than one.
    #[inline]
    pub(crate) fn announce_slot<'s>(&self, space: &'s Space) -> Result<Window<'s>, Refused> {
        let at = self.place.start(Part::Slots) + self.used.of(Part::Slots);
        space.window(at, (2 * size_of::<Slot>()).min(PAGE - at % PAGE))
    }

    /// Stores the slot behind the others, and begins to write it back.
    #[inline]
    pub(crate) fn append_slot(
        &mut self,
        space: &Space,
        window: &Window<'_>,
        slot: &Slot,
    ) -> Result<(), Refused> {
        self.logged.slot();
        let at = self.place.start(Part::Slots) + self.used.of(Part::Slots);
        window.write_bytes(at, bytemuck::bytes_of(slot))?;
        self.used.add(Part::Slots, size_of::<Slot>());
        space.flush(at, size_of::<Slot>())
    }

    /// Says of the slot of `tid`, which was appended behind `before`, that it is durable. Nobody waits for this
    /// word: a slot that counts without it is as good, but one that does not count with it is damaged.
    #[inline]
    pub(crate) fn bear_witness(
        &mut self,
        space: &Space,
        window: Window<'_>,
        before: &Bytes,
        tid: u64,
    ) -> Result<(), Refused> {
        let number = before.of(Part::Slots) / size_of::<Slot>();
        let witness = Slot::witness(self.number, number, self.behind);
        self.behind = tid;
        let at = self.place.witness_at(number);
        if window.covers(at, WORD) {
            return window.store(at, witness);
        }
        drop(window);
        space.store(at, witness)
    }

    /// Takes back what was appended behind `before`.
    pub(crate) fn forget_behind(&mut self, before: Bytes) {
        self.used = before;
    }

    /// Says, durably behind the next fence, that transaction `tid` of this lane has ended; `listed`: that a
    /// slot of it lies there, whose list is to be published.
    pub(crate) fn mark_done(&self, space: &Space, tid: u64, listed: bool) -> Result<(), Refused> {
        space.store(self.place.done_at(), Mark::of(tid << 1 | u64::from(listed)).word())?;
        space.flush(self.place.done_at(), LINE)
    }

    /// Records of each kind that were made and not stored yet.
    pub(crate) fn made(&self) -> (usize, usize) {
        (self.buffers.word_records.len(), self.buffers.object_records.len())
    }
}

#[inline]
fn append(
    space: &Space,
    place: &LaneLayout,
    used: &mut Bytes,
    part: Part,
    bytes: &[u8],
) -> Result<(), Refused> {
    let at = place.start(part) + used.of(part);
    put(space, at, bytes)?;
    used.add(part, bytes.len());
    if mutant::planted("tx-records-never-flushed") {
        return Ok(());
    }
    space.flush(at, bytes.len())
}

/// Of all records and of the list of a transaction.
pub(crate) fn digest(words: u64, objects: u64, list: &[u64]) -> u64 {
    list.iter().fold(mix([words, objects]), |digest, word| mix([digest, *word]))
}
