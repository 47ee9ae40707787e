//! The door: allocate, free, resize, and what transactions need.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wattkeep_persist::Space;

use crate::cache::{Cache, Ready};
use crate::chunks::{CACHED, RESERVED};
use crate::classes::{class_aligned, class_of};
use crate::core::Core;
use crate::desk;
use crate::error::{HeapError, Quick};
use crate::free::is_position;
use crate::layout::{LOG_AREA_AT, PAGE, ROOT_BYTES, ROOTS_AT};
use crate::open;
use crate::options::Options;
use crate::publish::Claimed;
use crate::supply;

/// Largest alignment of an object.
const ALIGN_MAX: u64 = 1 << 30;

/// A persistent heap in a space. Share it in an [`Arc`], or clone it: clones are the same heap.
#[derive(Clone)]
pub struct Heap {
    pub(crate) core: Arc<Core>,
}

impl Heap {
    /// Makes a heap in a space that holds none.
    ///
    /// # Errors
    /// There is one, the space is too small, or a store is refused.
    pub fn create(space: Arc<Space>, options: &Options) -> Result<Self, HeapError> {
        Ok(Self { core: Arc::new(open::create(space, options)?) })
    }

    /// Finds the heap in a space again: reads its log.
    ///
    /// # Errors
    /// There is none, a later version made it, or what it wrote is damaged. Nothing is changed then.
    pub fn open(space: Arc<Space>) -> Result<Self, HeapError> {
        Self::open_with(space, None)
    }

    /// The same, with a supply of its own instead of one that suits the length of the space.
    ///
    /// # Errors
    /// As [`Self::open`], and for a supply that makes no sense.
    pub fn open_with(space: Arc<Space>, supply: Option<supply::Options>) -> Result<Self, HeapError> {
        let core = open::open(space, open::Lost::Refused, supply)?;
        core.assume_log()?;
        Ok(Self { core: Arc::new(core) })
    }

    /// Opens the heap in a space, or makes one where nothing was ever stored.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::open`].
    pub fn open_or_create(space: Arc<Space>, options: &Options) -> Result<Self, HeapError> {
        if open::is_blank(&space)? {
            Self::create(space, options)
        } else {
            Self::open_with(space, options.supply)
        }
    }

    /// The space it is in.
    #[inline]
    pub fn space(&self) -> &Arc<Space> {
        &self.core.space
    }

    /// Different for each heap that is made.
    pub fn id(&self) -> u64 {
        self.core.id
    }

    /// Where transactions may keep their logs.
    pub fn log_area(&self) -> Range<u64> {
        LOG_AREA_AT..LOG_AREA_AT + self.core.log_area_bytes
    }

    /// Makes the space `bytes` long, for more objects.
    ///
    /// # Errors
    /// The space cannot be so long.
    pub fn grow(&self, bytes: u64) -> Result<(), HeapError> {
        open::grow(&self.core, bytes)
    }

    #[inline]
    pub(crate) fn with<T, E: From<HeapError>>(
        &self,
        f: impl FnOnce(&Core, &mut Cache) -> Result<T, E>,
    ) -> Result<T, E> {
        desk::with(&self.core, move |cache| f(&self.core, cache))
    }

    #[inline]
    fn padded(&self, bytes: u64) -> u64 {
        if self.core.guard { bytes.saturating_add(8) } else { bytes }
    }

    /// Allocates an object; durable on return. Its bytes are those of whoever had them before.
    ///
    /// # Errors
    /// No room, or a store is refused.
    #[inline]
    pub fn alloc(&self, bytes: u64) -> Result<u64, HeapError> {
        let Some(class) = class_of(self.padded(bytes)) else {
            return self.alloc_run(bytes, PAGE);
        };
        Ok(self.with(move |core, cache| core.alloc_chunk(cache, class))?)
    }

    /// The same at a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// As [`Self::alloc`], and for an alignment that cannot be had.
    pub fn alloc_aligned(&self, bytes: u64, align: u64) -> Result<u64, HeapError> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(HeapError::Alignment { align });
        }
        match class_aligned(self.padded(bytes), align) {
            Some(class) => Ok(self.with(move |core, cache| core.alloc_chunk(cache, class))?),
            None => self.alloc_run(bytes, align),
        }
    }

    fn alloc_run(&self, bytes: u64, align: u64) -> Result<u64, HeapError> {
        let bytes = self.padded(bytes);
        self.with(move |core, cache| core.alloc_run(cache, bytes, align))
    }

    /// Frees an object; durable on return.
    ///
    /// # Errors
    /// It is none of this heap, was freed before, belongs to a transaction, or its guard was overwritten.
    #[inline]
    pub fn free(&self, at: u64) -> Result<(), HeapError> {
        self.core.before_taking()?;
        Ok(self.with(move |core, cache| core.free(cache, at))?)
    }

    /// Bytes that the object at `at` can hold.
    ///
    /// # Errors
    /// It is none.
    pub fn usable_size(&self, at: u64) -> Result<u64, HeapError> {
        let place = self.core.find(at)?;
        let state = self.core.settled(place);
        if !is_position(state) && state != RESERVED {
            return Err(crate::free::blame(state, at));
        }
        Ok(place.bytes() - if self.core.guard { 8 } else { 0 })
    }

    /// Makes the object at `at` hold `bytes`, and says where it is then. Where it moves, the new one is
    /// allocated and the old one freed in one step; it lies at a multiple of 16, whatever the old one did.
    ///
    /// # Errors
    /// As [`Self::alloc`] and [`Self::free`]; the object stays what it was.
    pub fn resize(&self, at: u64, bytes: u64) -> Result<u64, HeapError> {
        let place = self.core.find(at)?;
        crate::free::allocated(self.core.settled(place), at)?;
        let usable = self.usable_size(at)?;
        // It stays unless it is too small, or would waste more than half.
        if bytes <= usable && (bytes >= usable / 2 || usable <= 64) {
            return Ok(at);
        }
        self.core.before_taking()?;
        let moved = self.reserve(bytes)?;
        let done = self
            .copy(at, moved, usable.min(bytes))
            .and_then(|()| self.with(move |core, cache| core.publish_own(cache, &[moved], &[at])));
        match done {
            Ok(()) => Ok(moved),
            Err(error) => {
                // The first error is the one to report; a reservation is gone at the next open anyway.
                let _ = self.cancel(moved);
                Err(error)
            }
        }
    }

    fn copy(&self, from: u64, to: u64, bytes: u64) -> Result<(), HeapError> {
        let mut piece = [0; PAGE as usize];
        for offset in (0..bytes).step_by(PAGE as usize) {
            let piece = &mut piece[..(bytes - offset).min(PAGE) as usize];
            self.core.space.read_bytes((from + offset) as usize, piece)?;
            self.core.space.write_bytes((to + offset) as usize, piece)?;
        }
        self.core.space.flush(to as usize, bytes as usize)?;
        Ok(())
    }

    /// Sets an object apart for a transaction: it is gone at restart unless it is published.
    ///
    /// # Errors
    /// No room.
    pub fn reserve(&self, bytes: u64) -> Result<u64, HeapError> {
        self.undurable(bytes, RESERVED)
    }

    /// Gives a reservation back.
    ///
    /// # Errors
    /// It is none.
    pub fn cancel(&self, at: u64) -> Result<(), HeapError> {
        self.with(move |core, cache| core.release(cache, at, RESERVED))
    }

    pub(crate) fn undurable(&self, bytes: u64, state: u32) -> Result<u64, HeapError> {
        let bytes = self.padded(bytes);
        self.with(move |core, cache| match class_of(bytes) {
            Some(class) => Ok(core.take_chunk_as(cache, class, state)?),
            None => core.add_run(cache, bytes, PAGE, state),
        })
    }

    /// Makes reservations durable, and frees objects, as one: all or none of it is there after a cut. What is
    /// freed can be used again after [`Self::retire`].
    ///
    /// Transactions of a lane have rising ids. One that the lane has published is published already, and
    /// nothing is done: recovery may repeat it. After a restart `allocated` may name the chunks that were
    /// reserved before it.
    ///
    /// # Errors
    /// No such lane, an id out of range, or an object that is not there to publish or free: nothing is done.
    pub fn publish(&self, lane: u32, tid: u64, allocated: &[u64], freed: &[u64]) -> Result<(), HeapError> {
        if lane >= crate::LANES {
            return Err(HeapError::Transaction { lane, tid });
        }
        self.with(move |core, cache| core.publish(cache, lane, tid, allocated, freed))
    }

    /// Claims what a transaction of the lane is about to publish, or to leave as it is: until then nobody else
    /// can free it, publish it, or give it back. The lane is the caller's until then: other calls that name it wait.
    ///
    /// # Errors
    /// No such lane, an id out of range or not above the last one, or an object that is not there to publish or
    /// free: nothing is claimed.
    #[inline]
    pub fn claim(
        &self,
        lane: u32,
        tid: u64,
        allocated: &[u64],
        freed: &[u64],
    ) -> Result<Claimed<'_>, HeapError> {
        if lane >= crate::LANES {
            return Err(HeapError::Transaction { lane, tid });
        }
        // The lane comes second: whoever has one waits for nobody's place at the heap.
        self.with(|core, cache| {
            let mut state = self.core.lane(lane)?;
            core.claim(cache, &mut state, lane, tid, allocated, freed)?;
            Ok(Claimed::new(self, state, lane, tid))
        })
    }

    /// The highest transaction that the lane has published; 0: none.
    ///
    /// # Errors
    /// No such lane.
    pub fn published(&self, lane: u32) -> Result<u64, HeapError> {
        Ok(self.core.lane(lane)?.published)
    }

    /// What transactions of the lane up to `tid` freed can be used again.
    ///
    /// # Errors
    /// No such lane.
    pub fn retire(&self, lane: u32, tid: u64) -> Result<(), HeapError> {
        self.with(move |core, cache| core.retire(cache, lane, tid))
    }

    /// Bytes in pages that nobody has, and the longest run of them. Chunks that are free in blocks of other
    /// chunks are not counted.
    pub fn free_bytes(&self) -> (u64, u64) {
        let pages = self.core.lock_pages();
        (pages.free() * PAGE, u64::from(pages.longest()) * PAGE)
    }

    /// Whether a heap was made in this space, whatever became of it: one of two copies of its mark is there.
    pub fn is_in(space: &Space) -> bool {
        open::is_in(space)
    }

    /// Batches of pages that were brought in since the heap was opened, and pages that come one by one.
    pub fn supplied(&self) -> supply::Counts {
        self.core.lock_pages().supplied()
    }

    /// Segments of the log that were compacted since the heap was opened.
    pub fn compacted(&self) -> u64 {
        self.core.log.compacted()
    }

    /// Recovery is over: what was reserved before the restart, and is not published by now, is given up.
    /// Without this call that happens when room is short.
    ///
    /// # Errors
    /// A store is refused.
    pub fn settle(&self) -> Result<(), HeapError> {
        self.with(move |core, cache| core.give_up_vacant(cache))
    }

    /// Whether `at` lies where objects, or the words of roots, can be: not in the heap's own pages in front.
    #[inline]
    pub fn is_data(&self, at: u64) -> bool {
        at >= LOG_AREA_AT + self.core.log_area_bytes
            || (ROOTS_AT..LOG_AREA_AT).contains(&at) && (at - ROOTS_AT) % ROOT_BYTES < 8
    }

    /// Whether an object can begin at `at`, allocated or not.
    pub fn is_chunk(&self, at: u64) -> bool {
        self.core.chunks.find(at).is_some()
    }

    /// Whether an object is allocated durably at `at`.
    pub fn is_allocated(&self, at: u64) -> bool {
        self.core.chunks.find(at).is_some_and(|place| is_position(self.core.settled(place)))
    }
}

impl Core {
    #[inline(always)]
    fn alloc_chunk(&self, cache: &mut Cache, class: u8) -> Quick<u64> {
        let ready = self.take_chunk(cache, class)?;
        if let Err(error) = self.enter(cache, ready) {
            cache.keep(self, class, ready);
            return Err(error);
        }
        Ok(ready.at)
    }

    fn alloc_run(&self, cache: &mut Cache, bytes: u64, align: u64) -> Result<u64, HeapError> {
        let at = self.add_run(cache, bytes, align, CACHED)?;
        let place = self.find(at)?;
        let ready = Ready::new(at, place);
        if let Err(error) = self.enter(cache, ready) {
            // The first error is the one to report. A run whose record stays is found at the next open.
            let _ = self.give_up_run(cache, at, place);
            return Err(*error);
        }
        Ok(at)
    }

    fn take_chunk_as(&self, cache: &mut Cache, class: u8, state: u32) -> Quick<u64> {
        let ready = self.take_chunk(cache, class)?;
        let slot = self.chunks.slot(ready.slot);
        let kept = slot.load(Ordering::Relaxed);
        slot.store(state, Ordering::Release);
        self.leave_slot(&mut cache.segment, kept);
        Ok(ready.at)
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heap({:#x} in {:?})", self.core.id, self.core.space)
    }
}
