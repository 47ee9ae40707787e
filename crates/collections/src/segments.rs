//! Arrays that grow without moving: a directory of segments, each as long as all before it.
//!
//! ```text
//! item     0 .. F    F .. 2F    2F .. 4F    4F .. 8F   ...      F: items of the first segment
//! segment     0         1          2           3
//! ```
//!
//! Where an item lies follows from its index and one word of the directory. Segments are not filled: their
//! items are written before they are counted.

use wattkeep_persist::Ptr;
use wattkeep_tx::Tx;

use crate::check::{Met, Pointers};
use crate::error::Error;
use crate::view::{View, WORD, whole_words};

/// Words of a directory. An array of so many segments has more items than offsets have room for.
pub(crate) const SEGMENTS: usize = 40;

/// Bytes of a directory.
pub(crate) const DIRECTORY_BYTES: usize = SEGMENTS * WORD as usize;

/// How an array is laid out: constants of its type.
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    item_bytes: u64,
    /// log2 of the first segment's items.
    first_bits: u32,
}

impl Segments {
    /// Items of `item_bytes`, 2^`first_bits` of them in the first segment.
    pub(crate) const fn new(item_bytes: usize, first_bits: u32) -> Self {
        Self { item_bytes: whole_words(item_bytes) as u64, first_bits }
    }

    /// The segment of item `index`, and the first index in it.
    #[inline]
    fn segment_of(self, index: u64) -> (u64, u64) {
        let bits = (index >> self.first_bits).checked_ilog2().map_or(0, |bits| bits + 1);
        (u64::from(bits), self.first_of(u64::from(bits)))
    }

    /// First index of a segment.
    #[inline]
    fn first_of(self, segment: u64) -> u64 {
        if segment == 0 { 0 } else { 1 << (u64::from(self.first_bits) + segment - 1) }
    }

    /// Items of a segment.
    fn items_of(self, segment: u64) -> u64 {
        1 << (u64::from(self.first_bits) + segment.saturating_sub(1))
    }

    /// Where item `index` lies.
    #[inline(always)]
    pub(crate) fn item(self, view: &impl View, directory: u64, index: u64) -> Result<u64, Error> {
        let (segment, first) = self.segment_of(index);
        if segment >= SEGMENTS as u64 {
            return Err(Error::Damaged { at: directory, what: "an index beyond all segments" });
        }
        let start = view.word(directory + segment * WORD)?;
        let end = (index - first + 1).checked_mul(self.item_bytes).and_then(|bytes| start.checked_add(bytes));
        match end {
            Some(end) if start != 0 && start.is_multiple_of(WORD) && end <= view.bound() => {
                Ok(end - self.item_bytes)
            }
            _ => Err(Error::Damaged { at: directory, what: "a segment that is counted is missing" }),
        }
    }

    /// Makes sure that item `index` has a place, and says which.
    #[inline]
    pub(crate) fn reserve(self, tx: &mut Tx<'_>, directory: u64, index: u64) -> Result<u64, Error> {
        let (segment, first) = self.segment_of(index);
        if index == first && segment < SEGMENTS as u64 {
            let word = Ptr::<u64>::at(directory + segment * WORD);
            if tx.read(word)? == 0 {
                let bytes = self.items_of(segment) * self.item_bytes;
                let start = tx.alloc_bytes(bytes as usize)?;
                tx.write_word(word, start.offset())?;
            }
        }
        self.item(tx, directory, index)
    }

    /// Gives back the segments that `items` items do not need. One is kept in reserve, so that an array that
    /// grows and shrinks around its end does not allocate each time.
    pub(crate) fn release(self, tx: &mut Tx<'_>, directory: u64, items: u64) -> Result<(), Error> {
        let needed = if items == 0 { 0 } else { self.segment_of(items - 1).0 + 1 };
        self.free_from(tx, directory, needed + 1)
    }

    /// Gives back all segments from `segment` on.
    pub(crate) fn free_from(self, tx: &mut Tx<'_>, directory: u64, segment: u64) -> Result<(), Error> {
        for segment in segment..SEGMENTS as u64 {
            let word = Ptr::<u64>::at(directory + segment * WORD);
            let start = tx.read(word)?;
            if start == 0 {
                break;
            }
            tx.free(Ptr::<u8>::at(start))?;
            tx.write_word(word, 0)?;
        }
        Ok(())
    }

    /// Tells every segment.
    pub(crate) fn walk(self, view: &impl View, directory: u64, met: &mut impl Met) -> Result<(), Error> {
        for segment in 0..SEGMENTS as u64 {
            let start = view.word(directory + segment * WORD)?;
            if start != 0 {
                met.part(start, self.items_of(segment).saturating_mul(self.item_bytes));
            }
        }
        Ok(())
    }

    /// Tells the bytes of the first `items` items, of `bytes` each: those of a segment follow each other.
    pub(crate) fn walk_items(
        self,
        view: &impl View,
        directory: u64,
        items: u64,
        bytes: u64,
        met: &mut impl Met,
    ) {
        let mut first = 0;
        while first < items {
            let last = items.min(first + self.items_of(self.segment_of(first).0)) - 1;
            let both = self
                .item(view, directory, first)
                .and_then(|start| Ok((start, self.item(view, directory, last)?)));
            let Some((start, end)) = met.found(directory, both) else { return };
            met.content(start, end - start + bytes, Pointers::of(bytes as usize));
            first = last + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_place() {
        let segments = Segments::new(8, 4);
        let mut places = Vec::new();
        for index in 0..1000 {
            let (segment, first) = segments.segment_of(index);
            assert!(index - first < segments.items_of(segment), "{index} leaves segment {segment}");
            places.push((segment, index - first));
        }
        let mut distinct = places.clone();
        distinct.dedup();
        assert_eq!(places, distinct);
        assert!(places.is_sorted(), "items follow each other");
    }
}
