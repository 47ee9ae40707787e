//! A small store whose every byte is known: what its image is, and where each part of it lies.

use std::collections::BTreeMap;
use std::ops::Range;

use wattkeep_sim::disk::{Cut, MemoryDisk};
use wattkeep_sim::random::Random;
use wattkeep_sim::rewind::RewindDisk;
use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::limits::{SEGMENTS_START, SUPERBLOCK_COPIES, SUPERBLOCK_SPACING};
use wattkeep_store::superblock::SUPERBLOCK_BYTES;
use wattkeep_store::types::{PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{
    Begin, Commit, CommitKind, CreateOptions, NewRegion, Purpose, RegionMode, Store, summary,
};

/// Pages in a segment.
pub(crate) const SEGMENT_PAGES: u32 = 8;

/// How the last writer left the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Closed, with a digest.
    Closed,
    /// Killed after a checkpoint, with batches behind it.
    Killed,
    /// Closed, opened again, and killed with a batch behind the close.
    Reopened,
}

/// A store and what it promises.
pub(crate) struct Sample {
    pub(crate) disk: RewindDisk,
    /// The same disk at an earlier moment: where stale bytes come from.
    pub(crate) older: Vec<u8>,
    /// The image: bytes of every stored page.
    pub(crate) pages: BTreeMap<PageId, Vec<u8>>,
    /// Where each of them lies.
    pub(crate) slots: Vec<(PageId, u32)>,
    pub(crate) sizes: Vec<(RegionId, u32)>,
    pub(crate) commit: Commit,
}

/// Where a slot lies.
pub(crate) fn slot_offset(slot: u32) -> usize {
    SEGMENTS_START as usize + slot as usize * PAGE_SIZE
}

fn content(seed: u64, page: PageId, version: u64) -> Vec<u8> {
    let mut random =
        Random::new(seed ^ u64::from(page.region.0) << 40 ^ u64::from(page.page) << 20 ^ version);
    (0..PAGE_SIZE / 8).flat_map(|_| random.number().to_le_bytes()).collect()
}

/// Appends one version of each page, and waits until the log has them.
pub(crate) fn append<D: Disk>(
    store: &mut Store<D>,
    seed: u64,
    pages: &[PageId],
    version: u64,
) -> Result<(), String> {
    let mut left = pages;
    let mut events = Vec::new();
    while !left.is_empty() {
        match store.begin(Purpose::Writeback, left.len()).map_err(|error| error.to_string())? {
            Begin::Batch(mut batch) => {
                let count = batch.room().min(left.len());
                for &page in &left[..count] {
                    let bytes = content(seed, page, version);
                    batch.next_page().copy_from_slice(&bytes);
                    batch.push(page, store.hash(&bytes), 0);
                }
                store.submit(batch);
                left = &left[count..];
            }
            Begin::Busy => store.poll(Wait::One, &mut events).map_err(|error| error.to_string())?,
            Begin::NoSpace => return Err("the sample store is full".to_owned()),
        }
    }
    while !pages
        .iter()
        .all(|&page| store.stored_checksum(page) == Some(store.hash(&content(seed, page, version))))
    {
        store.poll(Wait::One, &mut events).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn page_list(region: RegionId, pages: Range<u32>) -> Vec<PageId> {
    pages.map(|page| PageId { region, page }).collect()
}

fn snapshot(disk: &MemoryDisk) -> Vec<u8> {
    disk.peek(0, disk.size() as usize)
}

impl Sample {
    /// Makes the store of a seed.
    pub(crate) fn new(seed: u64, ending: Ending) -> Result<Self, String> {
        let disk = MemoryDisk::new(seed);
        let mut options = CreateOptions {
            uuid: Some([7; 16]),
            seed: Some(seed),
            budget_pages: 4,
            segment_pages: Some(SEGMENT_PAGES),
            progress: None,
        };
        let text = |error: wattkeep_store::StoreError| error.to_string();
        let mut store = Store::create(disk.clone(), &mut options).map_err(|error| error.to_string())?;
        let new = |name: &str, mode, pages| NewRegion {
            name: name.to_owned(),
            mode,
            pages,
            reserve_pages: 0,
            address: 0,
        };
        let table = store.create_region(new("table", RegionMode::Explicit, 20)).map_err(text)?;
        let log = store.create_region(new("log", RegionMode::Transparent, 9)).map_err(text)?;
        append(&mut store, seed, &page_list(table, 0..9), 1)?;
        append(&mut store, seed, &page_list(log, 0..9), 1)?;
        store.commit(CommitKind::Checkpoint).map_err(text)?;
        let mut older = snapshot(&disk);
        store.resize_region(log, 5).map_err(text)?;
        append(&mut store, seed, &page_list(table, 3..13), 2)?;
        let kind = if ending == Ending::Killed { CommitKind::Checkpoint } else { CommitKind::Close };
        let commit = store.commit(kind).map_err(text)?;
        let mut sample = Self {
            disk: RewindDisk::default(),
            older: Vec::new(),
            pages: BTreeMap::new(),
            slots: Vec::new(),
            sizes: vec![(table, 20), (log, 5)],
            commit,
        };
        sample.read_image(&mut store)?;
        match ending {
            Ending::Closed => {}
            Ending::Killed => append(&mut store, seed, &page_list(table, 10..20), 3)?,
            Ending::Reopened => {
                older = snapshot(&disk);
                drop(store);
                (store, _) =
                    Store::open(disk.after_cut(Cut::KeepAll, seed)).map_err(|error| error.to_string())?;
                append(&mut store, seed, &page_list(table, 10..20), 3)?;
            }
        }
        sample.disk = RewindDisk::of(store.disk());
        sample.older = older;
        sample.older.resize(sample.disk.bytes().len(), 0);
        Ok(sample)
    }

    fn read_image(&mut self, store: &mut Store<MemoryDisk>) -> Result<(), String> {
        for &(region, _) in &self.sizes {
            let stored: Vec<_> = store.stored_pages(region).collect();
            for page in stored {
                let mut bytes = [0; PAGE_SIZE];
                store.read_page_blocking(page, &mut bytes).map_err(|error| error.to_string())?;
                self.pages.insert(page, bytes.to_vec());
                self.slots.push((page, store.slot_of(page).ok_or("a stored page has no slot")?));
            }
        }
        Ok(())
    }

    /// The bytes of the superblock copies.
    pub(crate) fn superblocks(&self) -> Vec<Range<usize>> {
        let start = |copy: u64| (copy * SUPERBLOCK_SPACING) as usize;
        (0..SUPERBLOCK_COPIES).map(|copy| start(copy)..start(copy) + SUPERBLOCK_BYTES).collect()
    }

    /// The copies that hold the newest state.
    pub(crate) fn newest_copies(&self) -> Vec<Range<usize>> {
        let bytes = self.disk.bytes();
        let sequence = |copy: &Range<usize>| {
            u64::from_le_bytes(bytes[copy.start + 56..copy.start + 64].try_into().expect("eight bytes"))
        };
        let newest = self.superblocks().iter().map(sequence).max();
        self.superblocks().into_iter().filter(|copy| Some(sequence(copy)) == newest).collect()
    }

    /// The pages that begin with these bytes, by slot.
    fn pages_that_begin(&self, magic: &[u8; 8]) -> Vec<u32> {
        let bytes = self.disk.bytes();
        let slots = (bytes.len() - SEGMENTS_START as usize) / PAGE_SIZE;
        (0..slots as u32).filter(|&slot| bytes[slot_offset(slot)..].starts_with(magic)).collect()
    }

    /// The slots of all summaries. Each is one page, because a segment here has eight.
    pub(crate) fn summaries(&self) -> Vec<u32> {
        self.pages_that_begin(&summary::MAGIC)
    }

    /// A batch, summary and data, as bytes of the disk.
    pub(crate) fn batch_at(&self, slot: u32) -> Range<usize> {
        let start = slot_offset(slot);
        let count = &self.disk.bytes()[start + 36..start + 40];
        let count = u32::from_le_bytes(count.try_into().expect("four bytes"));
        start..slot_offset(slot + 1 + count)
    }

    /// The index digest; empty when there is none.
    pub(crate) fn digest(&self) -> Range<usize> {
        let Some(&slot) = self.pages_that_begin(b"WKINDEX1").first() else { return 0..0 };
        let start = slot_offset(slot);
        let pages = &self.disk.bytes()[start + 28..start + 32];
        start..start + u32::from_le_bytes(pages.try_into().expect("four bytes")) as usize * PAGE_SIZE
    }
}
