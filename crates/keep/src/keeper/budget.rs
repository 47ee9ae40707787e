//! Turns the budget that was asked for into permits.
//!
//! The store grows its reserve for a larger budget before a permit is given out; a smaller one stops
//! permits at once and lets the keeper drain.
//!
//! # Every permit has its place in the log
//!
//! With `F` free segments of `E` pages each, a save can write `F x E` pages. The ledger's limit is the
//! budget or `(F - 2) x E`, whichever is less. So at every instant a save finds room for what it must
//! write:
//!
//! 1. While writers run, a permit is taken only below that limit, and `F` falls only by segments for
//!    writeback and cleaning. These leave what the superblock's budget needs, which is never less than
//!    what is held: see `apply_budget` and `release_reserve`.
//! 2. A checkpoint that finds no room beyond that uses the save's own, with grants frozen from its first
//!    such segment until its commit has won the room back. Before each segment the limit is lowered to
//!    what the rest holds. Take the last instant at which a permit was taken, or the freeze: `held` fitted
//!    `(F - 2) x E`. Of the `n` segments taken since, all but the last are full of copies, and a copy
//!    made under a freeze stays a copy. So at most `(F - 2) x E - (n - 1) x E` pages are left, which is
//!    one segment less than the `F - n` that are free.
//! 3. A save is the same, without an end. Cleaning that uses the save's room leaves the segments that
//!    what is held fills, and runs only under a freeze.
//!
//! What is free again raises the limit, up to the budget.

use std::fs;

use wattkeep_power::spec::{self, BudgetError, BudgetSpec};
use wattkeep_store::RegionMode;
use wattkeep_store::disk::Disk;

use super::engine::{Keeper, KeeperError};
use crate::types::FaultMode;

/// What a store gets whose operator named no budget: a tenth, as the paper's 11 % rounds to. It is a
/// setting, not a promise: the status says that no battery stands behind it.
pub const DEFAULT_BUDGET: &str = "10%";

/// Pages that one store instruction may touch.
const BORDER_PAGES: u32 = 2;

impl<D: Disk> Keeper<D> {
    /// Sets the budget from a person's words.
    pub fn set_budget_text(&mut self, text: &str) -> Result<(), String> {
        let asked = spec::parse_budget(text).map_err(|e| e.to_string())?;
        if self.region_pages() > 0 {
            // Said of the regions there are: more than they have is a mistake.
            self.resolve(asked).map_err(|e| e.to_string())?;
        }
        let before = std::mem::replace(&mut self.budget, asked);
        self.apply_budget().inspect_err(|_| self.budget = before)
    }

    fn region_pages(&self) -> u64 {
        self.store.regions().iter().map(|region| u64::from(region.pages)).sum()
    }

    fn resolve(&self, budget: BudgetSpec) -> Result<u32, BudgetError> {
        match budget.resolve(self.region_pages()) {
            // A share of a very small region still is a page.
            Err(BudgetError::BelowOnePage { .. }) if matches!(budget, BudgetSpec::Percent(_)) => Ok(1),
            resolved => resolved,
        }
    }

    /// Resolves the budget against the regions as they are now, and gives out permits. A session may name
    /// a budget for more regions than there are yet: until then it is what these have.
    pub fn apply_budget(&mut self) -> Result<(), String> {
        let region_pages = self.region_pages();
        if region_pages == 0 {
            return Ok(());
        }
        let mut note = None;
        let asked = match self.resolve(self.budget) {
            Err(BudgetError::AboveRegion { .. }) => {
                note = Some(format!(
                    "limited to {region_pages} pages: the budget of {} is above the regions there are",
                    self.budget
                ));
                u32::try_from(region_pages).unwrap_or(u32::MAX)
            }
            resolved => resolved.map_err(|e| e.to_string())?,
        };
        let pages = self.mapping_limit().map_or(asked, |most| asked.min(most));
        if pages < asked {
            note = Some(format!(
                "limited to {pages} pages by vm.max_map_count, because pages are tracked by mprotect"
            ));
        }
        let transparent = self.store.regions().iter().any(|region| region.mode == RegionMode::Transparent);
        if pages < BORDER_PAGES && transparent {
            note = Some(
                "a store across a page border needs two pages at once, and waits for ever under a budget of one: \
                 raise it with 'wattkeep budget'"
                    .to_owned(),
            );
        }
        self.counters.budget_note = note;
        // A lowered budget stops permits first: what is dirty beyond it still needs its place in the log.
        if pages < self.budget_pages {
            self.budget_pages = pages;
            self.fit_permits();
        }
        let held = self.control.ledger.0.permits().held;
        self.store.set_budget(pages.max(held)).map_err(|e| e.to_string())?;
        self.budget_pages = pages;
        self.control.set_budget(pages);
        self.fit_permits();
        Ok(())
    }

    /// Gives out as many permits as the budget allows and a save could write.
    pub(super) fn fit_permits(&mut self) {
        self.fit_permits_beside(0);
    }

    /// The same, when `segments` free segments are about to be taken.
    pub(super) fn fit_permits_beside(&mut self, segments: u32) {
        let limit = self.budget_pages.min(self.store.save_capacity(segments));
        let before = self.control.ledger.0.permits().limit;
        if limit != before {
            self.control.ledger.0.set_limit(limit);
        }
        if limit > before {
            self.control.announce_progress();
        }
    }

    /// A lowered budget has drained: the log need not hold more for a save than it allows.
    pub(super) fn release_reserve(&mut self) -> Result<(), KeeperError> {
        let (held, budget) = (self.control.ledger.0.permits().held, self.budget_pages);
        if held <= budget && budget > 0 && self.store.budget_pages() > budget {
            self.store.set_budget(budget)?;
        }
        Ok(())
    }

    /// With mprotect every open page may split a mapping in three: the kernel's bound on mappings
    /// bounds the budget. A quarter is left to the program.
    fn mapping_limit(&self) -> Option<u32> {
        if self.options.fault_mode != FaultMode::Mprotect {
            return None;
        }
        let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        let mappings: u32 = text.trim().parse().unwrap_or(65_530);
        Some((mappings / 4 * 3 / 2).max(1))
    }
}
