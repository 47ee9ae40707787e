//! `wattkeep check` on stores with persistent heaps in their regions.
#![allow(missing_docs)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{json, ok, run, text};
use wattkeep::heap::{Heap, Options};
use wattkeep::persist::{Domain, Space};
use wattkeep::{KeeperPlace, RegionOptions, Store};

const MIB: u64 = 1 << 20;
/// Page 2 of a heap says where its log lies.
const DIRECTORY_AT: usize = 2 * 4096;

fn with_space(store: &Path, region: &str, work: impl FnOnce(Arc<Space>)) {
    let store = Store::options().create_if_missing(true).budget("64").keeper(KeeperPlace::Thread).open(store);
    let store = store.expect("opens");
    let region = store.region(region, RegionOptions::explicit().create(8 * MIB)).expect("a region");
    work(Arc::new(region.into_space(Domain::Battery)));
    store.close().expect("closes");
}

#[test]
fn a_heap_in_a_region_is_checked_and_its_damage_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    with_space(&store, "plain", |space| space.store(0, 7).expect("inside"));
    with_space(&store, "objects", |space| {
        let heap = Heap::create(space, &Options { log_area_bytes: 0, ..Options::default() }).expect("a heap");
        heap.create_root("accounts", 8, 1).expect("a root");
        for bytes in 1..2000 {
            heap.alloc(bytes).expect("room");
        }
    });
    let checked = json(&["check", text(&store)]);
    assert_eq!(checked["sound"], true, "{checked}");
    let heaps = checked["heaps"].as_array().expect("a list");
    assert_eq!(heaps.len(), 1, "{checked}");
    assert_eq!(heaps[0]["region"], "objects");
    assert_eq!(heaps[0]["roots"][0], "accounts");
    assert!(heaps[0]["free_bytes"].as_u64().is_some_and(|bytes| bytes > 0 && bytes < 8 * MIB));
    assert!(ok(&["check", text(&store)]).contains("the heap in region 'objects' is sound: 1 roots"));

    with_space(&store, "objects", |space| space.store(DIRECTORY_AT, u64::MAX / 3).expect("inside"));
    // A check changes nothing: the second one finds the same.
    for _ in 0..2 {
        let output = run(&["check", text(&store)]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("DAMAGED: the heap in region 'objects'"), "{said}");
    }
    let output = run(&["check", text(&store), "--json"]);
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&checked["sound"], &checked["heaps"][0]["sound"]), (&false.into(), &false.into()));
    assert_eq!(checked["heaps"][0]["findings"].as_array().map(Vec::len), Some(1), "{checked}");
}
