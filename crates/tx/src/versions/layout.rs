//! Where versioned objects lie: header, epoch, words, versions. Pure arithmetic.
//!
//! ```text
//! 0    header     64 B   magic, format, versions, bytes of an object, objects, checksum
//! 64   epochs     64 B   the last epoch that a round made persistent 8 | that a transaction did 8
//! 128  words      2 x 8 B an object: epoch | 0 in the first word, 1 in the second | version; 0: never written
//!      versions   two or three times as many as objects, each from a line on: any object's
//! ```
//!
//! A version's number takes as many bits as the last one needs, the epoch all but them and one.
//!
//! Invariant: a [`Layout`] fits the address space. An [`UntrustedHeader`] may say anything.

use bytemuck::{Pod, Zeroable};
use twox_hash::XxHash3_64;
use wattkeep_persist::{LINE, WORD};

use super::VersionsError;

/// "wkverson" in little-endian memory.
const MAGIC: u64 = u64::from_le_bytes(*b"wkverson");

/// Where the last epoch of a round lies, from the beginning.
pub(super) const EPOCH_AT: usize = LINE;
/// Where the last epoch of a transaction lies: the one word here that transactions log.
pub(super) const LOGGED_EPOCH_AT: usize = EPOCH_AT + WORD;
const WORDS_AT: usize = 2 * LINE;

/// How many versions there are for each object. They are a common stock: an object that is not being changed
/// has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Less memory; a write waits for persistence where all others are taken.
    Two = 2,
    /// Of each object one may be persistent, one being persisted, one written: nobody waits.
    Three = 3,
}

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many.
    pub objects: u64,
    /// Bytes of each.
    pub object_bytes: u64,
    /// Versions of each.
    pub versions: Versions,
}

/// Who may make an epoch persistent: the format of what lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// Rounds only.
    Rounds = 1,
    /// The transactions of a heap, too: its log is to be recovered before the objects are.
    Transactions = 2,
}

/// What lies in front, as read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct UntrustedHeader {
    magic: u64,
    format: u32,
    versions: u32,
    object_bytes: u64,
    objects: u64,
    checksum: u64,
    unused: [u64; 3],
}

const _: () = assert!(size_of::<UntrustedHeader>() == LINE);

impl UntrustedHeader {
    pub(super) fn of(shape: &Shape, keeper: Keeper) -> Self {
        let mut header = Self {
            magic: MAGIC,
            format: keeper as u32,
            versions: shape.versions as u32,
            object_bytes: shape.object_bytes,
            objects: shape.objects,
            ..Self::zeroed()
        };
        header.checksum = header.checksum();
        header
    }

    fn checksum(&self) -> u64 {
        XxHash3_64::oneshot(bytemuck::bytes_of(&Self { checksum: 0, ..*self }))
    }

    /// The shape, if this is a header of ours.
    pub(super) fn validate(&self, at: usize) -> Result<(Shape, Keeper), VersionsError> {
        let damaged = |why| VersionsError::Damaged { at, why };
        if self.magic != MAGIC {
            return Err(damaged("no versioned objects were made here"));
        }
        if self.checksum != self.checksum() {
            return Err(damaged("the header's checksum does not match"));
        }
        let keeper = match self.format {
            1 => Keeper::Rounds,
            2 => Keeper::Transactions,
            _ => return Err(damaged("it was made by a newer program")),
        };
        let versions = match self.versions {
            2 => Versions::Two,
            3 => Versions::Three,
            _ => return Err(damaged("objects have two or three versions")),
        };
        Ok((Shape { objects: self.objects, object_bytes: self.object_bytes, versions }, keeper))
    }
}

/// Where everything lies, in bytes from the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    /// Versions of all objects.
    pub(super) slots: u32,
    slot_bytes: usize,
    slots_at: usize,
    /// All of it.
    pub(super) bytes: usize,
}

impl Layout {
    pub(super) fn of(shape: &Shape) -> Result<Self, VersionsError> {
        let small = |value: u64| usize::try_from(value).ok().filter(|&value| value > 0);
        let plan = || {
            let objects = small(shape.objects)?;
            let slot_bytes = small(shape.object_bytes)?.checked_next_multiple_of(LINE)?;
            let words = objects.checked_mul(2 * WORD)?.checked_next_multiple_of(LINE)?;
            let slots_at = WORDS_AT.checked_add(words)?;
            let slots = objects.checked_mul(shape.versions as usize)?;
            let bytes = slots_at.checked_add(slots.checked_mul(slot_bytes)?)?;
            Some(Self { shape: *shape, slots: u32::try_from(slots).ok()?, slot_bytes, slots_at, bytes })
        };
        plan().filter(|plan| plan.bytes <= isize::MAX as usize).ok_or(VersionsError::Shape {
            why: "there is at least one object, of at least one byte, and all fit the address space, with at \
                  most 2^32 versions",
        })
    }

    /// The two words of `object`, which exists: the first one.
    pub(super) fn words_at(&self, object: u64) -> usize {
        WORDS_AT + object as usize * 2 * WORD
    }

    /// Where `word` of `object` belongs.
    pub(super) fn word_at(&self, object: u64, word: Word) -> usize {
        self.words_at(object) + self.place_of(word) as usize * WORD
    }

    /// Version number `slot`, which exists.
    pub(super) fn slot_at(&self, slot: u32) -> usize {
        self.slots_at + slot as usize * self.slot_bytes
    }

    /// Bits of a version's number.
    fn slot_bits(&self) -> u32 {
        u32::BITS - (self.slots - 1).leading_zeros()
    }

    /// The last epoch that a word can hold.
    pub(super) fn epoch_max(&self) -> u64 {
        u64::MAX >> (self.slot_bits() + 1)
    }

    /// Version `slot`, written by `epoch`: a word for the place where `before` does not lie.
    pub(super) fn word(&self, epoch: u64, slot: u32, before: Word) -> Word {
        let place = 1 - self.place_of(before);
        Word((epoch << 1 | place) << self.slot_bits() | u64::from(slot))
    }

    /// Which of its object's words it is: 0 or 1.
    pub(super) fn place_of(&self, word: Word) -> u64 {
        word.0 >> self.slot_bits() & 1
    }

    /// The epoch that wrote it.
    pub(super) fn epoch_of(&self, word: Word) -> u64 {
        word.0 >> self.slot_bits() >> 1
    }

    /// The number of the version.
    pub(super) fn slot_of(&self, word: Word) -> u32 {
        (word.0 & !(u64::MAX << self.slot_bits())) as u32
    }
}

/// A version, and the epoch that wrote it: the [`Layout`] tells them apart. Of two, the greater is newer.
/// Zero: never written.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const NEVER: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_every_version_begins_on_a_line() {
        for versions in [Versions::Two, Versions::Three] {
            let shape = Shape { objects: 9, object_bytes: 100, versions };
            let layout = Layout::of(&shape).expect("a shape");
            let mut end = layout.words_at(8) + 2 * WORD;
            for slot in 0..9 * versions as u32 {
                let at = layout.slot_at(slot);
                assert!(at >= end && at.is_multiple_of(LINE));
                end = at + 100;
                let word = layout.word(layout.epoch_max(), slot, Word::NEVER);
                assert_eq!((layout.epoch_of(word), layout.slot_of(word)), (layout.epoch_max(), slot));
                let next = layout.word(8, 0, word);
                assert!(layout.word(7, slot, next) < next);
                assert_eq!((layout.place_of(word), layout.place_of(next)), (1, 0));
            }
            assert!(end <= layout.bytes && layout.bytes < end + LINE);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        for (objects, object_bytes) in [(0, 8), (8, 0), (u64::MAX, 1), (1, u64::MAX), (1 << 40, 1 << 40)] {
            let shape = Shape { objects, object_bytes, versions: Versions::Three };
            assert!(matches!(Layout::of(&shape), Err(VersionsError::Shape { .. })), "{shape:?}");
        }
    }

    #[test]
    fn a_header_with_any_bit_flipped_is_refused() {
        let shape = Shape { objects: 9, object_bytes: 100, versions: Versions::Two };
        for keeper in [Keeper::Rounds, Keeper::Transactions] {
            let header = UntrustedHeader::of(&shape, keeper);
            assert_eq!(header.validate(0), Ok((shape, keeper)));
        }
        let header = UntrustedHeader::of(&shape, Keeper::Transactions);
        for bit in 0..8 * LINE {
            let mut bytes: [u8; LINE] = bytemuck::cast(header);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let damaged: UntrustedHeader = bytemuck::cast(bytes);
            assert!(damaged.validate(0).is_err(), "bit {bit}");
        }
    }
}
