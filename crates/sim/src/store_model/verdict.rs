//! What a machine finds after a crash, compared with what it may find.

use wattkeep_store::types::PageId;
use wattkeep_store::{CommitKind, Purpose, Recovery, Store};

use super::{Image, Model, PAGE_SIZE, Stop, content};
use crate::disk::{Cut, Fault, FaultKind, MemoryDisk};
use crate::random::Random;

/// Opens the store of a disk and compares it with the images that it may show. Opening by digest and by
/// scan must find the same. The error says what is wrong.
pub fn examine(disk: &MemoryDisk, allowed: &[Image]) -> Result<(Store<MemoryDisk>, Image, Recovery), String> {
    let looked = look_both_ways(disk).map_err(|cause| explain(disk, allowed, &cause))?;
    let opened = Store::open(disk.clone()).map_err(|error| explain(disk, allowed, &error.to_string()));
    let (mut store, recovery) = opened?;
    if looked != recovery.commit.epoch.0 {
        return Err("an opening for writing finds another commit than one for reading".to_owned());
    }
    let found = read_all(&mut store)?;
    if !allowed.contains(&found) {
        return Err(format!("{} recovery {recovery:?}", differences(&found, allowed)));
    }
    store.audit()?;
    Ok((store, found, recovery))
}

/// An opening by digest and one by scan find the same versions in the same places. Returns the epoch.
fn look_both_ways(disk: &MemoryDisk) -> Result<u64, String> {
    let look = |disk: MemoryDisk, scan: bool| {
        let opened = if scan { Store::open_scanned(disk) } else { Store::open_read_only(disk) };
        let (store, recovery) = opened.map_err(|error| error.to_string())?;
        let ids: Vec<_> = store.regions().iter().map(|region| region.id).collect();
        let pages = ids.into_iter().flat_map(|id| store.stored_pages(id));
        let placed: Vec<_> =
            pages.map(|page| (page, store.slot_of(page), store.stored_checksum(page))).collect();
        let status = store.status();
        Ok::<_, String>((placed, status.free, status.live_pages, recovery.commit, recovery.clean))
    };
    let disk = disk.after_cut(Cut::KeepAll, 0);
    let short = look(disk.clone(), false)?;
    if short != look(disk, true)? {
        return Err("the digest and a scan find different images".to_owned());
    }
    Ok(short.3.epoch.0)
}

/// Adds to a refusal how the store differs from what it may show.
fn explain(disk: &MemoryDisk, allowed: &[Image], cause: &str) -> String {
    let found = Store::open_incomplete(disk.after_cut(Cut::KeepAll, 0))
        .map_err(|error| error.to_string())
        .and_then(|(mut store, _)| read_all(&mut store));
    match found {
        Ok(found) => format!("the store must open: {cause}; {}", differences(&found, allowed)),
        Err(more) => format!("the store must open: {cause}; {more}"),
    }
}

fn differences(found: &Image, allowed: &[Image]) -> String {
    let mut text = String::new();
    for allowed in allowed {
        text += &format!("allowed regions {:?}, found {:?};", allowed.regions, found.regions);
        for (page, version) in &allowed.pages {
            if found.pages.get(page) != Some(version) {
                text += &format!(" {page:?}: allowed {version}, found {:?};", found.pages.get(page));
            }
        }
        for page in found.pages.keys().filter(|page| !allowed.pages.contains_key(page)) {
            text += &format!(" {page:?}: not allowed;");
        }
    }
    text
}

fn read_all(store: &mut Store<MemoryDisk>) -> Result<Image, String> {
    let mut found = Image::default();
    let regions: Vec<_> = store.regions().iter().map(|r| (r.id, r.pages)).collect();
    let mut bytes = [0; PAGE_SIZE];
    for (region, pages) in regions {
        found.regions.insert(region.0, pages);
        let stored: Vec<PageId> = store.stored_pages(region).collect();
        for page in stored {
            if page.page >= pages {
                return Err(format!("{page} lies outside its region of {pages} pages"));
            }
            match store.read_page_blocking(page, &mut bytes) {
                Ok(true) => {}
                Ok(false) => return Err(format!("{page} is stored and cannot be read")),
                Err(error) => return Err(error.to_string()),
            }
            let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            if bytes != content(page, version) {
                return Err(format!("{page} is a mixture: no version of it was ever like this"));
            }
            found.pages.insert((region.0, page.page), version);
        }
    }
    Ok(found)
}

fn any_cut(random: &mut Random) -> Cut {
    [Cut::KeepAll, Cut::DropAll, Cut::Mixed, Cut::Mixed][random.below(4) as usize]
}

impl Model {
    /// What the next machine finds when the power goes now, and now and then again during its recovery.
    fn cut_disk(&mut self) -> MemoryDisk {
        let cut = any_cut(&mut self.random);
        let mut disk = self.disk.after_cut(cut, self.random.number());
        while self.random.chance(1, 4) {
            let at = self.random.below(60);
            disk.set_fault(Some(Fault { at, kind: FaultKind::Io, for_ever: true }));
            drop(Store::open(disk.clone()));
            disk = disk.after_cut(Cut::Mixed, self.random.number());
            self.statistics.recovery_crashes += 1;
        }
        disk
    }

    fn count(&mut self, recovery: &Recovery) {
        self.statistics.crashes += 1;
        self.statistics.by_digest += u64::from(recovery.by_digest);
        self.statistics.tails += u64::from(recovery.lost_tail_batches > 0);
    }

    /// Examines one of the images that a power cut now may leave. The history goes on as if nothing had
    /// happened.
    pub fn examine_a_cut(&mut self) -> Result<(), String> {
        let disk = self.cut_disk();
        let (_, _, recovery) = examine(&disk, &self.durable)?;
        self.count(&recovery);
        Ok(())
    }

    /// Cuts the power, examines the image, and goes on with the store found there.
    pub fn crash(&mut self) -> Result<(), String> {
        self.disk = self.cut_disk();
        self.store = None;
        let (store, found, recovery) = examine(&self.disk, &self.durable)?;
        self.count(&recovery);
        self.store = Some(store);
        self.durable = vec![found.clone()];
        self.memory = found;
        self.dirty.clear();
        self.flying.clear();
        Ok(())
    }

    /// After a failed write or flush: the store takes no more, keeps its first cause, and no later try is
    /// taken for success.
    pub fn must_stay_failed(&mut self) -> Result<(), String> {
        // A refused growth is the one failure that poisons nothing.
        let Some(cause) = self.store().status().poisoned else { return Ok(()) };
        if self.store().commit(CommitKind::Save).is_ok() || self.store().begin(Purpose::Save, 1).is_ok() {
            return Err(format!("a store that failed takes writes again: {cause}"));
        }
        match self.store().status().poisoned {
            Some(kept) if kept == cause => Ok(()),
            other => Err(format!("the cause of the failure was '{cause}' and is {other:?}")),
        }
    }

    /// Saves or closes. True when the store refused; the error is a broken promise.
    pub fn end(&mut self) -> Result<bool, String> {
        let kind = if self.random.chance(2, 3) { CommitKind::Save } else { CommitKind::Close };
        match self.commit(kind, Purpose::Save) {
            Ok(()) => Ok(false),
            Err(Stop::Refused(_)) => Ok(true),
            Err(Stop::Broken(cause)) => Err(cause),
        }
    }

    /// Steps until the store refuses, at most `steps`. True when it refused; the error is a broken promise.
    pub fn run(&mut self, steps: u64) -> Result<bool, String> {
        for _ in 0..steps {
            match self.step() {
                Ok(()) => {}
                Err(Stop::Refused(_)) => return Ok(true),
                Err(Stop::Broken(cause)) => return Err(cause),
            }
            if self.random.chance(1, 20) {
                self.store().audit()?;
            }
        }
        Ok(false)
    }
}
