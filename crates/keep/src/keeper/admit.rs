//! Regions come and go: opens them for a client that will map them, makes them, lets them grow.

use std::io;

use wattkeep_store::disk::Disk;
use wattkeep_store::{NewRegion, RegionMode};

use super::complain::complain;
use super::engine::{Keeper, KeeperError, Phase};
use super::pages::KeptRegion;
use super::place;
use crate::control::block::PageRef;
use crate::control::page_word::State;
use crate::limits::{DRAIN_PATIENCE, PAGE_SIZE, REGIONS_MAX, RESERVE_MIN_BYTES};
use crate::page_table::PageTable;
use crate::protocol::{RegionReply, RegionRequest};
use crate::types::{FaultMode, RegionId, Tracking};

impl<D: Disk> Keeper<D> {
    /// Opens a region of the store, or makes it. The caller hands the descriptors on. A region that was made
    /// and cannot be opened is removed again.
    pub fn open_region(&mut self, request: &RegionRequest) -> Result<RegionReply, String> {
        let place = self.regions.iter().position(|region| region.name == request.name);
        if let Some(index) = place {
            let region = &self.regions[index];
            match (region.is_detached(), region.is_sealed()) {
                (false, _) => {
                    return Err(format!("region '{}' is open already in this program", request.name));
                }
                // It could not be mapped, and may be asked for again.
                (true, false) => return Ok(reply(index, region)),
                (true, true) => self.drain_closed(index)?,
            }
        } else if self.regions.len() == REGIONS_MAX {
            return Err(format!(
                "a session maps at most {REGIONS_MAX} regions: open the store a second time later"
            ));
        }
        let (id, made) = match self.store.region_by_name(&request.name) {
            Some(record) => (record.id, false),
            None => (self.create_region(request)?, true),
        };
        let opened = self.open_stored(id, place, request);
        match &opened {
            Ok(reply) => self.regions[reply.index as usize].made_now = made,
            Err(_) if made => self.unmake(id),
            Err(_) => {}
        }
        opened
    }

    fn open_stored(
        &mut self,
        id: RegionId,
        place: Option<usize>,
        request: &RegionRequest,
    ) -> Result<RegionReply, String> {
        self.apply_budget()?;
        let record = self.store.region(id).ok_or("the region vanished while it was opened")?;
        let tracking = match (record.mode, request.tracking) {
            (RegionMode::Transparent, _) => Tracking::Transparent,
            (RegionMode::Explicit, Tracking::Checking) => Tracking::Checking,
            (RegionMode::Explicit, _) => Tracking::Explicit,
        };
        let reserve = record.reserve_pages.max(record.pages);
        let region = KeptRegion::create(id, &request.name, tracking, record.pages, reserve, record.address)
            .map_err(|e| format!("no memory for region '{}': {e}", request.name))?;
        let index = place.unwrap_or(self.regions.len());
        match self.regions.get_mut(index) {
            Some(closed) => *closed = region,
            None => self.regions.push(region),
        }
        self.mark_absent(index);
        if self.options.fill_ahead || self.options.fault_mode == FaultMode::Mprotect {
            let lost_before = self.counters.lost_pages;
            self.fill_now(index).map_err(|e| e.to_string())?;
            let lost = self.counters.lost_pages - lost_before;
            if lost > 0 && self.options.fault_mode == FaultMode::Mprotect {
                // Nothing faults on a page that reads as zeros.
                self.regions[index].retire();
                return Err(format!(
                    "{lost} pages of region '{}' are damaged in the store, and with fault mode mprotect they \
                     would read as zeros: run 'wattkeep check', then open with fault mode 'signal' or 'monitor'",
                    request.name
                ));
            }
        }
        self.store.mark_running().map_err(|e| e.to_string())?;
        Ok(reply(index, &self.regions[index]))
    }

    /// Waits until everything of a closed region is on the SSD: its memory is sealed against a second
    /// mapping, so it is opened again with fresh memory, from the store.
    fn drain_closed(&mut self, index: usize) -> Result<(), String> {
        let deadline = self.clock.now() + DRAIN_PATIENCE;
        while !self.regions[index].is_drained() {
            let name = &self.regions[index].name;
            if self.phase != Phase::Running {
                return Err(format!(
                    "region '{name}' was closed, and a save holds it: run 'wattkeep resume' first"
                ));
            }
            if self.clock.now() > deadline {
                return Err(format!("region '{name}' was closed and is still being written out: try again"));
            }
            if let Err(e) = self.turn() {
                self.fail(&e);
                return Err(e.to_string());
            }
        }
        Ok(())
    }

    /// Removes a region that was made a moment ago and could not be opened.
    fn unmake(&mut self, id: RegionId) {
        self.regions.retain(|region| region.id != id);
        let removed = self.store.remove_region(id).map_err(|e| e.to_string());
        if let Err(e) = removed.and_then(|()| self.apply_budget()) {
            complain(&format!("a region that could not be opened was left in the store: {e}"));
        }
    }

    /// The client has no mapping of the region any more: what is dirty there waits for its copy.
    pub fn detach(&mut self, index: usize) -> Result<(), String> {
        let Some(region) = self.regions.get_mut(index) else {
            return Err("no such region in this session".into());
        };
        region.forget_client();
        if region.made_now && !region.is_sealed() && index + 1 == self.regions.len() {
            let id = self.regions[index].id;
            self.unmake(id);
            return Ok(());
        }
        let region = &self.regions[index];
        for page in 0..region.pages {
            if region.word(page).try_advance(State::Dirty, State::Queued).is_some() {
                self.queue.push_back(PageRef { region: index as u32, page });
            }
        }
        Ok(())
    }

    fn create_region(&mut self, request: &RegionRequest) -> Result<RegionId, String> {
        let Some(bytes) = request.create_bytes else {
            let known: Vec<_> = self.store.regions().iter().map(|region| region.name.as_str()).collect();
            return Err(format!("the store has no region '{}'; it has: {}", request.name, known.join(", ")));
        };
        let pages = whole_pages(bytes)?;
        let reserve = whole_pages(
            request.reserve_bytes.max(RESERVE_MIN_BYTES).max(bytes).next_multiple_of(PAGE_SIZE as u64),
        )?;
        let address = self.free_address(&request.name, u64::from(reserve) * PAGE_SIZE as u64)?;
        let mode = if request.tracking == Tracking::Transparent {
            RegionMode::Transparent
        } else {
            RegionMode::Explicit
        };
        self.store
            .create_region(NewRegion {
                name: request.name.clone(),
                mode,
                pages,
                reserve_pages: reserve,
                address,
            })
            .map_err(|e| e.to_string())
    }

    fn free_address(&self, name: &str, bytes: u64) -> Result<u64, String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.client.pid)).unwrap_or_default();
        let occupied = place::mapped_ranges(&maps);
        place::free_address_beside(&occupied, self.store.regions(), self.store.uuid(), name, bytes)
            .ok_or_else(|| format!("no address range of {bytes} bytes is left: ask for a smaller reserve"))
    }

    /// The client has mapped a region: seals its memory and takes over its page table.
    pub fn attach(&mut self, index: usize, table: Option<PageTable>) -> Result<(), KeeperError> {
        let Some(region) = self.regions.get_mut(index) else {
            return Err(io::Error::other("no such region in this session").into());
        };
        let filled = region.is_filled() && table.is_some();
        region.seal(table)?;
        if filled && region.tracking.protects() && !region.protect(0, region.pages) {
            return Err(io::Error::other("pages filled ahead cannot be protected").into());
        }
        self.begin_fill(index);
        Ok(())
    }

    /// Makes an open region larger.
    pub fn grow(&mut self, index: usize, bytes: u64) -> Result<(), String> {
        let pages = whole_pages(bytes)?;
        let Some(region) = self.regions.get_mut(index) else {
            return Err("no such region in this session".into());
        };
        if pages < region.pages {
            return Err(format!(
                "region '{}' has {} bytes and cannot shrink while it is open: close it, then use 'wattkeep resize'",
                region.name,
                u64::from(region.pages) * PAGE_SIZE as u64
            ));
        }
        if pages > region.reserve() {
            return Err(format!(
                "region '{}' reserved {} bytes of address space: it cannot grow to {bytes} bytes",
                region.name,
                u64::from(region.reserve()) * PAGE_SIZE as u64
            ));
        }
        self.store.resize_region(region.id, pages).map_err(|e| e.to_string())?;
        region.set_pages(pages);
        self.apply_budget()
    }
}

fn reply(index: usize, region: &KeptRegion) -> RegionReply {
    RegionReply {
        index: index as u32,
        pages: region.pages,
        reserve_pages: region.reserve(),
        address: region.address,
        tracking: region.tracking,
    }
}

fn whole_pages(bytes: u64) -> Result<u32, String> {
    let page = PAGE_SIZE as u64;
    if bytes == 0 || !bytes.is_multiple_of(page) {
        return Err(format!("a region has a whole number of pages of {page} bytes, not {bytes} bytes"));
    }
    u32::try_from(bytes / page)
        .ok()
        .filter(|pages| *pages < u32::MAX)
        .ok_or_else(|| format!("{bytes} bytes are more than a region can have (16 TiB)"))
}
