//! What a thread has at hand: free chunks of each class, and a segment of the log to write to.
//!
//! A thread that has both allocates and frees without a lock. It takes chunks from the others, and gives them
//! back, a batch at a time. When it ends, it gives back all it has.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use crate::classes::{ALL, CLASSES};
use crate::core::Core;
use crate::error::Quick;
use crate::log::OpenSegment;

/// One thread's share of one heap.
pub(crate) struct Cache {
    /// Which opening of which heap it is of.
    instance: u64,
    core: Weak<Core>,
    pub(crate) bins: [Vec<u64>; CLASSES],
    pub(crate) segment: Option<OpenSegment>,
}

/// The caches of a thread.
struct Caches {
    /// The one used last; none while it is in use.
    last: Cell<Option<Box<Cache>>>,
    others: RefCell<Vec<Cache>>,
}

thread_local! {
    static CACHES: Caches = const { Caches { last: Cell::new(None), others: RefCell::new(Vec::new()) } };
}

impl Cache {
    fn new(core: &Arc<Core>) -> Self {
        Self {
            instance: core.instance,
            core: Arc::downgrade(core),
            bins: [const { Vec::new() }; CLASSES],
            segment: None,
        }
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
            core.log.give_back(full)?;
        }
        Ok(())
    }

    /// Keeps a free chunk, which is marked as cached, for the next allocation.
    #[inline]
    pub(crate) fn keep(&mut self, core: &Core, class: u8, at: u64) {
        let bin = &mut self.bins[usize::from(class)];
        bin.push(at);
        if bin.len() > 2 * ALL[usize::from(class)].batch() {
            self.shrink(core, class);
        }
    }

    #[cold]
    fn shrink(&mut self, core: &Core, class: u8) {
        let bin = &mut self.bins[usize::from(class)];
        let keep = ALL[usize::from(class)].batch();
        // The chunks freed last stay: their lines are in the processor's cache.
        core.give_chunks(class, bin.drain(..bin.len() - keep));
    }

    /// Gives all chunks back.
    pub(crate) fn empty(&mut self, core: &Core) {
        for (class, bin) in self.bins.iter_mut().enumerate() {
            if !bin.is_empty() {
                core.give_chunks(class as u8, bin.drain(..));
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
                let _ = core.log.give_back(segment);
            }
        }
    }
}

/// Calls `f` with this thread's cache of the heap.
///
/// The cache is moved out and in again, and not the answer through the thread's storage: an answer has room
/// for an error's text, and its copies cost more than the allocation.
#[inline]
pub(crate) fn with<R>(core: &Arc<Core>, f: impl FnOnce(&mut Cache) -> R) -> R {
    let mut cache = take(core);
    let answer = f(&mut cache);
    give_back(cache);
    answer
}

#[inline(always)]
fn take(core: &Arc<Core>) -> Box<Cache> {
    match CACHES.try_with(|caches| caches.last.take()) {
        Ok(Some(cache)) if cache.instance == core.instance => cache,
        Ok(other) => take_other(core, other),
        // A thread that is ending has no caches any more: it gets one for this call.
        Err(_) => Box::new(Cache::new(core)),
    }
}

#[cold]
fn take_other(core: &Arc<Core>, last: Option<Box<Cache>>) -> Box<Cache> {
    let known = CACHES.with(|caches| {
        let mut others = caches.others.borrow_mut();
        others.extend(last.map(|cache| *cache));
        others.retain(|cache| cache.core.strong_count() > 0);
        let known = others.iter().position(|cache| cache.instance == core.instance);
        known.map(|index| others.swap_remove(index))
    });
    Box::new(known.unwrap_or_else(|| Cache::new(core)))
}

#[inline(always)]
fn give_back(cache: Box<Cache>) {
    // In a thread that is ending it is dropped here.
    let _ = CACHES.try_with(|caches| {
        if let Some(other) = caches.last.replace(Some(cache)) {
            caches.others.borrow_mut().push(*other);
        }
    });
}
