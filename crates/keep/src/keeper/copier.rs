//! Copies and checksums the frozen pages of a save, with a second thread.
//!
//! While a save runs the program stands still, so a second core is free. Reads pages that nobody may
//! write, or that are taken as they stand; does not know page words, and decides nothing.

use std::sync::Arc;

use wattkeep_store::StagingBuffer;
use wattkeep_store::hash::Hasher;

use super::pages::RegionMemory;
use super::worker::Worker;
use crate::control::block::PageRef;
use crate::control::page_word::Word;
use crate::limits::LOADS_COPIED_AHEAD;
use crate::types::PageId;

/// One page of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadPage {
    pub(super) page: PageRef,
    /// Its name in the store.
    pub(super) id: PageId,
    /// Its word when it was handed over; `None` for a page that is taken as it stands.
    pub(super) claimed: Option<Word>,
}

/// Pages to copy, and where to. Once copied, the buffer holds them all, in this order.
pub(super) struct Load {
    pub(super) pages: Vec<LoadPage>,
    pub(super) staging: StagingBuffer,
}

/// What copying takes.
struct Source {
    /// By place in the session.
    memories: Vec<RegionMemory>,
    hasher: Hasher,
}

/// Whoever copies: the caller, and a thread beside it.
pub(super) struct Copier {
    source: Arc<Source>,
    /// `None`: too little to do for a thread, or the system has none to give.
    worker: Option<Worker<Load>>,
}

impl Copier {
    /// A copier of the regions with these memories, by place in the session.
    pub(super) fn new(memories: Vec<RegionMemory>, hasher: Hasher, threaded: bool) -> Self {
        let source = Arc::new(Source { memories, hasher });
        let for_worker = source.clone();
        let start =
            || Worker::start("wattkeep-copier", LOADS_COPIED_AHEAD, move |load| for_worker.copy(load));
        let worker = threaded.then(start).flatten();
        Self { source, worker }
    }

    /// The thread can take another load.
    pub(super) fn wants_more(&self) -> bool {
        self.worker.as_ref().is_some_and(Worker::wants_more)
    }

    /// Has the thread copy a load, when it [`Self::wants_more`].
    pub(super) fn hand_over(&mut self, load: Load) {
        self.worker.as_mut().expect("the thread wants more").hand_over(load);
    }

    /// Takes a load back that the thread has copied. `None` when none is ready.
    pub(super) fn take_copied(&mut self) -> Option<Load> {
        self.worker.as_mut()?.take_done()
    }

    /// Waits until a load is copied. `None` when the thread has none.
    pub(super) fn wait_for_copied(&mut self) -> Option<Load> {
        self.worker.as_mut()?.wait_for_done()
    }

    /// Copies a load here and now.
    pub(super) fn copy(&self, load: &mut Load) {
        self.source.copy(load);
    }
}

impl Source {
    fn copy(&self, load: &mut Load) {
        let Load { pages, staging } = load;
        for (number, LoadPage { page, id, .. }) in pages.iter().enumerate() {
            if let Some(LoadPage { page: next, .. }) = pages.get(number + 1) {
                self.memories[next.region as usize].prefetch(next.page);
            }
            let staged = staging.next_page();
            self.memories[page.region as usize].copy_page(page.page, staged);
            let checksum = self.hasher.page(staged);
            staging.push(*id, checksum, 0);
        }
    }
}
