//! Turns the budget that was asked for into permits.
//!
//! The store grows its reserve for a larger budget before a permit is given out; a smaller one stops
//! permits at once and lets the keeper drain.

use std::fs;

use wattkeep_power::spec::{self, BudgetSpec};
use wattkeep_store::disk::Disk;

use super::engine::{Keeper, KeeperError};
use crate::types::FaultMode;

/// What a store gets whose operator named no budget: a tenth, as the paper's 11 % rounds to. It is a
/// setting, not a promise: the status says that no battery stands behind it.
pub const DEFAULT_BUDGET: &str = "10%";

impl<D: Disk> Keeper<D> {
    /// Sets the budget from a person's words.
    pub fn set_budget_text(&mut self, text: &str) -> Result<(), String> {
        let before =
            std::mem::replace(&mut self.budget, spec::parse_budget(text).map_err(|e| e.to_string())?);
        self.apply_budget().inspect_err(|_| self.budget = before)
    }

    /// Resolves the budget against the regions as they are now, and gives out permits.
    pub fn apply_budget(&mut self) -> Result<(), String> {
        let region_pages: u64 = self.store.regions().iter().map(|region| u64::from(region.pages)).sum();
        if region_pages == 0 {
            return Ok(());
        }
        let asked = match self.budget.resolve(region_pages) {
            Ok(pages) => pages,
            // A share of a very small region still is a page.
            Err(spec::BudgetError::BelowOnePage { .. }) if matches!(self.budget, BudgetSpec::Percent(_)) => 1,
            Err(e) => return Err(e.to_string()),
        };
        let pages = self.mapping_limit().map_or(asked, |most| asked.min(most));
        self.counters.budget_note = (pages < asked).then(|| {
            format!("limited to {pages} pages by vm.max_map_count, because pages are tracked by mprotect")
        });
        // What is dirty beyond a lowered budget still needs its place in the log.
        let held = self.control.ledger.0.permits().held;
        self.store.set_budget(pages.max(held)).map_err(|e| e.to_string())?;
        self.control.ledger.0.set_limit(pages);
        self.control.announce_progress();
        Ok(())
    }

    /// A lowered budget has drained: the log need not hold more for a save than it allows.
    pub(super) fn release_reserve(&mut self) -> Result<(), KeeperError> {
        let permits = self.control.ledger.0.permits();
        if permits.held <= permits.limit && permits.limit > 0 && self.store.budget_pages() > permits.limit {
            self.store.set_budget(permits.limit)?;
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
