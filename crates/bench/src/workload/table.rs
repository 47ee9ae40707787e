//! Owns the layout of a table of 1 KB records in a memory, and can tell whether one is whole.
//!
//! ```text
//! page 0             magic u64 | slots u64 | loaded u64 | next key u64 | zeros
//! page 1 ...         slot 0 | slot 1 | slot 2 | slot 3      four records of 1024 bytes to a page
//! record             key u64 | version u64 | check u64 | field 0 | ... | field 9
//! field, 100 bytes   stamp u64 | carry u64 | 84 bytes, the pattern of (key, field, stamp, carry)
//! ```
//!
//! Keys are dense numbers, and the record of key k lives in slot k modulo the slots: there is no
//! index, as in a store that keeps its index outside the persistent bytes. So an operation costs
//! one random access to a record, the least a table can ask for, and what is around it shows the
//! most. Inserts beyond the last slot wrap around and overwrite the oldest record.
//!
//! `stamp` is the step that wrote the field (0 for the load), `version` the step that last wrote
//! the record, `carry` the sum of what a read-modify-write read (0 otherwise). Little-endian.
//!
//! Invariants, between two steps:
//! - every field's 84 bytes follow from its key, number, stamp and carry;
//! - a record's version is the largest stamp of its fields, its check follows from key and version;
//! - exactly the keys below `next key`, at most as many as there are slots, are in the table.
//!
//! Does not choose keys, or know what a step is made of beyond its number.

use std::fmt;

use super::pattern::{fill, mix};
use super::{Memory, PAGE_BYTES, PROGRESS_EVERY_BYTES};

/// Bytes in a record, its header included.
pub const RECORD_BYTES: usize = 1024;
/// Fields of a record.
pub const FIELDS: usize = 10;
/// Bytes in a field: the YCSB's default.
pub const FIELD_BYTES: usize = 100;
/// Bytes in a record's header.
const HEADER_BYTES: usize = 24;
/// Bytes of a field ahead of its pattern.
const FIELD_HEAD_BYTES: usize = 16;
/// Share of the slots that the load fills; the rest waits for inserts.
pub const LOADED_PERCENT: u64 = 95;

const MAGIC: u64 = u64::from_le_bytes(*b"WKTABLE1");
const NEXT_KEY_OFFSET: u64 = 24;
const RECORDS_PER_PAGE: usize = PAGE_BYTES / RECORD_BYTES;

const _: () = assert!(HEADER_BYTES + FIELDS * FIELD_BYTES == RECORD_BYTES);
const _: () = assert!(RECORDS_PER_PAGE * RECORD_BYTES == PAGE_BYTES);

/// A whole record's bytes.
pub type Record = [u8; RECORD_BYTES];

/// Where things are in a table of some size. Holds no contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    slots: u64,
    loaded: u64,
}

impl Table {
    /// The layout in a region of `bytes`, which is at least [`super::REGION_BYTES_MIN`].
    pub fn for_region(bytes: u64) -> Self {
        let page = PAGE_BYTES as u64;
        let slots = (bytes / page - 1) * RECORDS_PER_PAGE as u64;
        // Divided first: no region is too large for this product.
        let loaded = slots / 100 * LOADED_PERCENT + slots % 100 * LOADED_PERCENT / 100;
        Self { slots, loaded }
    }

    /// Records there is room for.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Records that the load writes: keys 0 up to this.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Where the record of `key` starts.
    #[inline]
    pub fn offset(&self, key: u64) -> u64 {
        // A division costs as much as a cache miss to the next level; most keys need none.
        let slot = if key < self.slots { key } else { key % self.slots };
        PAGE_BYTES as u64 + slot * RECORD_BYTES as u64
    }

    /// Writes the table as it is at step 0.
    pub(crate) fn load<M: Memory + ?Sized>(&self, memory: &mut M, progress: &mut dyn FnMut(f64)) {
        let mut page = [0; PAGE_BYTES];
        for (place, word) in [MAGIC, self.slots, self.loaded, self.loaded].iter().enumerate() {
            page[place * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        memory.write(0, &page);
        // Free slots are zeroed too: what a region held before must not show through.
        let bytes = memory.len();
        let mut key = 0;
        let mut offset = PAGE_BYTES as u64;
        while offset < bytes {
            page.fill(0);
            for place in page.chunks_exact_mut(RECORD_BYTES) {
                if key < self.loaded {
                    place.copy_from_slice(&record(key, 0));
                    key += 1;
                }
            }
            let left = usize::try_from(bytes - offset).unwrap_or(PAGE_BYTES);
            memory.write(offset, &page[..left.min(PAGE_BYTES)]);
            offset += PAGE_BYTES as u64;
            if offset.is_multiple_of(PROGRESS_EVERY_BYTES) {
                progress(offset.min(bytes) as f64 / bytes as f64);
            }
        }
        progress(1.0);
    }

    /// Reads the record of `key`.
    #[inline]
    pub(crate) fn read<M: Memory + ?Sized>(&self, memory: &M, key: u64) -> Record {
        let mut record = [0; RECORD_BYTES];
        memory.read(self.offset(key), &mut record);
        record
    }

    /// Rewrites `fields` fields of the record of `key`, from field `first` on, wrapping; then its
    /// header. Gives the bytes written.
    ///
    /// Field first, header last, as a store that commits by its header would: a step cut in
    /// between leaves a field newer than the record's version.
    #[inline]
    pub(crate) fn update<M: Memory + ?Sized>(
        &self,
        memory: &mut M,
        key: u64,
        first: usize,
        fields: usize,
        stamp: u64,
        carry: u64,
    ) -> u64 {
        let offset = self.offset(key);
        let mut number = first;
        for _ in 0..fields {
            let place = HEADER_BYTES + number * FIELD_BYTES;
            memory.write(offset + place as u64, &field(key, number, stamp, carry));
            number = if number + 1 == FIELDS { 0 } else { number + 1 };
        }
        memory.write(offset, &header(key, stamp));
        (fields * FIELD_BYTES + HEADER_BYTES) as u64
    }

    /// Writes the record of the new `key`, then the table's header. Gives the bytes written.
    #[inline]
    pub(crate) fn insert<M: Memory + ?Sized>(&self, memory: &mut M, key: u64, stamp: u64) -> u64 {
        memory.write(self.offset(key), &record(key, stamp));
        memory.write(NEXT_KEY_OFFSET, &(key + 1).to_le_bytes());
        RECORD_BYTES as u64 + 8
    }
}

/// The header of a record.
#[inline]
fn header(key: u64, version: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&key.to_le_bytes());
    header[8..16].copy_from_slice(&version.to_le_bytes());
    header[16..].copy_from_slice(&mix(key, version).to_le_bytes());
    header
}

/// One field of a record.
#[inline]
fn field(key: u64, number: usize, stamp: u64, carry: u64) -> [u8; FIELD_BYTES] {
    let mut field = [0; FIELD_BYTES];
    field[..8].copy_from_slice(&stamp.to_le_bytes());
    field[8..16].copy_from_slice(&carry.to_le_bytes());
    let place = key.wrapping_mul(FIELDS as u64) + number as u64;
    let seed = mix(place, stamp ^ carry.rotate_left(32));
    fill(seed, &mut field[FIELD_HEAD_BYTES..]);
    field
}

/// A whole record, all fields of one stamp.
#[inline]
fn record(key: u64, stamp: u64) -> Record {
    let mut record = [0; RECORD_BYTES];
    record[..HEADER_BYTES].copy_from_slice(&header(key, stamp));
    for (number, place) in record[HEADER_BYTES..].chunks_exact_mut(FIELD_BYTES).enumerate() {
        place.copy_from_slice(&field(key, number, stamp, 0));
    }
    record
}

/// What a whole table was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Records checked: every one in the table.
    pub records: u64,
    /// The newest step found in any record.
    pub newest_step: u64,
}

/// Checks every record of the table in `memory`, trusting nothing but the layout above.
///
/// # Errors
/// The first damage found, in the order of keys.
pub fn verify<M: Memory + ?Sized>(memory: &M) -> Result<Verified, TableDamage> {
    let table = Table::for_region(memory.len().max(super::REGION_BYTES_MIN));
    if memory.len() < super::REGION_BYTES_MIN {
        return Err(TableDamage::NoTable);
    }
    let mut head = [0; 32];
    memory.read(0, &mut head);
    let next_key = word(&head, 24);
    if word(&head, 0) != MAGIC {
        return Err(TableDamage::NoTable);
    }
    if (word(&head, 8), word(&head, 16)) != (table.slots, table.loaded) || next_key < table.loaded {
        return Err(TableDamage::Header);
    }
    let oldest = next_key.saturating_sub(table.slots);
    let mut newest_step = 0;
    for key in oldest..next_key {
        newest_step = newest_step.max(verify_record(&table.read(memory, key), key)?);
    }
    Ok(Verified { records: next_key - oldest, newest_step })
}

/// Checks one record; gives its version.
fn verify_record(record: &Record, key: u64) -> Result<u64, TableDamage> {
    let version = word(record, 8);
    if record[..HEADER_BYTES] != header(key, version) {
        return Err(TableDamage::RecordHeader { key });
    }
    let mut newest = 0;
    for (number, bytes) in record[HEADER_BYTES..].chunks_exact(FIELD_BYTES).enumerate() {
        let stamp = word(bytes, 0);
        if bytes != field(key, number, stamp, word(bytes, 8)) {
            return Err(TableDamage::Field { key, number });
        }
        newest = newest.max(stamp);
    }
    if newest != version {
        return Err(TableDamage::Version { key, version, newest });
    }
    Ok(version)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Why a table is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableDamage {
    /// The memory holds no table of ours.
    NoTable,
    /// The table's header contradicts the size of the memory, or itself.
    Header,
    /// A record's header is not the one of its key.
    RecordHeader {
        /// The record.
        key: u64,
    },
    /// A field's bytes do not follow from its stamp.
    Field {
        /// The record.
        key: u64,
        /// The field, from 0.
        number: usize,
    },
    /// A record's version is not the stamp of its newest field: an update was cut in half.
    Version {
        /// The record.
        key: u64,
        /// The version in its header.
        version: u64,
        /// The largest stamp of its fields.
        newest: u64,
    },
}

impl fmt::Display for TableDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => f.write_str("the memory holds no table"),
            Self::Header => f.write_str("the table's header does not fit the memory"),
            Self::RecordHeader { key } => write!(f, "record {key}: its header is damaged"),
            Self::Field { key, number } => write!(f, "record {key}: field {number} is damaged"),
            Self::Version { key, version, newest } => {
                write!(f, "record {key}: its version is step {version}, its newest field is of step {newest}")
            }
        }
    }
}

impl std::error::Error for TableDamage {}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(bytes: usize) -> (Table, Vec<u8>) {
        let mut memory = vec![0; bytes];
        let table = Table::for_region(bytes as u64);
        table.load(&mut memory, &mut |_| ());
        (table, memory)
    }

    #[test]
    fn a_load_fills_more_than_nine_tenths_of_the_region() {
        let (table, memory) = loaded(1 << 20);
        let records = table.loaded() * RECORD_BYTES as u64;
        assert!(records * 10 > Memory::len(&memory) * 9);
        assert_eq!(verify(&memory), Ok(Verified { records: table.loaded(), newest_step: 0 }));
    }

    #[test]
    fn every_flipped_byte_of_a_record_is_found() {
        let (table, mut memory) = loaded(1 << 16);
        table.update(&mut memory, 7, 3, 1, 41, 99);
        assert_eq!(verify(&memory).map(|whole| whole.newest_step), Ok(41));
        let start = usize::try_from(table.offset(7)).expect("small");
        for place in start..start + RECORD_BYTES {
            memory[place] ^= 0x10;
            assert!(verify(&memory).is_err(), "byte {}", place - start);
            memory[place] ^= 0x10;
        }
    }

    #[test]
    fn an_update_without_its_header_is_found() {
        let (table, mut memory) = loaded(1 << 16);
        let header_before = table.read(&memory, 5)[..HEADER_BYTES].to_vec();
        table.update(&mut memory, 5, 0, 1, 8, 0);
        memory.write(table.offset(5), &header_before);
        assert_eq!(verify(&memory), Err(TableDamage::Version { key: 5, version: 0, newest: 8 }));
    }

    #[test]
    fn inserts_beyond_the_last_slot_overwrite_the_oldest_record() {
        let (table, mut memory) = loaded(1 << 16);
        for (step, key) in (table.loaded()..table.slots() + 3).enumerate() {
            table.insert(&mut memory, key, step as u64 + 1);
        }
        assert_eq!(table.offset(table.slots() + 2), table.offset(2));
        assert_eq!(verify(&memory).map(|whole| whole.records), Ok(table.slots()));
    }

    #[test]
    fn a_memory_without_a_table_is_no_table() {
        assert_eq!(verify(&vec![0; 1 << 16]), Err(TableDamage::NoTable));
        assert_eq!(verify(&vec![0; 10]), Err(TableDamage::NoTable));
    }
}
