//! Other people's heaps and tables, each set up for speed as its own documentation advises.
//!
//! | module | who | how |
//! |---|---|---|
//! | [`mimalloc`] | mimalloc, volatile | its own calls; it is not made the program's allocator |
//! | [`pmdk`] | libpmemobj of PMDK, loaded at run time | a pool on tmpfs, taken for persistent memory |
//! | [`lmdb`] | LMDB | on tmpfs: NOSYNC, NOMETASYNC, WRITEMAP |
//! | [`redb`] | redb | on tmpfs: `Durability::None` |
//!
//! A rival that this build or this machine lacks says so in words, and which command brings it.
//!
//! Does not measure.

#[cfg(feature = "rivals")]
mod lmdb;
#[cfg(feature = "rivals")]
mod mimalloc;
#[cfg(not(feature = "rivals"))]
mod missing;
mod pmdk;
#[cfg(feature = "rivals")]
mod redb;

use std::path::Path;

/// Bytes of a key, and of a value: those of the paper's hash table.
pub(crate) const FIELD: usize = 64;

/// A key, or a value.
pub(crate) type Field = [u8; FIELD];

/// The key number `number`, or the value: bytes that look random, the same on every run.
#[inline]
pub(crate) fn field(number: u64) -> Field {
    let mut field = [0; FIELD];
    let mut state = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for word in field.chunks_exact_mut(8) {
        state = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state ^= state >> 27;
        word.copy_from_slice(&state.to_le_bytes());
    }
    field
}

/// Where rivals keep their files: memory, so that no disk slows them.
pub(crate) const TMPFS: &str = "/dev/shm";

/// Why a rival cannot be measured, or failed while it was: in words, with what to do.
pub(crate) type Absent = String;

/// Says what was being done when a rival failed.
#[cfg(feature = "rivals")]
pub(crate) fn while_<E: std::fmt::Display>(doing: &str) -> impl FnOnce(E) -> Absent + '_ {
    move |error| format!("{doing}: {error}")
}

/// A heap with numbered slots, each holding one allocation or none.
pub(crate) trait Allocator {
    /// Frees what `slot` holds, and puts `bytes` new bytes there.
    ///
    /// # Errors
    /// There is no room.
    fn replace(&mut self, slot: usize, bytes: usize) -> Result<(), Absent>;
}

/// mimalloc, with `slots` empty slots. If it `WRITES`, it fills what it allocates.
///
/// # Errors
/// This build has no rivals.
pub(crate) fn mimalloc<const WRITES: bool>(slots: usize) -> Result<impl Allocator + use<WRITES>, Absent> {
    #[cfg(feature = "rivals")]
    return Ok::<_, Absent>(mimalloc::Mimalloc::<WRITES>::new(slots));
    #[cfg(not(feature = "rivals"))]
    missing::without::<missing::Missing>(slots)
}

/// The atomic allocator of a libpmemobj pool in the new file `path`, with `slots` empty slots.
///
/// # Errors
/// The machine lacks the library, or it refuses.
pub(crate) fn pmdk_heap(path: &Path, bytes: usize, slots: usize) -> Result<impl Allocator + use<>, Absent> {
    Ok(pmdk::PmdkHeap::new(pmdk::Pool::create(path, bytes)?, slots))
}

/// A hash table with `buckets` buckets, a power of two, in a new libpmemobj pool.
///
/// # Errors
/// As [`pmdk_heap`].
pub(crate) fn pmdk_table(path: &Path, bytes: usize, buckets: usize) -> Result<impl Table + use<>, Absent> {
    pmdk::PmdkTable::create(pmdk::Pool::create(path, bytes)?, buckets)
}

/// LMDB in the empty directory `directory`.
///
/// # Errors
/// This build has no rivals, or LMDB refuses.
pub(crate) fn lmdb(directory: &Path) -> Result<impl Table + use<>, Absent> {
    #[cfg(feature = "rivals")]
    return lmdb::Lmdb::create(directory);
    #[cfg(not(feature = "rivals"))]
    missing::without::<missing::Missing>(directory)
}

/// redb in the new file `path`.
///
/// # Errors
/// This build has no rivals, or redb refuses.
pub(crate) fn redb(path: &Path) -> Result<impl Table + use<>, Absent> {
    #[cfg(feature = "rivals")]
    return redb::Redb::create(path);
    #[cfg(not(feature = "rivals"))]
    missing::without::<missing::Missing>(path)
}

/// A table from keys to values, changed by transactions.
pub(crate) trait Table {
    /// Inserts or replaces all `pairs` in one transaction.
    ///
    /// # Errors
    /// There is no room, or the transaction failed.
    fn put(&mut self, pairs: &[(Field, Field)]) -> Result<(), Absent>;

    /// The value of `key`.
    ///
    /// # Errors
    /// The table cannot be read.
    fn get(&mut self, key: &Field) -> Result<Option<Field>, Absent>;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A table that answers wrongly, or does half of its work, would be a rival too easily beaten.
    pub(crate) fn a_table_holds_what_was_put_last(table: &mut impl Table) {
        const PAIRS: u64 = 2_000;
        for number in 0..PAIRS {
            table.put(&[(field(number), field(number + 1))]).expect("room for a few pairs");
        }
        let odd: Vec<_> = (1..PAIRS).step_by(2).map(|n| (field(n), field(n + 7))).collect();
        odd.chunks(100).for_each(|batch| table.put(batch).expect("updates in batches"));
        for number in 0..PAIRS {
            let value = if number % 2 == 1 { number + 7 } else { number + 1 };
            let found = table.get(&field(number)).expect("a readable table");
            assert!(found == Some(field(value)), "the value of key {number}");
        }
        assert!(table.get(&field(PAIRS)).expect("a readable table").is_none());
    }
}
