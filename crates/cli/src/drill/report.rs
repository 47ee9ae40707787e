//! What came of a drill: the numbers, the verdict, the table for people.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use wattkeep_power::calibration::Calibration;
use wattkeep_power::energy::Milliwatts;
use wattkeep_power::units::{format_duration_ns, format_size};

use super::heap::HeapFacts;
use super::plan::Plan;
use super::restore::Restored;
use super::run::Ran;
use crate::text::{self, PAGE};

/// The verdict of a drill that lost nothing, in time, within its budget.
const KEPT: &str = "kept";

/// Lost pages that are named.
const NAMED: usize = 100;

/// The record of a drill. The first fields are a contract.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    budget_pages: u32,
    max_dirty_pages: u32,
    window_ms: f64,
    save_ms: f64,
    pages_saved: u32,
    pages_verified: u32,
    pages_lost: u32,
    throughput_ops: f64,
    throughput_ops_unlimited: Option<f64>,
    ssd_bytes: u64,
    dirtied_bytes: u64,
    fault_mode: String,
    verdict: String,
    workload: String,
    mode: &'static str,
    policy: String,
    seed: u64,
    region_bytes: u64,
    region_pages: u32,
    operations: u64,
    cut_s: f64,
    half_done: bool,
    unsettled_pages: u32,
    save_copy_ms: f64,
    save_commit_ms: f64,
    window_source: String,
    joules: f64,
    power_w: f64,
    faults: u64,
    permit_waits: u64,
    ssd_cleaning_bytes: u64,
    first_touch_ms: f64,
    restore_ms: f64,
    recovered: String,
    fault_mode_reason: String,
    lost: Vec<u32>,
    complaints: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<HeapFacts>,
    calibration: Calibration,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        calibration: &Calibration,
        unlimited: Option<f64>,
        ran: &Ran,
        restored: &Restored,
        (window_ns, window_source): (u64, String),
        power: Milliwatts,
    ) -> Self {
        let (before, at_cut, comparison) = (&ran.before, &ran.at_cut, &restored.comparison);
        let save = ran.save.clone().unwrap_or_default();
        let dirtied = at_cut.dirtied_pages.saturating_sub(before.dirtied_pages);
        let power_w = power.0 as f64 / 1e3;
        let mut report = Self {
            budget_pages: plan.budget_pages.min(at_cut.budget_pages),
            max_dirty_pages: ran.max_dirty_pages,
            window_ms: window_ns as f64 / 1e6,
            save_ms: ran.save_ms,
            pages_saved: save.pages,
            pages_verified: comparison.pages_verified,
            pages_lost: u32::try_from(comparison.lost.len()).unwrap_or(u32::MAX),
            throughput_ops: ran.throughput,
            throughput_ops_unlimited: unlimited,
            ssd_bytes: at_cut.ssd_bytes.saturating_sub(before.ssd_bytes),
            dirtied_bytes: dirtied * PAGE,
            fault_mode: at_cut.fault_mode.clone(),
            verdict: String::new(),
            workload: plan.workload_name.clone(),
            mode: if plan.explicit { "explicit" } else { "transparent" },
            policy: at_cut.policy.clone(),
            seed: plan.seed,
            region_bytes: plan.region_bytes,
            region_pages: plan.region_pages,
            operations: ran.steps,
            cut_s: ran.cut_s,
            half_done: comparison.half_done,
            unsettled_pages: save.unsettled_pages,
            save_copy_ms: save.copy_ms,
            save_commit_ms: save.commit_ms,
            window_source,
            joules: ran.save_ms / 1e3 * power_w,
            power_w,
            faults: at_cut.faults.saturating_sub(before.faults),
            permit_waits: at_cut.permit_waits.saturating_sub(before.permit_waits),
            ssd_cleaning_bytes: at_cut.ssd_cleaning_bytes.saturating_sub(before.ssd_cleaning_bytes),
            first_touch_ms: restored.first_touch_ms,
            restore_ms: restored.restore_ms,
            recovered: restored.recovered.clone(),
            fault_mode_reason: at_cut.fault_mode_reason.clone(),
            lost: comparison.lost.iter().take(NAMED).copied().collect(),
            complaints: ran.complaints.clone(),
            heap: restored.heap.clone(),
            calibration: *calibration,
        };
        report.verdict = report.judge(ran, restored);
        report
    }

    fn judge(&self, ran: &Ran, restored: &Restored) -> String {
        let mut reasons = Vec::new();
        if let Err(cause) = &ran.save {
            reasons.push(format!("the save failed: {cause}"));
        }
        if let Some(cause) = &restored.refused {
            reasons.push(format!("the store did not open again: {cause}"));
        }
        if self.pages_lost > 0 {
            reasons.push(format!("{} of {} pages lost", self.pages_lost, self.region_pages));
        }
        if let Some(cause) = restored.heap.as_ref().and_then(|heap| heap.problem.as_ref()) {
            reasons.push(format!("the heap is not what was committed: {cause}"));
        }
        if self.max_dirty_pages > self.budget_pages {
            reasons.push(format!(
                "{} pages were dirty, above the budget of {}",
                self.max_dirty_pages, self.budget_pages
            ));
        }
        if self.save_ms > self.window_ms {
            reasons.push(format!(
                "the save took {:.1} ms, the window is {:.1} ms",
                self.save_ms, self.window_ms
            ));
        }
        if reasons.is_empty() { KEPT.to_owned() } else { reasons.join("; ") }
    }

    /// Nothing lost, within the budget, in time.
    pub(crate) fn kept(&self) -> bool {
        self.verdict == KEPT
    }

    /// The record.
    pub(crate) fn json(&self) -> Value {
        serde_json::to_value(self).expect("numbers and strings")
    }

    /// The table and the verdict.
    pub(crate) fn text(&self, power_assumed: bool, picture: Option<&Path>) -> String {
        let share = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
        let budget_share = share(self.budget_pages.into(), self.region_pages.into());
        let unlimited = match self.throughput_ops_unlimited {
            Some(unlimited) => format!(
                "{} with the bound, {} without: {:.0} %",
                text::rate(self.throughput_ops),
                text::rate(unlimited),
                share(self.throughput_ops, unlimited)
            ),
            None => text::rate(self.throughput_ops),
        };
        let ratio = self.ssd_bytes as f64 / self.dirtied_bytes.max(1) as f64;
        let traffic = match self.dirtied_bytes {
            0 => format!("{} for nothing dirtied", format_size(self.ssd_bytes)),
            dirtied => {
                format!(
                    "{} for {} dirtied: {ratio:.2} bytes a byte",
                    format_size(self.ssd_bytes),
                    format_size(dirtied)
                )
            }
        };
        let assumed = if power_assumed { " (assumed; say --power)" } else { "" };
        let window = format!(
            "{} of {}, {:.0} %; window: {}",
            text::millis(self.save_ms),
            text::millis(self.window_ms),
            share(self.save_ms, self.window_ms),
            self.window_source
        );
        let facts = text::facts(&[
            (
                "  dirty budget",
                format!("{}, {budget_share:.1} % of the region", text::pages(self.budget_pages.into())),
            ),
            ("  highest dirty", text::pages(self.max_dirty_pages.into())),
            ("  save", window),
            ("  energy of the save", format!("{:.2} J at {} W{assumed}", self.joules, self.power_w)),
            ("  throughput", unlimited),
            ("  written to the SSD", traffic),
            (
                "  restore",
                format!(
                    "first page {}, all {}",
                    text::millis(self.first_touch_ms),
                    text::millis(self.restore_ms)
                ),
            ),
            (
                "  pages verified",
                format!("{}, {} lost", text::thousands(self.pages_verified.into()), self.pages_lost),
            ),
            ("  fault mode", format!("{}: {}", self.fault_mode, self.fault_mode_reason)),
        ]);
        let picture = picture.map_or_else(String::new, |path| format!("\n  picture: {}", path.display()));
        let saved = format_duration_ns((self.save_ms * 1e6) as u64);
        let verdict = if self.kept() {
            let heap = if self.heap.is_some() { " and every committed transaction" } else { "" };
            format!("KEPT: every page{heap} came back; the save took {saved}")
        } else {
            format!("NOT KEPT: {}", self.verdict)
        };
        format!("\n{facts}{picture}\n{verdict}")
    }
}
