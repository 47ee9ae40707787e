//! What beginning to open a heap costs, where nothing but roots and objects is read.

mod common;

use std::fs;

use wattkeep_heap::{Heap, Options};

/// Page faults of this thread that needed no disk.
fn faults() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/stat").expect("this thread's accounts");
    let fields = text.rsplit_once(')').expect("a name in parentheses").1;
    fields.split_whitespace().nth(7).expect("the field").parse().expect("a number")
}

/// The first heap of a process had its tables from the kernel, as memory that is zero. When it was closed, the C
/// library kept two of them, and wrote zeros over 32 MiB for the next one: 8,186 faults and 30 ms, before an object
/// could be read.
#[test]
fn a_heap_is_opened_as_quickly_when_the_process_had_one_before() {
    let space = common::space(64 << 20);
    drop(Heap::create(space.clone(), &Options::default()).expect("room"));
    for turn in 0..4 {
        let before = faults();
        let opening = Heap::begin_open(space.clone(), None).expect("a heap");
        let took = faults() - before;
        assert!(took < 1_000, "turn {turn}: {took} page faults");
        drop(opening.heap().expect("whole"));
    }
}
