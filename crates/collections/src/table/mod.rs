//! The hash table below both maps: buckets of one cache line, which hold where entries lie.
//!
//! ```text
//! header   tag | seed | buckets | entries | ...     directory of segments of buckets
//! bucket   slot | slot | slot | slot | slot | slot | slot | overflow
//! slot     low 28 bits of the hash | offset of the entry in 16 bytes, 36 bits; 0: empty
//! entry    key, value: written once, in memory that no one else sees yet
//! ```
//!
//! An insert writes the entry into new memory, which needs no log, and logs two words: the slot and the
//! number of entries. A look-up reads one line for the bucket and, as a rule, one entry.
//!
//! The table grows by linear hashing (Litwin 1980): when there are more than [`FULL`] entries a bucket, a few
//! buckets are split in two each, and when there are fewer than [`EMPTY`] the last is merged with its other
//! half. So no insert pays for the whole table. What a slot holds of the hash says where its entry goes: no entry is
//! read for a split, up to 2^28 buckets.
//!
//! Invariants, which [`walk()`] holds to the bytes:
//! 1. An entry lies in the chain of the bucket that its hash and the number of buckets say ([`bucket_of`]).
//! 2. A slot holds the low bits of its entry's hash. No two slots hold one key.
//! 3. The number of entries is that of the slots that are not empty.

mod grow;
mod walk;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable, bytes_of_mut};
use twox_hash::XxHash3_64;
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

pub(crate) use self::walk::{Cursor, walk};
use crate::check::Met;
use crate::error::Error;
use crate::kind::Kind;
use crate::place::Place;
use crate::segments::{DIRECTORY_BYTES, Segments};
use crate::view::{View, WORD};

/// Entries a bucket, above which the table grows. Those that are not yet split hold twice as many as the
/// others: few of them have more than a line.
const FULL: u64 = 3;

/// Entries a bucket, below which it shrinks.
const EMPTY: u64 = 1;

/// Buckets of an empty table: 1 KiB.
const BUCKETS_MIN: u64 = 16;

/// Slots of a bucket.
const SLOTS: usize = 7;

/// Lines of a chain. A chain grows so long only if it is damaged, or if somebody knows the table's seed.
const CHAIN_MAX: usize = 1 << 16;

/// Bits of a slot that say where the entry lies, in units of [`UNIT`]: a space of 1 TiB.
const PLACE_BITS: u32 = 36;

/// What the offsets of allocations are multiples of.
const UNIT: u64 = 16;

/// Bits of a slot that are the entry's hash.
const MARK_BITS: u32 = u64::BITS - PLACE_BITS;

const BUCKETS: Segments = Segments::new(LINE, BUCKETS_MIN.ilog2());

/// One line of a bucket's chain.
type Line = [u64; SLOTS + 1];

/// The header. The directory begins in the next line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    tag: u64,
    seed: u64,
    buckets: u64,
    entries: u64,
}

const HEADER_BYTES: usize = LINE + DIRECTORY_BYTES;
const AT_DIRECTORY: u64 = LINE as u64;
const AT_BUCKETS: u64 = std::mem::offset_of!(Header, buckets) as u64;
const AT_ENTRIES: u64 = std::mem::offset_of!(Header, entries) as u64;
const _: () = assert!(size_of::<Header>() <= LINE && size_of::<Line>() == LINE);

/// What an entry is made of.
pub(crate) trait Entries {
    type Key: ?Sized;
    type Value: ?Sized;

    /// Bytes of an entry that will be touched together, as a rule.
    const BYTES_SOON: usize;

    /// The hash of a key.
    fn hash(seed: u64, key: &Self::Key) -> u64;

    /// The hash of the key that lies at `at`.
    fn hash_at(view: &impl View, at: u64, seed: u64) -> Result<u64, Error>;

    /// Whether `key` lies at `at`.
    fn is_at(view: &impl View, at: u64, hash: u64, key: &Self::Key) -> Result<bool, Error>;

    /// Bytes of an entry.
    fn bytes(key: &Self::Key, value: &Self::Value) -> usize;

    /// Writes an entry into new memory.
    fn write(tx: &mut Tx<'_>, at: u64, hash: u64, key: &Self::Key, value: &Self::Value) -> Result<(), Error>;

    /// Puts `value` in the place of the one at `at`, if it fits there.
    fn rewrite(tx: &mut Tx<'_>, at: u64, key: &Self::Key, value: &Self::Value) -> Result<bool, Error>;
}

/// Entries as a walk sees them: it may know their sizes alone.
pub(crate) trait Form {
    /// The hash of the key that lies at `at`.
    fn hash_at(&self, view: &impl View, at: u64, seed: u64) -> Result<u64, Error>;

    /// Whether the same key lies at both places.
    fn same(&self, view: &impl View, one: u64, other: u64) -> Result<bool, Error>;

    /// Bytes of the entry at `at`.
    fn bytes_at(&self, view: &impl View, at: u64) -> Result<u64, Error>;

    /// Tells key and value of the entry at `at`, which was found whole.
    fn content_at(&self, at: u64, bytes: u64, met: &mut impl Met);
}

/// A hash table of entries of some form.
pub(crate) struct Table<E> {
    place: Place,
    entries: PhantomData<fn() -> E>,
}

impl<E> Clone for Table<E> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), entries: PhantomData }
    }
}

/// Hash of some bytes: XXH3-64, the same on every platform, keyed by the table's seed.
#[inline]
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The bucket of a hash: its low bits, one bit more for buckets that were split in this round.
#[inline]
fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let half = 1 << buckets.ilog2();
    let wide = hash & (2 * half - 1);
    if wide < buckets { wide } else { hash & (half - 1) }
}

const fn slot_of(hash: u64, entry: u64) -> u64 {
    (hash << PLACE_BITS) | (entry / UNIT)
}

const fn entry_of(slot: u64) -> u64 {
    (slot & ((1 << PLACE_BITS) - 1)) * UNIT
}

/// What a slot knows of its entry's hash.
const fn mark_of(slot: u64) -> u64 {
    slot >> PLACE_BITS
}

/// What was read before the latch was taken.
struct Foreseen {
    /// Changes of the table that were over before that.
    changes: u64,
    header: Header,
    hash: u64,
    bucket: u64,
}

/// What a look-up found.
enum Search {
    /// The entry, and the place of its slot.
    Found { slot: u64, entry: u64 },
    /// The first empty slot, and the last line of the chain.
    Absent { empty: Option<u64>, last: u64 },
}

impl Header {
    /// Refuses what no table writes, so that arithmetic on it cannot go wrong.
    #[inline(always)]
    fn sound(self, at: u64) -> Result<Self, Error> {
        let most = 1 << PLACE_BITS;
        if self.buckets >= BUCKETS_MIN && self.buckets < most && self.entries < most {
            return Ok(self);
        }
        Err(Error::Damaged { at, what: "a table of a size that there cannot be" })
    }
}

impl<E: Entries> Table<E> {
    /// Allocates and writes an empty table.
    pub(crate) fn make(tx: &mut Tx<'_>, kind: Kind) -> Result<u64, Error> {
        let at = tx.alloc_bytes(HEADER_BYTES)?.offset();
        tx.write_bytes(at, &[0; HEADER_BYTES])?;
        // A seed that nobody can know, so that nobody can choose keys that collide.
        let seed = RandomState::new().hash_one(at);
        let header = Header { tag: kind.tag(), seed, buckets: BUCKETS_MIN, entries: 0 };
        tx.write(Ptr::at(at), &header)?;
        let first = BUCKETS.reserve(tx, at + AT_DIRECTORY, 0)?;
        tx.write_bytes(first, &[0; LINE * BUCKETS_MIN as usize])?;
        Ok(at)
    }

    /// The table at `place`.
    pub(crate) fn at(place: Place) -> Self {
        Self { place, entries: PhantomData }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    #[inline(always)]
    fn header(&self, view: &impl View) -> Result<Header, Error> {
        self.place.header::<Header>(view)?.sound(self.place.at())
    }

    fn directory(&self) -> u64 {
        self.place.at() + AT_DIRECTORY
    }

    /// Number of entries.
    pub(crate) fn len(&self, view: &impl View) -> Result<u64, Error> {
        Ok(self.header(view)?.entries)
    }

    /// The first line of the bucket of a hash.
    #[inline(always)]
    fn bucket(&self, view: &impl View, header: &Header, hash: u64) -> Result<u64, Error> {
        BUCKETS.item(view, self.directory(), bucket_of(hash, header.buckets))
    }

    /// Looks for `key` in the chain whose first line lies at `bucket`.
    #[inline]
    fn search(&self, view: &impl View, bucket: u64, hash: u64, key: &E::Key) -> Result<Search, Error> {
        let mut at = bucket;
        let mark = mark_of(slot_of(hash, 0));
        let mut empty = None;
        let mut line: Line = [0; SLOTS + 1];
        for _ in 0..CHAIN_MAX {
            view.bytes(at, bytes_of_mut(&mut line))?;
            for (index, slot) in line[..SLOTS].iter().enumerate() {
                let place = at + index as u64 * WORD;
                if *slot == 0 {
                    empty = empty.or(Some(place));
                } else if mark_of(*slot) == mark {
                    let entry = entry_of(*slot);
                    // All of it comes while the first line is compared.
                    view.soon(entry, E::BYTES_SOON);
                    if E::is_at(view, entry, hash, key)? {
                        return Ok(Search::Found { slot: place, entry });
                    }
                }
            }
            if line[SLOTS] == 0 {
                return Ok(Search::Absent { empty, last: at });
            }
            at = line[SLOTS];
        }
        Err(Error::Damaged { at, what: "a chain of buckets without an end" })
    }

    /// Where a search for `key` begins, while that begins to come into the cache. For use before the latch is taken:
    /// what it reads counts only if there were no changes meanwhile.
    #[inline]
    fn foresee(&self, view: &impl View, key: &E::Key) -> Option<Foreseen> {
        let changes = self.place.changes();
        let header = self.header(view).ok()?;
        let hash = E::hash(header.seed, key);
        let bucket = self.bucket(view, &header, hash).ok()?;
        view.soon(bucket, LINE);
        Some(Foreseen { changes, header, hash, bucket })
    }

    /// The entry of `key`.
    #[inline]
    pub(crate) fn find(&self, view: &impl View, key: &E::Key) -> Result<Option<u64>, Error> {
        let header = self.header(view)?;
        let hash = E::hash(header.seed, key);
        match self.search(view, self.bucket(view, &header, hash)?, hash, key)? {
            Search::Found { entry, .. } => Ok(Some(entry)),
            Search::Absent { .. } => Ok(None),
        }
    }

    /// Writes the entry of `key`; whether there was none.
    pub(crate) fn insert(&self, tx: &mut Tx<'_>, key: &E::Key, value: &E::Value) -> Result<bool, Error> {
        let foreseen = self.foresee(tx, key);
        self.place.change(tx, |tx| self.put(tx, foreseen, key, value))
    }

    #[inline]
    fn put(
        &self,
        tx: &mut Tx<'_>,
        foreseen: Option<Foreseen>,
        key: &E::Key,
        value: &E::Value,
    ) -> Result<bool, Error> {
        let (header, hash, bucket) = match foreseen {
            Some(Foreseen { changes, header, hash, bucket }) if changes == self.place.changes() => {
                (header, hash, bucket)
            }
            _ => {
                let header = self.header(tx)?;
                let hash = E::hash(header.seed, key);
                (header, hash, self.bucket(tx, &header, hash)?)
            }
        };
        let (empty, last) = match self.search(tx, bucket, hash, key)? {
            Search::Found { slot, entry } => {
                if !E::rewrite(tx, entry, key, value)? {
                    let moved = self.new_entry(tx, hash, key, value)?;
                    tx.write_word(Ptr::at(slot), moved)?;
                    tx.free(Ptr::<u8>::at(entry))?;
                }
                return Ok(false);
            }
            Search::Absent { empty, last } => (empty, last),
        };
        let slot = self.new_entry(tx, hash, key, value)?;
        if let Some(empty) = empty {
            tx.write_word(Ptr::at(empty), slot)?;
        } else {
            let line = self.new_line(tx, &[slot, 0, 0, 0, 0, 0, 0, 0])?;
            tx.write_word(Ptr::at(last + SLOTS as u64 * WORD), line)?;
        }
        let header = Header { entries: header.entries + 1, ..header };
        tx.write_word(Ptr::at(self.place.at() + AT_ENTRIES), header.entries)?;
        if header.entries > header.buckets * FULL {
            self.split(tx, &header)?;
        }
        Ok(true)
    }

    /// Removes `key`, if it is there; `taken` sees the entry before.
    pub(crate) fn remove<R>(
        &self,
        tx: &mut Tx<'_>,
        key: &E::Key,
        taken: impl FnOnce(&Tx<'_>, u64) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        self.place.change(tx, |tx| self.take(tx, key, taken))
    }

    #[inline]
    fn take<R>(
        &self,
        tx: &mut Tx<'_>,
        key: &E::Key,
        taken: impl FnOnce(&Tx<'_>, u64) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        let header = self.header(tx)?;
        let hash = E::hash(header.seed, key);
        let bucket = self.bucket(tx, &header, hash)?;
        let Search::Found { slot, entry } = self.search(tx, bucket, hash, key)? else {
            return Ok(None);
        };
        let taken = taken(tx, entry)?;
        tx.write_word(Ptr::at(slot), 0)?;
        tx.free(Ptr::<u8>::at(entry))?;
        let Some(entries) = header.entries.checked_sub(1) else {
            return Err(Error::Damaged {
                at: self.place.at(),
                what: "a table with more entries than it counts",
            });
        };
        let header = Header { entries, ..header };
        tx.write_word(Ptr::at(self.place.at() + AT_ENTRIES), entries)?;
        if header.buckets > BUCKETS_MIN && entries < header.buckets * EMPTY {
            self.merge(tx, &header)?;
        }
        Ok(Some(taken))
    }

    /// Writes an entry into new memory, and says what its slot holds.
    fn new_entry(&self, tx: &mut Tx<'_>, hash: u64, key: &E::Key, value: &E::Value) -> Result<u64, Error> {
        let at = tx.alloc_bytes(E::bytes(key, value))?.offset();
        assert!(at.is_multiple_of(UNIT), "the heap aligns what it allocates");
        if (at / UNIT) >> PLACE_BITS != 0 {
            return Err(Error::TooLarge { what: "an offset", size: at, most: (UNIT << PLACE_BITS) - 1 });
        }
        E::write(tx, at, hash, key, value)?;
        // The next one lies behind it, as a rule.
        tx.soon(at + E::BYTES_SOON as u64, E::BYTES_SOON);
        Ok(slot_of(hash, at))
    }

    fn new_line(&self, tx: &mut Tx<'_>, line: &Line) -> Result<u64, Error> {
        let at = tx.alloc_bytes(LINE)?.offset();
        tx.write(Ptr::at(at), line)?;
        Ok(at)
    }
}

impl<E> fmt::Debug for Table<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}
