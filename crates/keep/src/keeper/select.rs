//! Chooses how much to clean, asks the policy what, and gets it protected.
//!
//! Victims of transparent regions are offered to faulting threads, which protect them at the lowest
//! price; when those are idle or all wait, the keeper protects them itself. Victims of explicit
//! regions need no protection and go straight to the copy.

use std::time::Duration;

use wattkeep_announce::hazard::Slots;
use wattkeep_store::disk::Disk;
use wattkeep_store::hash::Hasher;

use super::engine::Keeper;
use super::hazards::Amid;
use super::pages::KeptRegion;
use crate::control::block::PageRef;
use crate::control::page_word::State;
use crate::control::primitives::Ordering;
use crate::limits::{BATCH_PAGES_MAX, PAGE_SIZE, PIPELINE_SHARE, VICTIMS_RING};
use crate::types::Tracking;
use crate::victim::{Fingerprint, Observer, Sight};

/// Without a fault for so long, nobody will take the offered victims.
const IDLE: Duration = Duration::from_millis(1);

/// Victims that the keeper protects at once in their stead.
const PROTECT_AT_ONCE: usize = 64;

/// Looks at pages for a policy.
pub(super) struct Eyes<'a> {
    regions: &'a mut [KeptRegion],
    hasher: Hasher,
    page: [u8; PAGE_SIZE],
    hazards: &'a Slots,
    /// Looked up once, for the first announced page.
    amid: Option<Amid>,
    /// A page was passed over because somebody stores to it.
    saw_stores: bool,
}

impl<'a> Eyes<'a> {
    pub(super) fn new(regions: &'a mut [KeptRegion], hasher: Hasher, hazards: &'a Slots) -> Self {
        Self { regions, hasher, page: [0; PAGE_SIZE], hazards, amid: None, saw_stores: false }
    }

    /// Somebody is amid a store to the page: a hint, which costs its thread a miss of its cache.
    fn is_stored_to(&mut self, page: PageRef) -> bool {
        let region = &self.regions[page.region as usize];
        let amid = self.amid.get_or_insert_with(|| Amid::new(Some(self.hazards.glance())));
        let stored = amid.holds(region, page.page);
        self.saw_stores |= stored;
        stored
    }
}

impl Observer for Eyes<'_> {
    fn look(&mut self, page: PageRef, seen: Option<Fingerprint>) -> Sight {
        let glance = self.glance(page);
        let region = &self.regions[page.region as usize];
        let Sight::Dirty { .. } = glance else { return glance };
        if region.is_announced() {
            // Announced stores leave a mark: no need to read the page.
            return Sight::Dirty {
                fingerprint: Fingerprint::MIN,
                written: region.word(page.page).take_written(),
            };
        }
        // The page may be written meanwhile: then the fingerprint is of no version, and differs
        // from the next one all the same.
        region.memory().copy_page(page.page, &mut self.page);
        let hash = self.hasher.page(&self.page).0;
        let fingerprint = Fingerprint::new(hash as u32).unwrap_or(Fingerprint::MIN);
        Sight::Dirty { fingerprint, written: seen != Some(fingerprint) }
    }

    fn glance(&mut self, page: PageRef) -> Sight {
        let region = &self.regions[page.region as usize];
        let (word, announced) = (region.word(page.page).load(), region.is_announced());
        match word.state() {
            State::Dirty if announced && self.is_stored_to(page) => Sight::Busy,
            State::Dirty if word.pins() == 0 => Sight::Dirty { fingerprint: Fingerprint::MIN, written: true },
            state if state.holds_permit() => Sight::Busy,
            _ => Sight::Clean,
        }
    }

    fn dropped(&mut self, page: PageRef) {
        self.regions[page.region as usize].set_listed(page.page, false);
    }
}

impl<D: Disk> Keeper<D> {
    /// Pages above the threshold that nothing cleans yet. What is under way still holds its permits:
    /// a part of the budget is kept free for it, so that writers need not wait for its arrival.
    fn pages_to_clean(&self) -> usize {
        let permits = self.control.ledger.0.permits();
        let under_way = self.queue.len() + self.in_flight_pages as usize;
        let pipeline = (2 * BATCH_PAGES_MAX).min(permits.limit as usize / PIPELINE_SHARE);
        let threshold = self.pressure.threshold(permits.limit) as usize;
        (permits.held as usize).saturating_sub(under_way).saturating_sub(threshold.saturating_sub(pipeline))
    }

    /// A lowered budget may leave every permit held and no pressure: who waits gets a victim all the same.
    fn pages_for_waiters(&self) -> usize {
        let idle = self.queue.is_empty() && self.in_flight_pages == 0;
        usize::from(idle && self.control.has_sleepers() && self.control.ledger.0.permits().free() == 0)
    }

    pub(super) fn offer_victims(&mut self) -> bool {
        if self.checkpoint.is_some() {
            return false;
        }
        let offered = self.control.victims.len();
        let wanted = self
            .pages_to_clean()
            .max(self.pages_for_waiters())
            .saturating_sub(offered)
            .min(VICTIMS_RING - offered.min(VICTIMS_RING));
        if wanted == 0 {
            return false;
        }
        let urgent = self.control.has_sleepers() || self.control.ledger.0.permits().free() == 0;
        let mut victims = Vec::with_capacity(wanted);
        let mut eyes = Eyes::new(&mut self.regions, self.store.hasher(), &self.control.hazards);
        self.policy.choose(wanted.min(BATCH_PAGES_MAX), urgent, &mut eyes, &mut victims);
        self.awaits_stores |= eyes.saw_stores;
        for victim in &victims {
            match self.regions[victim.region as usize].tracking {
                Tracking::Explicit => self.queue.push_back(*victim),
                Tracking::Transparent | Tracking::Checking => drop(self.control.victims.push(victim.pack())),
            }
        }
        !victims.is_empty()
    }

    /// Protects offered victims that no faulting thread takes: all wait for permits, or none faults.
    pub(super) fn protect_for_idle_clients(&mut self) -> bool {
        if self.control.victims.is_empty() || self.checkpoint.is_some() {
            return false;
        }
        let faults = self.control.counters.faults.load(Ordering::Relaxed);
        if faults != self.last_fault.1 {
            self.last_fault = (self.now, faults);
        }
        // A sleeping thread runs on no core: protecting its pages interrupts nobody.
        if !self.control.has_sleepers() && self.now - self.last_fault.0 < IDLE {
            return false;
        }
        if self.options.fault_mode == crate::types::FaultMode::Mprotect {
            return self.ask_client_for_victims();
        }
        let mut victims = Vec::with_capacity(PROTECT_AT_ONCE);
        while victims.len() < PROTECT_AT_ONCE {
            let Some(victim) = self.control.victims.pop() else { break };
            victims.push(PageRef::unpack(victim));
        }
        victims.sort_unstable();
        victims.dedup();
        let claimed: Vec<_> = victims.into_iter().filter(|victim| self.claim(*victim)).collect();
        for run in claimed.chunk_by(|a, b| a.region == b.region && a.page + 1 == b.page) {
            self.protect_run(run);
        }
        !claimed.is_empty()
    }

    fn claim(&self, victim: PageRef) -> bool {
        let Some(region) = self.region_of(victim).filter(|region| region.has_guard()) else { return false };
        let word = region.word(victim.page);
        let now = word.load();
        now.state() == State::Dirty && now.pins() == 0 && word.exchange(now, now.to(State::Protecting))
    }

    fn protect_run(&mut self, run: &[PageRef]) {
        let region = &self.regions[run[0].region as usize];
        let protected = region.protect(run[0].page, run.len() as u32);
        for victim in run {
            let state = if protected { State::Queued } else { State::Dirty };
            region.settle(victim.page, State::Protecting, state);
            if protected {
                self.queue.push_back(*victim);
            }
        }
        self.counters.protected_pages += if protected { run.len() as u64 } else { 0 };
    }

    pub(super) fn observe_epoch(&mut self) {
        let mut eyes = Eyes::new(&mut self.regions, self.store.hasher(), &self.control.hazards);
        self.policy.epoch(&mut eyes);
    }
}
