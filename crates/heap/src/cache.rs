//! What a thread has at hand: free chunks of each class, and a segment of the log to write to.
//!
//! A thread that has both allocates and frees without a lock. It takes chunks from the others, and gives them
//! back, a batch at a time. When it ends, it gives back all it has.
//!
//! A chunk that was freed keeps the slot of its record in the log: its next record is written there, and that
//! line is at hand.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::chunks::{Place, SlotAt};
use crate::classes::{ALL, CLASSES};
use crate::core::Core;
use crate::error::Quick;
use crate::log::OpenSegment;

/// A free chunk at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) at: u64,
    /// Says where its record's slot is, if it keeps one.
    pub(crate) slot: SlotAt,
}

impl Ready {
    #[inline(always)]
    pub(crate) fn new(at: u64, place: Place<'_>) -> Self {
        Self { at, slot: place.slot_at() }
    }
}

/// One thread's share of one heap.
pub(crate) struct Cache {
    /// Which opening of which heap it is of.
    instance: u64,
    core: Weak<Core>,
    pub(crate) bins: [Vec<Ready>; CLASSES],
    pub(crate) segment: Option<OpenSegment>,
}

/// The caches of a thread.
struct Caches {
    /// The one used last.
    last: Cache,
    others: Vec<Cache>,
}

thread_local! {
    static CACHES: RefCell<Caches> =
        const { RefCell::new(Caches { last: Cache::none(), others: Vec::new() }) };
}

impl Cache {
    /// One of no heap.
    const fn none() -> Self {
        Self { instance: 0, core: Weak::new(), bins: [const { Vec::new() }; CLASSES], segment: None }
    }

    fn new(core: &Arc<Core>) -> Self {
        let mut new = Self::none();
        (new.instance, new.core) = (core.instance, Arc::downgrade(core));
        new
    }

    /// The segment, with room for one record at least.
    #[inline]
    pub(crate) fn room(&mut self, core: &Core) -> Quick<&mut OpenSegment> {
        self.room_for(core, 1)
    }

    /// The segment, with room to append so many records; a single one may fill a gap.
    #[inline]
    pub(crate) fn room_for(&mut self, core: &Core, records: u32) -> Quick<&mut OpenSegment> {
        if self.segment.as_ref().is_none_or(|segment| !segment.has_room(records)) {
            self.roll(core, records)?;
        }
        Ok(self.segment.as_mut().expect("a segment with room"))
    }

    #[cold]
    fn roll(&mut self, core: &Core, records: u32) -> Quick<()> {
        let next = core.log.acquire(&mut core.lock_pages(), &core.chunks, records)?;
        if let Some(full) = self.segment.replace(next) {
            core.log.give_back(&core.chunks, full)?;
        }
        Ok(())
    }

    /// Keeps a free chunk, which is marked as cached, for the next allocation.
    #[inline(always)]
    pub(crate) fn keep(&mut self, core: &Core, class: u8, ready: Ready) {
        let bin = &mut self.bins[usize::from(class)];
        bin.push(ready);
        if bin.len() > 2 * ALL[usize::from(class)].batch() {
            self.shrink(core, class);
        }
    }

    #[cold]
    fn shrink(&mut self, core: &Core, class: u8) {
        let bin = &mut self.bins[usize::from(class)];
        let keep = ALL[usize::from(class)].batch();
        // The chunks freed last stay: their lines are in the processor's cache.
        core.give_chunks(&mut self.segment, class, bin.drain(..bin.len() - keep));
    }

    /// Gives all chunks back.
    pub(crate) fn empty(&mut self, core: &Core) {
        for (class, bin) in self.bins.iter_mut().enumerate() {
            if !bin.is_empty() {
                core.give_chunks(&mut self.segment, class as u8, bin.drain(..));
            }
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            self.empty(&core);
            if let Some(segment) = self.segment.take() {
                // A segment that cannot be read stays as it is until the next open tells.
                let _ = core.log.give_back(&core.chunks, segment);
            }
        }
    }
}

/// Calls `f` with this thread's cache of the heap.
#[inline(always)]
pub(crate) fn with<R>(core: &Arc<Core>, f: impl Fn(&mut Cache) -> R) -> R {
    let answer = CACHES.try_with(|caches| {
        let mut caches = caches.borrow_mut();
        if caches.last.instance != core.instance {
            caches.change(core);
        }
        f(&mut caches.last)
    });
    match answer {
        Ok(answer) => answer,
        // A thread that is ending has no caches any more: it gets one for this call.
        Err(_) => with_new(core, f),
    }
}

#[cold]
fn with_new<R>(core: &Arc<Core>, f: impl Fn(&mut Cache) -> R) -> R {
    f(&mut Cache::new(core))
}

impl Caches {
    /// Makes the heap's cache the last one.
    #[cold]
    fn change(&mut self, core: &Arc<Core>) {
        self.others.retain(|cache| cache.core.strong_count() > 0);
        let known = self.others.iter().position(|cache| cache.instance == core.instance);
        let next = known.map_or_else(|| Cache::new(core), |index| self.others.swap_remove(index));
        let last = std::mem::replace(&mut self.last, next);
        if last.core.strong_count() > 0 {
            self.others.push(last);
        }
    }
}
