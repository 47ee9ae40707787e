//! Stores that threads announced by hazard pointers, as the keeper finds them.
//!
//! The keeper claims first and looks then, behind a barrier on all threads (see `wattkeep_announce::hazard`).

use std::time::Duration;

use wattkeep_store::disk::Disk;
use wattkeep_sys::mutant::planted;

use super::engine::Keeper;
use super::pages::KeptRegion;
use crate::control::block::PageRef;
use crate::control::page_word::{State, Word};
use crate::limits::PAGE_SIZE;

/// Where threads are amid a store. `None`: nobody knows, and they may be anywhere.
#[derive(Debug)]
pub(super) struct Amid(Option<Vec<u64>>);

impl Amid {
    pub(super) fn new(addresses: Option<Vec<u64>>) -> Self {
        Self(addresses)
    }

    /// A thread of the living client is amid a store to this page of the region.
    pub(super) fn holds(&self, region: &KeptRegion, page: u32) -> bool {
        let number = |address: u64| address / PAGE_SIZE as u64;
        let is_it = |address: &u64| number(*address) == number(region.address) + u64::from(page);
        region.is_announced()
            && !region.is_detached()
            && self.0.as_ref().is_none_or(|addresses| addresses.iter().any(is_it))
    }
}

impl<D: Disk> Keeper<D> {
    /// Where threads are amid a store, behind claims of pages.
    pub(super) fn look_at_hazards(&self) -> Amid {
        Amid::new(if planted("hazards-unseen") { Some(Vec::new()) } else { self.control.hazards.look() })
    }

    /// Where threads are amid a store that they do not end, behind a freeze. What it waits is taken from the cut's
    /// patience.
    pub(super) fn wait_for_hazards(&self, patience: &mut Duration) -> Amid {
        let began = self.clock.now();
        let client_lives = self.regions.iter().any(|region| !region.is_detached());
        let mut amid = self.look_at_hazards();
        while client_lives
            && amid.0.as_ref().is_some_and(|addresses| !addresses.is_empty())
            && self.clock.now() - began < *patience
        {
            self.clock.yield_now();
            amid = Amid::new(Some(self.control.hazards.glance()));
        }
        *patience = patience.saturating_sub(self.clock.now() - began);
        amid
    }

    /// Somebody was seen amid a store to a page that is to be cleaned: nothing rings when it ends.
    pub fn awaits_stores(&self) -> bool {
        self.awaits_stores
    }

    /// Gives claimed pages back that threads are amid a store to.
    pub(super) fn give_back_stored(&mut self, claimed: &mut Vec<(PageRef, Word)>) {
        let amid = self.look_at_hazards();
        claimed.retain(|(page, word)| {
            let region = &self.regions[page.region as usize];
            let stored = amid.holds(region, page.page);
            if stored {
                // Unless a writer took it back meanwhile.
                region.word(page.page).exchange(*word, word.to(State::Dirty));
                self.awaits_stores = true;
            }
            !stored
        });
    }
}
