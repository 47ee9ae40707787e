//! A store on the twin disk beside a model of what it promises.
//!
//! The model keeps three things: memory (what the program sees), the pages that differ from the
//! log, and the images that a reopened store may show: one, or two while a change is being made
//! durable. After every crash the store must show one of them, page by page.
//!
//! A promise that does not hold is a [`Stop::Broken`], never a panic: whoever runs many histories names
//! the seed and goes on.

mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use wattkeep_store::disk::Wait;
use wattkeep_store::types::{PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{
    Batch, Begin, CleaningAdvice, CommitKind, CreateOptions, Event, NewRegion, Purpose, RegionMode, Store,
    StoreError,
};

pub use verdict::examine;

use crate::disk::MemoryDisk;
use crate::random::Random;

/// Dirty pages that the model's program may have.
pub const BUDGET: u32 = 20;
/// Pages in a segment of the model's store: small, so that every corner is met soon.
pub const SEGMENT_PAGES: u32 = 16;

/// Why a history ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The store refused, as it may after a fault.
    Refused(StoreError),
    /// A promise did not hold.
    Broken(String),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl Stop {
    /// The broken promise, if it is one.
    pub fn broken(self) -> Option<String> {
        match self {
            Self::Broken(cause) => Some(cause),
            Self::Refused(_) => None,
        }
    }
}

fn broken<T>(cause: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Broken(cause.into()))
}

/// What a store holds: sizes of regions, versions of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Pages of each region, by its id.
    pub regions: BTreeMap<u32, u32>,
    /// The version of each stored page, by region and page.
    pub pages: BTreeMap<(u32, u32), u64>,
}

impl Image {
    fn cut(&mut self, region: u32, pages: u32) {
        self.pages.retain(|&(id, page), _| id != region || page < pages);
    }
}

/// Bytes of one version of a page: every sector names it, so that a torn page shows.
pub fn content(page: PageId, version: u64) -> [u8; PAGE_SIZE] {
    let mut bytes = [0; PAGE_SIZE];
    for sector in bytes.chunks_mut(512) {
        sector[..8].copy_from_slice(&version.to_le_bytes());
        sector[8..12].copy_from_slice(&page.region.0.to_le_bytes());
        sector[12..16].copy_from_slice(&page.page.to_le_bytes());
    }
    bytes
}

/// Writes one version of some pages of a region, without a commit.
///
/// # Panics
/// When the store fails, or has no room.
pub fn append(store: &mut Store<MemoryDisk>, region: RegionId, pages: &[u32], version: u64) {
    let mut left = pages;
    while !left.is_empty() {
        match store.begin(Purpose::Writeback, left.len()).expect("a good store") {
            Begin::Batch(mut batch) => {
                let count = batch.room().min(left.len());
                for &page in &left[..count] {
                    let page = PageId { region, page };
                    let bytes = content(page, version);
                    *batch.next_page() = bytes;
                    batch.push(page, store.hash(&bytes), 0);
                }
                store.submit(batch);
                left = &left[count..];
            }
            Begin::Busy => store.poll(Wait::One, &mut Vec::new()).expect("a good store"),
            Begin::NoSpace => panic!("no space"),
        }
    }
}

fn id((region, page): (u32, u32)) -> PageId {
    PageId { region: RegionId(region), page }
}

/// How often a history met what it should meet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Images of a cut disk that were examined.
    pub crashes: u64,
    /// Commits that completed.
    pub commits: u64,
    /// Batches submitted.
    pub batches: u64,
    /// Passes of cleaning.
    pub cleanings: u64,
    /// Images with batches after the last commit.
    pub tails: u64,
    /// Crashes inside a recovery.
    pub recovery_crashes: u64,
    /// Times that neither cleaning nor a checkpoint made room.
    pub stuck: u64,
    /// Images opened by their digest.
    pub by_digest: u64,
}

impl std::ops::AddAssign for Statistics {
    fn add_assign(&mut self, other: Self) {
        self.crashes += other.crashes;
        self.commits += other.commits;
        self.batches += other.batches;
        self.cleanings += other.cleanings;
        self.tails += other.tails;
        self.recovery_crashes += other.recovery_crashes;
        self.stuck += other.stuck;
        self.by_digest += other.by_digest;
    }
}

/// The store, and what it must hold.
pub struct Model {
    /// The disk below the store.
    pub disk: MemoryDisk,
    store: Option<Store<MemoryDisk>>,
    /// Chooses the steps.
    pub random: Random,
    /// What the program sees.
    pub memory: Image,
    dirty: BTreeSet<(u32, u32)>,
    /// Version on its way and the mark of its batch, by page: the newest, when there are several.
    flying: BTreeMap<(u32, u32), (u64, u32)>,
    /// Marks the pages of a batch.
    cookie: u32,
    /// What a reopened store may show.
    pub durable: Vec<Image>,
    version: u64,
    /// Sequence of the last batch that was acknowledged.
    acknowledged: u64,
    /// What the history met.
    pub statistics: Statistics,
}

/// What the model's store is made with.
pub fn create_options(seed: u64) -> CreateOptions {
    CreateOptions {
        uuid: Some([7; 16]),
        seed: Some(seed),
        budget_pages: BUDGET,
        segment_pages: Some(SEGMENT_PAGES),
        progress: None,
    }
}

impl Model {
    /// A new store with one region, on a disk without faults.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(random.number());
        let store = Store::create(disk.clone(), &mut create_options(seed)).expect("no fault is set");
        let mut model = Self {
            disk,
            store: Some(store),
            random,
            memory: Image::default(),
            dirty: BTreeSet::new(),
            flying: BTreeMap::new(),
            cookie: 0,
            durable: vec![Image::default()],
            version: 0,
            acknowledged: 0,
            statistics: Statistics::default(),
        };
        model.add_region(60).expect("no fault is set");
        model
    }

    /// The open store.
    pub fn store(&mut self) -> &mut Store<MemoryDisk> {
        self.store.as_mut().expect("the store is open")
    }

    /// One random step. An error ends in a crash, which the caller makes.
    pub fn step(&mut self) -> Result<(), Stop> {
        match self.random.below(100) {
            0..45 => self.dirty_pages(),
            45..75 => self.write_back(),
            75..80 => self.poll(Wait::No),
            80..88 => self.clean(),
            88..93 => self.commit(CommitKind::Checkpoint, Purpose::Checkpoint),
            93..95 => self.commit(CommitKind::Save, Purpose::Save),
            95..99 => self.change_regions(),
            _ => self.commit(CommitKind::Close, Purpose::Save),
        }
    }

    fn dirty_pages(&mut self) -> Result<(), Stop> {
        self.store().mark_running()?;
        for _ in 0..self.random.below(8) {
            while self.dirty.len() >= BUDGET as usize {
                self.write_back()?;
                self.poll(Wait::One)?;
            }
            let Some(page) = self.any_page() else { return Ok(()) };
            self.version += 1;
            // Now and then a page gets an older content back.
            let version = if self.random.chance(1, 8) { 1 } else { self.version };
            self.memory.pages.insert(page, version);
            self.dirty.insert(page);
        }
        Ok(())
    }

    fn any_page(&mut self) -> Option<(u32, u32)> {
        let regions: Vec<_> = self.memory.regions.iter().filter(|&(_, &pages)| pages > 0).collect();
        let number = self.random.below(regions.len().max(1) as u64) as usize;
        let &(&region, &pages) = regions.get(number)?;
        // Mostly a few hot pages.
        let pages = if self.random.chance(3, 4) { pages.min(9) } else { pages };
        Some((region, self.random.below(pages.into()) as u32))
    }

    /// Pages that are dirty and whose newest version is not on its way.
    fn writable(&self) -> Vec<(u32, u32)> {
        let flies = |page: &&(u32, u32)| {
            self.flying.get(page).is_some_and(|&(version, _)| version == self.memory.pages[page])
        };
        self.dirty.iter().filter(|page| !flies(page)).copied().collect()
    }

    fn write_back(&mut self) -> Result<(), Stop> {
        let few = self.random.below(12) as usize + 1;
        let pages: Vec<_> = self.writable().into_iter().take(few).collect();
        match self.write(&pages, Purpose::Writeback)? {
            Written::All => Ok(()),
            Written::Busy => self.poll(Wait::One),
            Written::NoSpace => self.make_room(),
        }
    }

    fn write(&mut self, pages: &[(u32, u32)], purpose: Purpose) -> Result<Written, Stop> {
        let mut left = pages;
        while !left.is_empty() {
            let mut batch = match self.store().begin(purpose, left.len())? {
                Begin::Batch(batch) => batch,
                Begin::Busy => return Ok(Written::Busy),
                Begin::NoSpace => return Ok(Written::NoSpace),
            };
            // Sometimes fewer pages come than were announced.
            let count = batch.room().min(left.len());
            let short = purpose == Purpose::Writeback && self.random.chance(1, 5);
            let count = if short { self.random.below(count as u64 + 1) as usize } else { count };
            self.cookie += 1;
            for &page in &left[..count] {
                let version = self.memory.pages[&page];
                self.push(&mut batch, page, version);
                self.flying.insert(page, (version, self.cookie));
            }
            self.store().submit(batch);
            self.statistics.batches += 1;
            left = &left[count..];
            if short {
                break;
            }
        }
        Ok(Written::All)
    }

    fn push(&mut self, batch: &mut Batch, page: (u32, u32), version: u64) {
        let bytes = content(id(page), version);
        *batch.next_page() = bytes;
        batch.push(id(page), self.store().hash(&bytes), self.cookie);
    }

    /// Takes the store's news: batches must come in order.
    pub fn poll(&mut self, wait: Wait) -> Result<(), Stop> {
        let mut events = Vec::new();
        let outcome = self.store().poll(wait, &mut events);
        for event in events {
            let Event::Written { sequence, pages, .. } = event else { continue };
            if sequence.0 <= self.acknowledged {
                return broken(format!("batch {} was acknowledged after {}", sequence.0, self.acknowledged));
            }
            self.acknowledged = sequence.0;
            for (page, cookie) in pages {
                let page = (page.region.0, page.page);
                let Some(&(version, newest)) = self.flying.get(&page) else { continue };
                if newest == cookie {
                    self.flying.remove(&page);
                    if self.memory.pages.get(&page) == Some(&version) {
                        self.dirty.remove(&page);
                    }
                }
            }
        }
        Ok(outcome?)
    }

    fn make_room(&mut self) -> Result<(), Stop> {
        match self.store().cleaning_needed() {
            CleaningAdvice::Clean => self.clean(),
            CleaningAdvice::CheckpointFirst => self.commit(CommitKind::Checkpoint, Purpose::Checkpoint),
            CleaningAdvice::No => {
                self.statistics.stuck += 1;
                self.poll(Wait::One)
            }
        }
    }

    /// Cleans as the keeper does: clean pages are appended, changed ones forgotten.
    fn clean(&mut self) -> Result<(), Stop> {
        let reads = self.disk.reads();
        let candidates = self.store().cleaning_candidates();
        // A mark that no page in flight has.
        self.cookie += 1;
        for committed in [true, false] {
            let Begin::Batch(mut batch) = self.store().begin_cleaning(committed)? else { continue };
            for &page in &candidates {
                let key = (page.region.0, page.page);
                if self.dirty.contains(&key) || self.flying.contains_key(&key) {
                    self.store().forget_latest(page);
                } else if self.store().is_committed(page) == committed && batch.room() > 0 {
                    let version = self.memory.pages[&key];
                    self.push(&mut batch, key, version);
                }
            }
            if self.random.chance(1, 3) {
                // The program goes on between the copy and the submission.
                self.random_writes_during_cleaning()?;
            }
            self.store().submit(batch);
        }
        if self.disk.reads() != reads {
            return broken("cleaning read from the disk");
        }
        self.statistics.cleanings += 1;
        self.poll(Wait::No)
    }

    fn random_writes_during_cleaning(&mut self) -> Result<(), Stop> {
        if let Some(page) = self.any_page().filter(|_| self.dirty.len() < BUDGET as usize) {
            self.version += 1;
            self.memory.pages.insert(page, self.version);
            self.dirty.insert(page);
        }
        let pages = self.writable();
        self.write(&pages, Purpose::Writeback)?;
        match self.random.below(4) {
            0 => self.poll(Wait::One),
            1 => self.commit(CommitKind::Checkpoint, Purpose::Checkpoint),
            // The batch of the copies is still being filled: it comes behind the commit.
            2 => self.commit(CommitKind::Save, Purpose::Save),
            _ => Ok(()),
        }
    }

    /// Writes what is dirty and commits.
    pub fn commit(&mut self, kind: CommitKind, purpose: Purpose) -> Result<(), Stop> {
        let mut tries = 0;
        while !self.dirty.is_empty() {
            let pages = self.writable();
            match self.write(&pages, purpose)? {
                Written::NoSpace => {
                    if purpose == Purpose::Save {
                        return broken(format!("a save does not fit: {:?}", self.store().status()));
                    }
                    tries += 1;
                    if tries > 20 {
                        self.statistics.stuck += 1;
                        return self.commit(kind, Purpose::Save);
                    }
                    self.clean()?;
                }
                _ => self.poll(Wait::One)?,
            }
        }
        self.durable.push(self.memory.clone());
        self.store().commit(kind)?;
        self.statistics.commits += 1;
        if kind == CommitKind::Save && self.random.chance(2, 3) {
            // The image must not depend on it, however it ends.
            self.settled();
            self.store().write_digest()?;
        }
        self.poll(Wait::No)?;
        self.settled();
        Ok(())
    }

    /// The last change is durable: only the newest image is left.
    fn settled(&mut self) {
        let newest = self.durable.pop().expect("there is always one");
        self.durable = vec![newest];
    }

    fn add_region(&mut self, pages: u32) -> Result<(), Stop> {
        let number = self.memory.regions.keys().last().copied().unwrap_or(0);
        let mut next = self.durable[0].clone();
        let name = format!("region {number} {}", self.version);
        self.version += 1;
        let mode = RegionMode::Explicit;
        let new = NewRegion { name, mode, pages, reserve_pages: 0, address: 0 };
        // Ids only grow: the model learns the id from the store, or from what is reopened.
        let id = self.next_id();
        next.regions.insert(id, pages);
        self.durable.push(next);
        if self.store().create_region(new)?.0 != id {
            return broken("a new region got another id than the store announced");
        }
        self.memory.regions.insert(id, pages);
        self.settled();
        Ok(())
    }

    fn next_id(&mut self) -> u32 {
        // The highest id ever used is not kept in images; the store's answer is checked by name.
        self.store().next_region_id().0
    }

    fn change_regions(&mut self) -> Result<(), Stop> {
        let ids: Vec<_> = self.memory.regions.keys().copied().collect();
        if ids.len() < 2 || (ids.len() < 4 && self.random.chance(1, 3)) {
            let pages = self.random.below(50) as u32 + 1;
            return self.add_region(pages);
        }
        let region = ids[self.random.below(ids.len() as u64) as usize];
        let mut next = self.durable[0].clone();
        if self.random.chance(1, 6) {
            next.regions.remove(&region);
            next.cut(region, 0);
            self.durable.push(next);
            self.store().remove_region(RegionId(region))?;
            self.memory.regions.remove(&region);
            self.drop_pages(region, 0);
        } else {
            let pages = self.random.below(80) as u32;
            next.cut(region, pages);
            next.regions.insert(region, pages);
            self.durable.push(next);
            match self.store().resize_region(RegionId(region), pages) {
                Err(StoreError::TooManyShrinks { .. }) => {
                    self.durable.pop();
                    return Ok(());
                }
                other => other?,
            }
            self.memory.regions.insert(region, pages);
            self.drop_pages(region, pages);
        }
        self.settled();
        self.poll(Wait::No)
    }

    fn drop_pages(&mut self, region: u32, pages: u32) {
        self.memory.cut(region, pages);
        self.dirty.retain(|&(id, page)| id != region || page < pages);
        self.flying.retain(|&(id, page), _| id != region || page < pages);
    }
}

enum Written {
    All,
    Busy,
    NoSpace,
}
