//! Going over all of a table: for readers, for the check, for those who take it apart.
//!
//! A table may grow and shrink between two steps of a reader. So it goes not by bucket but by the hash read
//! backwards, lowest bit first: at any size, a bucket is one stretch of that order, and splits and merges
//! only divide stretches or join them. What is in the table all the time is met exactly once.

use wattkeep_persist::Ptr;
use wattkeep_tx::Tx;

use super::grow::Chain;
use super::{
    AT_DIRECTORY, BUCKETS, Entries, Form, HEADER_BYTES, Header, Table, bucket_of, entry_of, mark_of, slot_of,
};
use crate::check::Met;
use crate::error::Error;
use crate::view::View;

/// A walk gives up behind so many chains that cannot be read: each may have been long.
const BROKEN_MAX: usize = 32;

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

/// Walks over all of the table at `at`, and holds the bytes to the invariants.
pub(crate) fn walk(view: &impl View, at: u64, form: &impl Form, met: &mut impl Met) -> Result<(), Error> {
    let header = view.value::<Header>(at)?.sound(at)?;
    let directory = at + AT_DIRECTORY;
    met.part(at, HEADER_BYTES as u64);
    BUCKETS.walk(view, directory, met)?;
    let (mut entries, mut broken) = (0, 0);
    for bucket in 0..header.buckets {
        let mut chain = Chain::default();
        let Some(first) = met.found(at, BUCKETS.item(view, directory, bucket)) else { return Ok(()) };
        if met.found(first, chain.read(view, first)).is_none() {
            broken += 1;
            if broken > BROKEN_MAX {
                return Ok(());
            }
            continue;
        }
        chain.lines[1..].iter().for_each(|line| met.part(*line, wattkeep_persist::LINE as u64));
        entries += chain.slots.len() as u64;
        for (index, slot) in chain.slots.iter().enumerate() {
            let entry = entry_of(*slot);
            let read = form.hash_at(view, entry, header.seed);
            let read = read.and_then(|hash| Ok((hash, form.bytes_at(view, entry)?)));
            let Some((hash, bytes)) = met.found(first, read) else { continue };
            met.part(entry, bytes);
            form.content_at(entry, bytes, met);
            let home = bucket_of(hash, header.buckets) == bucket;
            met.hold(home, entry, "an entry in a bucket that its hash does not say");
            let marked = mark_of(*slot) == mark_of(slot_of(hash, 0));
            met.hold(marked, first, "a slot that holds other bits than its entry's hash");
            for other in &chain.slots[..index] {
                let twice = form.same(view, entry, entry_of(*other)).unwrap_or(false);
                met.hold(!twice, entry, "a key that is there twice");
            }
        }
    }
    met.items(entries);
    let counted = entries == header.entries || broken > 0;
    met.hold(counted, at, "a table that does not have as many entries as it counts");
    Ok(())
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
