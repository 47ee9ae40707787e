//! Fills regions from the store: pages that somebody waits for first, the rest in log order.
//!
//! A page is handed out only after its bytes matched the index's checksum; one that does not match is
//! lost, for good, and says so to whoever touches it. Only the keeper moves a page out of `Absent`, so
//! two reads of one page do no harm.

use std::collections::{HashMap, VecDeque};
use std::io;

use wattkeep_store::disk::{Disk, Wait};
use wattkeep_sys::buffer::AlignedBuffer;

use super::complain::complain;
use super::engine::{Keeper, KeeperError};
use crate::control::block::PageRef;
use crate::control::page_word::State;
use crate::limits::{PAGE_SIZE, RESTORE_READ_PAGES, RESTORE_READS};

/// Pages of the index that one turn sorts into segments.
const SORTED_PER_TURN: u32 = 16_384;

/// Slots that are grouped for one stretch of reading.
const GROUP_SLOTS: u32 = 1024;

/// Slots between two wanted pages that a read bridges rather than stops at.
const GAP_MAX: u32 = 8;

/// A page and where the log holds it.
type Placed = (u32, PageRef);

/// What is still to be filled.
#[derive(Default)]
pub(super) struct Filling {
    /// Pages that threads wait for.
    wanted: VecDeque<PageRef>,
    /// Regions whose pages are being sorted: place in the session, next page.
    sorting: VecDeque<(u32, u32)>,
    /// Pages by group of slots, not yet read.
    groups: Vec<Vec<PageRef>>,
    next_group: usize,
    /// Reads of the group under way, still to be submitted.
    reads: VecDeque<Vec<Placed>>,
    /// Reads in flight.
    flying: HashMap<u32, Vec<Placed>>,
    next_token: u32,
}

impl Filling {
    /// Somebody waits for this page.
    pub(super) fn want(&mut self, page: PageRef) {
        self.wanted.push_back(page);
    }

    /// Pages are still to be filled.
    pub(super) fn pending(&self) -> bool {
        !self.sorting.is_empty()
            || !self.reads.is_empty()
            || !self.flying.is_empty()
            || self.next_group < self.groups.len()
    }
}

impl<D: Disk> Keeper<D> {
    /// Marks what a region has in the store as absent. The fill itself begins with [`Self::begin_fill`].
    pub(super) fn mark_absent(&mut self, index: usize) {
        let region = &mut self.regions[index];
        let mut absent = 0;
        for id in self.store.stored_pages(region.id).filter(|id| id.page < region.pages) {
            region.word(id.page).reset(State::Absent);
            absent += 1;
        }
        region.absent = absent;
    }

    /// Starts the background fill of a region.
    pub(super) fn begin_fill(&mut self, index: usize) {
        if self.regions[index].absent > 0 {
            self.filling.sorting.push_back((index as u32, 0));
        }
    }

    /// Fills a region to the end, before anybody maps it.
    pub(super) fn fill_now(&mut self, index: usize) -> Result<(), KeeperError> {
        self.begin_fill(index);
        while self.filling.pending() {
            self.fill_ahead()?;
            self.reap(Wait::One)?;
        }
        Ok(())
    }

    /// One step: what is wanted, then what is next in the log.
    pub(super) fn fill_ahead(&mut self) -> Result<bool, KeeperError> {
        let mut moved = self.read_wanted()?;
        if !self.filling.sorting.is_empty() {
            self.sort_some();
            return Ok(true);
        }
        while self.filling.flying.len() < RESTORE_READS {
            if self.filling.reads.is_empty() && !self.next_group() {
                break;
            }
            let Some(read) = self.filling.reads.pop_front() else { continue };
            if !self.start(&read)? {
                self.filling.reads.push_front(read);
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    fn read_wanted(&mut self) -> Result<bool, KeeperError> {
        let mut moved = false;
        while let Some(page) = self.filling.wanted.front().copied() {
            let absent =
                self.region_of(page).filter(|region| region.word(page.page).load().state() == State::Absent);
            let slot = absent.and_then(|region| self.store.slot_of(region.page_id(page.page)));
            if let Some(slot) = slot {
                if !self.start(&[(slot, page)])? {
                    break;
                }
                moved = true;
            }
            self.filling.wanted.pop_front();
        }
        Ok(moved)
    }

    fn start(&mut self, read: &[Placed]) -> Result<bool, KeeperError> {
        let (first, last) = (read[0].0, read[read.len() - 1].0);
        let token = self.filling.next_token;
        let started = self.store.start_read(first, last - first + 1, token)?;
        if started {
            self.filling.next_token = token.wrapping_add(1);
            self.filling.flying.insert(token, read.to_vec());
        }
        Ok(started)
    }

    fn sort_some(&mut self) {
        let Some((index, first)) = self.filling.sorting.pop_front() else { return };
        let region = &self.regions[index as usize];
        let end = first.saturating_add(SORTED_PER_TURN).min(region.pages);
        for page in first..end {
            if let Some(slot) = self.store.slot_of(region.page_id(page)) {
                let group = (slot / GROUP_SLOTS) as usize;
                if group >= self.filling.groups.len() {
                    self.filling.groups.resize_with(group + 1, Vec::new);
                }
                self.filling.next_group = self.filling.next_group.min(group);
                self.filling.groups[group].push(PageRef { region: index, page });
            }
        }
        if end < region.pages {
            self.filling.sorting.push_front((index, end));
        }
    }

    /// Cuts the next group of slots into reads. False when there is none.
    fn next_group(&mut self) -> bool {
        let Some(group) = self.filling.groups.get_mut(self.filling.next_group) else {
            self.filling.groups = Vec::new();
            self.filling.next_group = 0;
            return false;
        };
        let pages = std::mem::take(group);
        self.filling.next_group += 1;
        let mut placed: Vec<Placed> = pages
            .into_iter()
            .filter_map(|page| {
                let region = &self.regions[page.region as usize];
                let absent = region.word(page.page).load().state() == State::Absent;
                let slot = self.store.slot_of(region.page_id(page.page)).filter(|_| absent)?;
                Some((slot, page))
            })
            .collect();
        placed.sort_unstable();
        let mut rest = &placed[..];
        while let Some((first, _)) = rest.first() {
            let near =
                |i: &usize| rest[*i].0 - rest[*i - 1].0 <= GAP_MAX && rest[*i].0 - first < RESTORE_READ_PAGES;
            let len = (1..rest.len()).take_while(near).count() + 1;
            self.filling.reads.push_back(rest[..len].to_vec());
            rest = &rest[len..];
        }
        true
    }

    /// A read ended: verifies and installs what is still absent.
    pub(super) fn was_read(
        &mut self,
        token: u32,
        buffer: AlignedBuffer,
        first_slot: u32,
        result: Result<u32, io::Error>,
    ) -> Result<(), KeeperError> {
        let Some(read) = self.filling.flying.remove(&token) else { return Ok(()) };
        let good = result.is_ok();
        if let Err(e) = result {
            complain(&format!("reading {} pages from slot {first_slot} failed: {e}", read.len()));
        }
        let mut run: Vec<Placed> = Vec::with_capacity(read.len());
        for (slot, page) in read {
            let region = &self.regions[page.region as usize];
            let id = region.page_id(page.page);
            // A read that began before the region was closed and opened again may be of an older version.
            if region.word(page.page).load().state() != State::Absent || self.store.slot_of(id) != Some(slot)
            {
                continue;
            }
            let at = (slot - first_slot) as usize * PAGE_SIZE;
            if !good || !self.store.verify(id, &buffer[at..at + PAGE_SIZE]) {
                self.lose(page, slot);
                continue;
            }
            let follows = run.last().is_none_or(|(last_slot, last)| {
                last_slot + 1 == slot && last.region == page.region && last.page + 1 == page.page
            });
            if !follows {
                self.install(&run, &buffer, first_slot)?;
                run.clear();
            }
            run.push((slot, page));
        }
        self.install(&run, &buffer, first_slot)?;
        self.store.recycle(buffer);
        Ok(())
    }

    fn install(&mut self, run: &[Placed], buffer: &[u8], first_slot: u32) -> Result<(), KeeperError> {
        let Some((slot, first)) = run.first() else { return Ok(()) };
        let at = (slot - first_slot) as usize * PAGE_SIZE;
        let region = &mut self.regions[first.region as usize];
        region.fill(first.page, &buffer[at..at + run.len() * PAGE_SIZE])?;
        region.absent -= run.len() as u32;
        for (_, page) in run {
            region.settle(page.page, State::Absent, State::Clean);
        }
        Ok(())
    }

    fn lose(&mut self, page: PageRef, slot: u32) {
        let region = &mut self.regions[page.region as usize];
        complain(&format!(
            "page {} of region '{}' is damaged in the store (slot {slot})",
            page.page, region.name
        ));
        region.absent -= 1;
        region.settle(page.page, State::Absent, State::Lost);
        self.counters.lost_pages += 1;
    }
}
