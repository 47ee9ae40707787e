//! Where more battery stops to pay, and the budget that we recommend.
//!
//! The knee is Kneedle's (Satopää and others, 2011) on the whole curve: both axes are stretched to one,
//! budgets from 1 page to all pages written, copies from those of the smallest budget to those of an
//! unlimited one, and the knee is where the curve lies furthest below the straight line between its
//! ends. Before it one percent more battery saves more than one percent of the avoidable copies; behind
//! it, less.
//!
//! The recommended budget is the knee, or more where bursts need it: at least twice the pressure, as
//! cleaning ahead never keeps more than half of a budget free; and never less than [`BUDGET_MIN_PAGES`].

use serde::Serialize;

use super::{BudgetPoint, Curve};

/// The least budget worth recommending: a batch of the engine (1 MiB) under way beside one filling up. A
/// point of the curve's scale.
pub const BUDGET_MIN_PAGES: u64 = 512;

const _: () = assert!(BUDGET_MIN_PAGES >= 2 * wattkeep_keep::limits::BATCH_PAGES_MAX as u64);

/// The knee of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Budget there.
    pub budget_pages: u64,
    /// How far below the straight line, from 0 (it is straight: no knee) to 1.
    pub strength: f64,
}

/// Why a budget is recommended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is the knee of the curve.
    Knee,
    /// It is twice the pressure, which is above the knee.
    Pressure,
    /// It is the least budget worth having.
    Least,
    /// All pages that are ever written: fewer than the least budget, or all written in one burst.
    AllWritten,
}

/// A budget to take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Recommended {
    /// Pages that may be dirty.
    pub budget_pages: u64,
    /// Why.
    pub reason: Reason,
}

/// The knee; `None` if no budget avoids a copy that another does not.
pub fn knee(curve: &Curve) -> Option<Knee> {
    let (first, last) = (curve.points.first()?, curve.points.last()?);
    let budgets = (last.budget_pages - first.budget_pages) as f64;
    let copies = (first.copies - last.copies) as f64;
    if budgets == 0.0 || copies == 0.0 {
        return None;
    }
    let below = |point: &BudgetPoint| {
        let x = (point.budget_pages - first.budget_pages) as f64 / budgets;
        let y = (point.copies - last.copies) as f64 / copies;
        1.0 - x - y
    };
    let found = curve.points.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
    Some(Knee { budget_pages: found.budget_pages, strength: below(found) })
}

/// The budget to take; `None` if nothing was written.
pub fn recommended(curve: &Curve) -> Option<Recommended> {
    let all = curve.pages_written();
    if all == 0 {
        return None;
    }
    let knee = knee(curve).map_or(1, |knee| knee.budget_pages);
    let least = knee.max(BUDGET_MIN_PAGES);
    let in_twos = |point: &&BudgetPoint| {
        point.budget_pages >= least && point.budget_pages as f64 >= 2.0 * point.pressure_pages.unwrap_or(0.0)
    };
    let budget_pages = curve.points.iter().find(in_twos).map_or(all, |point| point.budget_pages);
    let reason = match budget_pages {
        budget if budget == all => Reason::AllWritten,
        budget if budget == knee => Reason::Knee,
        BUDGET_MIN_PAGES => Reason::Least,
        _ => Reason::Pressure,
    };
    Some(Recommended { budget_pages, reason })
}
