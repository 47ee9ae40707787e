//! What a manager does with the log it finds, before anything else.
//!
//! - [`redo`]: committed transactions are applied again, in the order of their TIDs
//! - [`undo`]: unfinished ones are rolled back
//!
//! Both end by raising the floor: what the log held until then is over. A recovery that is interrupted is
//! repeated from the beginning, and comes to the same end: until the floor is durable, it changes homes only,
//! and to the same bytes; what it publishes, the heap tells when it is asked again.
//!
//! Everything read here is untrusted until it matched its check. Damage is refused before anything is
//! changed.

pub(crate) mod redo;
pub(crate) mod undo;

use std::collections::HashMap;

use wattkeep_heap::Heap;
use wattkeep_persist::{Refused, Space, mutant};

use crate::error::TxError;
use crate::lane::{Bytes, digest};
use crate::layout::{LaneLayout, Layout, Part};
use crate::record::{Kind, Mark, OBJECT_RECORD, ObjectRecord, Record, Slot, WORD_RECORD, WordRecord};

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Committed transactions that were applied again.
    pub replayed: u64,
    /// Unfinished transactions that were rolled back, or were torn and never counted.
    pub dropped: u64,
    /// Transactions whose allocations and frees the heap had not heard of.
    pub published: u64,
}

/// The log of a heap that nobody writes now.
pub(crate) struct Log<'a> {
    pub(crate) space: &'a Space,
    pub(crate) heap: &'a Heap,
    pub(crate) layout: &'a Layout,
    /// Transactions up to here are over.
    pub(crate) floor: u64,
}

/// The objects allocated, and those freed.
pub(crate) type Lists = (Vec<u64>, Vec<u64>);

impl Log<'_> {
    /// The floor, from its word.
    pub(crate) fn read_floor(space: &Space, layout: &Layout) -> Result<u64, TxError> {
        mark_at(space, layout.floor_at(), "the floor of the log")
    }

    /// The highest TID that the heap knows of any lane.
    pub(crate) fn published_max(&self) -> Result<u64, TxError> {
        (0..self.layout.lanes).try_fold(0, |max, lane| Ok(self.heap.published(lane)?.max(max)))
    }

    /// An error if the heap would refuse one of these lists, of a lane's transaction each, in the order in which
    /// they are to be published: then nothing may be changed.
    pub(crate) fn check_lists<'l>(
        &self,
        lists: impl Iterator<Item = (u32, u64, &'l Lists)>,
    ) -> Result<(), TxError> {
        let mut changed: HashMap<u64, bool> = HashMap::new();
        for (lane, tid, (allocated, freed)) in lists {
            if self.heap.published(lane)? >= tid {
                continue;
            }
            let objects = allocated.iter().map(|at| (*at, true)).chain(freed.iter().map(|at| (*at, false)));
            for (object, is_new) in objects {
                let before = changed.insert(object, is_new);
                let is_there = before.unwrap_or_else(|| self.heap.is_allocated(object));
                if is_there == is_new || !self.heap.is_chunk(object) {
                    let what = format!("the heap's record of an object that transaction {tid} names");
                    return Err(TxError::Damaged { at: object as usize, what });
                }
            }
        }
        Ok(())
    }

    /// Tells the heap what the transaction allocated and freed, if it does not know.
    pub(crate) fn publish(&self, lane: u32, tid: u64, (allocated, freed): &Lists) -> Result<u64, TxError> {
        if mutant::planted("tx-publish-forgotten") {
            return Ok(0);
        }
        if allocated.is_empty() && freed.is_empty() || self.heap.published(lane)? >= tid {
            return Ok(0);
        }
        self.heap.publish(lane, tid, allocated, freed)?;
        Ok(1)
    }
}

/// A number that proves itself.
pub(crate) fn mark_at(space: &Space, at: usize, what: &str) -> Result<u64, TxError> {
    Mark::parse(space.load(at)?).ok_or_else(|| TxError::Damaged { at, what: what.into() })
}

/// The record of a kind at this place in its part.
pub(crate) fn record_at(space: &Space, lane: &LaneLayout, kind: Kind, at: usize) -> Result<Record, Refused> {
    Ok(match kind {
        Kind::Word => space.read::<WordRecord>(lane.start(Part::WordRecords) + at)?.into(),
        Kind::Object => space.read::<ObjectRecord>(lane.start(Part::ObjectRecords) + at)?.into(),
    })
}

/// Part of the records, part of their data, and bytes of a record.
pub(crate) fn parts_of(kind: Kind) -> (Part, Part, usize) {
    match kind {
        Kind::Word => (Part::WordRecords, Part::Words, WORD_RECORD),
        Kind::Object => (Part::ObjectRecords, Part::Objects, OBJECT_RECORD),
    }
}

/// Reads the record's data; false if they do not lie in the lane.
pub(crate) fn read_data(
    space: &Space,
    lane: &LaneLayout,
    kind: Kind,
    record: &Record,
    data: &mut Vec<u8>,
) -> Result<bool, Refused> {
    let (_, part, _) = parts_of(kind);
    let end = record.place as usize + record.bytes as usize;
    if end > lane.room(part) {
        return Ok(false);
    }
    data.resize(record.bytes as usize, 0);
    space.read_bytes(lane.start(part) + record.place as usize, data)?;
    Ok(true)
}

/// Home and bytes of each record of a transaction that this program logged, whose records begin at `before`.
pub(crate) fn each_home(
    space: &Space,
    lane: &LaneLayout,
    slot: &Slot,
    before: &Bytes,
    mut each: impl FnMut(usize, usize) -> Result<(), Refused>,
) -> Result<(), Refused> {
    for (kind, count) in [(Kind::Word, slot.words), (Kind::Object, slot.objects)] {
        let (part, _, entry) = parts_of(kind);
        for index in 0..count as usize {
            let record = record_at(space, lane, kind, before.of(part) + index * entry)?;
            each(record.home as usize, record.bytes as usize)?;
        }
    }
    Ok(())
}

/// The list of a slot, as words; none if it does not lie in the lane.
pub(crate) fn list_of(space: &Space, lane: &LaneLayout, slot: &Slot) -> Result<Option<Vec<u64>>, Refused> {
    if slot.list as usize + slot.list_bytes() > lane.room(Part::Lists) {
        return Ok(None);
    }
    let start = lane.start(Part::Lists) + slot.list as usize;
    (0..slot.list_bytes() / 8).map(|word| space.load(start + word * 8)).collect::<Result<_, _>>().map(Some)
}

/// What the words of a list say.
pub(crate) fn lists_of(slot: &Slot, words: &[u64]) -> Lists {
    let (allocated, freed) = words.split_at(slot.allocated as usize);
    (allocated.to_vec(), freed.to_vec())
}

/// Whether the digest of the slot is that of these hashes and words.
pub(crate) fn digest_fits(slot: &Slot, words: u64, objects: u64, list: &[u64]) -> bool {
    slot.digest == digest(words, objects, list)
}
