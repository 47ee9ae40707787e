//! The words of the operation log: eight bytes each, which no cut tears.
//!
//! ```text
//!  63      56 55                                    6   5     4      3    0
//! +----------+---------------------------------------+-----+-------+------+
//! |  check   |  payload: 50 bits, by kind            |phase|grouped| kind |
//! +----------+---------------------------------------+-----+-------+------+
//! ```
//!
//! The check says whether the word was written as a word of the log. The phase says in which pass over its
//! segment it was written: a word of the pass before is empty room, not a record. A grouped record counts
//! only if the group before it in its segment was committed.
//!
//! Pure: does not know spaces.

/// Bits of the payload.
const PAYLOAD_BITS: u32 = 50;
const PAYLOAD_SHIFT: u32 = 6;
const KIND_MASK: u64 = 0xf;
const GROUPED: u64 = 1 << 4;
const PHASE_SHIFT: u32 = 5;
const CHECK_SHIFT: u32 = 56;

/// Odd, and no bit of the word below the check moves the product's top byte by 0 or by 255: so every single
/// flipped bit changes the check, whatever is carried.
const CHECK_FACTOR: u64 = 0x4164_d839_9f76_7c45;

/// Bits of a slot's number in its segment.
pub(crate) const SLOT_BITS: u32 = 9;
/// Bits of a segment's sequence.
pub(crate) const SEQ_BITS: u32 = PAYLOAD_BITS - SLOT_BITS;
/// Bits of a transaction id in a group.
pub(crate) const TID_BITS: u32 = 44;
const PAGES_BITS: u32 = 22;

/// Most pages that a record of a run can count.
pub(crate) const RUN_PAGES_MAX: u32 = (1 << PAGES_BITS) - 1;
/// Lanes that a group can name.
pub(crate) const LANES_MAX: u32 = 1 << (PAYLOAD_BITS - TID_BITS);

/// What a word of the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Nothing: room that may be used again.
    Pad {
        /// The chunk whose record it was; 0: it was none's.
        was: u64,
    },
    /// First level: a chunk at this offset is allocated.
    Alloc {
        /// Offset in the space, a multiple of 16.
        at: u64,
    },
    /// The record there no longer counts.
    Exclude {
        /// Sequence of its segment.
        seq: u64,
        /// Its slot.
        slot: u32,
    },
    /// Second level: a block is cut into chunks of a size class.
    Slab {
        /// Number of the block.
        block: u32,
        /// Its class.
        class: u8,
    },
    /// Second level: a run of pages for one large chunk.
    Run {
        /// First page.
        page: u32,
        /// How many.
        pages: u32,
    },
    /// What follows was published by a transaction, if its lane got that far.
    Group {
        /// The lane.
        lane: u32,
        /// The transaction.
        tid: u64,
    },
    /// What follows was moved here from a segment, if that is gone.
    Moved {
        /// The segment's sequence.
        seq: u64,
    },
    /// In the header of a segment: it holds records of this sequence.
    Open {
        /// The sequence.
        seq: u64,
    },
    /// In the header of a segment: nothing in it counts any more.
    Retired {
        /// Its last sequence.
        seq: u64,
    },
    /// In the directory: these pages hold segments.
    Extent {
        /// First page.
        page: u32,
        /// How many.
        pages: u32,
    },
    /// In a lane: how far it has published.
    Published {
        /// The highest transaction id.
        tid: u64,
    },
}

/// A record as it stands in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) record: Record,
    pub(crate) grouped: bool,
    pub(crate) phase: bool,
}

#[inline]
fn check(low: u64) -> u64 {
    low.wrapping_mul(CHECK_FACTOR) & (0xff << CHECK_SHIFT)
}

#[inline]
fn seal(low: u64) -> u64 {
    low | check(low)
}

/// The phase of a word, whatever else it holds.
#[inline]
pub(crate) fn phase_of(word: u64) -> bool {
    word >> PHASE_SHIFT & 1 == 1
}

/// The chunk whose record was in this room; for a word that was checked before.
#[inline]
pub(crate) fn padded(word: u64) -> Option<u64> {
    (word & KIND_MASK == 1).then_some((word & !(0xff << CHECK_SHIFT)) >> PAYLOAD_SHIFT << 4)
}

/// Whether the word is of the kind that excludes another; for a word that was checked before.
#[inline]
pub(crate) fn is_exclusion(word: u64) -> bool {
    word & KIND_MASK == 3
}

impl Record {
    /// The word for it.
    #[inline]
    pub(crate) fn encode(self, grouped: bool, phase: bool) -> u64 {
        let (kind, payload) = match self {
            Self::Pad { was } => (1, was >> 4),
            Self::Alloc { at } => (2, at >> 4),
            Self::Exclude { seq, slot } => (3, seq << SLOT_BITS | u64::from(slot)),
            Self::Slab { block, class } => (4, u64::from(block) << 8 | u64::from(class)),
            Self::Run { page, pages } => (5, u64::from(page) << PAGES_BITS | u64::from(pages)),
            Self::Group { lane, tid } => (6, u64::from(lane) << TID_BITS | tid),
            Self::Moved { seq } => (7, seq),
            Self::Open { seq } => (8, seq),
            Self::Retired { seq } => (9, seq),
            Self::Extent { page, pages } => (10, u64::from(page) << PAGES_BITS | u64::from(pages)),
            Self::Published { tid } => (11, tid),
        };
        debug_assert!(payload >> PAYLOAD_BITS == 0, "{self:?} fits a word");
        let flags = if grouped { GROUPED } else { 0 } | u64::from(phase) << PHASE_SHIFT;
        seal(kind | flags | payload << PAYLOAD_SHIFT)
    }
}

impl Word {
    /// What the word says, if it was written as a word of the log.
    #[inline]
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let low = word & !(0xff << CHECK_SHIFT);
        if check(low) != word & 0xff << CHECK_SHIFT {
            return None;
        }
        let payload = low >> PAYLOAD_SHIFT;
        let run = || ((payload >> PAGES_BITS) as u32, (payload & u64::from(RUN_PAGES_MAX)) as u32);
        let record = match low & KIND_MASK {
            1 => Record::Pad { was: payload << 4 },
            2 => Record::Alloc { at: payload << 4 },
            3 => {
                Record::Exclude { seq: payload >> SLOT_BITS, slot: (payload & ((1 << SLOT_BITS) - 1)) as u32 }
            }
            4 => Record::Slab { block: (payload >> 8) as u32, class: payload as u8 },
            5 => Record::Run { page: run().0, pages: run().1 },
            6 => Record::Group { lane: (payload >> TID_BITS) as u32, tid: payload & ((1 << TID_BITS) - 1) },
            7 => Record::Moved { seq: payload },
            8 => Record::Open { seq: payload },
            9 => Record::Retired { seq: payload },
            10 => Record::Extent { page: run().0, pages: run().1 },
            11 => Record::Published { tid: payload },
            _ => return None,
        };
        Some(Self { record, grouped: low & GROUPED != 0, phase: phase_of(low) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Record; 12] = [
        Record::Pad { was: 0 },
        Record::Pad { was: 0x12_3456_7890 },
        Record::Alloc { at: 0x12_3456_7890 },
        Record::Exclude { seq: (1 << SEQ_BITS) - 1, slot: 511 },
        Record::Slab { block: 0xff_ffff, class: 35 },
        Record::Run { page: 0xfff_ffff, pages: RUN_PAGES_MAX },
        Record::Group { lane: LANES_MAX - 1, tid: (1 << TID_BITS) - 1 },
        Record::Moved { seq: 7 },
        Record::Open { seq: 1 << 40 },
        Record::Retired { seq: 3 },
        Record::Extent { page: 3, pages: 16 },
        Record::Published { tid: 99 },
    ];

    #[test]
    fn a_word_says_what_was_written() {
        for record in ALL {
            for (grouped, phase) in [(false, false), (false, true), (true, false), (true, true)] {
                let word = record.encode(grouped, phase);
                assert_eq!(Word::decode(word), Some(Word { record, grouped, phase }));
                assert_eq!(phase_of(word), phase);
            }
        }
        assert_eq!(Word::decode(0), None, "zeros are no record");
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for record in ALL {
            for phase in [false, true] {
                let word = record.encode(false, phase);
                for bit in 0..64 {
                    let flipped = Word::decode(word ^ 1 << bit);
                    assert_eq!(flipped, None, "{record:?} with bit {bit} flipped");
                }
            }
        }
        for bit in 0..CHECK_SHIFT {
            let moved = CHECK_FACTOR.wrapping_shl(bit) >> CHECK_SHIFT;
            assert!(moved != 0 && moved != 0xff, "bit {bit} moves the check by {moved:#x}");
        }
    }
}
