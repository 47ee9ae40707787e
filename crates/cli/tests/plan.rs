//! `wattkeep plan` as a person uses it: from a trace to a budget, a battery and a notice.
#![allow(missing_docs)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{fails, json, ok, text};

/// 20,000 writes round 1,000 pages, five each 10 ms; then 5,000 pages once each, and a read.
fn trace(place: &Path) -> String {
    let path = place.join("requests.csv");
    let mut lines = String::from("time,operation,offset,length\n");
    for i in 0..20_000_u64 {
        writeln!(lines, "{}.{:03},write,{},4096", i / 500, i % 500 * 2, i % 1_000 * 4096).expect("written");
    }
    for i in 0..5_000_u64 {
        writeln!(lines, "{}.{:03},write,{},4096", 40 + i / 500, i % 500 * 2, (1_000 + i) * 4096)
            .expect("written");
    }
    lines += "50.5,read,81920000,4096\n";
    fs::write(&path, lines).expect("written");
    text(&path).to_owned()
}

#[test]
fn the_json_has_every_promised_name() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let plan = json(&["plan", &trace, "--bandwidth", "100MB/s", "--power", "100W"]);
    for (name, value) in
        [("requests", 25_001), ("writes", 25_000), ("pages_touched", 6_001), ("pages_written", 6_000)]
    {
        assert_eq!(plan[name], value, "{name}");
    }
    assert_eq!((&plan["damaged_lines"], &plan["sampled_one_of"]), (&0.into(), &1.into()));
    // 25,000 writes: 1,000 pages take 20 each, so 2,500 must come from pages written once.
    let percent = |name: &str| plan[name].as_f64().unwrap();
    assert!((percent("p90_of_touched_percent") - 3_500.0 / 60.01).abs() < 1e-9);
    assert!((percent("p99_of_touched_percent") - 5_750.0 / 60.01).abs() < 1e-9);
    assert!((percent("p95_of_total_percent") - 4_750.0 / 200.01).abs() < 1e-9);
    let worst = &plan["worst_interval_percent"];
    assert!((worst["1_minute"]["unique_pages"].as_f64().unwrap() - 6_000.0 / 200.01).abs() < 1e-9);
    assert!((worst["60_minutes"]["log_structured"].as_f64().unwrap() - 25_000.0 / 200.01).abs() < 1e-9);
    assert_eq!(worst["1_minute"]["whole"], false);

    let budget = plan["recommended_budget_pages"].as_u64().unwrap();
    assert!((1_000..1_100).contains(&budget), "the working set fits: {budget}");
    let points = plan["budget_curve"].as_array().unwrap();
    let point = points.iter().find(|point| point["budget_pages"] == budget).unwrap();
    assert_eq!(
        (point["copies"].as_u64(), point["forced_waits"].as_u64()),
        (Some(6_000), Some(6_000 - budget))
    );
    assert_eq!(point["battery_joules"], plan["battery_joules"]);
    assert_eq!(point["notice_seconds"], plan["notice_seconds"]);
    // 4 MB at 100 MB/s is 42 ms or so; the save's fixed delays come on top, and a quarter.
    let notice = plan["notice_seconds"].as_f64().unwrap();
    assert!((0.05..1.0).contains(&notice), "{notice}");
    assert!((plan["battery_joules"].as_f64().unwrap() - notice * 100.0 / 0.4).abs() < 0.01);
    assert_eq!(plan["zipf"]["falls_as_in_the_paper"], true);
}

#[test]
fn people_get_an_answer_a_table_and_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let page = directory.path().join("plan.html");
    let shown = ok(&["plan", &trace, "--html", text(&page), "--volume", "100MiB"]);
    assert!(shown.starts_with("Let 1,024 pages (4 MiB) be dirty: 4.00 % of the volumes"), "{shown}");
    for words in [
        "a battery of",
        "a notice of",
        "if it is rated for 600 TB",
        "<- the knee of the curve",
        "forced waits",
        "assumed",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && html.ends_with("</html>\n"));
}

#[test]
fn damage_is_shown_and_what_is_no_trace_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        text(&path).to_owned()
    };
    let damaged = place("damaged", b"1.0 0 0 4096 0\n2.0 0 x 4096 0\n3.0 0 0 4096 0\n");
    let shown = ok(&["plan", &damaged]);
    assert!(
        shown.contains("1 damaged line was left out; the first:\n  line 2: 'x' is not a valid offset"),
        "{shown}"
    );
    assert_eq!(json(&["plan", &damaged])["damage"][0], "line 2: 'x' is not a valid offset");

    let cut = place("cut.gz", &[0x1f, 0x8b, 8, 0, 0, 0]);
    let empty = place("empty", b"");
    let prose = place("prose", b"It was a dark and stormy night.\n");
    for (trace, words) in [
        (&cut, "gzip"),
        (&empty, "is empty"),
        (&prose, "no format"),
        (&place("junk", &[7; 9_999]), "no format"),
    ] {
        let error = fails(3, &["plan", trace]);
        assert!(error.contains(words), "{error}");
    }
    assert!(fails(3, &["plan", &damaged, "--format", "msr"]).contains("3 damaged lines, 0 good"));
    assert!(fails(3, &["plan", text(&directory.path().join("missing"))]).contains("no trace"));
    assert!(fails(5, &["plan", text(directory.path())]).contains("cannot read"));
    for arguments in [
        &["plan"][..],
        &["plan", &damaged, "--format", "excel"],
        &["plan", &damaged, "--volume", "1KiB"],
        &["plan", &damaged, "--volume", "sda=1GiB"],
        &["plan", &damaged, "--volume", "0"],
        &["plan", &damaged, "--bandwidth", "0MB/s"],
        &["plan", &damaged, "--bandwidth", "100MB"],
        &["plan", &damaged, "--power", "0W"],
        &["plan", &damaged, "--health", "0%"],
        &["plan", &damaged, "--depth-of-discharge", "150%"],
        &["plan", &damaged, "--celsius", "-80"],
        &["plan", &damaged, "--celsius", "NaN"],
        &["plan", &damaged, "--endurance", "0"],
        &["plan", &damaged, "--sample-pages", "10"],
        &["plan", &damaged, "--store", "x", "--bandwidth", "1GB/s"],
    ] {
        fails(2, arguments);
    }
    assert!(fails(1, &["plan", &damaged, "--store", text(directory.path())]).contains("wattkeep calibrate"));
}

#[test]
fn tenants_share_a_battery_if_their_traces_have_times() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(directory.path());
    let plan = json(&["plan", &trace, &trace]);
    assert_eq!(plan["tenants"].as_array().unwrap().len(), 2);
    let shared = &plan["shared"];
    let alone = plan["tenants"][0]["recommended_budget_pages"].as_u64().unwrap();
    assert_eq!(shared["static_budget_pages"], 2 * alone);
    assert!(shared["shared_budget_pages"].as_u64().unwrap() <= 2 * alone);
    assert!(ok(&["plan", &trace, &trace]).contains("Apart, the 2 tenants need"));
    let untimed = directory.path().join("spec.addr");
    fs::write(&untimed, "s 0x10 1\nl 0x2000 4\n").unwrap();
    assert!(fails(2, &["plan", &trace, text(&untimed)]).contains("has no times"));
    assert_eq!(json(&["plan", text(&untimed)])["worst_interval_percent"], serde_json::Value::Null);
}

#[test]
fn policies_are_compared_with_the_best_that_is_possible() {
    let compared = json(&["policies", "zipf:4096", "--budgets", "5,25"]);
    let rows = compared["rows"].as_array().expect("rows");
    let names: std::collections::BTreeSet<_> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert!(names.contains("clairvoyant") && names.contains("s3-fifo"), "{names:?}");
    assert_eq!(rows.len(), 2 * names.len());
    assert!(rows.iter().all(|row| row["copies_of_optimum"].as_f64().expect("a ratio") >= 1.0));
    assert!(fails(2, &["policies", "zipf:3"]).contains("records"));
    assert!(fails(2, &["policies", "zipf:100", "--budgets", "0"]).contains("percentage"));
    assert!(fails(3, &["policies", "/nowhere"]).contains("no trace"));
}
