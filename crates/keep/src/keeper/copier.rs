//! Copies and checksums the frozen pages of a save, with a second thread.
//!
//! While a save runs the program stands still, so a second core is free. Reads pages that nobody may
//! write, or that are taken as they stand; does not know page words, and decides nothing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use wattkeep_store::StagingBuffer;
use wattkeep_store::hash::Hasher;

use super::pages::RegionMemory;
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

/// The thread, with the way to it and back.
struct Worker {
    /// `None` once the thread is to end.
    way_in: Option<SyncSender<Load>>,
    way_back: Receiver<Load>,
    thread: Option<JoinHandle<()>>,
}

/// Whoever copies: the caller, and a thread beside it.
pub(super) struct Copier {
    source: Arc<Source>,
    /// `None`: too little to do for a thread, or the system has none to give.
    worker: Option<Worker>,
    /// With the thread.
    loads: usize,
}

impl Copier {
    /// A copier of the regions with these memories, by place in the session.
    pub(super) fn new(memories: Vec<RegionMemory>, hasher: Hasher, threaded: bool) -> Self {
        let source = Arc::new(Source { memories, hasher });
        let worker = if threaded { start(&source) } else { None };
        Self { source, worker, loads: 0 }
    }

    /// The thread can take another load.
    pub(super) fn wants_more(&self) -> bool {
        self.worker.is_some() && self.loads < LOADS_COPIED_AHEAD
    }

    /// Has the thread copy a load, when it [`Self::wants_more`].
    pub(super) fn hand_over(&mut self, load: Load) {
        let worker = self.worker.as_ref().filter(|_| self.loads < LOADS_COPIED_AHEAD);
        let way_in = worker.and_then(|worker| worker.way_in.as_ref()).expect("the thread wants more");
        way_in.send(load).expect("the thread lives as long as its way in");
        self.loads += 1;
    }

    /// Takes a load back that the thread has copied. `None` when none is ready.
    pub(super) fn take_copied(&mut self) -> Option<Load> {
        let load = self.worker.as_ref()?.way_back.try_recv().ok()?;
        self.loads -= 1;
        Some(load)
    }

    /// Waits until a load is copied. `None` when the thread has none.
    pub(super) fn wait_for_copied(&mut self) -> Option<Load> {
        let worker = self.worker.as_ref().filter(|_| self.loads > 0)?;
        let load = worker.way_back.recv().expect("what was handed over comes back");
        self.loads -= 1;
        Some(load)
    }

    /// Copies a load here and now.
    pub(super) fn copy(&self, load: &mut Load) {
        self.source.copy(load);
    }
}

fn start(source: &Arc<Source>) -> Option<Worker> {
    let (way_in, handed_over) = sync_channel::<Load>(LOADS_COPIED_AHEAD);
    let (done, way_back) = sync_channel(LOADS_COPIED_AHEAD);
    let source = source.clone();
    let work = move || {
        for mut load in handed_over {
            source.copy(&mut load);
            if done.send(load).is_err() {
                return;
            }
        }
    };
    let thread = Builder::new().name("wattkeep-copier".into()).spawn(work).ok()?;
    Some(Worker { way_in: Some(way_in), way_back, thread: Some(thread) })
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

impl Drop for Worker {
    fn drop(&mut self) {
        self.way_in = None;
        if let Some(thread) = self.thread.take() {
            // A panic was met before, at the way back.
            let _ = thread.join();
        }
    }
}
