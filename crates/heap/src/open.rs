//! Making a heap in a space, finding it again, making it longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash3_64;
use wattkeep_persist::{Domain, Space};

use crate::core::Core;
use crate::error::HeapError;
use crate::layout::{
    BLOCK, FLAG_GUARD, LANE_BYTES, LANES_AT, LOG_AREA_AT, PAGE, SPACE_MAX, SUPERBLOCK_COPIES, Superblock,
    UntrustedSuperblock, VERSION,
};
use crate::log::replay::How;
use crate::options::Options;
use crate::record::{LANES_MAX, Record, Word};
use crate::supply::{self, Batch, SpaceSource};

/// Blocks that a heap needs for its log and its first objects.
const BLOCKS_MIN: u64 = 2;

/// The superblock of the space: that of the first copy that can be trusted. The second copy is made first:
/// one that a cut left unfinished, beside a first one that nobody wrote to, is of a heap that never was.
fn superblock(space: &Space) -> Result<Superblock, HeapError> {
    let mut judged = [Superblock::Blank, Superblock::Blank];
    for (at, judged) in SUPERBLOCK_COPIES.into_iter().zip(&mut judged) {
        if at as usize + size_of::<UntrustedSuperblock>() > space.len() {
            return Ok(Superblock::Blank);
        }
        let copy: UntrustedSuperblock = space.read(at as usize)?;
        *judged = copy.judge();
        if let Superblock::Valid(_) | Superblock::Newer(_) = judged {
            return Ok(std::mem::replace(judged, Superblock::Blank));
        }
    }
    Ok(match judged {
        [Superblock::Blank, Superblock::Blank | Superblock::Unfinished] => Superblock::Blank,
        _ => Superblock::Damaged,
    })
}

/// Nothing was ever made here.
pub(crate) fn is_blank(space: &Space) -> Result<bool, HeapError> {
    Ok(matches!(superblock(space)?, Superblock::Blank))
}

/// Where the first page of objects lies.
fn pages_at(log_area_bytes: u64) -> u64 {
    LOG_AREA_AT + log_area_bytes
}

/// See [`crate::Heap::create`].
pub(crate) fn create(space: Arc<Space>, options: &Options) -> Result<Core, HeapError> {
    judge(options.supply)?;
    let claim = Space::claim(&space).ok_or(HeapError::InUse)?;
    match superblock(&space)? {
        Superblock::Blank => {}
        Superblock::Newer(found) => return Err(HeapError::NewerVersion { found, known: VERSION }),
        Superblock::Valid(_) => return Err(HeapError::Exists),
        Superblock::Unfinished | Superblock::Damaged => {
            return Err(HeapError::Damaged { what: "the superblock", at: 0 });
        }
    }
    let bytes = usable(&space)?;
    let log_area_bytes = options
        .log_area_bytes
        .checked_next_multiple_of(PAGE)
        .filter(|bytes| *bytes < SPACE_MAX)
        .ok_or(HeapError::Options("the log area is larger than any space"))?;
    let least = pages_at(log_area_bytes).next_multiple_of(BLOCK) + BLOCKS_MIN * BLOCK;
    if bytes < least {
        return Err(HeapError::TooSmall { bytes, least });
    }
    clear(&space, PAGE, LOG_AREA_AT)?;
    let flags = if options.guard { FLAG_GUARD } else { 0 };
    let block = UntrustedSuperblock::new(new_id(), flags, bytes, log_area_bytes);
    for at in SUPERBLOCK_COPIES.into_iter().rev() {
        space.write(at as usize, &block)?;
        space.persist(at as usize, size_of_val(&block))?;
    }
    let core = Core::new(space, block.id, options.guard, log_area_bytes);
    core.own(claim);
    core.add_pages(bytes);
    core.begin_supply(options.supply);
    Ok(core)
}

/// Refuses what makes no sense, before anything is written.
fn judge(supply: Option<supply::Options>) -> Result<(), HeapError> {
    match supply {
        Some(supply) if supply.low > supply.high => {
            Err(HeapError::Options("the supply's low watermark is above its high one"))
        }
        _ => Ok(()),
    }
}

/// See [`crate::Heap::is_in`].
pub(crate) fn is_in(space: &Space) -> bool {
    SUPERBLOCK_COPIES.into_iter().any(|at| {
        let copy: Result<UntrustedSuperblock, _> = space.read(at as usize);
        copy.is_ok_and(|copy| copy.is_marked())
    })
}

/// Writes the copy of the superblock that a cut kept create from writing. One that is damaged stays as it is, for a
/// check to name.
fn finish_create(space: &Space) -> Result<(), HeapError> {
    let copies = SUPERBLOCK_COPIES.map(|at| (at as usize, space.read::<UntrustedSuperblock>(at as usize)));
    let [(first_at, first), (_, second)] = copies;
    let second = second?;
    if let (Superblock::Blank | Superblock::Unfinished, Superblock::Valid(_)) =
        (first?.judge(), second.judge())
    {
        space.write(first_at, &second)?;
        space.persist(first_at, size_of_val(&second))?;
    }
    Ok(())
}

/// Where copies of the superblock lie that cannot be trusted.
pub(crate) fn lost_copies(space: &Space) -> Result<Vec<u64>, HeapError> {
    let mut lost = Vec::new();
    for at in SUPERBLOCK_COPIES {
        let copy: UntrustedSuperblock = space.read(at as usize)?;
        if !matches!(copy.judge(), Superblock::Valid(_)) {
            lost.push(at);
        }
    }
    Ok(lost)
}

/// What a heap can use of the space: whole pages.
fn usable(space: &Space) -> Result<u64, HeapError> {
    let bytes = space.len() as u64 / PAGE * PAGE;
    if bytes > SPACE_MAX {
        return Err(HeapError::SpaceTooLarge { bytes, most: SPACE_MAX });
    }
    Ok(bytes)
}

/// Makes bytes zero that are not.
fn clear(space: &Space, from: u64, to: u64) -> Result<(), HeapError> {
    let mut page = [0; PAGE as usize];
    for at in (from..to).step_by(PAGE as usize) {
        space.read_bytes(at as usize, &mut page)?;
        if page.iter().any(|byte| *byte != 0) {
            space.write_bytes(at as usize, &[0; PAGE as usize])?;
            space.flush(at as usize, PAGE as usize)?;
        }
    }
    space.fence();
    Ok(())
}

/// An id that no other heap has: hashed from what the process knows of itself.
fn new_id() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static MADE: AtomicU64 = AtomicU64::new(0);
    let random = RandomState::new().hash_one(MADE.fetch_add(1, Ordering::Relaxed));
    XxHash3_64::oneshot(&random.to_le_bytes()).max(1)
}

/// What becomes of damaged and missing records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Refused,
    /// Their objects will be traced.
    Tolerated,
}

/// See [`crate::Heap::open`].
pub(crate) fn open(
    space: Arc<Space>,
    lost: Lost,
    supply: Option<supply::Options>,
) -> Result<Core, HeapError> {
    begin(space, supply)?.finish(lost)
}

/// A heap that is there, and whose log is to be read.
pub(crate) struct Begun {
    core: Core,
    supply: Option<supply::Options>,
}

/// All of opening that takes no time: nobody else has the space, and it holds a heap.
pub(crate) fn begin(space: Arc<Space>, supply: Option<supply::Options>) -> Result<Begun, HeapError> {
    judge(supply)?;
    let claim = Space::claim(&space).ok_or(HeapError::InUse)?;
    let core = recognise(space)?;
    core.own(claim);
    Ok(Begun { core, supply })
}

impl Begun {
    /// Reads the log.
    pub(crate) fn finish(self, lost: Lost) -> Result<Core, HeapError> {
        let Self { core, supply } = self;
        core.rebuild(How { tolerant: lost == Lost::Tolerated, ..How::default() })?;
        finish_create(&core.space)?;
        core.mend_roots()?;
        core.begin_supply(supply);
        Ok(core)
    }
}

/// Reads a heap without writing: to compare, not to use.
pub(crate) fn read(space: Arc<Space>) -> Result<Core, HeapError> {
    let core = recognise(space)?;
    core.rebuild(How { read_only: true, ..How::default() })?;
    Ok(core)
}

/// The heap of the space, without its log.
fn recognise(space: Arc<Space>) -> Result<Core, HeapError> {
    let block = match superblock(&space)? {
        Superblock::Valid(block) => block,
        Superblock::Newer(found) => return Err(HeapError::NewerVersion { found, known: VERSION }),
        Superblock::Blank => return Err(HeapError::NotAHeap),
        Superblock::Unfinished | Superblock::Damaged => {
            return Err(HeapError::Damaged { what: "the superblock", at: 0 });
        }
    };
    let bytes = usable(&space)?;
    if bytes < block.created_bytes {
        return Err(HeapError::Truncated { created: block.created_bytes, now: bytes });
    }
    Ok(Core::new(space, block.id, block.flags & FLAG_GUARD != 0, block.log_area_bytes))
}

/// See [`crate::Heap::grow`].
pub(crate) fn grow(core: &Core, bytes: u64) -> Result<(), HeapError> {
    if bytes > SPACE_MAX {
        return Err(HeapError::SpaceTooLarge { bytes, most: SPACE_MAX });
    }
    core.space.grow(bytes as usize)?;
    core.add_pages(usable(&core.space)?);
    Ok(())
}

impl Core {
    /// Rebuilds what lies in DRAM from the log.
    fn rebuild(&self, how: How) -> Result<(), HeapError> {
        self.add_pages(usable(&self.space)?);
        let published = self.read_lanes()?;
        let replayed = self.log.replay(&self.chunks, &mut self.lock_pages(), &published, how)?;
        for (block, class) in replayed.blocks {
            self.lock_bin(class).partial.insert(block);
        }
        *self.vacant.lock().expect("nobody else has it") = replayed.vacant;
        Ok(())
    }

    /// Makes pages up to `end` free that were never given out.
    fn add_pages(&self, end: u64) {
        let mut pages = self.lock_pages();
        let known = self.end.load(Ordering::Relaxed).max(pages_at(self.log_area_bytes));
        if end > known {
            pages.extend((known / PAGE) as u32, ((end - known) / PAGE) as u32);
            self.end.store(end, Ordering::Relaxed);
        }
    }

    /// What lies behind all pages that are in use comes from the supply from now on. A sync to a file
    /// writes as much as was brought in together, so pages of files come one by one.
    fn begin_supply(&self, chosen: Option<supply::Options>) {
        let bytes = self.end.load(Ordering::Relaxed);
        let mut options = chosen.unwrap_or_else(|| supply::Options::for_space(bytes));
        if let Domain::File = self.space.domain() {
            options.batch = Batch::One;
        }
        let end = (bytes / PAGE) as u32;
        let source = SpaceSource::new(self.space.clone());
        self.lock_pages().supply(end, options, Box::new(source));
    }

    /// How far each lane has published.
    fn read_lanes(&self) -> Result<[u64; LANES_MAX as usize], HeapError> {
        let mut published = [0; LANES_MAX as usize];
        for (lane, published) in published.iter_mut().enumerate() {
            let at = LANES_AT + lane as u64 * LANE_BYTES;
            let word = self.space.load(at as usize)?;
            *published = match Word::decode(word) {
                Some(Word { record: Record::Published { tid }, .. }) => tid,
                None if word == 0 => 0,
                _ => return Err(HeapError::Damaged { what: "a lane", at }),
            };
            self.lane(lane as u32)?.published = *published;
        }
        Ok(published)
    }
}

const _: () = assert!(size_of::<UntrustedSuperblock>() as u64 <= PAGE / 2);
