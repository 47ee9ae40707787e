//! A heap of structures is checked without their types: what they reach, what is lost, what is wrong.

use std::sync::Arc;

use wattkeep_collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Structures, Vector};
use wattkeep_heap::{Heap, HeapError, Report};
use wattkeep_persist::{Anonymous, Domain, Ptr, Space};
use wattkeep_tx::Logging;
use wattkeep_tx::versions::{Persistence, Versioned, Versions};

use crate::support::Pool;

const POOL: usize = 8 << 20;

/// Entries in each structure: enough for more than one segment, bucket and level.
const MANY: u64 = 400;

fn checked(pool: &Pool) -> Report {
    pool.heap.check(Some(&Structures)).expect("readable")
}

/// One of each kind behind a root, versioned objects, and a map whose values lead to structures of their own.
fn all_kinds(pool: &Pool) {
    let map = HashMap::<u64, [u32; 3]>::open_or_create_root(&pool.manager, "map").expect("a map");
    let bytes = BytesMap::open_or_create_root(&pool.manager, "bytes").expect("a map");
    let tree = BTree::<i64, u64>::open_or_create_root(&pool.manager, "tree").expect("a tree");
    let own = BTree::<[u64; 2], u8>::open_or_create_root(&pool.manager, "own").expect("a tree");
    let vector = Vector::<[u8; 5]>::open_or_create_root(&pool.manager, "vector").expect("a vector");
    let string = PString::open_or_create_root(&pool.manager, "string").expect("a string");
    let nested = HashMap::<u64, Ptr<Vector<Ptr<PString>>>>::open_or_create_root(&pool.manager, "nested")
        .expect("a map");
    let versions = Versioned::<Ptr<PString>>::open_or_create_root(
        &pool.manager,
        "versions",
        10,
        Versions::Two,
        Persistence::Each,
    )
    .expect("versioned objects");
    let kept = pool.manager.run(|tx| {
        let text = PString::create(tx)?;
        versions.write(tx, 3, &text.ptr())?;
        Ok::<_, Error>(())
    });
    kept.expect("committed");
    pool.for_all(0..MANY, |tx, n| {
        map.insert(tx, &n, &[n as u32; 3])?;
        bytes.insert(tx, &n.to_le_bytes(), &vec![7; n as usize % 90]).map(|_| ())
    });
    pool.for_all(0..MANY, |tx, n| {
        tree.insert(tx, &(n as i64 - 200), &n)?;
        own.insert(tx, &[n % 7, n], &1).map(|_| ())
    });
    pool.for_all(0..MANY, |tx, n| {
        vector.push(tx, &[n as u8; 5])?;
        string.push_str(tx, "ab")
    });
    for n in 0..20 {
        let add = pool.manager.run(|tx| {
            let lines = Vector::create(tx)?;
            for _ in 0..10 {
                let line = PString::create(tx)?;
                line.set(tx, "a line")?;
                lines.push(tx, &line.ptr())?;
            }
            nested.insert(tx, &n, &lines.ptr())
        });
        assert!(add.expect("committed"));
    }
    // What a program keeps in a packed form, at any byte.
    let hidden = pool.manager.run(|tx| {
        let text = PString::create(tx)?;
        text.set(tx, "hidden")?;
        Ok::<_, Error>(text.ptr().offset())
    });
    let value = [&[1, 2, 3], &hidden.expect("committed").to_le_bytes()[..]].concat();
    pool.manager.run(|tx| bytes.insert(tx, b"a pointer", &value)).expect("committed");
}

#[test]
fn every_object_of_every_structure_is_reached() {
    for pool in Pool::of_both_logs(POOL) {
        all_kinds(&pool);
        let report = checked(&pool);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.undecided, []);
        assert_eq!(report.reachable_objects, Some(report.objects), "{report}");
        let notes: Vec<&str> = report.notes.iter().map(|note| note.what.as_str()).collect();
        assert_eq!(
            notes,
            ["the order of the tree's keys is known to its program alone, and was not checked"]
        );
    }
}

#[test]
fn what_a_program_allocates_and_loses_is_a_leak() {
    for pool in Pool::of_both_logs(POOL) {
        all_kinds(&pool);
        let before = checked(&pool).objects;
        let lost = [pool.heap.alloc(100).expect("room"), pool.heap.alloc(50_000).expect("room")];
        let vector: Vector<u64> = pool.manager.run(Vector::create).expect("made, and linked to nothing");
        let report = checked(&pool);
        let leaks = report.leaks.as_ref().expect("told");
        assert_eq!((report.is_clean(), report.reachable_objects, leaks.objects), (true, Some(before), 3));
        assert_eq!(leaks.bytes, leaks.first.iter().map(|leak| leak.bytes).sum::<u64>());
        for at in lost.into_iter().chain([vector.ptr().offset()]) {
            assert!(leaks.first.iter().any(|leak| leak.at == at), "{report}");
            assert!(report.to_string().contains(&format!("leak at {at:#x}: ")), "{report}");
        }
    }
}

#[test]
fn a_root_of_the_programs_own_is_named_and_nothing_is_called_a_leak() {
    for pool in Pool::of_both_logs(POOL) {
        all_kinds(&pool);
        // One that leads nowhere yet does no harm.
        pool.heap.create_root("later", 8, 7).expect("a root");
        assert!(checked(&pool).leaks.is_some());
        let object = pool.heap.persist_alloc(64, Some("own objects")).expect("room");
        let behind = pool.heap.alloc(64).expect("room");
        // In a form that nobody else knows.
        pool.heap.space().store(object as usize, !behind).expect("inside");
        let report = checked(&pool);
        assert!(report.is_clean() && report.leaks.is_none(), "{report}");
        assert_eq!(report.undecided.len(), 1);
        assert_eq!(report.undecided[0].root, "own objects");
        let said = report.to_string();
        assert!(said.contains("leaks cannot be told: root 'own objects'") && said.contains("Heap::check"));
        let opened = Heap::open_tracing(copy(&pool.heap), &Structures).map(|_| ());
        assert!(matches!(opened, Err(HeapError::Untraced { root, .. }) if root == "own objects"));
    }
}

/// Stores `word` at `at` behind the back of everything, checks, and puts back what was there. The fault is
/// found, and named with what it is; without it nothing is.
fn found(pool: &Pool, at: u64, word: u64, what: &str) {
    let space = pool.heap.space();
    let before = space.load(at as usize).expect("inside");
    space.store(at as usize, word).expect("inside");
    let report = checked(pool);
    space.store(at as usize, before).expect("inside");
    assert!(report.problems.iter().any(|problem| problem.what.contains(what)), "{what}: {report}");
    assert!(checked(pool).is_clean());
}

/// The first word from `at` on that is not 0.
fn word_behind(pool: &Pool, at: u64) -> u64 {
    let word = |at: &u64| pool.heap.space().load(*at as usize).expect("inside");
    (at..).step_by(8).find(|at| word(at) != 0).expect("a word that is not 0")
}

#[test]
fn every_kind_of_damage_is_named() {
    const OUTSIDE: u64 = (POOL as u64) << 4;
    for pool in Pool::of_both_logs(POOL) {
        all_kinds(&pool);
        let load = |at: u64| pool.heap.space().load(at as usize).expect("inside");
        let root = |name: &str| {
            let root = pool.heap.root(name).expect("readable").expect("there");
            load(root.word.offset())
        };
        // Header: tag, seed, buckets, entries; in the next line the segments of buckets.
        for name in ["map", "bytes"] {
            let table = root(name);
            found(&pool, table + 24, load(table + 24) + 1, "does not have as many entries as it counts");
            found(&pool, table + 64, OUTSIDE, "no object");
            found(&pool, table + 16, 1 << 50, "a table of a size that there cannot be");
            let bucket = load(table + 64);
            found(&pool, bucket + 56, bucket, "a chain of buckets without an end");
            found(&pool, bucket + 56, OUTSIDE, "it points to what cannot be read");
            let slot = word_behind(&pool, bucket);
            found(&pool, slot, load(slot) ^ 1 << 63, "other bits than its entry's hash");
            if name == "map" {
                found(&pool, slot, load(slot) ^ 1, "no object");
            }
            found(&pool, slot, load(slot) | ((1 << 36) - 1), "it points to what cannot be read");
            found(&pool, table, load(table) ^ 1 << 20, "leads to no such structure");
            found(&pool, table + 56, 0, "leads to no such structure");
        }
        // Header: tag, root, entries, level. Node: count and level, link, order.
        let tree = root("tree");
        found(&pool, tree + 16, 1, "does not have as many entries as it counts");
        found(&pool, tree + 24, 77, "more levels than there can be");
        found(&pool, tree + 8, OUTSIDE, "it points to what cannot be read");
        found(&pool, tree + 24, 0, "no node of the tree where there should be one");
        let node = load(tree + 8);
        found(&pool, node + 16, load(node + 16).swap_bytes(), "keys that do not rise");
        let leaf = load(node + 8);
        found(&pool, leaf + 16, load(leaf + 16).swap_bytes(), "keys that do not rise");
        found(&pool, leaf + 8, leaf, "a leaf that the one before is not linked to");
        found(&pool, node + 8, OUTSIDE, "it points to what cannot be read");
        // Header: tag, elements; in the next line the segments.
        let vector = root("vector");
        found(&pool, vector + 8, 1 << 40, "more elements than there is memory");
        found(&pool, vector + 64, OUTSIDE, "no object");
        // Header: tag, bytes, capacity, text.
        let string = root("string");
        found(&pool, string + 8, 1 << 40, "a string longer than its memory");
        found(&pool, string + 24, load(string + 24) + 16, "no object");
        found(&pool, load(string + 24), u64::MAX, "not UTF-8");
    }
}

#[test]
fn an_object_that_belongs_to_two_structures_is_named() {
    for pool in Pool::of_both_logs(POOL) {
        let [one, other] = ["one", "other"]
            .map(|name| Vector::<u64>::open_or_create_root(&pool.manager, name).expect("made"));
        pool.for_all(0..10, |tx, n| {
            one.push(tx, &n)?;
            other.push(tx, &n)
        });
        assert!(checked(&pool).is_clean());
        let (one, other) = (one.ptr().offset(), other.ptr().offset());
        let segment = pool.heap.space().load(one as usize + 64).expect("inside");
        found(
            &pool,
            other + 64,
            segment,
            &format!("the object is part of two structures, at {one:#x} and at {other:#x}"),
        );
    }
}

/// Damage hides what lies behind it: that is not a leak.
#[test]
fn what_damage_hides_is_no_leak() {
    let pool = Pool::new(POOL, Logging::Redo);
    all_kinds(&pool);
    let root = pool.heap.root("tree").expect("readable").expect("there");
    let tree = pool.heap.space().load(root.word.offset() as usize).expect("inside");
    pool.heap.space().store(tree as usize + 8, 0).expect("inside");
    let report = checked(&pool);
    assert!(!report.is_clean() && report.leaks.is_none(), "{report}");
    assert!(report.undecided.iter().any(|undecided| undecided.root == "tree"), "{report}");
}

fn copy(heap: &Heap) -> Arc<Space> {
    let mut bytes = vec![0; heap.space().len()];
    heap.space().read_bytes(0, &mut bytes).expect("inside");
    let copy = Space::new(Arc::new(Anonymous::new(bytes.len())), Domain::Battery);
    copy.write_bytes(0, &bytes).expect("inside");
    Arc::new(copy)
}

/// Where the log has this object: a word of kind 2 whose payload is its offset in 16 bytes.
fn record_of(space: &Space, at: u64) -> usize {
    let word = |place: &usize| space.load(*place).expect("inside");
    (0..space.len())
        .step_by(8)
        .find(|place| {
            word(place) & 0xf == 2 && word(place) >> 6 & ((1 << 50) - 1) == at >> 4 && word(place) >> 56 != 0
        })
        .expect("an allocated object has a record")
}

/// The records of some objects are lost, and a leak is there: what the structures reach is entered again, what
/// they do not is freed.
#[test]
fn a_heap_whose_log_is_damaged_is_opened_by_its_structures() {
    for pool in Pool::of_both_logs(POOL) {
        all_kinds(&pool);
        let objects = checked(&pool).objects;
        let leaked = pool.heap.alloc(64).expect("room");
        let root = |name: &str| {
            let root = pool.heap.root(name).expect("readable").expect("there");
            pool.heap.space().load(root.word.offset() as usize).expect("inside")
        };
        let vector = root("vector");
        let segment = pool.heap.space().load(vector as usize + 64).expect("inside");
        for lost in [vector, segment, root("map"), root("nested")] {
            let damaged = copy(&pool.heap);
            let place = record_of(&damaged, lost);
            let word = damaged.load(place).expect("inside");
            damaged.store(place, word ^ 1 << 60).expect("inside");
            assert!(matches!(Heap::open(Arc::clone(&damaged)), Err(HeapError::Damaged { .. })));
            let (heap, traced) = Heap::open_tracing(damaged, &Structures).expect("reachable");
            assert_eq!((traced.kept, traced.restored, traced.freed), (objects - 1, 1, 1));
            assert!(heap.is_allocated(lost) && !heap.is_allocated(leaked));
            let report = heap.check(Some(&Structures)).expect("readable");
            assert!(report.is_clean(), "{report}");
            assert_eq!((report.objects, report.reachable_objects), (objects, Some(objects)));
        }
    }
}
