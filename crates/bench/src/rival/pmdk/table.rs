//! A chained hash table on libpmemobj, as PMDK's example `hashmap_tx` does it, with keys and values of
//! bytes instead of numbers.
//!
//! Faster than the example in what the library's manual allows: entries come from an allocation class of
//! their own without headers, and there are so many buckets from the beginning that the table is never
//! rebuilt. Pointers are followed by adding to the pool's address, without the library's look-up.
//!
//! ```text
//! root:   count u64 | buckets Oid
//! bucket: Oid of the first entry
//! entry:  next Oid | key | value
//! ```

use wattkeep_persist::bytemuck;

use super::api::Oid;
use super::pool::{Class, Pool, Transaction};
use crate::rival::{Absent, FIELD, Field, Table};

const OID_BYTES: usize = size_of::<Oid>();
const ROOT_BYTES: usize = 8 + OID_BYTES;

const NEXT: u64 = 0;
const KEY: u64 = OID_BYTES as u64;
const VALUE: u64 = KEY + FIELD as u64;
const ENTRY_BYTES: usize = OID_BYTES + 2 * FIELD;

/// The table.
pub(crate) struct PmdkTable {
    pool: Pool,
    root: Oid,
    buckets: Oid,
    entries: Class,
    buckets_mask: u64,
}

impl PmdkTable {
    /// A table with `buckets` buckets, a power of two, in a new pool.
    ///
    /// # Errors
    /// The library refuses.
    pub(crate) fn create(mut pool: Pool, buckets: usize) -> Result<Self, Absent> {
        assert!(buckets.is_power_of_two());
        let entries = pool.class(ENTRY_BYTES)?;
        let root = pool.root(ROOT_BYTES)?;
        let mut array = Oid::NULL;
        pool.transaction(|tx| {
            tx.add_range(root, 0, ROOT_BYTES)?;
            array = tx.alloc_zeroed(buckets * OID_BYTES)?;
            write_oid(tx, root.offset + 8, array);
            Ok(())
        })?;
        Ok(Self { pool, root, buckets: array, entries, buckets_mask: buckets as u64 - 1 })
    }
}

/// Where the bucket of `key` begins in the array. The benchmark's keys are random: their first word is a hash.
fn bucket(key: &Field, mask: u64) -> u64 {
    let first: u64 = bytemuck::pod_read_unaligned(&key[..8]);
    (first & mask) * OID_BYTES as u64
}

fn find(pool: &Pool, bucket_at: u64, key: &Field) -> Option<Oid> {
    let mut entry = read_oid(pool, bucket_at);
    while entry.offset != 0 {
        if pool.bytes(entry.offset + KEY, FIELD) == key {
            return Some(entry);
        }
        entry = read_oid(pool, entry.offset + NEXT);
    }
    None
}

fn read_oid(pool: &Pool, at: u64) -> Oid {
    let [pool_uuid, offset] = pool.read(at);
    Oid { pool_uuid, offset }
}

fn write_oid(tx: &mut Transaction<'_>, at: u64, oid: Oid) {
    tx.write(at, &[oid.pool_uuid, oid.offset]);
}

impl Table for PmdkTable {
    fn put(&mut self, pairs: &[(Field, Field)]) -> Result<(), Absent> {
        let (root, buckets, entries, mask) = (self.root, self.buckets, self.entries, self.buckets_mask);
        self.pool.transaction(|tx| {
            for (key, value) in pairs {
                let bucket = bucket(key, mask);
                let first = buckets.offset + bucket;
                if let Some(entry) = find(tx.pool, first, key) {
                    tx.add_range(entry, VALUE, FIELD)?;
                    tx.write(entry.offset + VALUE, value);
                    continue;
                }
                tx.add_range(buckets, bucket, OID_BYTES)?;
                tx.add_range(root, 0, 8)?;
                let entry = tx.alloc(ENTRY_BYTES, entries)?;
                write_oid(tx, entry.offset + NEXT, read_oid(tx.pool, first));
                tx.write(entry.offset + KEY, key);
                tx.write(entry.offset + VALUE, value);
                write_oid(tx, first, entry);
                let count: u64 = tx.pool.read(root.offset);
                tx.write(root.offset, &(count + 1));
            }
            Ok(())
        })
    }

    fn get(&mut self, key: &Field) -> Result<Option<Field>, Absent> {
        let entry = find(&self.pool, self.buckets.offset + bucket(key, self.buckets_mask), key);
        Ok(entry.map(|entry| self.pool.read(entry.offset + VALUE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without the library measures nothing, and says which package brings it.
    #[test]
    fn a_pmdk_table_holds_what_was_put_last_or_the_library_is_named() {
        let directory = tempfile::tempdir_in(crate::rival::TMPFS).expect("tmpfs");
        match Pool::create(&directory.path().join("pool"), 64 << 20) {
            Ok(pool) => {
                let mut table = PmdkTable::create(pool, 1 << 10).expect("room for the buckets");
                crate::rival::tests::a_table_holds_what_was_put_last(&mut table);
                let count: u64 = table.pool.read(table.root.offset);
                assert_eq!(count, 2_000);
            }
            Err(why) => assert!(why.contains("apt-get install libpmemobj1"), "{why}"),
        }
    }
}
