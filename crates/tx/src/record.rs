//! What lies in the log: records, commit slots, headers. Little-endian, sizes asserted.
//!
//! ```text
//! word record    TID 8 | place 8 | home 8                     its word lies in the word data
//! object record  TID 8 | place 8 | home 8 | bytes 4           its bytes lie in the object data
//! ```
//!
//! The place is the offset in the lane's data (low 32 bits), and a check of record and data (high 32 bits):
//! so a record proves itself, and costs no more than the paper's 24 and 28 bytes.
//!
//! Invariant: a value of these types that `read` or `parse` returned matches its own check.

use bytemuck::{Pod, Zeroable};
use twox_hash::XxHash3_64;
use wattkeep_persist::{LINE, bytemuck};

/// Format of the log.
pub(crate) const VERSION: u32 = 1;

/// "WKTXLOG1".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"WKTXLOG1");

/// Which of the two logs a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Object,
}

/// Bytes of a word's record.
pub(crate) const WORD_RECORD: usize = size_of::<WordRecord>();
/// Bytes of an object's record.
pub(crate) const OBJECT_RECORD: usize = size_of::<ObjectRecord>();

/// A word record as it lies there.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
#[bytemuck(crate = "wattkeep_persist::bytemuck")]
pub(crate) struct WordRecord {
    tid: u64,
    place: u64,
    home: u64,
}

/// An object record as it lies there: four-byte words, for it has no padding.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
#[bytemuck(crate = "wattkeep_persist::bytemuck")]
pub(crate) struct ObjectRecord {
    tid: [u32; 2],
    place: [u32; 2],
    home: [u32; 2],
    bytes: u32,
}

const _: () = assert!(WORD_RECORD == 24 && OBJECT_RECORD == 28);
const _: () = assert!(size_of::<Slot>() == LINE && size_of::<Header>() == LINE);

/// A record of either kind, not yet compared with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) tid: u64,
    /// Where its data lies in the lane's data of its kind.
    pub(crate) place: u32,
    /// Where the data belongs.
    pub(crate) home: u64,
    pub(crate) bytes: u32,
    check: u32,
}

impl Record {
    /// A record of `data` that lies at `place`, and its hash for the transaction's digest.
    #[inline(always)]
    pub(crate) fn of(tid: u64, place: u32, home: u64, data: &[u8]) -> (Self, u64) {
        let bytes = data.len() as u32;
        let hash = mix([tid, u64::from(place), home, u64::from(bytes), XxHash3_64::oneshot(data)]);
        (Self { tid, place, home, bytes, check: (hash >> 32) as u32 }, hash)
    }

    /// The hash for the digest, if `data` is what the record was made of.
    pub(crate) fn matches(&self, data: &[u8]) -> Option<u64> {
        let (made, hash) = Self::of(self.tid, self.place, self.home, data);
        (made == *self).then_some(hash)
    }

    pub(crate) fn to_word(self) -> WordRecord {
        WordRecord { tid: self.tid, place: self.packed(), home: self.home }
    }

    pub(crate) fn to_object(self) -> ObjectRecord {
        ObjectRecord {
            tid: halves(self.tid),
            place: halves(self.packed()),
            home: halves(self.home),
            bytes: self.bytes,
        }
    }

    fn packed(&self) -> u64 {
        u64::from(self.check) << 32 | u64::from(self.place)
    }
}

impl From<WordRecord> for Record {
    fn from(word: WordRecord) -> Self {
        let (place, check) = (word.place as u32, (word.place >> 32) as u32);
        Self { tid: word.tid, place, home: word.home, bytes: 8, check }
    }
}

impl From<ObjectRecord> for Record {
    fn from(object: ObjectRecord) -> Self {
        let [place, check] = object.place;
        Self { tid: whole(object.tid), place, home: whole(object.home), bytes: object.bytes, check }
    }
}

const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

const fn whole([low, high]: [u32; 2]) -> u64 {
    (high as u64) << 32 | low as u64
}

/// One number of several: each of their bits changes about half of its bits.
#[inline]
pub(crate) fn mix<const N: usize>(parts: [u64; N]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = ODD;
    for part in parts {
        let product = u128::from(hash ^ part) * u128::from(ODD | 1 << 63);
        hash = product as u64 ^ (product >> 64) as u64 ^ part.rotate_left(29);
    }
    hash ^ hash >> 32
}

/// The slot says that all log lines were durable before it was written.
pub(crate) const SEALED: u32 = 1;
/// The slot was written where stores become durable in the order of the program.
pub(crate) const ORDERED: u32 = 2;

/// The commit of a transaction: with redo it is what commits, with undo it carries the lists.
#[derive(Clone, Copy, Debug, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
#[bytemuck(crate = "wattkeep_persist::bytemuck")]
pub(crate) struct Slot {
    pub(crate) tid: u64,
    pub(crate) words: u32,
    pub(crate) objects: u32,
    /// Entries of its list: the objects it allocated, 8 bytes each.
    pub(crate) allocated: u32,
    /// Behind them: the objects it freed.
    pub(crate) freed: u32,
    /// Where its list begins in the lane's lists.
    pub(crate) list: u32,
    pub(crate) flags: u32,
    /// Of all its records and of its list, in order.
    pub(crate) digest: u64,
    pub(crate) reserved: [u64; 2],
    pub(crate) check: u64,
}

impl Slot {
    pub(crate) fn sealed(self, lane: u32) -> Self {
        let check = self.hash(lane);
        Self { check, ..self }
    }

    /// The slot, if it is one of this lane.
    pub(crate) fn parse(self, lane: u32) -> Option<Self> {
        (self.tid != 0 && self.check == self.hash(lane)).then_some(self)
    }

    fn hash(&self, lane: u32) -> u64 {
        let unchecked = Self { check: 0, ..*self };
        mix([u64::from(lane), XxHash3_64::oneshot(bytemuck::bytes_of(&unchecked))])
    }

    /// What lies in the check of the slot behind slot `number` of a lane: that slot was durable, as a whole, and
    /// the one before it was of transaction `behind`, or the floor was that.
    #[inline]
    pub(crate) fn witness(lane: u32, number: usize, behind: u64) -> u64 {
        const WITNESS: u64 = u64::from_le_bytes(*b"WKWITNSS");
        mix([WITNESS ^ (u64::from(lane) << 32 | number as u64), behind])
    }

    /// Bytes of its list.
    pub(crate) fn list_bytes(&self) -> usize {
        (self.allocated as usize + self.freed as usize) * 8
    }
}

/// The first line of the log area. Its magic is stored last, alone: without it the area is still empty.
#[derive(Clone, Copy, Debug, Pod, Zeroable, PartialEq, Eq)]
#[repr(C)]
#[bytemuck(crate = "wattkeep_persist::bytemuck")]
pub(crate) struct Header {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) lanes: u32,
    pub(crate) lane_bytes: u64,
    unused: [u64; 4],
    check: u64,
}

impl Header {
    pub(crate) fn new(lanes: u32, lane_bytes: u64) -> Self {
        let header = Self { magic: MAGIC, version: VERSION, lanes, lane_bytes, ..Self::zeroed() };
        Self { check: header.hash(), ..header }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.magic == MAGIC && self.check == self.hash()
    }

    fn hash(&self) -> u64 {
        XxHash3_64::oneshot(bytemuck::bytes_of(&Self { check: 0, ..*self }))
    }
}

/// Bits of a TID.
const TID_BITS: u32 = 51;
/// The highest TID.
pub(crate) const TID_MAX: u64 = (1 << TID_BITS) - 1;

/// The TID field of an undo record also says how many records of its kind were appended with it, before it,
/// behind one fence: these may be torn away without it.
pub(crate) const fn with_ordinal(tid: u64, ordinal: u64) -> u64 {
    ordinal << TID_BITS | tid
}

/// The highest ordinal.
pub(crate) const ORDINAL_MAX: usize = (1 << (64 - TID_BITS)) - 1;

/// The TID and the ordinal of a TID field.
pub(crate) const fn without_ordinal(field: u64) -> (u64, usize) {
    (field & TID_MAX, (field >> TID_BITS) as usize)
}

/// Bits of a number in a mark: a TID and one more.
const MARK_BITS: u32 = TID_BITS + 1;

/// A number as one word that proves itself: a store of it is never torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Mark {
    pub(crate) fn of(number: u64) -> Self {
        Self(mix([number]) << MARK_BITS | number)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The number in a word; 0 in a word that was never written.
    pub(crate) fn parse(word: u64) -> Option<u64> {
        let number = word & ((1 << MARK_BITS) - 1);
        (word == 0 || Self::of(number).0 == word).then_some(number)
    }
}
