//! Going over all of a table: for readers, for the check, for those who take it apart.
//!
//! A table may grow and shrink between two steps of a reader. So it goes not by bucket but by the hash read
//! backwards, lowest bit first: at any size, a bucket is one stretch of that order, and splits and merges
//! only divide stretches or join them. What is in the table all the time is met exactly once.

use wattkeep_persist::Ptr;
use wattkeep_tx::Tx;

use super::grow::Chain;
use super::{BUCKETS, Entries, HEADER_BYTES, Table, bucket_of, entry_of, mark_of, slot_of};
use crate::check::Findings;
use crate::error::Error;
use crate::view::View;

/// How far a reader has come: everything whose backward hash is smaller was met. `None`: all.
pub(crate) type Cursor = Option<u64>;

/// Bits of the hash that say that an entry lies in `bucket`.
fn bits_of(bucket: u64, buckets: u64) -> u32 {
    let bits = buckets.ilog2();
    let half = 1 << bits;
    // Split in this round, or made by a split.
    if bucket >= half || bucket + half < buckets { bits + 1 } else { bits }
}

impl<E: Entries> Table<E> {
    /// The entries of one bucket from `cursor` on, and where to go on.
    pub(crate) fn step(&self, view: &impl View, cursor: u64) -> Result<(Vec<u64>, Cursor), Error> {
        let header = self.header(view)?;
        let bucket = bucket_of(cursor.reverse_bits(), header.buckets);
        let mut chain = Chain::default();
        chain.read(view, BUCKETS.item(view, self.directory(), bucket)?)?;
        let mut entries = Vec::with_capacity(chain.slots.len());
        for slot in chain.slots {
            let entry = entry_of(slot);
            if E::hash_at(view, entry, header.seed)?.reverse_bits() >= cursor {
                entries.push(entry);
            }
        }
        let last = cursor | (u64::MAX >> bits_of(bucket, header.buckets));
        Ok((entries, last.checked_add(1)))
    }

    /// Walks over everything, and holds the bytes to the invariants.
    pub(crate) fn check(&self, view: &impl View) -> Result<Findings, Error> {
        let header = self.header(view)?;
        let mut findings = Findings::default();
        findings.reach(self.place.at(), HEADER_BYTES as u64);
        BUCKETS.walk(view, self.directory(), |at, bytes| findings.reach(at, bytes))?;
        for bucket in 0..header.buckets {
            let first = BUCKETS.item(view, self.directory(), bucket)?;
            let mut chain = Chain::default();
            chain.read(view, first)?;
            chain.lines[1..].iter().for_each(|line| findings.reach(*line, wattkeep_persist::LINE as u64));
            for (index, slot) in chain.slots.iter().enumerate() {
                let entry = entry_of(*slot);
                let hash = E::hash_at(view, entry, header.seed)?;
                findings.items += 1;
                findings.reach(entry, E::bytes_at(view, entry)?);
                let home = bucket_of(hash, header.buckets) == bucket;
                findings.hold(home, entry, "an entry in a bucket that its hash does not say");
                let marked = mark_of(*slot) == mark_of(slot_of(hash, 0));
                findings.hold(marked, first, "a slot that holds other bits than its entry's hash");
                for other in &chain.slots[..index] {
                    let twice = E::same(view, entry, entry_of(*other))?;
                    findings.hold(!twice, entry, "a key that is there twice");
                }
            }
        }
        let counted = findings.items == header.entries;
        findings.hold(counted, self.place.at(), "a table that does not have as many entries as it counts");
        Ok(findings)
    }

    /// Frees everything but the header. The table is of no use afterwards.
    pub(crate) fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let header = self.header(tx)?;
        let mut chain = Chain::default();
        for bucket in 0..header.buckets {
            chain.slots.clear();
            chain.lines.clear();
            chain.read(tx, BUCKETS.item(tx, self.directory(), bucket)?)?;
            for slot in &chain.slots {
                tx.free(Ptr::<u8>::at(entry_of(*slot)))?;
            }
            for line in &chain.lines[1..] {
                tx.free(Ptr::<u8>::at(*line))?;
            }
        }
        BUCKETS.free_from(tx, self.directory(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BUCKETS_MIN;
    use super::*;

    /// The stretches of all buckets follow each other and leave nothing out, at every size.
    #[test]
    fn the_walk_covers_the_backward_order_at_every_size() {
        for buckets in BUCKETS_MIN..300 {
            let (mut cursor, mut met) = (0_u64, 0);
            loop {
                let bucket = bucket_of(cursor.reverse_bits(), buckets);
                let last = cursor | (u64::MAX >> bits_of(bucket, buckets));
                assert_eq!(bucket_of(last.reverse_bits(), buckets), bucket, "a stretch is one bucket");
                met += 1;
                match last.checked_add(1) {
                    Some(next) => cursor = next,
                    None => break,
                }
            }
            assert_eq!(met, buckets);
        }
    }
}
