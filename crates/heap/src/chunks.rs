//! The state of every chunk, in DRAM: four bytes each, found from its offset in three loads.
//!
//! A block that is cut into chunks, and a run of pages for a large one, has *cells*: a header of
//! [`HEADER`] words and a word for each chunk, its [`slot`](Place::slot). A slot says who has the chunk, and
//! for an allocated one where in the log that is written.
//!
//! Nobody allocates per object, and cells are never freed, only handed to the next block of the same class:
//! so a wrong offset finds wrong cells at worst, never freed memory.
//!
//! Does not know the space or the log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use wattkeep_persist::Zeroed;

use crate::classes::{ALL, CLASSES, LARGE};
use crate::layout::{BLOCK, PAGE, SPACE_MAX};

/// Nobody has it; it is counted in its block.
pub(crate) const FREE: u32 = 0;
/// A thread has it ready to give out, or is just taking it back.
pub(crate) const CACHED: u32 = 1;
/// A transaction has it that has not published it.
pub(crate) const RESERVED: u32 = 2;
/// Volatile capacity.
pub(crate) const CAPACITY: u32 = 3;
/// Freed by a transaction that is not retired.
pub(crate) const UNRETIRED: u32 = 4;
/// From here on: allocated, and this is the place of its record.
pub(crate) const POSITION_MIN: u32 = 8;
/// With a position: nobody else touches the record there, nor moves it. The chunk is free in a thread's cache,
/// which will write its next record there; or it is just being freed; or compaction is moving its record.
pub(crate) const HELD: u32 = 1 << 31;

/// Words before the slots.
pub(crate) const HEADER: usize = 4;
/// How many slots of a block are free, or [`UNCOUNTED`].
const FREE_COUNT: usize = 0;
/// Where the record of the block or the run lies; 0: nowhere.
const RUN: usize = 1;
/// No slot before this one is free.
const CURSOR: usize = 2;
/// Pages of a run.
const PAGES: usize = 3;

/// Nobody has counted the free slots of this block yet.
const UNCOUNTED: u32 = u32::MAX;

const PIECE_WORDS: u64 = if cfg!(miri) { 1 << 13 } else { 1 << 22 };
const PIECES: usize = 1 << 12;
const LOCATION_BITS: u32 = 40;
const BLOCKS: u64 = if cfg!(miri) { 1 << 12 } else { SPACE_MAX / BLOCK };

/// Cells of all blocks and runs.
pub(crate) struct Chunks {
    /// For each block, its class plus one and where its cells lie; 0: not cut.
    blocks: Zeroed<[AtomicU64; BLOCKS as usize]>,
    /// The first piece of the arena, found in one load: the only one, up to some million chunks.
    first: Piece,
    /// All pieces, but for the first.
    arena: Box<[OnceLock<Piece>; PIECES]>,
    spare: Mutex<Spare>,
    /// No block behind it was ever cut.
    last_block: AtomicU32,
    /// First pages of large chunks, and where their cells lie.
    large: Mutex<BTreeMap<u32, u64>>,
}

struct Spare {
    next: u64,
    by_class: [Vec<u64>; CLASSES + 1],
}

/// Memory for cells. Of a length that the compiler knows, so that no access looks it up.
type Piece = Zeroed<[AtomicU32; PIECE_WORDS as usize]>;

/// Where a slot lies, whatever becomes of its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAt(u64);

/// A chunk, found from its offset.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    chunks: &'a Chunks,
    /// Of its block's or its run's cells.
    location: u64,
    pub(crate) class: u8,
    index: u32,
}

/// Header and slots of a block or a run.
#[derive(Clone, Copy)]
pub(crate) struct Cells<'a>(&'a [AtomicU32]);

fn location_of(word: u64) -> u64 {
    word & ((1 << LOCATION_BITS) - 1)
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self {
            blocks: Zeroed::new(),
            first: Piece::new(),
            arena: Box::new([const { OnceLock::new() }; PIECES]),
            spare: Mutex::new(Spare { next: 0, by_class: [const { Vec::new() }; CLASSES + 1] }),
            last_block: AtomicU32::new(0),
            large: Mutex::default(),
        }
    }

    /// The chunk that begins at `at`.
    pub(crate) fn find(&self, at: u64) -> Option<Place<'_>> {
        self.find_small(at).or_else(|| self.find_large(at))
    }

    /// The same in blocks: without a call, so that all of it stays in registers.
    #[inline(always)]
    pub(crate) fn find_small(&self, at: u64) -> Option<Place<'_>> {
        let word = self.blocks.get((at / BLOCK) as usize)?.load(Ordering::Acquire);
        if word == 0 {
            return None;
        }
        let class = (word >> LOCATION_BITS) as u8 - 1;
        let index = ALL[usize::from(class)].index_at(at % BLOCK)?;
        Some(Place { chunks: self, location: location_of(word), class, index })
    }

    #[cold]
    fn find_large(&self, at: u64) -> Option<Place<'_>> {
        let page = u32::try_from(at / PAGE).ok().filter(|_| at.is_multiple_of(PAGE))?;
        let location = *self.lock_large().get(&page)?;
        Some(Place { chunks: self, location, class: LARGE, index: 0 })
    }

    #[inline(always)]
    fn piece(&self, location: u64) -> &Piece {
        if location < PIECE_WORDS { &self.first } else { self.piece_behind(location) }
    }

    #[inline(never)]
    fn piece_behind(&self, location: u64) -> &Piece {
        self.arena[(location / PIECE_WORDS) as usize].get().expect("cells that were made")
    }

    fn cells(&self, location: u64) -> Cells<'_> {
        Cells(&self.piece(location)[(location % PIECE_WORDS) as usize..])
    }

    /// The slot there.
    #[inline(always)]
    pub(crate) fn slot(&self, at: SlotAt) -> &AtomicU32 {
        &self.piece(at.0)[(at.0 % PIECE_WORDS) as usize]
    }

    /// The class of the block, and its cells, if it is cut.
    pub(crate) fn block(&self, block: u32) -> Option<(u8, Cells<'_>)> {
        let word = self.blocks.get(block as usize)?.load(Ordering::Acquire);
        (word != 0).then(|| ((word >> LOCATION_BITS) as u8 - 1, self.cells(location_of(word))))
    }

    /// The cells of the run that begins at this page.
    pub(crate) fn run(&self, page: u32) -> Option<Cells<'_>> {
        let location = *self.lock_large().get(&page)?;
        Some(self.cells(location))
    }

    /// Calls `f` with every chunk of every block and run, whoever has it.
    pub(crate) fn each(&self, mut f: impl FnMut(u64, Place<'_>)) {
        // Blocks in use are few of those that there can be: the table ends where the longest space does.
        let blocks = self.last_block.load(Ordering::Acquire);
        for block in 0..=blocks {
            let word = self.blocks[block as usize].load(Ordering::Acquire);
            if word != 0 {
                let (class, location) = ((word >> LOCATION_BITS) as u8 - 1, location_of(word));
                let shape = ALL[usize::from(class)];
                for index in 0..shape.count {
                    let at = u64::from(block) * BLOCK + u64::from(index) * u64::from(shape.bytes);
                    f(at, Place { chunks: self, location, class, index });
                }
            }
        }
        let runs: Vec<(u32, u64)> = self.lock_large().iter().map(|(page, cells)| (*page, *cells)).collect();
        for (page, location) in runs {
            f(u64::from(page) * PAGE, Place { chunks: self, location, class: LARGE, index: 0 });
        }
    }

    fn lock_large(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.large.lock().expect("no panic while it is held")
    }

    /// Cuts the block: from now on [`Self::find`] finds its chunks. None of them is free yet.
    pub(crate) fn cut(&self, block: u32, class: u8, run: u32) -> Cells<'_> {
        let count = ALL[usize::from(class)].count as usize;
        let location = self.take_cells(class, count);
        let cells = self.cells(location);
        cells.reset(run, count, 0);
        let word = (u64::from(class) + 1) << LOCATION_BITS | location;
        self.blocks[block as usize].store(word, Ordering::Release);
        self.last_block.fetch_max(block, Ordering::AcqRel);
        cells
    }

    /// The block is cut no longer.
    pub(crate) fn uncut(&self, block: u32) {
        let word = self.blocks[block as usize].swap(0, Ordering::AcqRel);
        let class = (word >> LOCATION_BITS) as usize - 1;
        self.lock_spare().by_class[class].push(location_of(word));
    }

    /// Adds a run of pages for a large chunk.
    pub(crate) fn add_run(&self, page: u32, pages: u32, run: u32) -> Cells<'_> {
        let location = self.take_cells(LARGE, 1);
        let cells = self.cells(location);
        cells.reset(run, 1, pages);
        self.lock_large().insert(page, location);
        cells
    }

    /// Forgets a run.
    pub(crate) fn remove_run(&self, page: u32) {
        if let Some(location) = self.lock_large().remove(&page) {
            self.lock_spare().by_class[usize::from(LARGE)].push(location);
        }
    }

    fn lock_spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().expect("no panic while it is held")
    }

    fn take_cells(&self, class: u8, count: usize) -> u64 {
        let mut spare = self.lock_spare();
        if let Some(location) = spare.by_class[usize::from(class)].pop() {
            return location;
        }
        let words = (count + HEADER) as u64;
        if spare.next % PIECE_WORDS + words > PIECE_WORDS {
            spare.next = spare.next.next_multiple_of(PIECE_WORDS);
        }
        let location = spare.next;
        spare.next += words;
        if location >= PIECE_WORDS {
            self.arena[(location / PIECE_WORDS) as usize].get_or_init(Piece::new);
        }
        location
    }
}

impl<'a> Place<'a> {
    /// Who has the chunk.
    #[inline(always)]
    pub(crate) fn slot(&self) -> &'a AtomicU32 {
        self.chunks.slot(self.slot_at())
    }

    #[inline(always)]
    pub(crate) fn slot_at(&self) -> SlotAt {
        SlotAt(self.location + HEADER as u64 + u64::from(self.index))
    }

    /// Holds the chunk's record, if it is at `position`; otherwise says what the slot says.
    #[inline(always)]
    pub(crate) fn hold(&self, position: u32) -> Result<(), u32> {
        let held = position | HELD;
        self.slot().compare_exchange(position, held, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    /// The slot of another chunk of the same block.
    pub(crate) fn sibling(&self, index: u32) -> SlotAt {
        Self { index, ..*self }.slot_at()
    }

    pub(crate) fn cells(&self) -> Cells<'a> {
        self.chunks.cells(self.location)
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Bytes of the chunk.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        if self.class == LARGE {
            return u64::from(self.cells().pages()) * PAGE;
        }
        ALL[usize::from(self.class)].bytes.into()
    }
}

impl<'a> Cells<'a> {
    fn reset(&self, run: u32, count: usize, pages: u32) {
        self.0[FREE_COUNT].store(UNCOUNTED, Ordering::Relaxed);
        self.0[RUN].store(run, Ordering::Relaxed);
        self.0[CURSOR].store(0, Ordering::Relaxed);
        self.0[PAGES].store(pages, Ordering::Relaxed);
        for slot in &self.0[HEADER..HEADER + count] {
            slot.store(FREE, Ordering::Relaxed);
        }
    }

    /// Slots of a block of `count`.
    pub(crate) fn slots(&self, count: u32) -> &'a [AtomicU32] {
        &self.0[HEADER..HEADER + count as usize]
    }

    pub(crate) fn run(&self) -> &'a AtomicU32 {
        &self.0[RUN]
    }

    pub(crate) fn pages(&self) -> u32 {
        self.0[PAGES].load(Ordering::Relaxed)
    }

    /// How many slots are free. Under the lock of the class.
    pub(crate) fn free_count(&self, count: u32) -> u32 {
        match self.0[FREE_COUNT].load(Ordering::Relaxed) {
            UNCOUNTED => {
                let slots = self.slots(count).iter();
                let free = slots.filter(|slot| slot.load(Ordering::Relaxed) == FREE).count() as u32;
                self.0[FREE_COUNT].store(free, Ordering::Relaxed);
                free
            }
            counted => counted,
        }
    }

    /// Takes free slots until `most` are taken or none is left, and marks them [`CACHED`]. Under the lock
    /// of the class.
    pub(crate) fn take(&self, count: u32, most: usize, mut taken: impl FnMut(u32)) {
        let mut left = self.free_count(count);
        let mut wanted = most;
        let mut index = self.0[CURSOR].load(Ordering::Relaxed);
        while wanted > 0 && left > 0 && index < count {
            let slot = &self.0[HEADER + index as usize];
            if slot.load(Ordering::Relaxed) == FREE {
                slot.store(CACHED, Ordering::Relaxed);
                taken(index);
                (wanted, left) = (wanted - 1, left - 1);
            }
            index += 1;
        }
        self.0[CURSOR].store(index, Ordering::Relaxed);
        self.0[FREE_COUNT].store(left, Ordering::Relaxed);
    }

    /// Takes this slot if it is free. Under the lock of the class.
    pub(crate) fn take_one(&self, count: u32, index: u32, state: u32) -> bool {
        let left = self.free_count(count);
        let slot = &self.0[HEADER + index as usize];
        if slot.load(Ordering::Relaxed) != FREE {
            return false;
        }
        slot.store(state, Ordering::Relaxed);
        self.0[FREE_COUNT].store(left - 1, Ordering::Relaxed);
        true
    }

    /// Gives a slot back, and says how many are free now. Under the lock of the class.
    pub(crate) fn give(&self, count: u32, index: u32) -> u32 {
        let free = self.free_count(count) + 1;
        self.0[HEADER + index as usize].store(FREE, Ordering::Release);
        self.0[FREE_COUNT].store(free, Ordering::Relaxed);
        self.0[CURSOR].fetch_min(index, Ordering::Relaxed);
        free
    }
}
