//! Giving objects back: who may, and what is written about it.
//!
//! The slot of a chunk is claimed by an exchange, so of two threads that free the same object one is told. A thread
//! that is alone at the heap (see [`crate::desk`]) claims it by a store, where that is worth it. What others do
//! without a call at a desk may end a claim of theirs, and never begins one: whoever claims a slot of an allocated
//! chunk is at a desk.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::cache::{Cache, Ready};
use crate::chunks::{CACHED, CAPACITY, FREE, HELD, POSITION_MIN, Place, RESERVED};
use crate::classes::LARGE;
use crate::core::Core;
use crate::error::{HeapError, Quick};
use crate::log::{OpenSegment, Position};
use crate::record::Record;

/// Whether a slot with this state is that of an object, and nobody is about to change that.
#[inline(always)]
pub(crate) fn is_position(state: u32) -> bool {
    (POSITION_MIN..HELD).contains(&state)
}

/// Where the record of an allocated chunk is, or why it is none.
#[inline]
pub(crate) fn allocated(state: u32, at: u64) -> Quick<Position> {
    if is_position(state) { Ok(Position(state)) } else { Err(Box::new(blame(state, at))) }
}

#[cold]
pub(crate) fn blame(state: u32, at: u64) -> HeapError {
    match state {
        RESERVED => HeapError::WrongOwner { at, owner: "a transaction that has not published it" },
        CAPACITY => HeapError::WrongOwner { at, owner: "volatile capacity" },
        _ if is_position(state) => HeapError::WrongOwner { at, owner: "whoever allocated it durably" },
        _ => HeapError::DoubleFree { at },
    }
}

#[inline]
fn exchange(slot: &AtomicU32, from: u32, to: u32) -> Result<(), u32> {
    slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
}

/// Claims the slot of a chunk that somebody has, or says what it is instead.
#[inline(always)]
pub(crate) fn claim(cache: &Cache, slot: &AtomicU32, from: u32, to: u32) -> Result<(), u32> {
    if !cache.is_alone {
        return exchange(slot, from, to);
    }
    let state = slot.load(Ordering::Acquire);
    if state != from {
        return Err(state);
    }
    slot.store(to, Ordering::Release);
    Ok(())
}

/// Holds the record at `position`.
#[inline(always)]
fn hold(cache: &Cache, slot: &AtomicU32, position: Position) -> bool {
    claim(cache, slot, position.0, position.0 | HELD).is_ok()
}

impl Core {
    /// What the slot says when nobody is moving the chunk's record.
    pub(crate) fn settled(&self, place: Place<'_>) -> u32 {
        loop {
            let state = place.slot().load(Ordering::Acquire);
            if state & HELD == 0 {
                return state;
            }
            // Whoever moves the record has the stripe until the slot says where it is.
            let _moved = self.log.stripe(Position(state & !HELD).segment());
            if place.slot().load(Ordering::Acquire) == state {
                return state;
            }
        }
    }

    /// Frees an allocated object; durable on return.
    #[inline(always)]
    pub(crate) fn free(&self, cache: &mut Cache, at: u64) -> Quick<()> {
        let Some(place) = self.chunks.find_small(at).filter(|_| !self.guard) else {
            return self.free_rarely(cache, at);
        };
        let slot = place.slot();
        let position = Position(slot.load(Ordering::Acquire));
        if !is_position(position.0) || !self.is_overwritten(cache, position) || !hold(cache, slot, position) {
            return self.free_elsewhere(cache, at);
        }
        self.overwrite_held(at, slot, position)?;
        cache.keep(self, place.class, Ready::new(at, place));
        Ok(())
    }

    /// A record that is freed is overwritten where it is, while the log is short, and in the segment that this
    /// thread writes to.
    #[inline(always)]
    fn is_overwritten(&self, cache: &Cache, position: Position) -> bool {
        self.log.frees_in_place() || cache.segment.as_ref().is_some_and(|own| own.index == position.segment())
    }

    /// Overwrites the record of a chunk that is held. The chunk keeps the slot for its next record.
    #[inline(always)]
    fn overwrite_held(&self, at: u64, slot: &AtomicU32, position: Position) -> Quick<()> {
        let refused = self.log.overwrite(position, Record::Pad { was: at });
        if refused.is_err() {
            self.restore_held(at, slot, position);
        }
        refused
    }

    #[cold]
    fn restore_held(&self, at: u64, slot: &AtomicU32, position: Position) {
        // The first error is the one to report.
        let _ = self.log.overwrite(position, Record::Alloc { at });
        slot.store(position.0, Ordering::Release);
    }

    #[cold]
    fn free_rarely(&self, cache: &mut Cache, at: u64) -> Quick<()> {
        let place = self.find(at)?;
        if self.guard {
            self.check_guard(at, place)?;
        }
        if place.class == LARGE { self.free_large(cache, at) } else { self.free_elsewhere(cache, at) }
    }

    /// Where there is room, another record excludes it, next to what this thread wrote last: so frees all over a
    /// long log make few of its pages dirty.
    #[inline(never)]
    fn free_elsewhere(&self, cache: &mut Cache, at: u64) -> Quick<()> {
        let place = self.find(at)?;
        allocated(self.settled(place), at)?;
        // Making room may compact: the record's place is looked at behind it.
        let has_room = match cache.room(self) {
            Ok(_) => true,
            Err(error) if matches!(*error, HeapError::OutOfSpace { .. }) => false,
            Err(error) => return Err(error),
        };
        let position = loop {
            let position = allocated(self.settled(place), at)?;
            if place.hold(position.0).is_ok() {
                break position;
            }
        };
        let in_place = !has_room || self.is_overwritten(cache, position);
        match cache.segment.as_mut().filter(|_| !in_place) {
            None => self.overwrite_held(at, place.slot(), position)?,
            Some(segment) => {
                if let Err(refused) = segment.write(&self.space, self.log.exclusion(position)) {
                    place.slot().store(position.0, Ordering::Release);
                    return Err(refused.into());
                }
                self.log.count_dead(position);
                place.slot().store(CACHED, Ordering::Release);
            }
        }
        cache.keep(self, place.class, Ready::new(at, place));
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
            let position = allocated(self.settled(place), at)?;
            let run = Position(run.load(Ordering::Acquire));
            let _stripes = self.log.stripes([position.segment(), run.segment()]);
            if place.cells().run().load(Ordering::Acquire) != run.0
                || exchange(slot, position.0, CACHED).is_err()
            {
                continue;
            }
            let excluded = match segment {
                Some(segment) => self.exclude_pair(segment, [position, run]),
                None => self.log.erase(position).and_then(|()| self.log.erase(run)),
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
        claim(cache, place.slot(), from, CACHED).map_err(|state| blame(state, at))?;
        self.recycle(cache, at, place)
    }

    /// A cached chunk that no record speaks of can be given out again.
    pub(crate) fn recycle(&self, cache: &mut Cache, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        if place.class == LARGE {
            return self.give_up_run(cache, at, place);
        }
        cache.keep(self, place.class, Ready::new(at, place));
        Ok(())
    }

    /// The guard word of the object is what it was.
    pub(crate) fn check_guard(&self, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        if is_position(self.settled(place))
            && self.space.load(self.guard_at(at, place))? != self.guard_word(at)
        {
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
    #[inline(always)]
    pub(crate) fn enter(&self, cache: &mut Cache, ready: Ready) -> Quick<()> {
        let slot = self.chunks.slot(ready.slot);
        let state = slot.load(Ordering::Relaxed);
        if state & HELD == 0 || self.guard {
            return self.enter_rarely(cache, ready);
        }
        let position = Position(state & !HELD);
        self.reenter(ready.at, position)?;
        slot.store(position.0, Ordering::Release);
        Ok(())
    }

    /// Writes the record of a chunk that kept the slot of the one before.
    #[inline(always)]
    fn reenter(&self, at: u64, position: Position) -> Quick<()> {
        let refused = self.log.overwrite(position, Record::Alloc { at });
        if refused.is_err() {
            // The first error is the one to report.
            let _ = self.log.overwrite(position, Record::Pad { was: at });
        }
        refused
    }

    #[inline(never)]
    fn enter_rarely(&self, cache: &mut Cache, ready: Ready) -> Quick<()> {
        let slot = self.chunks.slot(ready.slot);
        if self.guard {
            self.write_guard(ready.at, self.find(ready.at)?)?;
            // Else the record may be durable without it, and the object counts as overrun.
            self.space.fence();
        }
        let state = slot.load(Ordering::Relaxed);
        let position = Position(state & !HELD);
        let position = if state & HELD != 0 {
            self.reenter(ready.at, position)?;
            position
        } else {
            cache.room(self)?.write(&self.space, Record::Alloc { at: ready.at })?
        };
        slot.store(position.0, Ordering::Release);
        Ok(())
    }

    #[cold]
    pub(crate) fn write_guard(&self, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        let guard = self.guard_at(at, place);
        self.space.store(guard, self.guard_word(at))?;
        Ok(self.space.flush(guard, 8)?)
    }
}

const _: () = assert!(FREE < POSITION_MIN && CACHED < POSITION_MIN);
