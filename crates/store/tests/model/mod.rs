//! A store on the twin disk beside a model of what it promises.
//!
//! The model keeps three things: memory (what the program sees), the pages that differ from the
//! log, and the images that a reopened store may show: one, or two while a change is being made
//! durable. After every crash the store must show one of them, page by page.

use std::collections::{BTreeMap, BTreeSet};

use wattkeep_sim::disk::{Cut, Fault, FaultKind, MemoryDisk};
use wattkeep_sim::random::Random;
use wattkeep_store::disk::Wait;
use wattkeep_store::types::{PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{
    Batch, Begin, CleaningAdvice, CommitKind, CreateOptions, Event, NewRegion, Purpose, RegionMode, Store,
    StoreError,
};

pub(crate) const BUDGET: u32 = 20;
pub(crate) const SEGMENT_PAGES: u32 = 16;

/// What a store holds: sizes of regions, versions of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) regions: BTreeMap<u32, u32>,
    pub(crate) pages: BTreeMap<(u32, u32), u64>,
}

impl Image {
    fn cut(&mut self, region: u32, pages: u32) {
        self.pages.retain(|&(id, page), _| id != region || page < pages);
    }
}

/// Bytes of one version of a page: every sector names it, so that a torn page shows.
pub(crate) fn content(page: PageId, version: u64) -> [u8; PAGE_SIZE] {
    let mut bytes = [0; PAGE_SIZE];
    for sector in bytes.chunks_mut(512) {
        sector[..8].copy_from_slice(&version.to_le_bytes());
        sector[8..12].copy_from_slice(&page.region.0.to_le_bytes());
        sector[12..16].copy_from_slice(&page.page.to_le_bytes());
    }
    bytes
}

fn id((region, page): (u32, u32)) -> PageId {
    PageId { region: RegionId(region), page }
}

#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) crashes: u64,
    pub(crate) commits: u64,
    pub(crate) batches: u64,
    pub(crate) cleanings: u64,
    pub(crate) tails: u64,
    pub(crate) recovery_crashes: u64,
    pub(crate) stuck: u64,
    pub(crate) by_digest: u64,
}

pub(crate) struct Model {
    pub(crate) disk: MemoryDisk,
    pub(crate) store: Option<Store<MemoryDisk>>,
    pub(crate) random: Random,
    pub(crate) memory: Image,
    dirty: BTreeSet<(u32, u32)>,
    /// Version on its way and the mark of its batch, by page: the newest, when there are several.
    flying: BTreeMap<(u32, u32), (u64, u32)>,
    /// Marks the pages of a batch.
    cookie: u32,
    /// What a reopened store may show.
    pub(crate) durable: Vec<Image>,
    version: u64,
    pub(crate) statistics: Statistics,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(random.number());
        let mut options = CreateOptions {
            uuid: Some([7; 16]),
            seed: Some(seed),
            budget_pages: BUDGET,
            segment_pages: Some(SEGMENT_PAGES),
            progress: None,
        };
        let store = Store::create(disk.clone(), &mut options).expect("no fault is set");
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
            statistics: Statistics::default(),
        };
        model.add_region(60).expect("no fault is set");
        model
    }

    pub(crate) fn store(&mut self) -> &mut Store<MemoryDisk> {
        self.store.as_mut().expect("the store is open")
    }

    /// One random step. An error ends in a crash, which the caller makes.
    pub(crate) fn step(&mut self) -> Result<(), StoreError> {
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

    fn dirty_pages(&mut self) -> Result<(), StoreError> {
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

    fn write_back(&mut self) -> Result<(), StoreError> {
        let few = self.random.below(12) as usize + 1;
        let pages: Vec<_> = self.writable().into_iter().take(few).collect();
        match self.write(&pages, Purpose::Writeback)? {
            Written::All => Ok(()),
            Written::Busy => self.poll(Wait::One),
            Written::NoSpace => self.make_room(),
        }
    }

    fn write(&mut self, pages: &[(u32, u32)], purpose: Purpose) -> Result<Written, StoreError> {
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

    pub(crate) fn poll(&mut self, wait: Wait) -> Result<(), StoreError> {
        let mut events = Vec::new();
        let outcome = self.store().poll(wait, &mut events);
        for event in events {
            let Event::Written { pages, .. } = event else { continue };
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
        outcome
    }

    fn make_room(&mut self) -> Result<(), StoreError> {
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
    fn clean(&mut self) -> Result<(), StoreError> {
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
        assert_eq!(self.disk.reads(), reads, "cleaning reads nothing");
        self.statistics.cleanings += 1;
        self.poll(Wait::No)
    }

    fn random_writes_during_cleaning(&mut self) -> Result<(), StoreError> {
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

    pub(crate) fn commit(&mut self, kind: CommitKind, purpose: Purpose) -> Result<(), StoreError> {
        let mut tries = 0;
        while !self.dirty.is_empty() {
            let pages = self.writable();
            match self.write(&pages, purpose)? {
                Written::NoSpace => {
                    assert!(purpose != Purpose::Save, "a save always fits: {:?}", self.store().status());
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

    fn add_region(&mut self, pages: u32) -> Result<(), StoreError> {
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
        assert_eq!(self.store().create_region(new)?.0, id);
        self.memory.regions.insert(id, pages);
        self.settled();
        Ok(())
    }

    fn next_id(&mut self) -> u32 {
        // The highest id ever used is not kept in images; the store's answer is checked by name.
        self.store().next_region_id().0
    }

    fn change_regions(&mut self) -> Result<(), StoreError> {
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

    /// Cuts the power, and again during recovery now and then, and compares.
    pub(crate) fn crash(&mut self) {
        self.store = None;
        self.statistics.crashes += 1;
        let cut = [Cut::KeepAll, Cut::DropAll, Cut::Mixed][self.random.below(3) as usize];
        self.disk = self.disk.after_cut(cut, self.random.number());
        while self.random.chance(1, 4) {
            let at = self.random.below(60);
            let fault = Fault { at, kind: FaultKind::Io, for_ever: true };
            self.disk.set_fault(Some(fault));
            drop(Store::open(self.disk.clone()));
            self.disk = self.disk.after_cut(Cut::Mixed, self.random.number());
            self.statistics.recovery_crashes += 1;
        }
        self.reopen();
    }

    /// Opens and compares with what the store may show.
    pub(crate) fn reopen(&mut self) {
        self.compare_with_scan();
        let (store, recovery) = match Store::open(self.disk.clone()) {
            Ok(opened) => opened,
            Err(error) => {
                self.explain();
                panic!("the store must open: {error}")
            }
        };
        self.statistics.by_digest += u64::from(recovery.by_digest);
        self.statistics.tails += u64::from(recovery.lost_tail_batches > 0);
        self.store = Some(store);
        let found = self.read_all();
        assert!(
            self.durable.contains(&found),
            "found {found:?}\nallowed {:?}\nrecovery {recovery:?}",
            self.durable
        );
        self.store().audit().expect("the counts hold");
        self.durable = vec![found.clone()];
        self.memory = found;
        self.dirty.clear();
        self.flying.clear();
    }

    /// An opening by digest and one by scan find the same versions in the same places.
    fn compare_with_scan(&mut self) {
        let look = |disk: MemoryDisk, scan: bool| {
            let opened = if scan { Store::open_scanned(disk) } else { Store::open_read_only(disk) };
            let (store, recovery) = opened.expect("the store must open");
            let ids: Vec<_> = store.regions().iter().map(|region| region.id).collect();
            let pages: Vec<_> =
                ids.into_iter().flat_map(|id| store.stored_pages(id).collect::<Vec<_>>()).collect();
            let placed: Vec<_> = pages
                .into_iter()
                .map(|page| (page, store.slot_of(page), store.stored_checksum(page)))
                .collect();
            let status = store.status();
            (placed, status.free, status.live_pages, recovery.commit, recovery.clean)
        };
        let disk = self.disk.after_cut(Cut::KeepAll, 0);
        let short = look(disk.clone(), false);
        assert_eq!(short, look(disk, true), "digest and scan differ");
    }

    /// Prints how a refused store differs from what it may show.
    fn explain(&mut self) {
        let disk = self.disk.after_cut(Cut::KeepAll, 0);
        let Ok((store, _)) = Store::open_incomplete(disk) else { return };
        self.store = Some(store);
        let found = self.read_all();
        for allowed in &self.durable {
            println!("regions allowed {:?} found {:?}", allowed.regions, found.regions);
            for (page, version) in &allowed.pages {
                if found.pages.get(page) != Some(version) {
                    println!("{page:?}: allowed {version}, found {:?}", found.pages.get(page));
                }
            }
            for page in found.pages.keys().filter(|page| !allowed.pages.contains_key(page)) {
                println!("{page:?}: not allowed");
            }
        }
    }

    fn read_all(&mut self) -> Image {
        let mut found = Image::default();
        let regions: Vec<_> = self.store().regions().iter().map(|r| (r.id, r.pages)).collect();
        let mut bytes = [0; PAGE_SIZE];
        for (region, pages) in regions {
            found.regions.insert(region.0, pages);
            let stored: Vec<_> = self.store().stored_pages(region).collect();
            for page in stored {
                assert!(page.page < pages, "{page} lies in its region");
                let read = self.store().read_page_blocking(page, &mut bytes);
                assert_eq!(read, Ok(true));
                let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                assert_eq!(bytes, content(page, version), "{page} is whole");
                found.pages.insert((region.0, page.page), version);
            }
        }
        found
    }
}

enum Written {
    All,
    Busy,
    NoSpace,
}
