//! One page for a browser: everything in it, nothing fetched.
//!
//! Invariant: every text that came from a trace or a file name is escaped.

use std::fmt::Write as _;

use wattkeep_bench::chart::thousands;
use wattkeep_power::units::{format_bandwidth, format_duration_ns};

use super::plot::{self, Frame, Series};
use super::{Report, ReportPoint, bytes};
use crate::analyse::{Summary, WorstInterval};
use crate::tenants::SharedReport;

/// Volumes in a picture; more bars could not be told apart. Tables name all.
const VOLUMES_DRAWN: usize = 12;

const STYLE: &str = "\
body{font:15px/1.5 Inter,Helvetica,Arial,sans-serif;color:#1f2937}\
body{max-width:920px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}\
table{border-collapse:collapse;font-size:.9rem}\
td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #e5e7eb}\
td:first-child,th:first-child{text-align:left}tr.taken{background:#fef3c7}\
.note{color:#6b7280}svg{max-width:100%;height:auto}\
.answer{font-size:1.15rem;background:#f3f4f6;padding:.8rem 1rem;border-radius:.4rem}.bad{color:#b91c1c}";

/// The page of one trace, or of several that share a battery.
pub fn page(reports: &[Report], shared: Option<&SharedReport>) -> String {
    let mut html = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    let _ = write!(html, "<title>wattkeep plan</title><style>{STYLE}</style></head><body>");
    for report in reports {
        trace(&mut html, report);
    }
    if let Some(shared) = shared {
        tenants(&mut html, shared);
    }
    html.push_str("</body></html>\n");
    html
}

fn trace(html: &mut String, report: &Report) {
    let _ = write!(html, "<h1>What battery does {} need?</h1>", escaped(&report.trace));
    let _ = write!(html, "<p class=\"answer\">{}</p>", escaped(&answer(report)));
    damage(html, report);
    facts(html, report);
    budget(html, report);
    skew(html, report);
    intervals(html, report);
    zipf(html, report);
}

/// The answer in one or two sentences.
pub fn answer(report: &Report) -> String {
    let Some(pages) = report.recommended_budget_pages else {
        return "Nothing is written: no battery is needed.".to_owned();
    };
    let share = report.recommended_budget_percent.unwrap_or(0.0);
    let mut answer = format!(
        "Let {} pages ({}) be dirty: {} % of the volumes, {}.",
        thousands(pages),
        bytes(pages),
        percent_text(share),
        report.because()
    );
    if let (Some(joules), Some(seconds)) = (report.battery_joules, report.notice_seconds) {
        let _ = write!(
            answer,
            " That takes a battery of {} and a notice of {}",
            joules_text(joules),
            format_duration_ns((seconds * 1e9) as u64)
        );
        if let Some(full) = report.full_battery_joules {
            let _ = write!(answer, ", instead of {} for all pages", joules_text(full));
        }
        answer.push('.');
    }
    if let (Some(bytes), Some(years)) = (report.ssd_bytes_per_day, report.ssd_years) {
        let day = wattkeep_power::units::format_size(bytes as u64);
        let rated = report.assumed.endurance_bytes as f64 / 1e12;
        let _ = write!(answer, " If every day is as the trace, the SSD takes {day} a day: ");
        let _ = write!(answer, "{years:.1} years, if it is rated for {rated} TB.");
    }
    answer
}

/// Energy, for people.
pub fn joules_text(joules: f64) -> String {
    wattkeep_power::energy::Millijoules((joules * 1e3) as u64).to_string()
}

/// A percentage with digits that matter, however small.
pub fn percent_text(percent: f64) -> String {
    match percent {
        percent if percent >= 10.0 => format!("{percent:.1}"),
        percent if percent >= 0.1 || percent == 0.0 => format!("{percent:.2}"),
        percent => format!("{percent:.4}"),
    }
}

fn damage(html: &mut String, report: &Report) {
    if report.damaged_lines == 0 {
        return;
    }
    let _ = write!(
        html,
        "<p class=\"bad\">{} damaged lines were left out. The first:</p><ul>",
        thousands(report.damaged_lines)
    );
    for line in &report.damage {
        let _ = write!(html, "<li>{}</li>", escaped(line));
    }
    html.push_str("</ul>");
}

fn facts(html: &mut String, report: &Report) {
    html.push_str("<h2>The trace</h2>");
    let span = report.span_seconds.map_or_else(
        || "requests have an order and no times".to_owned(),
        |seconds| format!("{} long", format_duration_ns((seconds * 1e9) as u64)),
    );
    let _ =
        write!(html, "<p>Format {}, {}; {span}.</p>", escaped(&report.format), escaped(&report.compression));
    let heads = ["", "requests", "writes", "pages touched", "pages written", "pages in all", "kind"];
    let row = |name: &str, summary: &Summary| {
        vec![
            name.to_owned(),
            thousands(summary.requests),
            thousands(summary.writes),
            thousands(summary.pages_touched),
            thousands(summary.pages_written),
            thousands(summary.pages_total),
            summary.category.name.to_owned(),
        ]
    };
    let mut rows: Vec<_> =
        report.volumes.iter().map(|volume| (false, row(&volume.name, &volume.summary))).collect();
    if rows.len() > 1 {
        rows.push((true, row("all together", &report.whole)));
    }
    table(html, &heads, &rows);
    if report.volumes.iter().any(|volume| !volume.size_given) {
        note(
            html,
            "A volume is taken to end at the highest byte that the trace touches; --volume gives its size.",
        );
    }
    if report.late_requests > 0 {
        let late = format!(
            "{} requests came later than their time and were taken at the latest time seen.",
            thousands(report.late_requests)
        );
        note(html, &late);
    }
}

fn budget(html: &mut String, report: &Report) {
    html.push_str("<h2>What each budget costs</h2>");
    if report.budget_curve.is_empty() {
        return;
    }
    let series = |name: &str, value: &dyn Fn(&ReportPoint) -> f64| Series {
        name: name.to_owned(),
        values: report
            .budget_curve
            .iter()
            .map(|point| (point.point.budget_pages as f64, value(point)))
            .collect(),
    };
    let mut marks = Vec::new();
    if let Some(knee) = report.knee {
        marks.push((knee.budget_pages as f64, "knee"));
    }
    if let Some(pages) = report.recommended_budget_pages {
        marks.push((pages as f64, "recommended"));
    }
    let costs = [
        series("copies to the SSD", &|point| point.point.copies as f64),
        series("forced waits", &|point| point.point.forced_waits as f64),
    ];
    html.push_str(&plot::lines(&Frame { x: "dirty budget (4 KiB pages)", y: "pages" }, &costs, &marks));
    if report.whole.worst_interval_percent.is_some() {
        let pressure = [series("pressure", &|point| point.point.pressure_pages.unwrap_or(0.0))];
        let y = format!("pages per {} ms", report.epoch_ms);
        html.push_str(&plot::lines(&Frame { x: "dirty budget (4 KiB pages)", y: &y }, &pressure, &marks));
    }
    let heads = [
        "budget",
        "of all",
        "copies",
        "forced waits",
        "SSD bytes per written byte",
        "pressure",
        "battery",
        "notice",
    ];
    let rows: Vec<_> = report
        .table_points()
        .into_iter()
        .map(|point| (Some(point.point.budget_pages) == report.recommended_budget_pages, budget_row(point)))
        .collect();
    table(html, &heads, &rows);
    let assumed = &report.assumed;
    let _ = write!(
        html,
        "<p class=\"note\">Victims on demand, the least recently updated page first. Battery and notice: {} to \
         the SSD ({}), {} W, {} % of the rated energy usable; a save may use 80 % of its notice.</p>",
        format_bandwidth(assumed.bandwidth_bytes_per_s),
        escaped(&assumed.bandwidth_from),
        assumed.power_watts,
        assumed.usable_percent
    );
    if report.sampled_one_of > 1 {
        let sampled = format!(
            "Sampled: one page of {}. Copies and waits are within their bounds in 95 of 100 cases; the JSON names \
             each bound.",
            report.sampled_one_of
        );
        note(html, &sampled);
    }
}

/// A row of the table of budgets: what `--json` says of it, shortened.
pub fn budget_row(point: &ReportPoint) -> Vec<String> {
    let ReportPoint { point, percent_of_total, need } = point;
    let bound = match point.error_pages {
        0 => String::new(),
        error => format!(" ± {}", thousands(error)),
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        format!("{} ({})", thousands(point.budget_pages), bytes(point.budget_pages)),
        format!("{} %", percent_text(*percent_of_total)),
        format!("{}{bound}", thousands(point.copies)),
        format!("{}{bound}", thousands(point.forced_waits)),
        or_dash(point.write_amplification.map(|bytes| format!("{bytes:.3}"))),
        or_dash(point.pressure_pages.map(|pages| format!("{pages:.0}"))),
        or_dash(need.map(|need| joules_text(need.battery_joules))),
        or_dash(need.map(|need| format_duration_ns((need.notice_seconds * 1e9) as u64))),
    ]
}

fn skew(html: &mut String, report: &Report) {
    html.push_str("<h2>How few pages take most of the writes</h2>");
    let drawn: Vec<_> = report.volumes.iter().take(VOLUMES_DRAWN).collect();
    let groups: Vec<_> = drawn.iter().map(|volume| shortened(&volume.name)).collect();
    let picture = |y: &str, values: [&dyn Fn(&Summary) -> f64; 3]| {
        let series: Vec<_> = ["90 % of writes", "95 %", "99 %"]
            .into_iter()
            .zip(values)
            .map(|(name, value)| Series {
                name: name.to_owned(),
                values: drawn.iter().map(|volume| value(&volume.summary)).collect(),
            })
            .collect();
        plot::bars(&Frame { x: "volume", y }, &groups, &series)
    };
    html.push_str(&picture(
        "% of pages touched",
        [&|s| s.p90_of_touched_percent, &|s| s.p95_of_touched_percent, &|s| s.p99_of_touched_percent],
    ));
    html.push_str(&picture(
        "% of all pages",
        [&|s| s.p90_of_total_percent, &|s| s.p95_of_total_percent, &|s| s.p99_of_total_percent],
    ));
}

fn intervals(html: &mut String, report: &Report) {
    html.push_str("<h2>Data written in the worst interval</h2>");
    let drawn: Vec<_> = report
        .volumes
        .iter()
        .filter_map(|volume| Some((volume.name.as_str(), volume.summary.worst_interval_percent?)))
        .take(VOLUMES_DRAWN)
        .collect();
    if drawn.is_empty() {
        return note(html, "The trace has no times, so there are no intervals.");
    }
    let groups: Vec<_> = drawn.iter().map(|(name, _)| shortened(name)).collect();
    let picture = |y: &str, value: &dyn Fn(&WorstInterval) -> f64| {
        let series = |name: &str, values: Vec<f64>| Series { name: name.to_owned(), values };
        let series = [
            series("1 minute", drawn.iter().map(|(_, worst)| value(&worst.minute)).collect()),
            series("10 minutes", drawn.iter().map(|(_, worst)| value(&worst.ten_minutes)).collect()),
            series("60 minutes", drawn.iter().map(|(_, worst)| value(&worst.hour)).collect()),
        ];
        plot::bars(&Frame { x: "volume", y }, &groups, &series)
    };
    html.push_str(&picture("% of volume, log-structured", &|worst| worst.log_structured));
    html.push_str(&picture("% of volume, distinct pages", &|worst| worst.unique_pages));
    if drawn.iter().any(|(_, worst)| !worst.hour.whole) {
        note(html, "The trace is shorter than its longest interval: that bar shows all of it.");
    }
}

fn zipf(html: &mut String, report: &Report) {
    html.push_str("<h2>Under Zipf's law, as pages become more</h2>");
    let series = |name: &str, value: &dyn Fn(&crate::analyse::zipf::ZipfPoint) -> f64| Series {
        name: name.to_owned(),
        values: report.zipf.points.iter().map(|point| (point.pages as f64, value(point))).collect(),
    };
    let series = [
        series("90 % of writes", &|point| point.p90_of_total_percent),
        series("95 %", &|point| point.p95_of_total_percent),
        series("99 %", &|point| point.p99_of_total_percent),
    ];
    html.push_str(&plot::lines(&Frame { x: "pages in all", y: "% of all pages" }, &series, &[]));
    let trend = if report.zipf.falls_as_in_the_paper { "falls, as in" } else { "does not fall as in" };
    note(html, &format!("The fraction {trend} figure 5 of Viyojit (ISCA 2017)."));
}

fn tenants(html: &mut String, shared: &SharedReport) {
    html.push_str("<h1>Several tenants, one battery</h1>");
    let _ = write!(html, "<p class=\"answer\">{}</p>", escaped(&shared.answer()));
    let series = |name: &str, value: &dyn Fn(&crate::tenants::SharedPoint) -> u64| Series {
        name: name.to_owned(),
        values: shared.points.iter().map(|point| (point.budget_pages as f64, value(point) as f64)).collect(),
    };
    let series = [
        series("copies, static shares", &|point| point.copies_static),
        series("copies, shared on demand", &|point| point.copies_shared),
    ];
    let marks = [(shared.static_budget_pages as f64, "sum of shares")];
    html.push_str(&plot::lines(
        &Frame { x: "budget of all tenants (4 KiB pages)", y: "pages" },
        &series,
        &marks,
    ));
    let heads = ["tenant", "its share alone", "copies with it", "copies when shared"];
    let rows: Vec<_> = shared.tenants.iter().map(|tenant| (false, tenant.row())).collect();
    table(html, &heads, &rows);
}

fn table(html: &mut String, heads: &[&str], rows: &[(bool, Vec<String>)]) {
    html.push_str("<table><tr>");
    for head in heads {
        let _ = write!(html, "<th>{}</th>", escaped(head));
    }
    html.push_str("</tr>");
    for (taken, row) in rows {
        html.push_str(if *taken { "<tr class=\"taken\">" } else { "<tr>" });
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escaped(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
}

fn note(html: &mut String, text: &str) {
    let _ = write!(html, "<p class=\"note\">{}</p>", escaped(text));
}

fn shortened(name: &str) -> String {
    name.chars().take(12).collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::Battery;
    use crate::report::Supply;
    use crate::study::{StudyOptions, study};
    use wattkeep_power::budget::SaveCost;
    use wattkeep_power::energy::{Fraction, Milliwatts};
    use wattkeep_power::window::Overheads;

    fn report(text: &str) -> Report {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("<b>trace & co.csv");
        std::fs::write(&path, text).expect("written");
        let studied = study(&path, &StudyOptions::default(), &mut |_, _| {}).expect("a trace");
        let cost = |_| SaveCost {
            bandwidth_bytes_per_s: 4_096_000,
            overheads: Overheads::default(),
            in_flight_reserve_pages: 0,
        };
        let battery =
            Battery { depth_of_discharge: Fraction::ONE, health: Fraction::ONE, ..Battery::default() };
        let power = Milliwatts(100_000);
        let supply = Supply { cost: &cost, power, battery, endurance_bytes: 1_000_000_000_000 };
        Report::new(&studied, &supply, "as given")
    }

    #[test]
    fn the_page_is_whole_and_escapes_what_it_is_given() {
        let mut text = String::new();
        for i in 0..3_000_u64 {
            let _ = writeln!(text, "{},<i>x,0,Write,{},4096,1", i * 1_000, i % 700 * 4096);
        }
        let page = page(&[report(&text)], None);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert_eq!(page.matches("<svg").count(), 7, "curve, pressure, skew twice, intervals twice, Zipf");
        assert!(page.contains("&lt;b&gt;trace &amp; co.csv") && page.contains("&lt;i&gt;x.0"));
        for fetched in ["<b>", "<i>", "<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(fetched), "{fetched}");
        }
        assert!(page.contains("figure 5 of Viyojit"));
    }

    #[test]
    fn the_answer_names_budget_battery_and_notice() {
        let mut text = String::new();
        for i in 0..40_000_u64 {
            let _ = writeln!(text, "{},hm,0,Write,{},4096,1", i * 100_000, i % 1_000 * 4096);
        }
        text += "8640000000,hm,0,Read,0,4096,1\n";
        let report = report(&text);
        // 1,000 pages at 1,000 pages a second, and a quarter more; at 100 W.
        assert_eq!((report.recommended_budget_pages, report.notice_seconds), (Some(1_000), Some(1.25)));
        assert_eq!(report.battery_joules, Some(125.0));
        assert_eq!(
            answer(&report),
            "Let 1,000 pages (3.91 MiB) be dirty: 100.0 % of the volumes, all that is ever written. That takes a \
             battery of 125 J and a notice of 1.25 s, instead of 125 J for all pages. If every day is as the \
             trace, the SSD takes 391 MiB a day: 6.7 years, if it is rated for 1 TB."
        );
        let silent = super::tests::report("0,hm,0,Read,0,4096,1\n");
        assert!(answer(&silent).starts_with("Nothing is written"), "{}", answer(&silent));
        assert!(page(&[silent], None).contains("</html>"), "no curve, no picture of it, no panic");
    }
}
