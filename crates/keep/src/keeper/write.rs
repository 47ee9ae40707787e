//! Copies victims out and hands them to the log; gives permits back when they are on the SSD.
//!
//! A page is copied while nobody may write it, and its word must not have moved during the copy: if a
//! writer took the page back, the copy is thrown away. A page found equal to the store costs no write.

use wattkeep_store::disk::Disk;
use wattkeep_store::{Batch, Begin, Purpose};
use wattkeep_sys::mutant::planted;

use super::engine::{Keeper, KeeperError};
use crate::control::block::PageRef;
use crate::control::page_word::{State, Word};
use crate::limits::{BATCH_BUDGET_SHARE, BATCH_PAGES_MAX, BATCH_PATIENCE, BATCHES_IN_FLIGHT};
use crate::types::{Checksum, PageId};

/// Mark of a page that cleaning moved: no permit hangs on it, and no word in flight looks like it.
pub(super) const MOVED: u32 = 0;

/// Mark of a page that a save copied as a stopped thread held it: it keeps its permit.
pub(super) const AS_IT_STOOD: u32 = u32::MAX;

/// How the copy of one page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// It is in the batch.
    Staged,
    /// It equals the store: clean again, its permit came back.
    Unchanged,
    /// A writer took it back, or it is not a victim any more.
    Skipped,
}

/// What becomes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It goes to the log, with this mark: the page's word.
    Departs(u32),
    /// It equals the store: the page is clean again, its permit came back.
    Unchanged,
    /// A writer took the page back.
    Outdated,
}

impl<D: Disk> Keeper<D> {
    /// Sends queued pages on their way, if enough wait or somebody waits for them.
    pub(super) fn write_queued(&mut self) -> Result<bool, KeeperError> {
        if self.queue.is_empty() || self.in_flight_batches >= BATCHES_IN_FLIGHT || self.checkpoint.is_some() {
            return Ok(false);
        }
        if !self.is_worth_a_batch() {
            return Ok(false);
        }
        let wanted = self.queue.len().min(BATCH_PAGES_MAX);
        let mut batch = match self.store.begin(Purpose::Writeback, wanted)? {
            Begin::Batch(batch) => batch,
            Begin::Busy | Begin::NoSpace => return Ok(false),
        };
        let mut freed = 0;
        while batch.room() > 0 && !self.queue.is_empty() {
            let claimed = self.claim_queued(batch.room());
            for (number, (page, word)) in claimed.iter().enumerate() {
                if let Some((next, _)) = claimed.get(number + 1) {
                    self.prefetch(*next);
                }
                freed += u32::from(self.copy_claimed(*page, *word, &mut batch) == Copied::Unchanged);
            }
        }
        self.depart(batch);
        self.give_back(freed);
        Ok(true)
    }

    fn is_worth_a_batch(&mut self) -> bool {
        let permits = self.control.ledger.0.permits();
        let company = (permits.limit as usize / BATCH_BUDGET_SHARE).min(BATCH_PAGES_MAX);
        let waited = self.now - *self.queue_waits.get_or_insert(self.now) >= BATCH_PATIENCE;
        let worth =
            self.queue.len() >= company || waited || permits.free() == 0 || self.control.has_sleepers();
        if worth {
            self.queue_waits = None;
        }
        worth
    }

    fn prefetch(&self, page: PageRef) {
        self.regions[page.region as usize].memory().prefetch(page.page);
    }

    /// Submits a batch and counts it.
    pub(super) fn depart(&mut self, batch: Batch) {
        let pages = batch.len() as u32;
        self.in_flight_pages += pages;
        self.in_flight_batches += usize::from(pages > 0);
        self.store.submit(batch);
    }

    /// Takes up to `most` pages off the queue that still are victims, and that nobody stores to from now on. What
    /// is announced is looked for once for all of them.
    fn claim_queued(&mut self, most: usize) -> Vec<(PageRef, Word)> {
        let mut claimed = Vec::with_capacity(most.min(self.queue.len()));
        let mut announced = false;
        while claimed.len() < most {
            let Some(page) = self.queue.pop_front() else { break };
            let Some(copying) = self.claim_for_copy(page) else { continue };
            announced |= self.regions[page.region as usize].is_announced();
            claimed.push((page, copying));
        }
        if announced {
            self.give_back_stored(&mut claimed);
        }
        claimed
    }

    fn claim_for_copy(&self, page: PageRef) -> Option<Word> {
        let region = self.region_of(page)?;
        let word = region.word(page.page);
        let now = word.load();
        let claimable = match now.state() {
            State::Queued => true,
            State::Dirty => region.is_announced() && now.pins() == 0,
            _ => false,
        };
        let copying = now.to(State::Copying);
        (claimable && word.exchange(now, copying)).then_some(copying)
    }

    /// Copies a page whose word is `claimed`; the copy counts if the word is the same afterwards.
    pub(super) fn copy_claimed(&mut self, page: PageRef, claimed: Word, batch: &mut Batch) -> Copied {
        let hasher = self.store.hasher();
        let region = &self.regions[page.region as usize];
        let id = region.page_id(page.page);
        let staged = batch.next_page();
        region.memory().copy_page(page.page, staged);
        let checksum = hasher.page(staged);
        match self.settle_copy(page, claimed, checksum) {
            Settled::Departs(cookie) => {
                batch.push(id, checksum, cookie);
                Copied::Staged
            }
            Settled::Unchanged => Copied::Unchanged,
            Settled::Outdated => Copied::Skipped,
        }
    }

    /// Decides on the copy of a page whose word was `claimed` before it was made.
    pub(super) fn settle_copy(&mut self, page: PageRef, claimed: Word, checksum: Checksum) -> Settled {
        let region = &mut self.regions[page.region as usize];
        if planted("protect-after-copy") {
            region.protect(page.page, 1);
        }
        // An older copy in flight would become the store's version after this comparison.
        let settled = region.copies_in_flight(page.page) == 0 || planted("compare-under-flight");
        let unchanged = settled && self.store.stored_checksum(region.page_id(page.page)) == Some(checksum);
        let early = planted("permit-back-before-ack");
        let next = claimed.to(if unchanged || early { State::Clean } else { State::InFlight });
        let word = region.word(page.page);
        let mut held = claimed;
        while !word.exchange(held, next) {
            // Somebody who only began to wait for the page did not change it.
            let now = word.load();
            if now.with_waiter() != held.with_waiter() && !planted("copy-counts-anyway") {
                return Settled::Outdated;
            }
            held = now;
        }
        if held.waited() {
            region.wake_waiters(page.page);
        }
        if unchanged {
            self.counters.unchanged_pages += 1;
            return Settled::Unchanged;
        }
        if early {
            self.give_back(1);
            return Settled::Departs(AS_IT_STOOD);
        }
        region.copy_departs(page.page);
        Settled::Departs(next.0)
    }

    /// A batch is on the SSD: its pages that nobody wrote again are clean.
    pub(super) fn written(&mut self, pages: &[(PageId, u32)]) {
        let mut freed = 0;
        let mut counted = 0;
        for (id, cookie) in pages {
            let Some(index) = self.regions.iter().position(|region| region.id == id.region) else { continue };
            let region = &mut self.regions[index];
            if *cookie == MOVED {
                continue;
            }
            counted += 1;
            if *cookie == AS_IT_STOOD {
                continue;
            }
            region.copy_arrives(id.page);
            let word = if planted("stale-arrival") { region.word(id.page).load() } else { Word(*cookie) };
            let arrived = region.word(id.page).exchange(word, word.to(State::Clean));
            freed += u32::from(arrived || planted("permit-back-twice"));
        }
        if counted > 0 {
            self.in_flight_pages -= counted;
            self.in_flight_batches -= 1;
        }
        self.counters.written_pages += u64::from(freed);
        self.give_back(freed);
    }

    /// Gives permits back and wakes who waits for one.
    pub(super) fn give_back(&mut self, permits: u32) {
        if permits > 0 {
            self.control.ledger.0.give_back(permits);
            self.control.announce_progress();
        }
    }
}
