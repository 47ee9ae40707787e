//! Allocations and frees of transactions: reserved in DRAM, published as one.
//!
//! A group of records counts if its lane has published its transaction: one word, stored after the group is
//! durable. A lane publishes one transaction at a time, with rising ids.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use wattkeep_persist::mutant;

use crate::cache::{Cache, Ready};
use crate::chunks::{CACHED, POSITION_MIN, Place, RESERVED, UNRETIRED};
use crate::classes::LARGE;
use crate::core::Core;
use crate::error::HeapError;
use crate::free::{allocated, blame};
use crate::layout::{LANE_BYTES, LANES_AT};
use crate::log::{GROUP_ROOM, OpenSegment, Position};
use crate::record::{LANES_MAX, Record, TID_BITS};

/// Lanes that transactions may use; the last one is the heap's own.
pub const LANES: u32 = LANES_MAX - 1;

/// The heap's own lane.
pub(crate) const OWN_LANE: u32 = LANES;

/// What a lane has published.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) published: u64,
    /// A store failed halfway: what is in the log is not known.
    poisoned: bool,
    /// Transactions whose log may still name what they freed.
    unretired: VecDeque<(u64, Vec<u64>)>,
}

/// A group on its way into the log.
#[derive(Default)]
struct Group<'a> {
    allocated: Vec<(u64, Place<'a>, u32)>,
    freed: Vec<Freed<'a>>,
}

struct Freed<'a> {
    place: Place<'a>,
    position: Position,
    /// Of a large chunk's pages.
    run: Option<Position>,
}

impl Core {
    pub(crate) fn lane(&self, lane: u32) -> Result<MutexGuard<'_, Lane>, HeapError> {
        let known = self.lanes.get(lane as usize).ok_or(HeapError::Transaction { lane, tid: 0 })?;
        Ok(known.lock().expect("no panic while it is held"))
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
        if tid == 0 || tid >> TID_BITS != 0 {
            return Err(HeapError::Transaction { lane, tid });
        }
        if state.poisoned {
            return Err(HeapError::LanePoisoned { lane });
        }
        if tid <= state.published {
            return Ok(());
        }
        let mut group = Group::default();
        let written = self.gather(&mut group, allocated, freed).and_then(|()| {
            let mut held = Vec::new();
            let written = self.write_group(cache, &mut held, lane, tid, &mut group);
            if written.is_err() {
                // What stands in these segments must not be moved: the next open tells what counts.
                state.poisoned = true;
                cache.segment = None;
                return written;
            }
            for segment in held {
                // The group counts. A segment that cannot be read stays as it is until the next open tells.
                let _ = self.log.give_back(&self.chunks, segment);
            }
            Ok(())
        });
        if let Err(error) = written {
            self.ungather(&group);
            return Err(error);
        }
        state.published = tid;
        self.settle(&group);
        if !freed.is_empty() {
            state.unretired.push_back((tid, freed.to_vec()));
        }
        if mutant::planted("freed-before-retired") {
            self.retire_in(cache, state, tid)?;
        }
        Ok(())
    }

    /// Claims every chunk of the group, or says which is not to be had.
    fn gather<'a>(
        &'a self,
        group: &mut Group<'a>,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<(), HeapError> {
        for &at in allocated {
            let place = self.find(at)?;
            let slot = place.slot();
            let reserved = slot.compare_exchange(RESERVED, CACHED, Ordering::AcqRel, Ordering::Acquire);
            // After a restart the reservation is gone, and its chunk is free.
            if let Err(state) = reserved
                && !self.take_at(place, CACHED)
            {
                return Err(blame(state, at));
            }
            group.allocated.push((at, place, 0));
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
            group.freed.push(Freed { place, position, run });
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

    fn ungather(&self, group: &Group<'_>) {
        for (_, place, _) in &group.allocated {
            place.slot().store(RESERVED, Ordering::Release);
        }
        for freed in &group.freed {
            freed.place.slot().store(freed.position.0, Ordering::Release);
        }
    }

    /// Writes the records, makes them durable, and then the word that makes them count.
    fn write_group(
        &self,
        cache: &mut Cache,
        held: &mut Vec<OpenSegment>,
        lane: u32,
        tid: u64,
        group: &mut Group<'_>,
    ) -> Result<(), HeapError> {
        let mut writer = Writer { core: self, cache, held, header: Record::Group { lane, tid }, begun: None };
        for (at, _, position) in &mut group.allocated {
            *position = writer.append(Record::Alloc { at: *at })?.0;
        }
        for freed in &group.freed {
            writer.append(self.log.exclusion(freed.position))?;
            if let Some(run) = freed.run {
                writer.append(self.log.exclusion(run))?;
            }
        }
        writer.flush()?;
        if !mutant::planted("published-before-records") {
            self.space.fence();
        }
        let at = (LANES_AT + u64::from(lane) * LANE_BYTES) as usize;
        self.space.store(at, Record::Published { tid }.encode(false, false))?;
        Ok(self.space.persist(at, 8)?)
    }

    /// The group counts: the chunks' slots say so.
    fn settle(&self, group: &Group<'_>) {
        for (_, place, position) in &group.allocated {
            debug_assert!(*position >= POSITION_MIN, "a record's place");
            place.slot().store(*position, Ordering::Release);
        }
        for freed in &group.freed {
            for position in [Some(freed.position), freed.run].into_iter().flatten() {
                self.log.count_dead(position);
            }
            freed.place.slot().store(UNRETIRED, Ordering::Release);
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

/// Appends records of a group.
struct Writer<'a> {
    core: &'a Core,
    cache: &'a mut Cache,
    /// Segments that are full of a group that does not count yet: nobody may compact them.
    held: &'a mut Vec<OpenSegment>,
    header: Record,
    /// The slot of the thread's segment where the group begins.
    begun: Option<u32>,
}

impl Writer<'_> {
    fn append(&mut self, record: Record) -> Result<Position, HeapError> {
        let core = self.core;
        loop {
            if let Some(segment) = &mut self.cache.segment {
                let is_first = self.begun.is_none();
                let appended = segment.append_grouped(&core.space, self.header, is_first, record)?;
                if let Some((begins, position)) = appended {
                    self.begun.get_or_insert(begins);
                    return Ok(position);
                }
            }
            self.flush()?;
            let next = core.log.acquire(&mut core.lock_pages(), &core.chunks, GROUP_ROOM)?;
            self.held.extend(self.cache.segment.replace(next));
        }
    }

    fn flush(&mut self) -> Result<(), HeapError> {
        if let (Some(begun), Some(segment)) = (self.begun.take(), &self.cache.segment) {
            segment.flush_from(&self.core.space, begun)?;
        }
        Ok(())
    }
}
