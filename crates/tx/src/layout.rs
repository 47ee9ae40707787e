//! Where everything lies in the log area.
//!
//! ```text
//! log area   header line | floor line | ... 4 KiB | lane 0 | lane 1 | ...
//! lane       done line | slots | lists | word records | words | object records | objects
//! ```
//!
//! Records lie apart from their data, and words apart from objects (figure 16 of the paper): what recovery
//! walks is dense. A lane is written by one transaction at a time, from the beginning of each part, until it
//! is truncated.

use std::ops::Range;

use wattkeep_persist::LINE;

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

    /// How many bytes of it can be used.
    #[inline]
    pub(crate) fn room(&self, part: Part) -> usize {
        self.rooms[part as usize]
    }
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
            return Err(format!("{bytes} bytes at {:#x} hold no lane", area.start));
        }
        // Places in a lane are 32-bit numbers.
        Ok(Self { at: area.start as usize, lanes, lane_bytes: lane_bytes.min(1 << 31) })
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
}
