//! Giving objects back: who may, and what is written about it.
//!
//! The slot of a chunk is claimed by an exchange, so of two threads that free the same object one is told.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::Cache;
use crate::chunks::{CACHED, CAPACITY, FREE, POSITION_MIN, PUBLISHING, Place, RESERVED};
use crate::classes::LARGE;
use crate::core::Core;
use crate::error::{HeapError, Quick};
use crate::log::{OpenSegment, Position};
use crate::record::Record;

/// Where the record of an allocated chunk is, or why it is none.
#[inline]
pub(crate) fn allocated(state: u32, at: u64) -> Quick<Position> {
    if (POSITION_MIN..PUBLISHING).contains(&state) {
        return Ok(Position(state));
    }
    Err(Box::new(blame(state, at)))
}

#[cold]
pub(crate) fn blame(state: u32, at: u64) -> HeapError {
    match state {
        RESERVED => HeapError::WrongOwner { at, owner: "a transaction that has not published it" },
        CAPACITY => HeapError::WrongOwner { at, owner: "volatile capacity" },
        _ if (POSITION_MIN..PUBLISHING).contains(&state) => {
            HeapError::WrongOwner { at, owner: "whoever allocated it durably" }
        }
        _ => HeapError::DoubleFree { at },
    }
}

#[inline]
fn claim(slot: &AtomicU32, from: u32, to: u32) -> bool {
    slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Core {
    /// Frees an allocated object; durable on return.
    #[inline]
    pub(crate) fn free(&self, cache: &mut Cache, at: u64) -> Quick<()> {
        let place = self.find(at)?;
        if self.guard {
            self.check_guard(at, place)?;
        }
        if place.class == LARGE {
            return self.free_large(cache, at);
        }
        let slot = place.slot();
        // Making room may compact: the record's place is looked at behind it.
        let room = cache.room(self);
        let position = allocated(slot.load(Ordering::Acquire), at)?;
        let segment = match room {
            Ok(segment) if position.segment() == segment.index => segment,
            Err(error) if !matches!(*error, HeapError::OutOfSpace { .. }) => return Err(error),
            _ => {
                self.free_elsewhere(cache, slot, at)?;
                cache.keep(self, place.class, at);
                return Ok(());
            }
        };
        if claim(slot, position.0, CACHED) {
            if let Err(refused) = segment.erase(&self.space, position) {
                slot.store(position.0, Ordering::Release);
                return Err(refused.into());
            }
        } else {
            return Err(Box::new(HeapError::DoubleFree { at }));
        }
        cache.keep(self, place.class, at);
        Ok(())
    }

    /// Its record lies in a segment that others may compact. Where there is room, another record excludes it,
    /// next to what this thread wrote last; otherwise it is overwritten where it is.
    fn free_elsewhere(&self, cache: &mut Cache, slot: &AtomicU32, at: u64) -> Quick<()> {
        let segment =
            cache.segment.as_mut().filter(|segment| segment.has_room(1) && !self.log.frees_in_place());
        let segment = &mut { segment };
        loop {
            let position = allocated(slot.load(Ordering::Acquire), at)?;
            let _stripe = self.log.stripe(position.segment());
            if !claim(slot, position.0, CACHED) {
                continue;
            }
            let excluded = match segment {
                Some(segment) => self.exclude_at(segment, position),
                None => self.log.erase(position).map_err(Box::new),
            };
            if excluded.is_err() {
                slot.store(position.0, Ordering::Release);
            }
            return excluded;
        }
    }

    /// Appends what excludes a record. Under the stripe of its segment.
    fn exclude_at(&self, segment: &mut OpenSegment, position: Position) -> Quick<()> {
        segment.write(&self.space, self.log.exclusion(position))?;
        self.log.count_dead(position);
        Ok(())
    }

    #[cold]
    fn free_large(&self, cache: &mut Cache, at: u64) -> Quick<()> {
        let segment = match cache.room_for(self, 3) {
            Ok(segment) => Some(segment),
            Err(error) if !matches!(*error, HeapError::OutOfSpace { .. }) => return Err(error),
            Err(_) => None,
        };
        let segment = &mut { segment };
        let _one_at_a_time = self.large_frees.lock().expect("no panic while it is held");
        let place = self.find(at)?;
        let (slot, run) = (place.slot(), place.cells().run());
        loop {
            let position = allocated(slot.load(Ordering::Acquire), at)?;
            let run = Position(run.load(Ordering::Acquire));
            let _stripes = self.log.stripes([position.segment(), run.segment()]);
            if place.cells().run().load(Ordering::Acquire) != run.0 || !claim(slot, position.0, CACHED) {
                continue;
            }
            let excluded = match segment {
                Some(segment) => self.exclude_pair(segment, [position, run]),
                None => self.log.erase(position).and_then(|()| self.log.erase(run)).map_err(Box::new),
            };
            if let Err(error) = excluded {
                slot.store(position.0, Ordering::Release);
                return Err(error);
            }
            break;
        }
        self.drop_run(at, place.cells().pages());
        Ok(())
    }

    /// The same for two, with one flush. Under both stripes.
    fn exclude_pair(&self, segment: &mut OpenSegment, positions: [Position; 2]) -> Quick<()> {
        segment.write_pair(&self.space, positions.map(|position| self.log.exclusion(position)))?;
        positions.into_iter().for_each(|position| self.log.count_dead(position));
        Ok(())
    }

    /// Gives back a chunk that is not durable: a reservation, or capacity.
    pub(crate) fn release(&self, cache: &mut Cache, at: u64, from: u32) -> Result<(), HeapError> {
        let place = self.find(at)?;
        if !claim(place.slot(), from, CACHED) {
            return Err(blame(place.slot().load(Ordering::Acquire), at));
        }
        self.recycle(cache, at, place)
    }

    /// A cached chunk that no record speaks of can be given out again.
    pub(crate) fn recycle(&self, cache: &mut Cache, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        if place.class == LARGE {
            return self.give_up_run(cache, at, place);
        }
        cache.keep(self, place.class, at);
        Ok(())
    }

    /// The guard word of the object is what it was.
    pub(crate) fn check_guard(&self, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        let state = place.slot().load(Ordering::Acquire);
        if state >= POSITION_MIN && self.space.load(self.guard_at(at, place))? != self.guard_word(at) {
            return Err(HeapError::Overrun { at });
        }
        Ok(())
    }

    pub(crate) fn guard_at(&self, at: u64, place: Place<'_>) -> usize {
        (at + place.bytes() - 8) as usize
    }

    pub(crate) fn guard_word(&self, at: u64) -> u64 {
        (at ^ self.id).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    /// Writes what says that the chunk is allocated, and marks it so. Durable on return.
    #[inline]
    pub(crate) fn enter(&self, cache: &mut Cache, at: u64, place: Place<'_>) -> Quick<()> {
        if self.guard {
            self.write_guard(at, place)?;
            // Else the record may be durable without it, and the object counts as overrun.
            self.space.fence();
        }
        let position = cache.room(self)?.write(&self.space, Record::Alloc { at })?;
        place.slot().store(position.0, Ordering::Release);
        Ok(())
    }

    #[cold]
    pub(crate) fn write_guard(&self, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        let guard = self.guard_at(at, place);
        self.space.store(guard, self.guard_word(at))?;
        Ok(self.space.flush(guard, 8)?)
    }

    /// Undoes what came before a failed [`Self::enter`].
    #[cold]
    pub(crate) fn leave(&self, cache: &mut Cache, at: u64, place: Place<'_>) {
        place.slot().store(CACHED, Ordering::Release);
        // The first error is the one to report. A run whose record stays is found at the next open.
        let _ = self.recycle(cache, at, place);
    }
}

const _: () = assert!(FREE < POSITION_MIN && CACHED < POSITION_MIN);
