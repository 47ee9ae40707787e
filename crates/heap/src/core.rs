//! What the threads of a heap share, and how chunks come out of it and go back.
//!
//! Locks, in the order in which they may be taken: a lane; the claim of all desks; a desk's door; the large
//! frees; a bin; the pages; the log's shelf; a stripe of the log; the chunks' own, and the list of visitors.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use wattkeep_announce::biased::{Key, Revoker};
use wattkeep_persist::{Claim, Space};

use crate::cache::{Cache, Ready};
use crate::chunks::{CACHED, CAPACITY, Chunks, FREE, HELD, Place};
use crate::classes::{ALL, CLASSES, LARGE};
use crate::desk::Visitors;
use crate::error::{HeapError, Quick};
use crate::layout::{BLOCK, BLOCK_PAGES, PAGE};
use crate::log::{Log, OpenSegment, Position};
use crate::pages::Pages;
use crate::publish::Lane;
use crate::record::{LANES_MAX, RUN_PAGES_MAX, Record};
use crate::replayed::Replays;
use crate::supply::Purpose;

/// Blocks of one class that may have free chunks, the lowest first: so the highest empty.
#[derive(Default)]
pub(crate) struct Bin {
    pub(crate) partial: BTreeSet<u32>,
}

/// One open heap.
pub(crate) struct Core {
    /// Tells the openings of heaps of this process apart.
    pub(crate) instance: Key,
    pub(crate) space: Arc<Space>,
    pub(crate) id: u64,
    pub(crate) guard: bool,
    pub(crate) log_area_bytes: u64,
    pub(crate) chunks: Chunks,
    pub(crate) log: Log,
    pub(crate) pages: Mutex<Pages>,
    /// Where the pages end that were ever given to [`Self::pages`].
    pub(crate) end: AtomicU64,
    pub(crate) bins: Box<[Mutex<Bin>]>,
    pub(crate) lanes: Box<[Mutex<Lane>]>,
    pub(crate) roots: Mutex<()>,
    pub(crate) large_frees: Mutex<()>,
    /// The threads that came by.
    pub(crate) visitors: Mutex<Visitors>,
    /// One thread at a time empties those of the others.
    pub(crate) revoker: Revoker,
    /// Runs that the log knew at open, of chunks that it did not: of transactions that may yet publish them.
    pub(crate) vacant: Mutex<Vec<u32>>,
    pub(crate) replays: Replays,
    /// Nobody else has this space.
    claim: OnceLock<Claim>,
}

static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// Made where it is needed only: an error is larger than what is found.
#[cold]
fn foreign(at: u64) -> HeapError {
    HeapError::Foreign { at }
}

impl Core {
    pub(crate) fn new(space: Arc<Space>, id: u64, guard: bool, log_area_bytes: u64) -> Self {
        Self {
            instance: Key::MIN.saturating_add(INSTANCES.fetch_add(1, Ordering::Relaxed)),
            log: Log::new(space.clone()),
            space,
            id,
            guard,
            log_area_bytes,
            chunks: Chunks::new(),
            pages: Mutex::default(),
            end: AtomicU64::new(0),
            bins: (0..CLASSES).map(|_| Mutex::default()).collect(),
            lanes: (0..LANES_MAX).map(|_| Mutex::default()).collect(),
            roots: Mutex::new(()),
            large_frees: Mutex::new(()),
            visitors: Mutex::default(),
            revoker: Revoker::default(),
            vacant: Mutex::default(),
            replays: Replays::default(),
            claim: OnceLock::new(),
        }
    }

    /// Has the space for itself, until it is dropped.
    pub(crate) fn own(&self, claim: Claim) {
        self.claim.set(claim).expect("claimed once");
    }

    pub(crate) fn lock_pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("no panic while it is held")
    }

    pub(crate) fn lock_bin(&self, class: u8) -> MutexGuard<'_, Bin> {
        self.bins[usize::from(class)].lock().expect("no panic while it is held")
    }

    /// The chunk at `at`, or who is to blame.
    pub(crate) fn find(&self, at: u64) -> Quick<Place<'_>> {
        self.chunks.find(at).ok_or_else(|| Box::new(foreign(at)))
    }

    /// A free chunk of the class, marked as cached.
    #[inline(always)]
    pub(crate) fn take_chunk(&self, cache: &mut Cache, class: u8) -> Quick<Ready> {
        loop {
            match cache.bins[usize::from(class)].pop() {
                Some(ready) => return Ok(ready),
                None => self.refill(cache, class)?,
            }
        }
    }

    #[cold]
    fn refill(&self, cache: &mut Cache, class: u8) -> Quick<()> {
        self.take_batch(class, &mut cache.bins[usize::from(class)]);
        if !cache.bins[usize::from(class)].is_empty() {
            return Ok(());
        }
        let added = self.add_block(cache, class);
        if let Err(HeapError::OutOfSpace { .. }) = added {
            // There may be chunks now: all threads gave back what they had.
            self.take_batch(class, &mut cache.bins[usize::from(class)]);
            if !cache.bins[usize::from(class)].is_empty() {
                return Ok(());
            }
        }
        Ok(added?)
    }

    /// Fills `chunks` from the lowest block that has free ones, the lowest last.
    fn take_batch(&self, class: u8, chunks: &mut Vec<Ready>) {
        let shape = ALL[usize::from(class)];
        let mut bin = self.lock_bin(class);
        while chunks.is_empty()
            && let Some(&block) = bin.partial.first()
        {
            let start = u64::from(block) * BLOCK;
            let first = self.chunks.find(start).expect("a block of a bin is cut");
            let cells = first.cells();
            cells.take(shape.count, shape.batch(), |index| {
                let at = start + u64::from(index) * u64::from(shape.bytes);
                chunks.push(Ready { at, slot: first.sibling(index) });
            });
            if cells.free_count(shape.count) == 0 {
                bin.partial.remove(&block);
            }
        }
        chunks.reverse();
    }

    /// Cuts another block into chunks of the class. The record of it is durable before a chunk's can be.
    fn add_block(&self, cache: &mut Cache, class: u8) -> Result<(), HeapError> {
        let page = self.take_pages(cache, Purpose::Persistent, BLOCK_PAGES, BLOCK_PAGES)?;
        let block = page / BLOCK_PAGES;
        let entered = cache
            .room(self)
            .and_then(|segment| Ok(segment.write(&self.space, Record::Slab { block, class })?));
        match entered {
            Ok(position) => {
                self.chunks.cut(block, class, position.0);
                self.lock_bin(class).partial.insert(block);
                Ok(())
            }
            Err(error) => {
                self.lock_pages().give(page, BLOCK_PAGES);
                Err(*error)
            }
        }
    }

    /// Pages that nobody has. When there are none, blocks without objects are given up first, then what other
    /// threads have at hand.
    fn take_pages(
        &self,
        cache: &mut Cache,
        purpose: Purpose,
        pages: u32,
        align: u32,
    ) -> Result<u32, HeapError> {
        if let Some(page) = self.lock_pages().take_for(purpose, pages, align) {
            return Ok(page);
        }
        cache.empty(self);
        self.trim(cache)?;
        if let Some(page) = self.lock_pages().take_for(purpose, pages, align) {
            return Ok(page);
        }
        self.claim_desks();
        self.trim(cache)?;
        let page = self.lock_pages().take_for(purpose, pages, align);
        page.ok_or(HeapError::OutOfSpace { bytes: u64::from(pages) * PAGE })
    }

    /// A segment of the log with room to append so many records: of another thread's, if there is none.
    pub(crate) fn acquire(&self, records: u32) -> Result<OpenSegment, HeapError> {
        let acquired = self.log.acquire(&mut self.lock_pages(), &self.chunks, records);
        if let Err(HeapError::OutOfSpace { .. }) = acquired {
            self.claim_desks();
            return self.log.acquire(&mut self.lock_pages(), &self.chunks, records);
        }
        acquired
    }

    /// Gives up runs of transactions that a restart interrupted, and that nobody published.
    pub(crate) fn give_up_vacant(&self, cache: &mut Cache) -> Result<(), HeapError> {
        let vacant = std::mem::take(&mut *self.vacant.lock().expect("no panic while it is held"));
        for page in vacant {
            let at = u64::from(page) * PAGE;
            if let Some(place) = self.chunks.find(at)
                && self.take_at(place, CACHED)
            {
                self.give_up_run(cache, at, place)?;
            }
        }
        Ok(())
    }

    /// Gives up the blocks that hold no object.
    fn trim(&self, cache: &mut Cache) -> Result<(), HeapError> {
        self.give_up_vacant(cache)?;
        for class in 0..CLASSES as u8 {
            let blocks: Vec<u32> = self.lock_bin(class).partial.iter().copied().collect();
            for block in blocks {
                self.give_up_block(cache, class, block)?;
            }
        }
        Ok(())
    }

    fn give_up_block(&self, cache: &mut Cache, class: u8, block: u32) -> Result<(), HeapError> {
        let count = ALL[usize::from(class)].count;
        cache.room(self)?;
        let mut bin = self.lock_bin(class);
        let Some((now, cells)) = self.chunks.block(block) else {
            return Ok(());
        };
        if now != class || !bin.partial.contains(&block) || cells.free_count(count) < count {
            return Ok(());
        }
        self.exclude(cache, cells.run())?;
        bin.partial.remove(&block);
        self.chunks.uncut(block);
        drop(bin);
        self.lock_pages().give(block * BLOCK_PAGES, BLOCK_PAGES);
        Ok(())
    }

    /// Excludes the record whose position `place` holds; afterwards it holds [`FREE`]. Room was made.
    fn exclude(&self, cache: &mut Cache, place: &AtomicU32) -> Result<(), HeapError> {
        let segment = cache.segment.as_mut().expect("room was made");
        loop {
            let position = Position(place.load(Ordering::Acquire));
            let _stripe = self.log.stripe(position.segment());
            if place.load(Ordering::Acquire) != position.0 {
                continue;
            }
            segment.write(&self.space, self.log.exclusion(position))?;
            self.log.count_dead(position);
            place.store(FREE, Ordering::Release);
            return Ok(());
        }
    }

    /// Gives cached chunks of one class back, and the slots of the log that they keep.
    pub(crate) fn give_chunks(
        &self,
        segment: &mut Option<OpenSegment>,
        class: u8,
        chunks: impl Iterator<Item = Ready>,
    ) {
        let count = ALL[usize::from(class)].count;
        let mut bin = self.lock_bin(class);
        for ready in chunks {
            let place = self.chunks.find(ready.at).expect("a cached chunk's block is cut");
            let state = place.slot().load(Ordering::Relaxed);
            if place.cells().give(count, place.index()) == 1 {
                bin.partial.insert((ready.at / BLOCK) as u32);
            }
            self.leave_slot(segment, state);
        }
    }

    /// A chunk, whose own slot said `state` until now, keeps its slot of the log no longer.
    pub(crate) fn leave_slot(&self, segment: &mut Option<OpenSegment>, state: u32) {
        let position = Position(state & !HELD);
        match segment {
            _ if state & HELD == 0 => {}
            Some(segment) if segment.index == position.segment() => segment.fill_later(position),
            _ => self.log.count_pad(position),
        }
    }

    /// Takes a free chunk by its offset, wherever it is in its block.
    pub(crate) fn take_at(&self, place: Place<'_>, state: u32) -> bool {
        if place.class == LARGE {
            let free = place.slot().compare_exchange(FREE, state, Ordering::AcqRel, Ordering::Acquire);
            return free.is_ok();
        }
        let _bin = self.lock_bin(place.class);
        place.cells().take_one(ALL[usize::from(place.class)].count, place.index(), state)
    }

    /// A run of pages for a large chunk. The record of it is durable; nobody has the chunk.
    pub(crate) fn add_run(
        &self,
        cache: &mut Cache,
        bytes: u64,
        align: u64,
        state: u32,
    ) -> Result<u64, HeapError> {
        let most = u64::from(RUN_PAGES_MAX) * PAGE;
        let pages = bytes.div_ceil(PAGE).max(1);
        if pages > u64::from(RUN_PAGES_MAX) {
            return Err(HeapError::TooLarge { bytes, most });
        }
        let (pages, align) = (pages as u32, (align / PAGE).max(1) as u32);
        let purpose = if state == CAPACITY { Purpose::Capacity } else { Purpose::Persistent };
        let page = self.take_pages(cache, purpose, pages, align)?;
        // Capacity is gone at restart: nothing is written about it.
        let entered = match state {
            CAPACITY => Ok(Position(FREE)),
            _ => cache
                .room(self)
                .and_then(|segment| Ok(segment.write(&self.space, Record::Run { page, pages })?)),
        };
        match entered {
            Ok(position) => {
                let cells = self.chunks.add_run(page, pages, position.0);
                cells.slots(1)[0].store(state, Ordering::Release);
                Ok(u64::from(page) * PAGE)
            }
            Err(error) => {
                self.lock_pages().give(page, pages);
                Err(*error)
            }
        }
    }

    /// Forgets a run whose record counts no longer, and frees its pages.
    pub(crate) fn drop_run(&self, at: u64, pages: u32) {
        let page = (at / PAGE) as u32;
        self.chunks.remove_run(page);
        self.lock_pages().give(page, pages);
    }

    /// Gives up a run whose chunk nobody has.
    pub(crate) fn give_up_run(&self, cache: &mut Cache, at: u64, place: Place<'_>) -> Result<(), HeapError> {
        cache.room(self)?;
        if place.cells().run().load(Ordering::Acquire) != FREE {
            self.exclude(cache, place.cells().run())?;
        }
        self.drop_run(at, place.cells().pages());
        Ok(())
    }
}
