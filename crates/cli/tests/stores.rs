//! Stores at rest: made, looked at, changed, moved and copied by ordinary file commands, removed.
#![allow(missing_docs)]

mod common;

use std::fs;
use std::process::Command;

use common::{command, fails, json, keeper, ok, text};

fn shell(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("it starts");
    assert!(status.success(), "{program} {arguments:?}");
}

#[test]
fn a_store_is_made_shown_changed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let store = text(&store);
    ok(&["create", store, "--region", "table=8MiB", "--region", "log=1MiB:explicit", "--budget", "11%"]);
    let info = json(&["info", store]);
    assert_eq!(info["budget_pages"], 253, "11 % of 2,304 pages");
    assert_eq!(info["clean"], true);
    assert_eq!(info["regions"][0]["name"], "table");
    assert_eq!(info["regions"][1]["mode"], "explicit");
    assert_ne!(info["regions"][0]["address"], info["regions"][1]["address"]);
    assert!(ok(&["status", store]).starts_with("SAFE"));
    ok(&["rename", store, "log", "journal"]);
    ok(&["resize", store, "table", "16MiB"]);
    ok(&["resize", store, "table", "4MiB", "--yes"]);
    ok(&["budget", store, "64"]);
    let info = json(&["info", store]);
    assert_eq!(info["regions"][0]["bytes"], 4 << 20);
    assert_eq!(info["regions"][1]["name"], "journal");
    assert_eq!(info["budget_pages"], 64);
    assert_eq!(json(&["check", store])["sound"], true);
    ok(&["rm", store, "journal", "--yes"]);
    assert_eq!(json(&["info", store])["regions"].as_array().map(Vec::len), Some(1));
    ok(&["rm", store, "--yes"]);
    fails(3, &["info", store]);
}

#[test]
fn a_kept_drill_can_be_copied_moved_and_dumped() {
    let directory = tempfile::tempdir().unwrap();
    let drill = directory.path().join("drill");
    ok(&[
        "drill",
        text(&drill),
        "--workload",
        "sequential",
        "--size",
        "4MiB",
        "--budget",
        "16",
        "--seconds",
        "0.5",
        "--no-unlimited",
        "--window",
        "10s",
        "--keep",
    ]);
    let (kept, copy, moved) =
        (drill.join("drill-store"), directory.path().join("copy"), directory.path().join("moved"));
    shell("cp", &["-r", text(&kept), text(&copy)]);
    shell("mv", &[text(&kept), text(&moved)]);
    let (of_copy, of_moved) = (directory.path().join("a"), directory.path().join("b"));
    for (store, file) in [(&copy, &of_copy), (&moved, &of_moved)] {
        assert_eq!(json(&["check", text(store)])["pages_checked"], 1024);
        ok(&["dump", text(store), "drill", "--output", text(file)]);
    }
    let bytes = fs::read(&of_copy).unwrap();
    assert_eq!(bytes.len(), 4 << 20);
    assert!(bytes == fs::read(&of_moved).unwrap(), "copy and original differ");
    let piped = common::run(&["dump", text(&copy), "drill"]);
    assert!(piped.status.success() && piped.stdout == bytes, "the pipe carries other bytes than the file");
    let page = json(&["dump", text(&copy), "drill", "--page", "7"]);
    let hex: String = bytes[7 * 4096..8 * 4096].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(page["pages"][0]["bytes"], hex);
    // A drill removes only what is a drill's.
    shell("cp", &["-r", text(&copy), text(&kept)]);
    fails(4, &["drill", text(&drill), "--size", "4MiB", "--budget", "16", "--seconds", "0.5"]);
}

#[test]
fn damage_is_found_named_and_given_up_only_when_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let drill = text(directory.path());
    let arguments =
        ["--size", "2MiB", "--budget", "16", "--seconds", "0.5", "--no-unlimited", "--window", "10s"];
    ok(&[&["drill", drill, "--workload", "sequential", "--keep"][..], &arguments[..]].concat());
    let store = directory.path().join("drill-store");
    let dump = ok_bytes(&["dump", text(&store), "drill"]);
    let page = &dump[100 * 4096..101 * 4096];
    let file = store.join("wattkeep.store");
    let mut bytes = fs::read(&file).unwrap();
    let mut hits = 0;
    for at in (0..bytes.len()).step_by(4096) {
        if &bytes[at..at + 4096] == page {
            bytes[at + 5] ^= 1;
            hits += 1;
        }
    }
    assert!(hits > 0, "the page is somewhere in the log");
    fs::write(&file, bytes).unwrap();
    let output = common::run(&["check", text(&store), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["damaged"][0]["page"], 100);
    assert_eq!(report["damaged"].as_array().map(Vec::len), Some(1));
    fails(3, &["dump", text(&store), "drill", "--output", text(&directory.path().join("dump"))]);
    let accepted = ok(&["check", text(&store), "--accept-incomplete"]);
    assert!(
        accepted.contains("lost: 1 page (4 KiB) of region 'drill', page 100: not the bytes"),
        "{accepted}"
    );
    assert_eq!(json(&["check", text(&store)])["sound"], true);
    let mut expected = dump;
    expected[100 * 4096..101 * 4096].fill(0);
    assert!(ok_bytes(&["dump", text(&store), "drill"]) == expected, "only page 100 is zeros");
}

/// The story: an operator was told how many pages a damaged summary had taken, and not which, before and
/// after giving them up.
#[test]
fn a_lost_summary_is_refused_and_given_up_with_the_names_of_its_pages() {
    let directory = tempfile::tempdir().unwrap();
    let drill = text(directory.path());
    let arguments =
        ["--size", "2MiB", "--budget", "16", "--seconds", "0.5", "--no-unlimited", "--window", "10s"];
    ok(&[&["drill", drill, "--workload", "sequential", "--keep"][..], &arguments[..]].concat());
    let store = directory.path().join("drill-store");
    let file = store.join("wattkeep.store");
    let before = ok_bytes(&["dump", text(&store), "drill"]);
    let mut bytes = fs::read(&file).unwrap();
    // A digest would spare every opening but a check the look at the summaries.
    for at in (4 << 20..bytes.len()).step_by(4096) {
        if bytes[at..].starts_with(b"WKINDEX1") {
            bytes[at] ^= 1;
        }
    }
    // One byte of the checksum of the newest summary: the image needs it.
    let summaries = (4 << 20..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"WKBATCH1"));
    let sequence = |at: usize| u64::from_le_bytes(bytes[at + 16..at + 24].try_into().expect("eight bytes"));
    let newest = summaries.max_by_key(|at| sequence(*at)).expect("the log holds something");
    bytes[newest + 40] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let refused = fails(3, &["info", text(&store)]);
    for part in ["region 'drill' ", " page", " slot ", "nothing was changed", "'wattkeep check "] {
        assert!(refused.contains(part), "no '{part}' in {refused}");
    }
    let output = common::run(&["check", text(&store), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = &report["lost"][0];
    assert_eq!(lost["proven"], true, "{lost}");
    let named = ["missing", "older"].map(|list| pages_of(&lost[list]));
    assert!(!named.concat().is_empty() && lost["suspects"]["pages"] == 0, "{lost}");
    let checked = common::run(&["check", text(&store)]);
    let checked = String::from_utf8(checked.stdout).unwrap();
    let accepted = ok(&["check", text(&store), "--accept-incomplete"]);
    for said in [&checked, &accepted] {
        assert!(
            said.contains("\nlost: region 'drill' ")
                && said.contains("\nbecause ")
                && said.contains(" slot "),
            "{said}"
        );
    }
    let after = ok_bytes(&["dump", text(&store), "drill"]);
    for (page, (before, after)) in before.chunks(4096).zip(after.chunks(4096)).enumerate() {
        let page = page as u64;
        assert!(before == after || named.concat().contains(&page), "page {page} changed and was not named");
        assert!(!named[0].contains(&page) || after.iter().all(|byte| *byte == 0), "page {page} is not zeros");
    }
    assert_eq!(json(&["check", text(&store)])["sound"], true);
}

fn pages_of(list: &serde_json::Value) -> Vec<u64> {
    let ranges = list["ranges"].as_array().expect("a list").iter();
    let page = |value: &serde_json::Value| value.as_u64().expect("a page");
    ranges.flat_map(|range| page(&range[0])..=page(&range[1])).collect()
}

fn ok_bytes(arguments: &[&str]) -> Vec<u8> {
    let output = common::run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A program that has the store open: looked at, steered, and never disturbed.
#[test]
fn a_running_keeper_is_asked_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let drill = text(directory.path());
    let mut running = command()
        .args(["drill", drill, "--size", "8MiB", "--budget", "64", "--seconds", "30", "--no-unlimited"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let store = directory.path().join("drill-store");
    let store = text(&store);
    let mut patience = 600;
    // While the drill makes the store, a command may find it locked, and no keeper to ask: it says so, and is
    // asked again.
    let runs = || {
        let output = common::run(&["info", store, "--json"]);
        let running = |info: serde_json::Value| info["running"] == true;
        output.status.success() && serde_json::from_slice(&output.stdout).is_ok_and(running)
    };
    while !runs() {
        patience -= 1;
        assert!(patience > 0, "the drill does not start");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let status = json(&["status", store]);
    assert_eq!(status["status"]["budget_pages"], 64);
    ok(&["budget", store, "32"]);
    assert_eq!(json(&["budget", store])["budget_pages"], 32);
    assert!(ok(&["checkpoint", store]).contains("epoch"));
    for refused in [
        &["check", store][..],
        &["dump", store, "drill", "--page", "0"],
        &["rm", store, "--yes"],
        &["resize", store, "drill", "16MiB"],
        &["rename", store, "drill", "other"],
        &["create", store],
        &["drill", drill, "--size", "8MiB", "--budget", "64"],
    ] {
        fails(4, refused);
    }
    ok(&["save", store]);
    assert!(ok(&["status", store]).contains("saved"));
    ok(&["resume", store]);
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn the_keeper_is_found_beside_the_command() {
    assert!(keeper().is_file());
    let directory = tempfile::tempdir().unwrap();
    let output = command()
        .env_remove("WATTKEEP_KEEPER")
        .env("PATH", "/nonexistent")
        .args(["drill", text(directory.path()), "--size", "1MiB", "--budget", "16", "--seconds", "0.3"])
        .args(["--no-unlimited", "--window", "10s", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
