//! Size classes: four to a doubling, as in jemalloc, so that rounding up wastes a fifth at most.
//!
//! Pure.

use crate::layout::{BLOCK, GRANULE, PAGE};

/// How many classes there are.
pub(crate) const CLASSES: usize = 36;

/// Most bytes that a class holds; larger objects are runs of pages.
pub(crate) const CLASS_BYTES_MAX: u64 = 16 << 10;

/// Stands for a run of pages where a class is expected.
pub(crate) const LARGE: u8 = CLASSES as u8;

/// Bytes of chunks that move between a thread and all others at once, and how many at most.
const BATCH_BYTES: u32 = 32 << 10;
const BATCH_MAX: u32 = 64;

/// Objects up to here find their class in a table.
const TABLE_BYTES: u64 = 1024;

/// One size class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    /// Bytes of its chunks.
    pub(crate) bytes: u32,
    /// Chunks of a block.
    pub(crate) count: u32,
    /// How many chunks move between a thread and all others at once.
    batch: u32,
    /// 2^32 / bytes, rounded up: divides an offset in a block by a multiplication.
    reciprocal: u32,
}

const fn class_bytes(index: usize) -> u64 {
    if index < 8 {
        return (index as u64 + 1) * GRANULE;
    }
    let doubling = (index - 8) as u64 / 4;
    let quarter = (index - 8) as u64 % 4 + 1;
    (128 << doubling) + quarter * (32 << doubling)
}

const fn classes() -> [Class; CLASSES] {
    let mut all = [Class { bytes: 0, count: 0, batch: 0, reciprocal: 0 }; CLASSES];
    let mut index = 0;
    while index < CLASSES {
        let bytes = class_bytes(index);
        let reciprocal = (1u64 << 32).div_ceil(bytes) as u32;
        let (count, batch) = ((BLOCK / bytes) as u32, BATCH_BYTES / bytes as u32);
        let batch = if batch == 0 {
            1
        } else if batch > BATCH_MAX {
            BATCH_MAX
        } else {
            batch
        };
        all[index] = Class { bytes: bytes as u32, count, batch, reciprocal };
        index += 1;
    }
    all
}

/// All classes, by rising size.
pub(crate) static ALL: [Class; CLASSES] = classes();

const _: () = assert!(class_bytes(CLASSES - 1) == CLASS_BYTES_MAX);

const fn table() -> [u8; (TABLE_BYTES / GRANULE) as usize + 1] {
    let mut table = [0; (TABLE_BYTES / GRANULE) as usize + 1];
    let mut granules = 0;
    let mut class = 0;
    while granules < table.len() {
        while class_bytes(class as usize) < granules as u64 * GRANULE {
            class += 1;
        }
        table[granules] = class;
        granules += 1;
    }
    table
}

static TABLE: [u8; (TABLE_BYTES / GRANULE) as usize + 1] = table();

/// The smallest class that holds `bytes`.
#[inline]
pub(crate) fn class_of(bytes: u64) -> Option<u8> {
    if bytes <= TABLE_BYTES {
        return Some(TABLE[bytes.div_ceil(GRANULE) as usize]);
    }
    if bytes > CLASS_BYTES_MAX {
        return None;
    }
    let doubling = (bytes - 1).ilog2() - 7;
    let quarter = (bytes - 1 - (128 << doubling)) / (32 << doubling);
    Some(8 + doubling as u8 * 4 + quarter as u8)
}

/// The smallest class that holds `bytes` at multiples of `align`, a power of two.
pub(crate) fn class_aligned(bytes: u64, align: u64) -> Option<u8> {
    if align <= GRANULE {
        return class_of(bytes);
    }
    if align > PAGE {
        return None;
    }
    let first = class_of(bytes.max(align))?;
    (first..CLASSES as u8).find(|class| u64::from(ALL[usize::from(*class)].bytes).is_multiple_of(align))
}

impl Class {
    /// Which chunk begins at `offset` bytes into its block, if one does.
    #[inline]
    pub(crate) fn index_at(&self, offset: u64) -> Option<u32> {
        let index = ((offset * u64::from(self.reciprocal)) >> 32) as u32;
        (u64::from(index) * u64::from(self.bytes) == offset && index < self.count).then_some(index)
    }

    /// How many chunks move between a thread and all others at once.
    #[inline]
    pub(crate) fn batch(&self) -> usize {
        self.batch as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 0..=CLASS_BYTES_MAX {
            let class = usize::from(class_of(bytes).expect("small enough"));
            assert!(u64::from(ALL[class].bytes) >= bytes, "{bytes} in class {class}");
            assert!(class == 0 || u64::from(ALL[class - 1].bytes) < bytes, "{bytes} in class {class}");
        }
        assert_eq!(class_of(CLASS_BYTES_MAX + 1), None);
    }

    #[test]
    fn an_offset_is_a_chunk_only_where_one_begins() {
        for class in ALL {
            for offset in 0..BLOCK {
                let divides = offset.is_multiple_of(class.bytes.into());
                let index = offset / u64::from(class.bytes);
                let expected = (divides && index < class.count.into()).then_some(index as u32);
                assert_eq!(class.index_at(offset), expected, "{offset} in {class:?}");
            }
        }
    }

    #[test]
    fn an_aligned_class_is_aligned() {
        for align in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096] {
            for bytes in (1..CLASS_BYTES_MAX).step_by(37) {
                let class = class_aligned(bytes, align).expect("one fits");
                let class = ALL[usize::from(class)];
                assert!(u64::from(class.bytes) >= bytes && u64::from(class.bytes).is_multiple_of(align));
            }
        }
    }
}
