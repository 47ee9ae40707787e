//! Allocations and frees of transactions: reserved in DRAM, published as one.
//!
//! A group of records counts if its lane has published its transaction: one word, stored after the group is
//! durable. A lane publishes one transaction at a time, with rising ids.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use wattkeep_persist::mutant;

use crate::cache::{Cache, Ready};
use crate::chunks::{CACHED, POSITION_MIN, Place, RESERVED, SlotAt, UNRETIRED};
use crate::classes::LARGE;
use crate::core::Core;
use crate::error::HeapError;
use crate::free::{allocated, blame, claim};
use crate::heap::Heap;
use crate::layout::{LANE_BYTES, LANES_AT};
use crate::log::{GROUP_ROOM, OpenSegment, Position};
use crate::record::{LANES_MAX, Record, TID_BITS};

/// Lanes that transactions may use; the last one is the heap's own.
pub const LANES: u32 = LANES_MAX - 1;

/// The highest id of a transaction.
pub const TID_MAX: u64 = (1 << TID_BITS) - 1;

/// The heap's own lane.
pub(crate) const OWN_LANE: u32 = LANES;

/// What a lane has published.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) published: u64,
    /// A group was not written as a whole: what is in the log is not known.
    poisoned: bool,
    /// Transactions whose log may still name what they freed.
    unretired: VecDeque<(u64, Vec<u64>)>,
    /// What is published now; kept for its memory.
    group: Group,
}

/// A group on its way into the log.
#[derive(Default)]
struct Group {
    allocated: Vec<SlotAt>,
    freed: Vec<Freed>,
    /// First those of what is allocated, in this order.
    records: Vec<Record>,
    /// Where they are, as far as they were written.
    positions: Vec<Position>,
    /// What the records will be written to: the thread's own segment, if it had one, and others.
    segments: Vec<OpenSegment>,
}

struct Freed {
    at: u64,
    slot: SlotAt,
    position: Position,
    /// Of a large chunk's pages.
    run: Option<Position>,
}

impl Group {
    fn clear(&mut self) {
        self.allocated.clear();
        self.freed.clear();
        self.records.clear();
        self.positions.clear();
    }
}

/// What a transaction claimed: dropped, it is as it was before.
#[must_use = "what is dropped is claimed no longer"]
pub struct Claimed<'a> {
    heap: &'a Heap,
    state: MutexGuard<'a, Lane>,
    lane: u32,
    tid: u64,
    /// Neither published nor left.
    held: bool,
    /// Its thread panics already, of something else.
    beside_panic: bool,
}

impl<'a> Claimed<'a> {
    #[inline]
    pub(crate) fn new(heap: &'a Heap, state: MutexGuard<'a, Lane>, lane: u32, tid: u64) -> Self {
        Self { heap, state, lane, tid, held: true, beside_panic: std::thread::panicking() }
    }

    /// Makes reservations durable, and frees objects, as one; see [`Heap::publish`].
    ///
    /// # Errors
    /// A store is refused: then the next open tells.
    #[inline]
    pub fn publish(mut self) -> Result<(), HeapError> {
        self.held = false;
        let Self { heap, state, lane, tid, .. } = &mut self;
        heap.with(|core, cache| core.publish_claimed(cache, state, *lane, *tid))
    }

    /// Nobody has it until the next open tells whose it is.
    pub fn leave(mut self) {
        self.held = false;
    }
}

impl Drop for Claimed<'_> {
    #[inline]
    fn drop(&mut self) {
        // In a panic nobody knows what was decided.
        if self.held && std::thread::panicking() == self.beside_panic {
            self.heap.core.ungather(&mut self.state.group);
        }
    }
}

impl Core {
    #[inline]
    pub(crate) fn lane(&self, lane: u32) -> Result<MutexGuard<'_, Lane>, HeapError> {
        match self.lanes.get(lane as usize) {
            // A panic beside a claim does no harm: what was claimed stays so. One that cuts a group short poisons.
            Some(known) => Ok(known.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Err(HeapError::Transaction { lane, tid: 0 }),
        }
    }

    /// See [`crate::Heap::publish`].
    pub(crate) fn publish(
        &self,
        cache: &mut Cache,
        lane: u32,
        tid: u64,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), HeapError> {
        let mut state = self.lane(lane)?;
        self.publish_in(cache, &mut state, lane, tid, allocated, freed)
    }

    /// The same with the heap's own lane and its next transaction; what is freed can be used again at once.
    pub(crate) fn publish_own(
        &self,
        cache: &mut Cache,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), HeapError> {
        let mut state = self.lane(OWN_LANE)?;
        let tid = state.published + 1;
        self.publish_in(cache, &mut state, OWN_LANE, tid, allocated, freed)?;
        self.retire_in(cache, &mut state, tid)
    }

    fn publish_in(
        &self,
        cache: &mut Cache,
        state: &mut Lane,
        lane: u32,
        tid: u64,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), HeapError> {
        if (1..=state.published).contains(&tid) && !state.poisoned {
            return Ok(());
        }
        self.claim(cache, state, lane, tid, allocated, freed)?;
        self.publish_claimed(cache, state, lane, tid)
    }

    /// See [`crate::Heap::claim`].
    pub(crate) fn claim(
        &self,
        cache: &mut Cache,
        state: &mut Lane,
        lane: u32,
        tid: u64,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), HeapError> {
        if tid <= state.published || tid > TID_MAX {
            return Err(HeapError::Transaction { lane, tid });
        }
        if state.poisoned {
            return Err(HeapError::LanePoisoned { lane });
        }
        state.group.clear();
        let group = &mut state.group;
        self.gather(cache, group, allocated, freed)
            .and_then(|()| self.make_room(cache, group))
            .inspect_err(|_| self.ungather(group))
    }

    /// Takes segments with room for the records: when it is decided that they are written, it is too late to find
    /// that there is none.
    fn make_room(&self, cache: &mut Cache, group: &mut Group) -> Result<(), HeapError> {
        group.segments.extend(cache.segment.take());
        let mut fit: usize = group.segments.iter().map(OpenSegment::fits_of_group).sum();
        while fit < group.records.len() {
            let segment = self.acquire(GROUP_ROOM)?;
            fit += segment.fits_of_group();
            group.segments.push(segment);
        }
        Ok(())
    }

    /// Segments go back to whoever writes next: the last one to this thread.
    fn leave_segments(&self, cache: &mut Cache, group: &mut Group) {
        while let Some(segment) = group.segments.pop() {
            if cache.segment.is_none() && segment.has_room(1) {
                cache.segment = Some(segment);
            } else {
                // The group counts. A segment that cannot be read stays as it is until the next open tells.
                let _ = self.log.give_back(&self.chunks, segment);
            }
        }
    }

    /// See [`Claimed::publish`].
    fn publish_claimed(
        &self,
        cache: &mut Cache,
        state: &mut Lane,
        lane: u32,
        tid: u64,
    ) -> Result<(), HeapError> {
        let group = &mut state.group;
        // A panic leaves it so, too.
        state.poisoned = true;
        if let Err(error) = self.write_group(lane, tid, group) {
            // What stands in these segments must not be moved: the next open tells what counts.
            group.segments.clear();
            self.ungather(group);
            return Err(error);
        }
        self.leave_segments(cache, group);
        (state.published, state.poisoned) = (tid, false);
        self.settle(group);
        if !group.freed.is_empty() {
            let freed = group.freed.iter().map(|freed| freed.at).collect();
            state.unretired.push_back((tid, freed));
        }
        group.clear();
        if mutant::planted("freed-before-retired") {
            self.retire_in(cache, state, tid)?;
        }
        Ok(())
    }

    /// Claims every chunk of the group, or says which is not to be had.
    fn gather(
        &self,
        cache: &Cache,
        group: &mut Group,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), HeapError> {
        for &at in allocated {
            let place = self.find(at)?;
            // After a restart the reservation is gone, and its chunk is free.
            if let Err(state) = claim(cache, place.slot(), RESERVED, CACHED)
                && !self.take_at(place, CACHED)
            {
                return Err(blame(state, at));
            }
            group.allocated.push(place.slot_at());
            group.records.push(Record::Alloc { at });
            if self.guard {
                self.write_guard(at, place)?;
            }
        }
        for &at in freed {
            let place = self.find(at)?;
            if self.guard {
                self.check_guard(at, place)?;
            }
            let position = self.hold(place, at)?;
            let run = (place.class == LARGE).then(|| self.hold_run(place));
            group.freed.push(Freed { at, slot: place.slot_at(), position, run });
            group.records.push(self.log.exclusion(position));
            group.records.extend(run.map(|run| self.log.exclusion(run)));
        }
        Ok(())
    }

    /// Where the record of a run is whose chunk is marked: it is not moved from there any more.
    fn hold_run(&self, place: Place<'_>) -> Position {
        loop {
            let run = Position(place.cells().run().load(Ordering::Acquire));
            let _moved_before = self.log.stripe(run.segment());
            if place.cells().run().load(Ordering::Acquire) == run.0 {
                return run;
            }
        }
    }

    /// Holds a chunk so that nobody frees it and its record is not moved.
    fn hold(&self, place: Place<'_>, at: u64) -> Result<Position, HeapError> {
        loop {
            let position = allocated(self.settled(place), at)?;
            if place.hold(position.0).is_ok() {
                return Ok(position);
            }
        }
    }

    fn ungather(&self, group: &mut Group) {
        for slot in &group.allocated {
            self.chunks.slot(*slot).store(RESERVED, Ordering::Release);
        }
        for freed in &group.freed {
            self.chunks.slot(freed.slot).store(freed.position.0, Ordering::Release);
        }
        while let Some(segment) = group.segments.pop() {
            // One that cannot be read stays as it is until the next open tells.
            let _ = self.log.give_back(&self.chunks, segment);
        }
        group.clear();
    }

    /// Writes the records, makes them durable, and then the word that makes them count.
    fn write_group(&self, lane: u32, tid: u64, group: &mut Group) -> Result<(), HeapError> {
        let Group { records, positions, segments, .. } = group;
        for segment in segments {
            if positions.len() == records.len() {
                break;
            }
            segment.append_group(&self.space, Record::Group { lane, tid }, records, positions)?;
        }
        assert!(positions.len() == records.len(), "room was made");
        if !mutant::planted("published-before-records") {
            self.space.fence();
        }
        let at = (LANES_AT + u64::from(lane) * LANE_BYTES) as usize;
        self.space.store(at, Record::Published { tid }.encode(false, false))?;
        Ok(self.space.persist(at, 8)?)
    }

    /// The group counts: the chunks' slots say so.
    fn settle(&self, group: &Group) {
        for (slot, position) in group.allocated.iter().zip(&group.positions) {
            debug_assert!(position.0 >= POSITION_MIN, "a record's place");
            self.chunks.slot(*slot).store(position.0, Ordering::Release);
        }
        for freed in &group.freed {
            for position in [Some(freed.position), freed.run].into_iter().flatten() {
                self.log.count_dead(position);
            }
            self.chunks.slot(freed.slot).store(UNRETIRED, Ordering::Release);
        }
    }

    /// See [`crate::Heap::retire`].
    pub(crate) fn retire(&self, cache: &mut Cache, lane: u32, tid: u64) -> Result<(), HeapError> {
        let mut state = self.lane(lane)?;
        self.retire_in(cache, &mut state, tid)
    }

    fn retire_in(&self, cache: &mut Cache, state: &mut Lane, tid: u64) -> Result<(), HeapError> {
        while state.unretired.front().is_some_and(|(published, _)| *published <= tid) {
            let (_, freed) = state.unretired.pop_front().expect("looked at");
            for at in freed {
                let place = self.find(at)?;
                place.slot().store(CACHED, Ordering::Release);
                if place.class == LARGE {
                    self.drop_run(at, place.cells().pages());
                } else {
                    cache.keep(self, place.class, Ready::new(at, place));
                }
            }
        }
        Ok(())
    }
}
