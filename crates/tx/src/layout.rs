//! Where everything lies in the log area.
//!
//! ```text
//! log area   header line | floor line | ... 4 KiB | lane 0 | lane 1 | ...
//! lane       done line | slots | lists | word records | words | object records | objects
//! ```
//!
//! Redo uses all slots but the last: in the place behind a slot lies its witness.
//!
//! Records lie apart from their data, and words apart from objects (figure 16 of the paper): what recovery
//! walks is dense. A lane is written by one transaction at a time, from the beginning of each part, until it
//! is truncated.

use std::mem::offset_of;
use std::ops::Range;

use wattkeep_persist::{LINE, PAGE};

use crate::lines::Tally;
use crate::options::Logging;
use crate::record::{OBJECT_RECORD, Slot, WORD_RECORD};

/// Bytes before the first lane.
pub(crate) const PREFACE_BYTES: usize = 4096;
/// Offset of the floor in the log area: its own line, for it changes.
pub(crate) const FLOOR_AT: usize = LINE;
/// The smallest lane, with room for a transaction of some twenty records.
pub(crate) const LANE_BYTES_MIN: usize = 4096;
/// The size of a lane that the log area is cut into: the paper truncates at 1 MiB. 16 of them and the
/// preface fit into 16 MiB.
pub(crate) const LANE_BYTES_GOOD: usize = (1 << 20) - PREFACE_BYTES;
/// More lanes than this serve more threads than store at once.
const LANES_MOST: u32 = 16;
/// A small area is cut into so many lanes all the same.
const LANES_FEW: usize = 4;

/// The parts of a lane that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Slots,
    Lists,
    WordRecords,
    Words,
    ObjectRecords,
    Objects,
}

impl Part {
    pub(crate) const ALL: [Self; 6] =
        [Self::Slots, Self::Lists, Self::WordRecords, Self::Words, Self::ObjectRecords, Self::Objects];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Slots => "commit slots",
            Self::Lists => "lists of objects",
            Self::WordRecords => "word records",
            Self::Words => "words",
            Self::ObjectRecords => "object records",
            Self::Objects => "object data",
        }
    }

    /// Sixteenths of a lane: a small transaction takes a slot and two records, and bulk data are objects.
    const fn sixteenths(self) -> usize {
        match self {
            Self::Slots | Self::ObjectRecords => 2,
            Self::Lists | Self::Words => 1,
            Self::WordRecords => 3,
            Self::Objects => 7,
        }
    }

    /// What its entries are multiples of.
    const fn entry_bytes(self) -> usize {
        match self {
            Self::Slots => size_of::<Slot>(),
            Self::WordRecords => WORD_RECORD,
            Self::ObjectRecords => OBJECT_RECORD,
            Self::Lists | Self::Words | Self::Objects => 8,
        }
    }
}

/// The place of one lane's parts, in bytes of the space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLayout {
    at: usize,
    starts: [usize; Part::ALL.len()],
    rooms: [usize; Part::ALL.len()],
}

impl LaneLayout {
    fn new(at: usize, bytes: usize) -> Self {
        let share = |part: Part| (bytes - LINE) * part.sixteenths() / 16 / LINE * LINE;
        let mut place = Self { at, starts: Default::default(), rooms: Default::default() };
        let mut start = at + LINE;
        for part in Part::ALL {
            place.starts[part as usize] = start;
            place.rooms[part as usize] = share(part) / part.entry_bytes() * part.entry_bytes();
            start += share(part);
        }
        place
    }

    /// The line that says which transaction of the lane ended last (undo).
    pub(crate) fn done_at(&self) -> usize {
        self.at
    }

    /// Where the part begins.
    #[inline]
    pub(crate) fn start(&self, part: Part) -> usize {
        self.starts[part as usize]
    }

    /// Where the slot of this number lies.
    #[inline]
    pub(crate) fn slot_at(&self, number: usize) -> usize {
        self.start(Part::Slots) + number * size_of::<Slot>()
    }

    /// Slots that have room.
    pub(crate) fn slots(&self) -> usize {
        self.room(Part::Slots) / size_of::<Slot>()
    }

    /// Where it is said that the slot of this number was whole: in the next one, its last word.
    #[inline]
    pub(crate) fn witness_at(&self, number: usize) -> usize {
        self.slot_at(number + 1) + offset_of!(Slot, check)
    }

    /// How many bytes of it can be used.
    #[inline]
    pub(crate) fn room(&self, part: Part) -> usize {
        self.rooms[part as usize]
    }

    /// How many bytes of it one transaction can use: undo keeps the list of the one before.
    pub(crate) fn room_of_one(&self, part: Part, logging: Logging) -> usize {
        match (part, logging) {
            (Part::Lists, Logging::Undo) => self.room(part) / 16 * 8,
            _ => self.room(part),
        }
    }

    /// What one transaction may log.
    pub(crate) fn most(&self, logging: Logging) -> Most {
        let entries = |part: Part| self.room_of_one(part, logging) / part.entry_bytes();
        let runs = Tally {
            words: entries(Part::WordRecords).min(entries(Part::Words)),
            objects: entries(Part::ObjectRecords),
            object_bytes: self.room(Part::Objects),
        };
        Most { runs, listed: entries(Part::Lists) }
    }
}

/// What one transaction may log: what an empty lane has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Of records and their data, with redo.
    pub(crate) runs: Tally,
    /// Objects allocated and freed.
    pub(crate) listed: usize,
}

/// The place of all lanes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) at: usize,
    pub(crate) lanes: u32,
    pub(crate) lane_bytes: usize,
}

impl Layout {
    /// As many lanes of a good size as the log area holds, at most `lanes_max`; few small ones in a small
    /// area; or why not.
    pub(crate) fn of(area: &Range<u64>, lanes_max: u32) -> Result<Self, String> {
        let bytes = area.end.saturating_sub(area.start) as usize;
        let room = bytes.saturating_sub(PREFACE_BYTES);
        let lanes = (room / LANE_BYTES_GOOD).max((room / LANE_BYTES_MIN).min(LANES_FEW));
        let lanes = (lanes as u32).min(LANES_MOST).min(lanes_max);
        let lane_bytes = room.checked_div(lanes as usize).unwrap_or(0) / LINE * LINE;
        if lane_bytes < LANE_BYTES_MIN || !area.start.is_multiple_of(LINE as u64) {
            let least = PREFACE_BYTES + LANE_BYTES_MIN;
            return Err(format!(
                "{bytes} bytes are set apart for it at {:#x}; create the heap with log_area_bytes of {least} or \
                 more",
                area.start
            ));
        }
        // Places in a lane are 32-bit numbers.
        Ok(Self { at: area.start as usize, lanes, lane_bytes: lane_bytes.min(1 << 31) })
    }

    /// Bytes of a log area in which one transaction has `needed` bytes of the part: more than there are now,
    /// and hardly more than it takes. None: there is no such area.
    pub(crate) fn area_bytes_for(&self, part: Part, needed: usize, logging: Logging) -> Option<u64> {
        let area_of = |lanes: u32, lane_bytes: usize| {
            (PREFACE_BYTES + lanes as usize * lane_bytes).next_multiple_of(PAGE)
        };
        let has_room = |bytes: usize| {
            Self::of(&(0..bytes as u64), LANES_MOST)
                .is_ok_and(|layout| layout.lane(0).room_of_one(part, logging) >= needed)
        };
        let shares = if part == Part::Lists && logging == Logging::Undo { 2 } else { 1 };
        // Rounded up twice: parts to lines, and their rooms to entries.
        let lane_bytes =
            (needed.div_ceil(part.sixteenths()) * 16 * shares + 32 * LINE).next_multiple_of(LINE);
        let now = area_of(self.lanes, self.lane_bytes);
        let areas = (1..=LANES_MOST).map(|lanes| area_of(lanes, lane_bytes.max(LANE_BYTES_MIN)));
        areas.filter(|bytes| *bytes > now && has_room(*bytes)).min().map(|bytes| bytes as u64)
    }

    pub(crate) fn floor_at(&self) -> usize {
        self.at + FLOOR_AT
    }

    pub(crate) fn lane(&self, lane: u32) -> LaneLayout {
        LaneLayout::new(self.at + PREFACE_BYTES + lane as usize * self.lane_bytes, self.lane_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_stay_inside_the_lane() {
        for area in [4096..8192 + 16 * 4096, 0x2000..0x3000 + (16 << 20), 64..70_064, 0..8192] {
            let layout = Layout::of(&area, 31).expect("room");
            for lane in 0..layout.lanes {
                let place = layout.lane(lane);
                let mut free_from = place.done_at() + LINE;
                for part in Part::ALL {
                    assert!(place.start(part) >= free_from && place.room(part) > 0, "{part:?}");
                    assert!(place.start(part).is_multiple_of(LINE));
                    free_from = place.start(part) + place.room(part);
                }
                assert!(free_from <= place.at + layout.lane_bytes);
                assert!(free_from <= area.end as usize);
            }
        }
        assert_eq!(Layout::of(&(0..16 << 20), 31).expect("room").lanes, 16);
        assert_eq!(Layout::of(&(0..4096 + 20_000), 31).expect("room").lanes, 4);
        assert_eq!(Layout::of(&(0..8192), 31).expect("room").lanes, 1);
        assert!(Layout::of(&(0..8191), 31).is_err());
        assert!(Layout::of(&(0..8192), 0).is_err());
    }

    #[test]
    fn a_larger_area_is_named_for_any_need_that_one_can_have() {
        for logging in [Logging::Redo, Logging::Undo] {
            for part in Part::ALL {
                for now in [8192, 1 << 16, 5 << 20, 16 << 20, 100 << 20] {
                    let layout = Layout::of(&(0..now), LANES_MOST).expect("room");
                    for more in [1, 1000, 1 << 20, 20 << 20] {
                        let needed = layout.lane(0).room_of_one(part, logging) + more;
                        let bytes = layout.area_bytes_for(part, needed, logging).expect("there is one");
                        let larger = Layout::of(&(0..bytes), LANES_MOST).expect("room");
                        let room = larger.lane(0).room_of_one(part, logging);
                        assert!(bytes > now && room >= needed, "{part:?} {needed}: {bytes} have {room}");
                        let lanes = larger.lanes as usize;
                        let wasted = (room - needed) * 16 * lanes / part.sixteenths();
                        assert!(wasted <= bytes as usize / 2 + (1 << 17), "{part:?} {needed}: {bytes}");
                    }
                    assert_eq!(layout.area_bytes_for(part, 1 << 40, logging), None);
                }
            }
        }
    }
}
