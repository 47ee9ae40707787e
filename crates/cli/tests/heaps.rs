//! `wattkeep check` on stores with persistent heaps in their regions.
#![allow(missing_docs)]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{json, keeper, ok, run, text};
use serde_json::Value;
use wattkeep::collections::{Error, HashMap, Structure, Vector};
use wattkeep::heap::{Heap, Options};
use wattkeep::persist::{Domain, Ptr, Space};
use wattkeep::tx::{self, Logging, Manager, TxError};
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
        let options = Options { log_area_bytes: 0, guard: true, ..Options::default() };
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

/// What the check says of the one heap in the store, as JSON, and its exit code.
fn heap_of(store: &Path) -> (Value, i32) {
    let output = run(&["check", text(store), "--json"]);
    let checked: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let code = output.status.code().expect("it ends by itself");
    assert_eq!(checked["sound"] == true, code == 0, "{checked}");
    let heaps = checked["heaps"].as_array().expect("a list");
    assert_eq!(heaps.len(), 1, "{checked}");
    (heaps[0].clone(), code)
}

/// A store with a heap of structures, on which `work` is done.
fn with_structures(
    store: &Path,
    work: impl FnOnce(&Manager, &HashMap<u64, u64>, &Vector<u64>) -> Result<(), Error>,
) {
    with_space(store, "objects", |space| {
        let heap = Heap::open_or_create(space, &Options { log_area_bytes: 256 << 10, ..Options::default() });
        let options = tx::Options { logging: Logging::Undo, ..tx::Options::default() };
        let manager = Manager::open(Arc::new(heap.expect("a heap")), &options).expect("a manager");
        let map = HashMap::open_or_create_root(&manager, "accounts").expect("a map");
        let vector = Vector::open_or_create_root(&manager, "history").expect("a vector");
        work(&manager, &map, &vector).expect("no error");
    });
}

fn fill(manager: &Manager, map: &HashMap<u64, u64>, vector: &Vector<u64>) -> Result<(), Error> {
    manager.run(|tx| {
        for n in 0..100 {
            map.insert(tx, &n, &n)?;
            vector.push(tx, &n)?;
        }
        Ok(())
    })
}

#[test]
fn a_leak_is_shown_with_its_place_and_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    with_structures(&store, fill);
    let (heap, code) = heap_of(&store);
    assert_eq!((code, &heap["report"]["leaks"]["objects"]), (0, &0.into()), "{heap}");
    assert_eq!(heap["report"]["reachable_objects"], heap["report"]["objects"], "{heap}");

    let mut lost = 0;
    with_structures(&store, |manager, _, _| {
        lost = manager.heap().alloc(100).expect("room");
        Ok(())
    });
    let (heap, code) = heap_of(&store);
    let leaks = &heap["report"]["leaks"];
    assert_eq!((code, &leaks["objects"], &leaks["bytes"]), (0, &1.into(), &112.into()), "{heap}");
    assert_eq!(leaks["first"][0]["at"], lost, "{heap}");
    let said = ok(&["check", text(&store)]);
    assert!(said.contains("1 are not: 112 bytes") && said.contains(&format!("leak at {lost:#x}")), "{said}");

    // A root of the program's own may lead to it: nobody can tell.
    with_structures(&store, |manager, _, _| {
        manager.heap().persist_alloc(64, Some("own")).expect("room");
        Ok(())
    });
    let (heap, code) = heap_of(&store);
    assert_eq!((code, &heap["report"]["leaks"]), (0, &Value::Null), "{heap}");
    assert_eq!(heap["report"]["undecided"][0]["root"], "own", "{heap}");
    let said = ok(&["check", text(&store)]);
    assert!(said.contains("leaks cannot be told: root 'own'") && said.contains("Heap::check"), "{said}");
}

#[test]
fn a_broken_chain_and_an_object_of_two_structures_are_damage() {
    let directory = tempfile::tempdir().unwrap();
    for (name, what) in [("chain", "a chain of buckets without an end"), ("both", "part of two structures")] {
        let store = directory.path().join(name);
        with_structures(&store, |manager, map, vector| {
            fill(manager, map, vector)?;
            let space = manager.heap().space();
            // The first segment of buckets, and of elements: the first word of the headers' second lines.
            let word = |at: u64| space.load(at as usize + 64).expect("inside");
            let (buckets, elements) = (word(map.ptr().offset()), vector.ptr().offset() as usize + 64);
            if name == "chain" {
                space.store(buckets as usize + 56, buckets).expect("inside");
            } else {
                space.store(elements, buckets).expect("inside");
            }
            Ok(())
        });
        let (heap, code) = heap_of(&store);
        assert_eq!((code, &heap["sound"]), (1, &false.into()), "{heap}");
        let problems = heap["report"]["problems"].as_array().expect("a list");
        let named = |problem: &Value| problem["what"].as_str().is_some_and(|said| said.contains(what));
        assert!(problems.iter().any(named), "{heap}");
    }
}

/// What a program that is killed within a transaction leaves: its stores lie in place, and its log knows.
#[test]
fn a_store_that_was_cut_within_a_transaction_is_sound() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    with_structures(&store, |manager, map, vector| {
        fill(manager, map, vector)?;
        let elements = manager.heap().space().load(vector.ptr().offset() as usize + 64).expect("inside");
        // The thread ends within its transaction, and nobody rolls back.
        std::thread::scope(|scope| {
            let dying = scope.spawn(|| -> Result<(), TxError> {
                let mut tx = manager.begin()?;
                tx.alloc_bytes(500)?;
                for n in 0..30 {
                    tx.write_word(Ptr::at(elements + n * 8), 77)?;
                }
                std::mem::forget(tx);
                Ok(())
            });
            dying.join().expect("it does not panic")
        })?;
        assert_eq!(manager.heap().space().load(elements as usize), Ok(77));
        Ok(())
    });
    for _ in 0..2 {
        let (heap, code) = heap_of(&store);
        assert_eq!((code, &heap["sound"]), (0, &true.into()), "{heap}");
        assert_eq!(heap["recovery"]["rolled_back"], 1, "{heap}");
        assert_eq!(heap["report"]["leaks"]["objects"], 0, "{heap}");
        let said = ok(&["check", text(&store)]);
        assert!(said.contains("opening it rolls back what was not: 1 transaction\n"), "{said}");
    }
    with_structures(&store, |manager, map, vector| {
        assert_eq!((manager.recovered().dropped, vector.get(7)?, map.len()?), (1, Some(7), 100));
        Ok(())
    });
    let (heap, _) = heap_of(&store);
    assert_eq!(heap["recovery"]["rolled_back"], 0, "{heap}");
}

#[test]
fn a_damaged_transaction_log_is_damage_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    with_structures(&store, |manager, map, vector| {
        fill(manager, map, vector)?;
        let log = manager.heap().log_area().start as usize;
        manager.heap().space().store(log + 16, 7).expect("inside");
        Ok(())
    });
    let (heap, code) = heap_of(&store);
    assert_eq!((code, &heap["sound"], &heap["recovery"]), (1, &false.into(), &Value::Null), "{heap}");
    let refused = heap["refused"].as_str().expect("why");
    assert!(refused.contains("the header of the transaction log"), "{heap}");
}

#[test]
fn a_heap_that_was_made_longer_has_room_again_and_is_sound() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let mut objects = 0;
    for mib in [4, 8, 16] {
        let opened =
            Store::options().create_if_missing(true).budget("64").keeper(KeeperPlace::Thread).open(&store);
        let opened = opened.expect("opens");
        let region = RegionOptions::explicit().create(4 * MIB).reserve(64 * MIB);
        let options = Options { log_area_bytes: 256 << 10, ..Options::default() };
        let manager = opened.heap_with("objects", region, &options, &tx::Options::default()).expect("a heap");
        let heap = manager.heap();
        let before = objects;
        heap.grow(mib * MIB).expect("inside the reserve");
        while heap.alloc(4000).is_ok() {
            objects += 1;
        }
        assert!((objects - before) * 4096 > (mib - 1) / 2 * MIB, "{objects} objects in {mib} MiB");
        assert!(heap.grow(1 << 50).is_err(), "longer than its reserve");
        drop(manager);
        opened.close().expect("closes");
    }
    let (heap, code) = heap_of(&store);
    assert_eq!(
        (code, &heap["sound"], &heap["report"]["objects"]),
        (0, &true.into(), &objects.into()),
        "{heap}"
    );
}

/// A heap that only a later program can judge was called damaged, which is what people give up data for.
#[test]
fn a_heap_from_a_later_version_is_not_called_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    with_structures(&store, fill);
    with_space(&store, "objects", |space| {
        // The second word of the superblock and of its copy: the lower half is the version.
        for at in [8, 2048 + 8] {
            space.store(at, space.load(at).expect("inside") + 1).expect("inside");
        }
    });
    let output = run(&["check", text(&store)]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("UNKNOWN\n  the heap has version 2, this program knows 1: use a newer"), "{said}");
    assert!(!said.contains("DAMAGED"), "{said}");
}

/// In the child: the store that it works on until it is killed.
const VICTIM: &str = "WATTKEEP_TEST_VICTIM";

fn work_until_killed(store: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::options().create_if_missing(true).budget("512").open(store)?;
    let heap = store.heap("objects", RegionOptions::explicit().create(32 * MIB))?;
    let map: HashMap<u64, [u64; 4]> = HashMap::open_or_create_root(&heap, "accounts")?;
    println!("begun");
    for n in 0_u64.. {
        heap.run(|tx| {
            map.insert(tx, &(n % 5000), &[n; 4])?;
            map.remove(tx, &(n.wrapping_mul(7) % 5000))?;
            if n % 3 == 0 { Err(Error::Tx(TxError::Aborted)) } else { Ok(()) }
        })
        .or_else(|error| if matches!(error, Error::Tx(TxError::Aborted)) { Ok(()) } else { Err(error) })?;
        if n % 1000 == 999 {
            println!("{n}");
        }
    }
    Ok(())
}

#[test]
fn a_store_whose_program_was_killed_is_sound_and_leaks_nothing() {
    use std::io::BufRead;
    if let Some(store) = std::env::var_os(VICTIM) {
        return work_until_killed(Path::new(&store)).expect("it works until it is killed");
    }
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    for round in 1..=3 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "a_store_whose_program_was_killed_is_sound_and_leaks_nothing"])
            .env(VICTIM, &store)
            .env("WATTKEEP_KEEPER", keeper())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test starts itself");
        let lines = std::io::BufReader::new(victim.stdout.take().expect("piped")).lines();
        let worked = lines.map_while(Result::ok).filter(|line| line.parse::<u64>().is_ok());
        assert_eq!(worked.take(round).count(), round, "it works");
        victim.kill().expect("it runs");
        let ended = victim.wait().expect("it ended");
        assert_eq!(ended.signal(), Some(9), "round {round}: {ended}");
        wait_for_the_keeper(&store);
        let (heap, code) = heap_of(&store);
        assert_eq!((code, &heap["sound"]), (0, &true.into()), "round {round}: {heap}");
        assert_eq!(heap["report"]["leaks"]["objects"], 0, "round {round}: {heap}");
        assert!(heap["recovery"].is_object(), "{heap}");
    }
}

/// The keeper writes out what its dead client left, and then ends.
fn wait_for_the_keeper(store: &Path) {
    const IN_USE: i32 = 4;
    while run(&["check", text(store)]).status.code() == Some(IN_USE) {
        std::thread::yield_now();
    }
}
