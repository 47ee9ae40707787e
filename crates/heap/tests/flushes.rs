//! What an allocation costs on persistent memory: lines written back, counted.

mod common;

use std::sync::Arc;

use common::small;
use wattkeep_heap::naive::NaiveHeap;
use wattkeep_heap::{Heap, Options};
use wattkeep_persist::{Anonymous, Domain, Space};

const OBJECTS: u64 = if cfg!(miri) { 600 } else { 20_000 };

fn counting() -> Arc<Space> {
    Arc::new(Space::new(Arc::new(Anonymous::new(64 << 20)), Domain::Battery).counting())
}

/// Lines flushed by `work`.
fn lines(space: &Space, work: impl FnOnce()) -> u64 {
    let before = space.counted();
    work();
    (space.counted() - before).flushed_lines
}

/// The most lines that one call of `work` flushed, and all that all of them did.
fn each(space: &Space, calls: impl Iterator<Item = u64>, work: impl Fn(u64)) -> (u64, u64) {
    let counts: Vec<u64> = calls.map(|call| lines(space, || work(call))).collect();
    (counts.iter().copied().max().unwrap_or(0), counts.iter().sum())
}

#[test]
fn an_allocation_flushes_a_line_and_rarely_more() {
    let space = counting();
    let heap = Heap::create(space.clone(), &small()).expect("room");
    let mut live = Vec::new();
    let mut by_count = [0; 5];
    for _ in 0..OBJECTS {
        by_count[lines(&space, || live.push(heap.alloc(64).expect("room"))) as usize] += 1;
    }
    // A third and a fourth line: the block's record, or the header of the next segment of the log.
    assert!(by_count[1] * 1000 > OBJECTS * 990, "allocations by lines flushed: {by_count:?}");
    // A free that finds its segment of the log full may compact another: some lines, for 504 records.
    let (_, all) = each(&space, live.into_iter(), |at| heap.free(at).expect("an object"));
    assert!(all * 100 <= OBJECTS * 103, "{all} lines for {OBJECTS} frees");
}

#[test]
fn a_large_object_flushes_two_lines_and_one_when_it_is_freed() {
    let space = counting();
    let heap = Heap::create(space.clone(), &small()).expect("room");
    let mut live = vec![heap.alloc(100_000).expect("room")];
    for _ in 0..20 {
        let flushed = lines(&space, || live.push(heap.alloc(100_000).expect("room")));
        assert_eq!(flushed, 2);
    }
    for at in live {
        let flushed = lines(&space, || heap.free(at).expect("an object"));
        assert_eq!(flushed, 1);
    }
}

#[test]
fn a_resize_in_place_flushes_nothing() {
    let space = counting();
    let heap = Heap::create(space.clone(), &small()).expect("room");
    let at = heap.alloc(1000).expect("room");
    assert_eq!(lines(&space, || assert_eq!(heap.resize(at, 1010), Ok(at))), 0);
}

/// Of the bound for an allocation, two, and a free, one, together: and the lines that are copied.
#[test]
fn a_resize_that_moves_flushes_three_lines_and_what_it_copies() {
    let space = counting();
    let heap = Heap::create(space.clone(), &small()).expect("room");
    let objects: Vec<u64> = (0..200).map(|_| heap.alloc(64).expect("room")).collect();
    // The blocks that both sizes come from are cut.
    heap.alloc(256).expect("room");
    for at in objects {
        let flushed = lines(&space, || assert!(heap.resize(at, 250).is_ok_and(|moved| moved != at)));
        assert!((1..=4).contains(&flushed), "{flushed} lines for one that was copied");
    }
}

/// The link and the record; or the root with its link, and the record. A name of more than 24 bytes lies in two
/// lines.
#[test]
fn an_object_that_is_linked_to_a_root_flushes_two_lines() {
    let space = counting();
    let heap = Heap::create(space.clone(), &small()).expect("room");
    heap.alloc(64).expect("room");
    for number in 0..50 {
        let name = format!("root {number}");
        let made = lines(&space, || assert!(heap.create_root(&name, 64, 0).is_ok()));
        assert_eq!(made, 1);
        let linked = lines(&space, || assert!(heap.persist_alloc(64, Some(&name)).is_ok()));
        assert_eq!(linked, 2);
        let name = format!("new {number}");
        let both = lines(&space, || assert!(heap.persist_alloc(64, Some(&name)).is_ok()));
        assert_eq!(both, 2);
        let name = format!("a name that has more than a line {number}");
        let long = lines(&space, || assert!(heap.persist_alloc(64, Some(&name)).is_ok()));
        assert_eq!(long, 3);
    }
}

#[test]
fn capacity_flushes_nothing_but_the_record_of_its_block() {
    let space = counting();
    let heap = Heap::create(space.clone(), &small()).expect("room");
    let _taken = heap.cap_alloc(64).expect("room");
    let (most, _) = each(&space, 0..100, |_| assert!(heap.cap_alloc(64).is_ok()));
    assert_eq!(most, 0);
    assert_eq!(lines(&space, || assert!(heap.cap_alloc(1 << 20).is_ok())), 0);
}

/// Table 2 of the paper: one line an insert against five.
#[test]
fn an_insert_flushes_a_fifth_of_what_the_naive_allocator_flushes() {
    for bytes in [64, 128] {
        let space = counting();
        let heap = Heap::create(space.clone(), &small()).expect("room");
        let (_, ours) = each(&space, 0..OBJECTS, |_| assert!(heap.alloc(bytes).is_ok()));
        let space = counting();
        let naive = NaiveHeap::create(space.clone()).expect("room");
        let (_, naives) = each(&space, 0..OBJECTS, |_| assert!(naive.alloc(bytes).is_ok()));
        assert!(ours * 5 <= naives, "{bytes} B: {ours} lines against {naives}");
    }
}

#[test]
fn the_naive_allocator_gives_out_what_was_freed() {
    let naive = NaiveHeap::create(counting()).expect("room");
    let mut live: Vec<u64> = (0..OBJECTS).map(|i| naive.alloc(i % 300).expect("room")).collect();
    live.sort_unstable();
    live.dedup();
    assert_eq!(live.len() as u64, OBJECTS);
    let first = live[0];
    naive.free(first).expect("an object");
    assert!(naive.free(first).is_err(), "freed twice");
    for at in &live[1..] {
        naive.free(*at).expect("an object");
    }
}

#[test]
fn a_guard_has_a_line_of_its_own() {
    let space = counting();
    let guarded = Heap::create(space.clone(), &Options { guard: true, ..small() }).expect("room");
    guarded.alloc(64).expect("room");
    let flushed = lines(&space, || assert!(guarded.alloc(64).is_ok()));
    assert_eq!(flushed, 2);
}
