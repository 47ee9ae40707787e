//! Every figure exists, in the agreed form, and a quick run of all of them works.

use std::collections::BTreeSet;

use serde_json::Value;
use wattkeep::KeeperPlace;
use wattkeep_bench::figures::{BenchError, NAMES, Options, run};
use wattkeep_persist::{LineFlush, lines};

fn quick(directory: &std::path::Path) -> Options {
    Options {
        rounds: 1,
        region_bytes: 8 << 20,
        directory: directory.to_owned(),
        quick: true,
        keeper: KeeperPlace::Thread,
        ..Options::default()
    }
}

#[test]
fn a_quick_run_measures_every_figure_in_the_agreed_form() {
    // Under the build's own directory: direct I/O is refused in some temporary directories.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let reports = run("all", &quick(directory.path())).expect("a quick run");
    assert_eq!(reports.iter().map(|report| report.bench.as_str()).collect::<Vec<_>>(), NAMES);
    let mut ids = BTreeSet::new();
    for report in &reports {
        let json: Value = serde_json::from_str(&report.to_json()).expect("one JSON object");
        assert_eq!(json["bench"], report.bench);
        for figure in json["figures"].as_array().expect("a list of figures") {
            check_form(figure);
            ids.insert(figure["id"].as_str().expect("an id").to_owned());
        }
    }
    let mut expected: BTreeSet<String> = [
        "fault.random",
        "fault.sequential",
        "fault.cycle",
        "memory.overhead",
        "save.bandwidth",
        "save.bandwidth.huge",
        "open.first_touch",
        "restore.bandwidth",
        "restore.bandwidth.huge",
        "rivals.mmap.speed",
        "rivals.mmap.bytes",
        "heap.flushes",
        "heap.flushes.region",
        "heap.fragmentation",
        "heap.open",
        "heap.open.lazy",
        "heap.open.lazy.memory",
        "heap.open.lazy.transparent",
        "heap.open.memory",
        "heap.open.transparent",
        "heap.contiguity.alone",
        "heap.contiguity.4",
        "heap.contiguity.16",
        "heap.contiguity.machine",
        "heap.contiguity.conflicts",
        "bound.max_dirty",
    ]
    .map(String::from)
    .into();
    let places = ["", ".transparent", ".memory", ".eadr", ".adr", ".file"];
    for place in places {
        expected.extend(["hybrid.word", "hybrid.object", "redo"].map(|figure| format!("tx.{figure}{place}")));
    }
    for rival in ["pmdk", "lmdb", "redb", "floor"] {
        let things = [".insert", ".update", ".batch"];
        expected.extend(places.iter().chain(&things).map(|end| format!("pht.{rival}{end}")));
    }
    for rival in ["mimalloc", "pmdk"] {
        for load in ["", ".mixed", ".million"] {
            let measured = places.iter().filter(|place| (load, **place) != (".million", ".file"));
            expected.extend(measured.map(|place| format!("heap.alloc.{rival}{load}{place}")));
        }
    }
    let shown = [".transparent", ".memory", ".eadr", ".file"];
    expected.extend(shown.map(|place| format!("heap.flushes{place}")));
    for mode in ["explicit", "transparent"] {
        expected.extend("ABCDF".chars().map(|mix| format!("ycsb.{mode}.{mix}")));
    }
    expected.extend(sps_figures());
    assert_eq!(ids, expected);
    let left = std::fs::read_dir(directory.path()).expect("the directory").count();
    assert_eq!(left, 0, "the benchmark removes its stores");
}

fn sps_figures() -> BTreeSet<String> {
    let mut expected: BTreeSet<String> =
        ["sps.tcs", "sps.tcs.100k", "sps.energy", "sps.energy.100k"].map(String::from).into();
    for size in ["100k", "1m"] {
        for scheme in ["none", "dl", "l", "lcm", "lcs", "icm", "ics", "tcm", "tcs", "is", "ts"] {
            let figures = ["swaps", "l1", "memory", "energy"];
            expected.extend(figures.map(|figure| format!("sps.{figure}.{scheme}.{size}")));
        }
        for tenths in 1..=10 {
            let threshold = format!("{:.1}", f64::from(tenths) / 10.0);
            expected.insert(format!("sps.threshold.{threshold}.{size}"));
            expected.insert(format!("sps.threshold.energy.{threshold}.{size}"));
        }
    }
    for domain in ["battery", "eadr", "file"] {
        expected.extend(["l", "i", "t"].map(|mechanism| format!("sps.domain.{mechanism}.{domain}")));
    }
    // What this processor has.
    for (domain, flush) in [("clwb", LineFlush::Clwb), ("clflushopt", LineFlush::Clflushopt)] {
        if lines::has(flush) {
            expected.extend(["l", "i", "t"].map(|mechanism| format!("sps.domain.{mechanism}.{domain}")));
        }
    }
    expected
}

/// The pictures are drawn where they are asked for.
#[test]
fn sps_draws_the_papers_figures() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let pictures = directory.path().join("pictures");
    let options = Options { pictures: Some(pictures.clone()), ..quick(directory.path()) };
    run("sps", &options).expect("a quick run");
    for (number, text) in [(4, "TCS"), (5, "memory writes"), (6, "100k swaps"), (7, "1m swaps")] {
        let svg = std::fs::read_to_string(pictures.join(format!("sps-figure-{number}.svg"))).expect("drawn");
        assert!(svg.contains(text), "figure {number} lacks {text}");
    }
}

fn check_form(figure: &Value) {
    let number_or_none = |name: &str| figure[name].is_null() || figure[name].is_f64();
    let fields = figure.as_object().expect("a figure is an object");
    let known = ["id", "ours", "theirs", "rival", "unit", "ratio", "spread", "reach", "reached", "note"];
    assert!(fields.keys().all(|name| known.contains(&name.as_str())), "{figure}");
    assert!(known[..9].iter().all(|name| fields.contains_key(*name)), "{figure}");
    assert!(["ours", "theirs", "ratio"].iter().all(|name| number_or_none(name)), "{figure}");
    assert!(figure["unit"].is_string() && figure["reach"].is_string(), "{figure}");
    assert!(figure["reached"].is_boolean(), "{figure}");
    let measured = figure["ours"].is_f64();
    assert_eq!(figure["spread"].is_array(), measured, "{figure}");
    assert!(measured || figure["note"].is_string() || figure["id"] == "bound.max_dirty", "{figure}");
    if figure["id"] == "bound.max_dirty" && measured {
        assert_eq!(figure["reached"], true, "{figure}");
    }
}

#[test]
fn an_unknown_benchmark_is_answered_with_the_known_ones() {
    for name in ["faults", "fault.nothing", "ycsb.explicit.E"] {
        let directory = tempfile::tempdir().expect("a directory");
        let error = run(name, &quick(directory.path())).expect_err(name);
        assert!(matches!(error, BenchError::UnknownName { .. }));
        assert!(NAMES.iter().all(|known| error.to_string().contains(known)), "{error}");
    }
}
