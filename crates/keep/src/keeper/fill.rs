//! Fills regions from the store: pages that somebody waits for first, the rest in log order.
//!
//! A page is handed out only after its bytes matched the index's checksum; one that does not match is
//! lost, for good, and says so to whoever touches it. Only the keeper moves a page out of `Absent`, so
//! two reads of one page do no harm.
//!
//! When one read has ended behind another, a second thread fills its pages (`filler.rs`); what they become
//! is settled here, and so is whatever that thread could not fill.

use std::collections::{HashMap, VecDeque};
use std::io;

use wattkeep_store::disk::{Disk, Wait};
use wattkeep_sys::buffer::AlignedBuffer;

use super::complain::complain;
use super::engine::{Keeper, KeeperError};
use super::filler::{self, FillLoad, Run};
use super::worker::Worker;
use crate::control::block::PageRef;
use crate::control::page_word::State;
use crate::limits::{PAGE_SIZE, READ_ALONE_PAGES, RESTORE_ALONE_PAGES, RESTORE_READ_PAGES, RESTORE_READS};

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
    /// The second thread, while so much is to be filled that it is worth one.
    filler: Option<Worker<FillLoad>>,
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
            || self.awaits_filler()
    }

    /// The second thread has pages whose words are still to be settled.
    pub(super) fn awaits_filler(&self) -> bool {
        self.filler.as_ref().is_some_and(Worker::is_at_work)
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
        let region = &self.regions[index];
        if region.absent > 0 {
            self.filling.sorting.push_back((index as u32, 0));
        }
        if region.absent > RESTORE_ALONE_PAGES && region.client().is_some() && self.filling.filler.is_none() {
            self.filling.filler = filler::start(self.store.hasher());
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
        moved |= self.take_filled()?;
        if !self.filling.pending() {
            self.filling.filler = None;
            return Ok(moved);
        }
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
        // A region that was closed and opened again meanwhile was sorted twice.
        placed.dedup();
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

    /// A read ended: fills its pages, or has them filled. `behind_it` another one waits.
    pub(super) fn was_read(
        &mut self,
        token: u32,
        buffer: AlignedBuffer,
        first_slot: u32,
        result: Result<u32, io::Error>,
        behind_it: bool,
    ) -> Result<(), KeeperError> {
        let Some(read) = self.filling.flying.remove(&token) else { return Ok(()) };
        if let Err(e) = result {
            complain(&format!("reading {} pages from slot {first_slot} failed: {e}", read.len()));
            let damaged = read.into_iter().filter(|placed| self.is_due(*placed)).collect::<Vec<_>>();
            damaged.into_iter().for_each(|(slot, page)| self.lose(page, slot));
            self.store.recycle(buffer);
            return Ok(());
        }
        let wants_more = self.filling.filler.as_ref().is_some_and(Worker::wants_more);
        let worth_it = behind_it && wants_more && read.len() >= READ_ALONE_PAGES;
        if let Some(runs) = worth_it.then(|| self.runs(&read)).flatten() {
            let filler = self.filling.filler.as_mut().expect("it wants more");
            filler.hand_over(FillLoad { runs, buffer, first_slot });
            return Ok(());
        }
        self.fill_here(&read, &buffer, first_slot)?;
        self.store.recycle(buffer);
        Ok(())
    }

    /// The page is still to be filled, from this slot. A read that began before the region was closed and
    /// opened again may be of an older version.
    fn is_due(&self, (slot, page): Placed) -> bool {
        let region = &self.regions[page.region as usize];
        region.word(page.page).load().state() == State::Absent
            && self.store.slot_of(region.page_id(page.page)) == Some(slot)
    }

    /// The pages of a read that are due, for the second thread. `None` when it cannot fill one of them.
    fn runs(&self, read: &[Placed]) -> Option<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        for (slot, page) in read.iter().copied().filter(|placed| self.is_due(*placed)) {
            let region = &self.regions[page.region as usize];
            let checksum = self.store.stored_checksum(region.page_id(page.page))?;
            match runs.last_mut() {
                Some(run) if run.is_followed_by(slot, page) => run.checksums.push(checksum),
                _ => runs.push(Run {
                    first: page,
                    slot,
                    checksums: vec![checksum],
                    client: region.client()?.clone(),
                    memory: region.memory().clone(),
                    filled: 0,
                }),
            }
        }
        Some(runs)
    }

    /// Settles what the second thread has filled, and fills what it left.
    fn take_filled(&mut self) -> Result<bool, KeeperError> {
        let Some(FillLoad { runs, buffer, first_slot }) =
            self.filling.filler.as_mut().and_then(Worker::take_done)
        else {
            return Ok(false);
        };
        for run in runs {
            let region = &mut self.regions[run.first.region as usize];
            if !region.memory().is_same(&run.memory) {
                continue;
            }
            let placed: Vec<Placed> = run.placed().collect();
            let (filled, left) = placed.split_at(run.filled);
            for (_, page) in filled {
                // Somebody waited for it, and it was filled from another read before.
                if region.word(page.page).load().state() == State::Absent {
                    region.absent -= 1;
                    region.settle(page.page, State::Absent, State::Clean);
                }
            }
            self.fill_here(left, &buffer, first_slot)?;
        }
        self.store.recycle(buffer);
        Ok(true)
    }

    /// Verifies and fills what is due of a read.
    fn fill_here(&mut self, read: &[Placed], buffer: &[u8], first_slot: u32) -> Result<(), KeeperError> {
        let mut run: Vec<Placed> = Vec::with_capacity(read.len());
        for (slot, page) in read.iter().copied() {
            if !self.is_due((slot, page)) {
                continue;
            }
            let id = self.regions[page.region as usize].page_id(page.page);
            let at = (slot - first_slot) as usize * PAGE_SIZE;
            if !self.store.verify(id, &buffer[at..at + PAGE_SIZE]) {
                self.lose(page, slot);
                continue;
            }
            let follows = run.last().is_none_or(|(last_slot, last)| {
                last_slot + 1 == slot && last.region == page.region && last.page + 1 == page.page
            });
            if !follows {
                self.install(&run, buffer, first_slot)?;
                run.clear();
            }
            run.push((slot, page));
        }
        self.install(&run, buffer, first_slot)
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
