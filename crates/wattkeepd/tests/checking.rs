//! The checking mode of explicit regions: stores that nobody announced are reported with a backtrace and
//! counted; announced ones are not.
#![allow(missing_docs)]

mod common;

use std::time::Duration;

use common::{PAGE, Scoreboard, options, plays, put, put_announced};
use wattkeep::{FaultMode, RegionOptions};

const PAGES: u64 = 64;

/// A program that announces some stores and forgets others; its report and its count.
fn run(test: &str, mode: FaultMode, work: impl FnOnce(&wattkeep::Region)) -> Option<(String, u64)> {
    let role = format!("client-{mode}");
    if let Some(directory) = plays(&role) {
        let store = options().fault_mode(mode).budget("32").open(&directory).expect("opens");
        let region =
            store.region("a", RegionOptions::checking().create(PAGES * PAGE as u64)).expect("a region");
        work(&region);
        let count = store.status().expect("a status").unannounced_stores;
        Scoreboard::open(&directory, 1).set(0, 1 + count);
        return None;
    }
    if std::env::var_os("WATTKEEP_TEST_ROLE").is_some() {
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let child = common::child(test, &role, directory.path());
    let (code, signal, said) = child.end(Duration::from_secs(20));
    assert_eq!((code, signal), (Some(0), None), "{said}");
    Some((said, Scoreboard::open(directory.path(), 1).get(0) - 1))
}

fn reports(said: &str) -> usize {
    said.matches("was not announced").count()
}

#[test]
fn announced_stores_are_not_reported() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect] {
        let done = run("announced_stores_are_not_reported", mode, |region| {
            for round in 0..3 {
                (0..60).for_each(|page| put_announced(region, page, round, 7));
                let _whole = region.will_write(0, 8 * PAGE).expect("an announcement");
                (0..8).for_each(|page| put(region, page, 9, 1));
            }
        });
        let Some((said, count)) = done else { continue };
        assert_eq!((reports(&said), count), (0, 0), "{mode}: {said}");
    }
}

#[test]
fn a_store_that_nobody_announced_is_reported_with_a_backtrace() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect] {
        let done = run("a_store_that_nobody_announced_is_reported_with_a_backtrace", mode, |region| {
            put_announced(region, 0, 0, 1);
            // A fresh page, a page that was written before, and a page whose announcement has ended.
            put(region, 30, 0, 1);
            put(region, 0, 0, 2);
        });
        let Some((said, count)) = done else { continue };
        assert_eq!((reports(&said), count), (2, 2), "{mode}: {said}");
        assert!(said.contains("checking.rs") || said.contains("checking::"), "{mode}: no backtrace: {said}");
    }
}

/// The story: announcements in order made the fault path guess the next pages and open them, too: an
/// unannounced store to one of those went unseen.
#[test]
fn announcements_in_order_do_not_hide_the_next_store() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect] {
        let done = run("announcements_in_order_do_not_hide_the_next_store", mode, |region| {
            (0..20).for_each(|page| put_announced(region, page, 0, 1));
            (20..24).for_each(|page| put(region, page, 0, 1));
        });
        let Some((said, count)) = done else { continue };
        assert_eq!((reports(&said), count), (4, 4), "{mode}: {said}");
    }
}
