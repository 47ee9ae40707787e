//! Who may reuse which segment: states and counts of every segment.
//!
//! Invariants: `latest` counts the slots of a segment that are some page's latest version, `pinned`
//! those that are some page's committed version and not its latest. A segment becomes free only
//! when it is sealed, both counts and its writes in flight are zero, and, when committed versions
//! were moved out of it, a flush that began after the move has completed: before that the moved
//! copy may still be lost. Pure; does not know pages.

use wattkeep_sys::mutant;

use crate::layout::Geometry;

/// Counts flushes, to tell which began after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlushNumber(pub(crate) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Sealed,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    state: State,
    latest: u32,
    pinned: u32,
    /// Batches written and not yet acknowledged.
    in_flight: u32,
    /// Flushes that had begun when a committed version was last moved out.
    moved_out: FlushNumber,
}

impl Segment {
    const FREE: Self =
        Self { state: State::Free, latest: 0, pinned: 0, in_flight: 0, moved_out: FlushNumber(0) };

    fn empty(&self) -> bool {
        let needed = self.pinned > 0 && !mutant::planted("stale-slot-reuse");
        self.state == State::Sealed && self.latest == 0 && !needed && self.in_flight == 0
    }
}

/// All segments of a store.
#[derive(Debug)]
pub(crate) struct Segments {
    geometry: Geometry,
    all: Vec<Segment>,
    free: u32,
    /// Where the search for a free segment goes on: spreads wear.
    next: u32,
    /// Segments emptied and waiting for a flush.
    emptied: Vec<u32>,
    latest: u64,
    pinned: u64,
    flushes_begun: FlushNumber,
    flushes_done: FlushNumber,
}

impl Segments {
    /// All free.
    pub(crate) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            all: vec![Segment::FREE; geometry.segments() as usize],
            free: geometry.segments(),
            next: 0,
            emptied: Vec::new(),
            latest: 0,
            pinned: 0,
            flushes_begun: FlushNumber(0),
            flushes_done: FlushNumber(0),
        }
    }

    /// Slots of all segments: they are numbered from 0.
    pub(crate) fn slots(&self) -> u32 {
        self.geometry.first_slot(self.geometry.segments())
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    pub(crate) fn pinned(&self) -> u64 {
        self.pinned
    }

    /// Segments that become free with the next flush.
    pub(crate) fn waiting_for_flush(&self) -> u32 {
        self.emptied.len() as u32
    }

    /// Adds free segments at the end.
    pub(crate) fn extend(&mut self, geometry: Geometry) {
        assert!(geometry.segments() >= self.geometry.segments(), "a store never shrinks");
        self.free += geometry.segments() - self.geometry.segments();
        self.all.resize(geometry.segments() as usize, Segment::FREE);
        self.geometry = geometry;
    }

    /// Takes a free segment when more than `floor` are free, and opens it.
    pub(crate) fn take(&mut self, floor: u32) -> Option<u32> {
        if self.free <= floor {
            return None;
        }
        let count = self.geometry.segments();
        let segment = (0..count)
            .map(|step| (self.next + step) % count)
            .find(|&segment| self.all[segment as usize].state == State::Free)
            .expect("the free count says that one is free");
        self.all[segment as usize].state = State::Open;
        self.next = (segment + 1) % count;
        self.free -= 1;
        Some(segment)
    }

    /// Takes `count` free segments that follow one another, and opens them. Returns the first.
    pub(crate) fn take_adjoining(&mut self, count: u32) -> Option<u32> {
        let mut length = 0;
        let free = |segment: &Segment| segment.state == State::Free;
        let last = self.all.iter().position(|segment| {
            length = if free(segment) { length + 1 } else { 0 };
            length == count
        })?;
        let first = last + 1 - count as usize;
        self.all[first..=last].iter_mut().for_each(|segment| segment.state = State::Open);
        self.free -= count;
        Some(first as u32)
    }

    /// No more batches go into an open segment.
    pub(crate) fn seal(&mut self, segment: u32) {
        let at = &mut self.all[segment as usize];
        assert!(at.state == State::Open, "only an open segment is sealed");
        at.state = State::Sealed;
        self.release_if_empty(segment);
    }

    /// Marks what recovery found: a segment with live slots is sealed.
    pub(crate) fn seal_found(&mut self) {
        for segment in &mut self.all {
            if segment.latest + segment.pinned > 0 && segment.state == State::Free {
                segment.state = State::Sealed;
                self.free -= 1;
            }
        }
    }

    pub(crate) fn write_begun(&mut self, segment: u32) {
        self.all[segment as usize].in_flight += 1;
    }

    pub(crate) fn write_acknowledged(&mut self, segment: u32) {
        self.all[segment as usize].in_flight -= 1;
        self.release_if_empty(segment);
    }

    pub(crate) fn add_latest(&mut self, slot: u32) {
        self.of(slot).latest += 1;
        self.latest += 1;
    }

    pub(crate) fn add_pinned(&mut self, slot: u32) {
        self.of(slot).pinned += 1;
        self.pinned += 1;
    }

    pub(crate) fn drop_latest(&mut self, slot: u32) {
        self.of(slot).latest -= 1;
        self.latest -= 1;
        self.release_if_empty(self.geometry.segment_of(slot));
    }

    pub(crate) fn drop_pinned(&mut self, slot: u32) {
        self.of(slot).pinned -= 1;
        self.pinned -= 1;
        self.release_if_empty(self.geometry.segment_of(slot));
    }

    /// A page's latest version was written elsewhere; the committed one stays here.
    pub(crate) fn pin(&mut self, slot: u32) {
        self.add_pinned(slot);
        self.drop_latest(slot);
    }

    /// A committed version was copied out of its slot: the segment waits for a flush from now on.
    pub(crate) fn moved_out(&mut self, slot: u32) {
        let begun = self.flushes_begun;
        self.of(slot).moved_out = FlushNumber(begun.0 + 1);
    }

    /// A flush is about to be submitted.
    pub(crate) fn flush_begun(&mut self) -> FlushNumber {
        self.flushes_begun.0 += 1;
        self.flushes_begun
    }

    /// A flush completed.
    pub(crate) fn flush_done(&mut self, number: FlushNumber) {
        self.flushes_done = self.flushes_done.max(number);
        for segment in std::mem::take(&mut self.emptied) {
            self.release_if_empty(segment);
        }
    }

    /// Sealed segments without pinned slots that hold at most `latest_max` live ones, with that
    /// number.
    pub(crate) fn cleanable(&self, latest_max: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.all.iter().enumerate().filter_map(move |(number, segment)| {
            let fits = segment.state == State::Sealed
                && segment.pinned == 0
                && segment.in_flight == 0
                && segment.latest > 0
                && segment.latest <= latest_max;
            fits.then_some((segment.latest, number as u32))
        })
    }

    /// The counts of every segment, for the walker that checks them against the index.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.all.iter().map(|segment| (segment.latest, segment.pinned))
    }

    fn of(&mut self, slot: u32) -> &mut Segment {
        &mut self.all[self.geometry.segment_of(slot) as usize]
    }

    fn release_if_empty(&mut self, segment: u32) {
        let at = &mut self.all[segment as usize];
        if !at.empty() {
            return;
        }
        if at.moved_out <= self.flushes_done {
            *at = Segment::FREE;
            self.free += 1;
        } else if !self.emptied.contains(&segment) {
            self.emptied.push(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments() -> Segments {
        Segments::new(Geometry::new(8, 4).expect("valid"))
    }

    #[test]
    fn a_floor_keeps_segments_free() {
        let mut segments = segments();
        assert!(segments.take(3).is_some());
        assert!(segments.take(3).is_none());
        assert!(segments.take(2).is_some());
    }

    #[test]
    fn a_segment_emptied_by_a_move_waits_for_a_later_flush() {
        let mut segments = segments();
        let taken = segments.take(0).expect("free");
        segments.add_latest(taken * 8 + 1);
        segments.seal(taken);
        let before = segments.flush_begun();
        segments.moved_out(taken * 8 + 1);
        segments.drop_latest(taken * 8 + 1);
        assert_eq!((segments.free(), segments.waiting_for_flush()), (3, 1));
        segments.flush_done(before);
        assert_eq!(segments.free(), 3, "that flush began before the move");
        let after = segments.flush_begun();
        segments.flush_done(after);
        assert_eq!((segments.free(), segments.waiting_for_flush()), (4, 0));
    }

    #[test]
    fn a_segment_with_a_write_in_flight_is_not_reused() {
        let mut segments = segments();
        let taken = segments.take(0).expect("free");
        segments.write_begun(taken);
        segments.seal(taken);
        assert_eq!(segments.free(), 3);
        segments.write_acknowledged(taken);
        assert_eq!(segments.free(), 4);
    }
}
