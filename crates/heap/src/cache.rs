//! What a thread has at hand: free chunks of each class, and a segment of the log to write to.
//!
//! A thread that has both allocates and frees without a lock. It takes chunks from the others, and gives them
//! back, a batch at a time. When it ends, it gives back all it has.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use crate::classes::{ALL, CLASSES};
use crate::core::Core;
use crate::error::HeapError;
use crate::log::OpenSegment;

/// One thread's share of one heap.
pub(crate) struct Cache {
    /// Which opening of which heap it is of.
    instance: u64,
    core: Weak<Core>,
    pub(crate) bins: [Vec<u64>; CLASSES],
    pub(crate) segment: Option<OpenSegment>,
}

/// The caches of a thread, the one used last in front.
struct Caches {
    last: Option<Cache>,
    others: Vec<Cache>,
}

thread_local! {
    static CACHES: RefCell<Caches> = const { RefCell::new(Caches { last: None, others: Vec::new() }) };
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
    pub(crate) fn room(&mut self, core: &Core) -> Result<&mut OpenSegment, HeapError> {
        self.room_for(core, 1)
    }

    /// The segment, with room to append so many records; a single one may fill a gap.
    #[inline]
    pub(crate) fn room_for(&mut self, core: &Core, records: u32) -> Result<&mut OpenSegment, HeapError> {
        if self.segment.as_ref().is_none_or(|segment| !segment.has_room(records)) {
            self.roll(core, records)?;
        }
        Ok(self.segment.as_mut().expect("a segment with room"))
    }

    #[cold]
    fn roll(&mut self, core: &Core, records: u32) -> Result<(), HeapError> {
        let next = core.log.acquire(&mut core.lock_pages(), records)?;
        if let Some(full) = self.segment.replace(next) {
            core.log.give_back(full);
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
                core.log.give_back(segment);
            }
        }
    }
}

/// Calls `f` with this thread's cache of the heap.
#[inline]
pub(crate) fn with<R>(core: &Arc<Core>, f: impl FnOnce(&mut Cache) -> R) -> R {
    // A thread that is ending has no cache any more: it gets one for this call.
    let mut f = Some(f);
    let done = CACHES.try_with(|caches| {
        let mut caches = caches.borrow_mut();
        if caches.last.as_ref().is_none_or(|cache| cache.instance != core.instance) {
            caches.bring_forward(core);
        }
        let cache = caches.last.as_mut().expect("brought forward");
        f.take().expect("called once")(cache)
    });
    match done {
        Ok(result) => result,
        Err(_) => f.take().expect("not called yet")(&mut Cache::new(core)),
    }
}

impl Caches {
    #[cold]
    fn bring_forward(&mut self, core: &Arc<Core>) {
        self.others.extend(self.last.take());
        self.others.retain(|cache| cache.core.strong_count() > 0);
        let known = self.others.iter().position(|cache| cache.instance == core.instance);
        self.last = Some(match known {
            Some(index) => self.others.swap_remove(index),
            None => Cache::new(core),
        });
    }
}
