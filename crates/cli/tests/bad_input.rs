//! Whatever is typed, and whatever lies in the directory: one line, a documented code, no panic text.
#![allow(missing_docs)]

mod common;

use std::fs;

use common::{command, fails, ok, run, text};

#[test]
fn values_that_make_no_sense_are_usage_errors() {
    let directory = tempfile::tempdir().unwrap();
    let place = text(directory.path());
    for arguments in [
        &["drill", place, "--size", "0"][..],
        &["drill", place, "--size", "1MiB", "--budget", "0"],
        &["drill", place, "--size", "1MiB", "--budget", "0%"],
        &["drill", place, "--size", "1MiB", "--budget", "101%"],
        &["drill", place, "--size", "1MiB", "--budget", "257"],
        &["drill", place, "--size", "1MiB", "--budget", "-5"],
        &["drill", place, "--size", "1MiB", "--budget", "9 furlongs"],
        &["drill", place, "--size", "1parsec"],
        &["drill", place, "--size", "4095"],
        &["drill", place, "--size", "8KiB", "--budget", "1"],
        &["drill", place, "--size", "99999999999999999999999GiB"],
        &["drill", place, "--size", "17TiB"],
        &["drill", place, "--seconds", "0"],
        &["drill", place, "--seconds", "NaN"],
        &["drill", place, "--seconds", "-1"],
        &["drill", place, "--window", "0s"],
        &["drill", place, "--window", "5"],
        &["drill", place, "--energy", "5W"],
        &["drill", place, "--energy", "5J", "--window", "1s"],
        &["drill", place, "--workload", "ycsb-e"],
        &["drill", place, "--workload", "trace:"],
        &["drill", place, "--workload", "trace:/nonexistent.csv", "--size", "1MiB"],
        &["drill", place, "--workload", "heap", "--size", "1MiB"],
        &["drill", place, "--workload", "heap", "--mode", "transparent"],
        &["drill", place, "--policy", "random"],
        &["drill", place, "--seed", "minus one"],
        &["drill"],
        &["drill-child", "nonsense"],
        &["create", place, "--region", "a"],
        &["create", place, "--region", "=1MiB"],
        &["create", place, "--region", "a=1MiB:secret"],
        &["create", place, "--region", "a=1MiB", "--region", "a=1MiB"],
        &["create", place, "--region", "a=1MiB", "--budget", "2MiB"],
        &["create", place, "--budget", "11%"],
        &["completions", "dos"],
        &["frobnicate"],
        &["status", place, "--nonsense"],
        &[],
    ] {
        fails(2, arguments);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_damaged_trace_names_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv");
    fs::write(&trace, "time,operation,offset,length\n0,write,0,10\n1,erase,0,10\n").unwrap();
    let workload = format!("trace:{}", trace.display());
    let error = fails(2, &["drill", text(directory.path()), "--workload", &workload, "--size", "1MiB"]);
    assert!(error.contains("line 3") || error.contains(":3"), "{error}");
}

#[test]
fn missing_foreign_newer_and_damaged_stores_have_their_code() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let foreign = directory.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("wattkeep.store"), vec![7; 8 << 20]).unwrap();
    let short = directory.path().join("short");
    fs::create_dir(&short).unwrap();
    fs::write(short.join("wattkeep.store"), "WATTKEEP").unwrap();
    for store in [&missing, &foreign, &short] {
        let store = text(store);
        for command in ["info", "status", "check", "budget", "calibrate", "save", "checkpoint", "resume"] {
            fails(3, &[command, store]);
        }
        fails(3, &["dump", store, "table", "--page", "0"]);
        fails(3, &["rename", store, "a", "b"]);
        fails(3, &["resize", store, "a", "1MiB"]);
        fails(3, &["rm", store, "a", "--yes"]);
    }
    fails(3, &["rm", text(&foreign), "--yes"]);
    fails(3, &["check", text(&foreign), "--accept-incomplete"]);
    assert_eq!(fs::read(foreign.join("wattkeep.store")).unwrap(), vec![7; 8 << 20], "untouched");
}

#[test]
fn occupied_places_and_missing_regions_have_their_code() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let store = text(&store);
    ok(&["create", store, "--region", "a=1MiB", "--region", "b=1MiB"]);
    fails(4, &["create", store]);
    fails(4, &["drill", store, "--size", "1MiB", "--budget", "16"]);
    fails(4, &["rename", store, "a", "b"]);
    fails(2, &["rename", store, "a", ""]);
    fails(3, &["rename", store, "c", "d"]);
    fails(3, &["resize", store, "c", "1MiB"]);
    fails(3, &["rm", store, "c", "--yes"]);
    fails(3, &["dump", store, "c", "--page", "0"]);
    fails(2, &["dump", store, "a", "--page", "256"]);
    fails(2, &["dump", store, "a", "--json"]);
    fails(2, &["rm", store]);
    fails(2, &["resize", store, "a", "4KiB"]);
    fails(4, &["resize", store, "a", "1TiB"]);
    fails(2, &["budget", store, "513"]);
    fails(1, &["budget", store, "--window", "1s"]);
    fails(1, &["save", store]);
    fs::write(directory.path().join("store/calibration.json"), "{}").unwrap();
    fails(3, &["budget", store]);
    ok(&["calibrate", store, "--seconds", "0.2"]);
    fails(1, &["budget", store, "--window", "1ms"]);
    ok(&["budget", store, "--window", "100s"]);
}

#[test]
fn a_place_that_cannot_be_written_is_the_systems_refusal() {
    fails(5, &["create", "/proc/nowhere"]);
    fails(5, &["drill", "/proc/nowhere", "--size", "1MiB", "--budget", "16"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    fails(5, &["drill", text(&file), "--size", "1MiB", "--budget", "16"]);
    // More than any machine of today has.
    fails(5, &["drill", text(directory.path()), "--size", "15TiB", "--budget", "16", "--no-unlimited"]);
}

#[test]
fn a_missing_keeper_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let output = command()
        .env("WATTKEEP_KEEPER", "/nonexistent/wattkeepd")
        .args(["drill", text(directory.path()), "--size", "1MiB", "--budget", "16", "--no-unlimited"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.lines().count() == 1 && error.contains("/nonexistent/wattkeepd"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the drill removed its store");
}

#[test]
fn help_and_completions_are_no_errors() {
    assert!(ok(&["--help"]).contains("Exit codes:"));
    for command in ["create", "info", "check", "dump", "rm", "resize", "rename", "calibrate", "budget"] {
        assert!(ok(&[command, "--help"]).contains("Example"), "{command}");
    }
    for command in ["status", "checkpoint", "save", "resume", "drill", "bench", "completions"] {
        assert!(ok(&[command, "--help"]).contains("Example"), "{command}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(&["completions", shell]).contains("wattkeep"));
    }
    assert!(run(&["--version"]).status.success());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = command()
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
