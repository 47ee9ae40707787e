//! Compares: every contender at every budget, relative to the clairvoyant.

use std::time::Duration;

use serde::Serialize;

use super::contender::{self, Contender};
use super::world::{Cost, Rules, run};
use super::writes::Writes;

/// Budgets of the table, in percent of the touched pages.
pub const BUDGETS_PERCENT: [f64; 6] = [1.0, 2.0, 5.0, 11.0, 25.0, 50.0];

/// One contender at one budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who.
    pub policy: &'static str,
    /// Share of the touched pages.
    pub budget_percent: f64,
    /// The same in pages.
    pub budget_pages: u32,
    /// Copies to the SSD when pages are cleaned only on demand.
    pub copies: u64,
    /// The same, over the clairvoyant's; `None` where that copies nothing.
    pub copies_of_optimum: Option<f64>,
    /// First writes to clean pages.
    pub faults: u64,
    /// Looks per copy: what the choice costs the keeper.
    pub looks_per_copy: f64,
    /// Cleaning ahead by the pressure estimate: writers that waited all the same.
    pub forced_waits_ahead: u64,
    /// Cleaning ahead: copies to the SSD.
    pub copies_ahead: u64,
}

/// Runs everybody over a trace. `tell` hears of each row when it is done.
pub fn compare(
    writes: &Writes,
    budgets_percent: &[f64],
    epoch: Duration,
    writes_per_ms: Option<u64>,
    mut tell: impl FnMut(&Row),
) -> Vec<Row> {
    let contenders = contender::all();
    let mut rows = Vec::new();
    for percent in budgets_percent {
        let rules = Rules { budget_pages: writes.budget(*percent), epoch, writes_per_ms, ahead: false };
        let floor = run(writes, &contenders[0], &rules).copies;
        for contender in &contenders {
            let row = row(writes, contender, &rules, *percent, floor);
            tell(&row);
            rows.push(row);
        }
    }
    rows
}

fn row(writes: &Writes, contender: &Contender, rules: &Rules, budget_percent: f64, floor: u64) -> Row {
    let demand = run(writes, contender, rules);
    let ahead: Cost = run(writes, contender, &Rules { ahead: true, ..*rules });
    Row {
        policy: contender.name,
        budget_percent,
        budget_pages: rules.budget_pages,
        copies: demand.copies,
        copies_of_optimum: (floor > 0).then(|| demand.copies as f64 / floor as f64),
        faults: demand.faults,
        looks_per_copy: demand.looks as f64 / demand.copies.max(1) as f64,
        forced_waits_ahead: ahead.forced_waits,
        copies_ahead: ahead.copies,
    }
}
