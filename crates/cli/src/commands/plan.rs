//! `wattkeep plan`: reads traces, and says which budget, which battery and which notice they need.

use serde_json::json;
use wattkeep_plan::analyse::Summary;
use wattkeep_plan::battery::Battery;
use wattkeep_plan::curve::knee::BUDGET_MIN_PAGES;
use wattkeep_plan::read::ReadError;
use wattkeep_plan::report::{Report, Supply, html};
use wattkeep_plan::study::{Study, StudyError, StudyOptions, study};
use wattkeep_plan::tenants::{self, SharedReport};
use wattkeep_power::calibration::Calibration;
use wattkeep_power::energy::Fraction;
use wattkeep_power::units::{format_bandwidth, format_duration_ns};

use crate::answer::{Answer, Output};
use crate::args::PlanArgs;
use crate::calibrate;
use crate::failure::{Exit, Failure};
use crate::progress;
use crate::text::{self, thousands};

pub(crate) fn run(args: &PlanArgs, _output: Output) -> Result<Answer, Failure> {
    let (calibration, bandwidth_from) = calibration(args)?;
    let options =
        StudyOptions { format: args.format, volumes: args.volumes.clone(), sample_pages: args.sample_pages };
    let cost = |pages| calibrate::save_cost(&calibration, pages);
    let battery =
        Battery { depth_of_discharge: args.depth_of_discharge, health: args.health, celsius: args.celsius };
    if battery.derating() == Fraction::ZERO {
        let cause =
            format!("at {} °C nothing is left of a battery; see 'wattkeep plan --help'", args.celsius);
        return Err(Failure::usage(cause));
    }
    let supply = Supply { cost: &cost, power: args.power, battery, endurance_bytes: args.endurance };
    let mut studies = Vec::new();
    let mut reports = Vec::new();
    for trace in &args.traces {
        let bar = progress::bar(&format!("reading {}", trace.display()));
        let studied = study(trace, &options, &mut |done, all| progress::set(&bar, done, all));
        bar.finish_and_clear();
        let studied = studied.map_err(failure)?;
        reports.push(Report::new(&studied, &supply, &bandwidth_from));
        studies.push(studied);
    }
    let shared = match studies.len() {
        1 => None,
        _ => Some(together(&studies, &options)?),
    };
    if let Some(page) = &args.html {
        std::fs::write(page, html::page(&reports, shared.as_ref()))
            .map_err(|error| Failure::system("write the report", page, &error))?;
    }
    let mut text: Vec<_> = reports.iter().map(|report| described(report, args)).collect();
    text.extend(shared.as_ref().map(shared_text));
    let json = match (&reports[..], &shared) {
        ([report], _) => serde_json::to_value(report),
        (reports, shared) => serde_json::to_value(json!({ "tenants": reports, "shared": shared })),
    };
    Ok(Answer::new(text.join("\n"), json.expect("plain data")))
}

/// The SSD: as a store was calibrated, or as it is said to be.
fn calibration(args: &PlanArgs) -> Result<(Calibration, String), Failure> {
    if let Some(place) = &args.store {
        let found = calibrate::load(place)?;
        let place = place.display();
        return found.map(|calibration| (calibration, format!("worst measured in {place}"))).ok_or_else(
            || {
                let cause = format!("{place} was never calibrated; run 'wattkeep calibrate {place}'");
                Failure::new(Exit::NotSo, cause)
            },
        );
    }
    let (bandwidth, from) = match args.bandwidth {
        Some(bandwidth) => (bandwidth, "as given"),
        None => (ASSUMED_BANDWIDTH, "assumed; give --bandwidth or --store"),
    };
    let calibration = Calibration {
        write_worst_bytes_per_s: bandwidth,
        write_median_bytes_per_s: bandwidth,
        flush_worst_ns: 0,
        freeze_worst_ns_per_page: 0,
        samples: 0,
        measured_at_unix_s: 0,
    };
    Ok((calibration, from.to_owned()))
}

/// One SSD of a server, sustained.
const ASSUMED_BANDWIDTH: u64 = 1_000_000_000;

fn together(studies: &[Study], options: &StudyOptions) -> Result<SharedReport, Failure> {
    for study in studies {
        let path = study.path.display();
        if study.findings.span_ns.is_none() {
            return Err(Failure::usage(format!(
                "{path} has no times: nobody knows what it writes while others write; see 'wattkeep plan --help'"
            )));
        }
    }
    let bar = progress::bar("sharing one battery");
    let shared = tenants::share(studies, options, &mut |done, all| progress::set(&bar, done, all));
    bar.finish_and_clear();
    shared.map_err(|error| failure(error.into()))
}

pub(super) fn failure(error: StudyError) -> Failure {
    let exit = match &error {
        StudyError::Read(ReadError::System(..)) => Exit::System,
        StudyError::Read(_) => Exit::Store,
        StudyError::NoSuchVolume { .. } | StudyError::VolumeTooSmall { .. } => Exit::Usage,
    };
    Failure::new(exit, error.to_string())
}

fn described(report: &Report, args: &PlanArgs) -> String {
    let mut out = format!("{}\n\n", html::answer(report));
    out += &text::facts(&facts(report));
    out += "\n";
    out += &text::table(&volumes(report));
    if report.volumes.iter().any(|volume| !volume.size_given) {
        out += "* up to the highest byte that the trace touches; --volume gives the size\n";
    }
    if !report.budget_curve.is_empty() {
        out += "\n";
        out += &text::table(&budgets(report));
        out += &assumptions(report);
    }
    out += &damage(report);
    if let Some(page) = &args.html {
        out += &format!("\nreport: {}\n", page.display());
    }
    out
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let whole = &report.whole;
    let share = if whole.requests == 0 { 0.0 } else { whole.writes as f64 * 100.0 / whole.requests as f64 };
    let span = match report.span_seconds {
        Some(seconds) => format_duration_ns((seconds * 1e9) as u64),
        None => "an order and no times: intervals and pressure are not known".to_owned(),
    };
    let mut facts = vec![
        ("trace", format!("{} ({}, {})", report.trace, report.format, report.compression)),
        (
            "requests",
            format!("{}, {} writes ({share:.1} %)", thousands(whole.requests), thousands(whole.writes)),
        ),
        ("time", span),
        ("pages touched", text::pages(whole.pages_touched)),
        ("pages written", text::pages(whole.pages_written)),
    ];
    if let Some(knee) = report.knee {
        facts.push(("knee", format!("{} (strength {:.2})", text::pages(knee.budget_pages), knee.strength)));
    }
    if report.late_requests > 0 {
        facts.push((
            "late",
            format!("{} requests, taken at the latest time seen", thousands(report.late_requests)),
        ));
    }
    facts
}

/// Figures 2 to 4 and the kind, a row for each volume.
fn volumes(report: &Report) -> Vec<Vec<String>> {
    let heads = [
        "volume",
        "pages",
        "90/95/99 % of writes: of touched",
        "of all",
        "worst 1/10/60 min: distinct",
        "log-structured",
        "kind",
    ];
    let three = |values: [f64; 3]| values.map(html::percent_text).join(" / ") + " %";
    let row = |name: &str, given: bool, s: &Summary| {
        let [distinct, log] = match s.worst_interval_percent {
            Some(worst) => {
                let slices = [worst.minute, worst.ten_minutes, worst.hour];
                [
                    three(slices.map(|slice| slice.unique_pages)),
                    three(slices.map(|slice| slice.log_structured)),
                ]
            }
            None => ["-".to_owned(), "-".to_owned()],
        };
        vec![
            name.to_owned(),
            format!("{}{}", thousands(s.pages_total), if given { "" } else { "*" }),
            three([s.p90_of_touched_percent, s.p95_of_touched_percent, s.p99_of_touched_percent]),
            three([s.p90_of_total_percent, s.p95_of_total_percent, s.p99_of_total_percent]),
            distinct,
            log,
            format!("{}: {}", s.category.number, s.category.name),
        ]
    };
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(report.volumes.iter().map(|volume| row(&volume.name, volume.size_given, &volume.summary)));
    if report.volumes.len() > 1 {
        rows.push(row("all", report.volumes.iter().all(|volume| volume.size_given), &report.whole));
    }
    rows
}

fn budgets(report: &Report) -> Vec<Vec<String>> {
    let heads =
        ["budget", "of all", "copies", "forced waits", "SSD/written bytes", "pressure", "battery", "notice"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for point in report.table_points() {
        let mut row = html::budget_row(point);
        if Some(point.point.budget_pages) == report.recommended_budget_pages {
            row.push(format!("<- {}", report.because()));
        }
        rows.push(row);
    }
    rows
}

fn assumptions(report: &Report) -> String {
    let assumed = &report.assumed;
    let mut out = format!(
        "The least recently updated page is copied on demand; pressure: pages dirtied per {} ms, at most.\n\
         Battery and notice: {} to the SSD ({}), {} W, {} % of the rated energy usable.\n",
        report.epoch_ms,
        format_bandwidth(assumed.bandwidth_bytes_per_s),
        assumed.bandwidth_from,
        assumed.power_watts,
        assumed.usable_percent,
    );
    if report.sampled_one_of > 1 {
        out += &format!("Sampled: one page of {}; bounds hold in 95 of 100 cases.\n", report.sampled_one_of);
    }
    if report.recommended_budget_pages.is_some_and(|pages| pages < BUDGET_MIN_PAGES) {
        out += "So few pages are written that all of them may be dirty.\n";
    }
    out
}

fn damage(report: &Report) -> String {
    if report.damaged_lines == 0 {
        return String::new();
    }
    let listed: String = report.damage.iter().map(|line| format!("  {line}\n")).collect();
    let count = thousands(report.damaged_lines);
    let noun = if report.damaged_lines == 1 { "line was" } else { "lines were" };
    format!("\n{count} damaged {noun} left out; the first:\n{listed}")
}

fn shared_text(shared: &SharedReport) -> String {
    let mut rows = vec![
        ["tenant", "its share alone", "copies with it", "copies when shared"].map(str::to_owned).to_vec(),
    ];
    rows.extend(shared.tenants.iter().map(wattkeep_plan::tenants::TenantReport::row));
    format!("{}\n\n{}", shared.answer(), text::table(&rows))
}

/// Reads `SIZE`, or `NAME=SIZE`.
pub(crate) fn parse_volume(text: &str) -> Result<wattkeep_plan::study::VolumeSize, String> {
    let (name, size) = match text.rsplit_once('=') {
        Some((name, size)) => (Some(name.to_owned()), size),
        None => (None, text),
    };
    let bytes = wattkeep_power::units::parse_size_bytes(size).map_err(|error| error.to_string())?;
    if bytes == 0 {
        return Err("a volume has at least one byte".to_owned());
    }
    Ok(wattkeep_plan::study::VolumeSize { name, bytes })
}

/// Reads a bandwidth: `350MB/s`.
pub(crate) fn parse_bandwidth(text: &str) -> Result<u64, String> {
    let size = text.trim().strip_suffix("/s").ok_or("write a bandwidth with /s, as in 350MB/s")?;
    match wattkeep_power::units::parse_size_bytes(size).map_err(|error| error.to_string())? {
        0 => Err("an SSD of no bandwidth saves nothing".to_owned()),
        bandwidth => Ok(bandwidth),
    }
}
