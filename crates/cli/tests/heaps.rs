//! `wattkeep check` on stores with persistent heaps in their regions.
#![allow(missing_docs)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{json, ok, run, text};
use wattkeep::heap::{Heap, Options};
use wattkeep::persist::{Domain, Space};
use wattkeep::{KeeperPlace, RegionOptions, Store};

const OBJECTS: u64 = 2000;
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
        for bytes in 1..=OBJECTS {
            heap.alloc(bytes).expect("room");
        }
    });
    let checked = json(&["check", text(&store)]);
    assert_eq!(checked["sound"], true, "{checked}");
    let heaps = checked["heaps"].as_array().expect("a list");
    assert_eq!(heaps.len(), 1, "{checked}");
    assert_eq!(heaps[0]["region"], "objects");
    assert_eq!(heaps[0]["report"]["roots"][0], "accounts");
    assert_eq!(heaps[0]["report"]["objects"], OBJECTS, "{checked}");
    let said = ok(&["check", text(&store)]);
    assert!(said.contains(&format!("heap in region 'objects': sound\n  {OBJECTS} objects")), "{said}");

    with_space(&store, "objects", |space| space.store(DIRECTORY_AT, u64::MAX / 3).expect("inside"));
    // A check changes nothing: the second one finds the same.
    for _ in 0..2 {
        let output = run(&["check", text(&store)]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("heap in region 'objects': DAMAGED"), "{said}");
    }
    let output = run(&["check", text(&store), "--json"]);
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&checked["sound"], &checked["heaps"][0]["sound"]), (&false.into(), &false.into()));
    assert!(checked["heaps"][0]["refused"].is_string(), "{checked}");
}

#[test]
fn a_store_behind_the_end_of_an_object_is_named_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let mut place = 0;
    with_space(&store, "objects", |space| {
        let options = Options { log_area_bytes: 0, guard: true };
        let heap = Heap::create(space.clone(), &options).expect("a heap");
        place = heap.alloc(100).expect("room");
        let end = place + heap.usable_size(place).expect("an object");
        space.write_bytes(end as usize, &[0xee; 8]).expect("inside");
    });
    let output = run(&["check", text(&store), "--json"]);
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{checked}");
    let heap = &checked["heaps"][0];
    assert_eq!((&heap["sound"], &heap["refused"]), (&false.into(), &serde_json::Value::Null), "{checked}");
    assert_eq!(heap["report"]["problems_count"], 1, "{checked}");
    assert_eq!(heap["report"]["problems"][0]["at"], place, "{checked}");
}
