//! What a person, or a program, gets to see of a study: one serialisable record, and a page for browsers.
//!
//! - [`html`]: one self-contained page
//! - [`plot`]: its pictures
//!
//! Names of fields are the names in `--json`: they stay.

pub mod html;
mod plot;

use serde::Serialize;
use wattkeep_power::budget::{SaveCost, default_window};
use wattkeep_power::energy::{Millijoules, Milliwatts};
use wattkeep_power::window::energy_lasting;

use crate::analyse::Summary;
use crate::analyse::zipf::{self, ZipfPoint};
use crate::battery::Battery;
use crate::curve::knee::{self, Knee, Reason};
use crate::curve::{BudgetPoint, EPOCH_NS};
use crate::lifetime::drive_years;
use crate::request::PAGE_BYTES;
use crate::study::Study;

/// What stands behind a budget: an SSD, what the machine draws, a battery.
pub struct Supply<'a> {
    /// What saving so many pages costs.
    pub cost: &'a dyn Fn(u64) -> SaveCost,
    /// Drawn while a save runs.
    pub power: Milliwatts,
    /// What of the battery can be used.
    pub battery: Battery,
    /// Bytes that the SSD is rated to take in its life.
    pub endurance_bytes: u64,
}

/// What saving a budget needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Need {
    /// From the mains failing until everything is on the SSD, and a quarter more.
    pub notice_seconds: f64,
    /// Rated energy of the battery to buy.
    pub battery_joules: f64,
}

impl Supply<'_> {
    /// The notice and the battery that `budget_pages` need; `None` if no battery below 2^64 mJ does.
    pub fn need(&self, budget_pages: u64) -> Option<Need> {
        let notice_ns = default_window(budget_pages, &(self.cost)(budget_pages))?;
        let Millijoules(energy) = energy_lasting(notice_ns, self.battery.derating(), self.power)?;
        Some(Need { notice_seconds: notice_ns as f64 / 1e9, battery_joules: energy as f64 / 1e3 })
    }
}

/// A point of the curve, and what saving it needs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReportPoint {
    /// What the budget costs.
    #[serde(flatten)]
    pub point: BudgetPoint,
    /// Of all pages of the volumes.
    pub percent_of_total: f64,
    /// What saving it needs.
    #[serde(flatten)]
    pub need: Option<Need>,
}

/// One volume.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeReport {
    /// As the trace names it.
    pub name: String,
    /// Whether its size was given; otherwise it is the highest byte seen.
    pub size_given: bool,
    /// Its numbers.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Figure 5.
#[derive(Clone, Debug, Serialize)]
pub struct ZipfReport {
    /// As pages become more.
    pub points: Vec<ZipfPoint>,
    /// Whether the fraction falls, as the paper prints it.
    pub falls_as_in_the_paper: bool,
}

/// What was assumed.
#[derive(Clone, Debug, Serialize)]
pub struct Assumed {
    /// Worst bandwidth of the SSD.
    pub bandwidth_bytes_per_s: u64,
    /// Where it comes from.
    pub bandwidth_from: String,
    /// Drawn while a save runs.
    pub power_watts: f64,
    /// Share of the rated energy that can be used, in percent: depth of discharge, age and cold.
    pub usable_percent: f64,
    /// Bytes that the SSD is rated to take in its life.
    pub endurance_bytes: u64,
}

/// Everything about one trace.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file.
    pub trace: String,
    /// Its format.
    pub format: String,
    /// How it is compressed.
    pub compression: String,
    /// All volumes together.
    #[serde(flatten)]
    pub whole: Summary,
    /// From the first request to the last; `None` without times.
    pub span_seconds: Option<f64>,
    /// Requests that came later than their time.
    pub late_requests: u64,
    /// Each volume.
    pub volumes: Vec<VolumeReport>,
    /// Figure 5 of the paper.
    pub zipf: ZipfReport,
    /// Pages of which one is followed by the curve; 1: it is exact.
    pub sampled_one_of: u64,
    /// Milliseconds of an epoch, the unit of pressure.
    pub epoch_ms: f64,
    /// What each budget costs.
    pub budget_curve: Vec<ReportPoint>,
    /// Where more battery stops to pay.
    pub knee: Option<Knee>,
    /// The budget to take; `None` if nothing is written.
    pub recommended_budget_pages: Option<u64>,
    /// In percent of all pages.
    pub recommended_budget_percent: Option<f64>,
    /// Why that.
    pub recommended_because: Option<Reason>,
    /// Battery for the recommended budget.
    pub battery_joules: Option<f64>,
    /// Notice for the recommended budget.
    pub notice_seconds: Option<f64>,
    /// Battery for all pages of the volumes, without a bound on dirty ones.
    pub full_battery_joules: Option<f64>,
    /// Bytes copied to the SSD a day with the recommended budget, if every day is as the trace; `None`
    /// without times.
    pub ssd_bytes_per_day: Option<f64>,
    /// Years until that wears the SSD out.
    pub ssd_years: Option<f64>,
    /// What the last ones stand on.
    pub assumed: Assumed,
    /// Damaged lines or records.
    pub damaged_lines: u64,
    /// The first of them, with their place.
    pub damage: Vec<String>,
}

impl Report {
    /// Of one study, with what stands behind a budget.
    pub fn new(study: &Study, supply: &Supply<'_>, bandwidth_from: &str) -> Self {
        let curve = &study.findings.curve;
        let recommended = knee::recommended(curve);
        let total = study.whole.pages_total;
        let percent = |pages: u64| crate::analyse::skew::percent(pages, total);
        let need = recommended.and_then(|recommended| supply.need(recommended.budget_pages));
        let point = |point: &BudgetPoint| ReportPoint {
            point: *point,
            percent_of_total: percent(point.budget_pages),
            need: supply.need(point.budget_pages),
        };
        let zipf_points = zipf::figure_5();
        let span_seconds = study.findings.span_ns.map(|span_ns| span_ns as f64 / 1e9);
        let copied = recommended.map(|recommended| curve.dirtied(recommended.budget_pages) * PAGE_BYTES);
        let ssd_bytes_per_day = match (copied, span_seconds) {
            (Some(bytes), Some(seconds)) if seconds > 0.0 => Some(bytes as f64 / seconds * SECONDS_PER_DAY),
            _ => None,
        };
        Self {
            trace: study.path.display().to_string(),
            format: study.format.clone(),
            compression: study.compression.clone(),
            whole: study.whole.clone(),
            span_seconds,
            late_requests: study.late,
            volumes: study
                .volumes
                .iter()
                .map(|volume| VolumeReport {
                    name: volume.name.clone(),
                    size_given: volume.given,
                    summary: volume.summary.clone(),
                })
                .collect(),
            zipf: ZipfReport { falls_as_in_the_paper: zipf::falls(&zipf_points), points: zipf_points },
            sampled_one_of: 1 << curve.shift(),
            epoch_ms: EPOCH_NS as f64 / 1e6,
            budget_curve: curve.points.iter().map(point).collect(),
            knee: knee::knee(curve),
            recommended_budget_pages: recommended.map(|recommended| recommended.budget_pages),
            recommended_budget_percent: recommended.map(|recommended| percent(recommended.budget_pages)),
            recommended_because: recommended.map(|recommended| recommended.reason),
            battery_joules: need.map(|need| need.battery_joules),
            notice_seconds: need.map(|need| need.notice_seconds),
            full_battery_joules: supply.need(total).map(|need| need.battery_joules),
            ssd_bytes_per_day,
            ssd_years: ssd_bytes_per_day.and_then(|bytes| drive_years(supply.endurance_bytes as f64, bytes)),
            assumed: Assumed {
                bandwidth_bytes_per_s: (supply.cost)(0).bandwidth_bytes_per_s,
                bandwidth_from: bandwidth_from.to_owned(),
                power_watts: supply.power.0 as f64 / 1e3,
                usable_percent: f64::from(supply.battery.derating().parts_per_million()) / 1e4,
                endurance_bytes: supply.endurance_bytes,
            },
            damaged_lines: study.damaged,
            damage: study.damage.iter().map(ToString::to_string).collect(),
        }
    }

    /// Why the recommended budget is recommended, in words.
    pub fn because(&self) -> &'static str {
        match self.recommended_because {
            Some(Reason::Knee) => "the knee of the curve",
            Some(Reason::Pressure) => "twice the pressure of its bursts",
            Some(Reason::Least) => "the least that is worth having",
            Some(Reason::AllWritten) => "all that is ever written",
            None => "nothing is written",
        }
    }

    /// Points for a table that fits a screen: one per doubling, the recommended one, the last.
    pub fn table_points(&self) -> Vec<&ReportPoint> {
        let recommended = self.recommended_budget_pages;
        let last = self.budget_curve.last().map(|point| point.point.budget_pages);
        let shown = |pages: u64| {
            (pages.is_power_of_two() && pages >= SHOWN_FROM_PAGES)
                || Some(pages) == recommended
                || Some(pages) == last
        };
        self.budget_curve.iter().filter(|point| shown(point.point.budget_pages)).collect()
    }
}

const SECONDS_PER_DAY: f64 = 86_400.0;

/// Budgets below 64 KiB are not shown in tables: the JSON has them.
const SHOWN_FROM_PAGES: u64 = 16;

/// Bytes of pages, for people.
pub(crate) fn bytes(pages: u64) -> String {
    wattkeep_power::units::format_size(pages.saturating_mul(PAGE_BYTES))
}
