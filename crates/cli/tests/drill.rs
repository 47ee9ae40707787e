//! Small drills through real processes: run, cut, save, kill, restore, compare.
//!
//! The windows are generous: these tests are about pages, not about the speed of the machine.
#![allow(missing_docs)]

mod common;

use std::fs;
use std::path::Path;

use common::{json, ok, run, text};

const FIELDS: [&str; 13] = [
    "budget_pages",
    "max_dirty_pages",
    "window_ms",
    "save_ms",
    "pages_saved",
    "pages_verified",
    "pages_lost",
    "throughput_ops",
    "throughput_ops_unlimited",
    "ssd_bytes",
    "dirtied_bytes",
    "fault_mode",
    "verdict",
];

/// Must be kept, with every contract field there.
fn drill_of(size: &str, seconds: &str, more: &[&str]) -> serde_json::Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("drill");
    let first = ["drill", text(&place), "--window", "60s"];
    let report = json(&[&first[..], &["--size", size, "--seconds", seconds], more].concat());
    for field in FIELDS {
        assert!(report.get(field).is_some(), "{field} is missing: {report}");
    }
    assert_eq!(report["verdict"], "kept");
    assert_eq!(report["pages_verified"], report["region_pages"]);
    assert_eq!(report["pages_lost"], 0);
    assert!(report["max_dirty_pages"].as_u64() <= report["budget_pages"].as_u64());
    assert!(report["operations"].as_u64() > Some(0));
    assert_eq!(fs::read_dir(&place).expect("a directory").count(), 0, "the drill removed its store");
    report
}

fn drill(more: &[&str]) -> serde_json::Value {
    drill_of("16MiB", "2", more)
}

#[test]
fn ycsb_a_is_kept() {
    let report = drill(&["--workload", "ycsb-a", "--budget", "11%"]);
    assert_eq!(report["budget_pages"], 450);
    assert_eq!(report["region_pages"], 4096);
    assert!(report["throughput_ops_unlimited"].as_f64() > Some(0.0));
}

#[test]
fn uniform_is_kept_in_every_fault_mode() {
    for mode in ["signal", "mprotect", "monitor"] {
        let more = ["--workload", "uniform", "--budget", "11%", "--fault-mode", mode, "--no-unlimited"];
        let report = drill(&more);
        assert_eq!(report["fault_mode"], mode);
        assert!(report["ssd_bytes"].as_u64() > Some(0));
    }
}

#[test]
fn sequential_is_kept_with_every_policy() {
    for policy in ["fifo", "s3-fifo", "second-chance", "least-recently-updated"] {
        drill(&["--workload", "sequential", "--budget", "1MiB", "--policy", policy, "--no-unlimited"]);
    }
}

#[test]
fn budgets_of_a_few_pages_are_kept() {
    for budget in ["1", "2", "16"] {
        for mode in ["transparent", "explicit"] {
            let more = ["--workload", "uniform", "--budget", budget, "--mode", mode, "--no-unlimited"];
            drill_of("2MiB", "0.5", &more);
        }
    }
}

#[test]
fn a_trace_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv");
    let lines = (0..500_u64).map(|i| {
        let operation = if i % 3 == 0 { "read" } else { "write" };
        format!("{}.5,{operation},{},{}\n", i, (i * 7_919_111) % (1 << 30), 1 + i * 97 % 70_000)
    });
    fs::write(&trace, "time,operation,offset,length\n".to_owned() + &lines.collect::<String>()).unwrap();
    let workload = format!("trace:{}", trace.display());
    for mode in ["transparent", "explicit"] {
        drill(&["--workload", &workload, "--budget", "5%", "--mode", mode, "--no-unlimited", "--seed", "9"]);
    }
}

#[test]
fn a_heap_is_kept_with_every_committed_transaction() {
    for (mode, budget) in [("signal", "11%"), ("mprotect", "16"), ("monitor", "100%")] {
        let more = ["--workload", "heap", "--budget", budget, "--fault-mode", mode, "--no-unlimited"];
        let report = drill_of("8MiB", "0.5", &more);
        assert_eq!(report["mode"], "explicit");
        let heap = &report["heap"];
        assert_eq!(heap["problem"], serde_json::Value::Null);
        let number = |name: &str| heap[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
        assert_eq!(Some(number("transactions_reported")), report["operations"].as_u64());
        let under_way = number("transactions_found") - number("transactions_reported");
        assert!(under_way <= 1, "{report}");
        assert!(number("entries") > 5_000 && number("objects") > number("entries"), "{report}");
        assert!(number("transactions_after") > 0);
    }
}

#[test]
fn a_window_that_is_too_short_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--size", "4MiB", "--budget", "50%", "--seconds", "0.5", "--window", "1us", "--json"];
    let output = run(&[&["drill", text(directory.path()), "--no-unlimited"][..], &arguments[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["verdict"].as_str().unwrap().contains("window"), "{report}");
    assert_eq!(report["pages_lost"], 0);
}

#[test]
fn a_person_sees_the_stages_the_verdict_and_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("drill.svg");
    let place = directory.path().join("drill");
    let arguments =
        ["--size", "4MiB", "--budget", "64", "--seconds", "1", "--energy", "1kJ", "--power", "50W"];
    let text = ok(&[&["drill", text(&place), "--svg", text(&picture)][..], &arguments[..]].concat());
    for word in ["calibrate", "unlimited", "run", "cut", "restore", "verify", "KEPT", "50 W"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let svg = fs::read_to_string(Path::new(&picture)).unwrap();
    assert!(svg.contains("mains fail"));
}
