//! A heap takes its fresh pages in batches, where that costs nothing: not from files, whose syncs would
//! write as much as was brought in together.

use std::sync::Arc;

use wattkeep_heap::supply::{self, Counts};
use wattkeep_heap::{Heap, HeapError, Options};
use wattkeep_persist::{Anonymous, Backing, Domain, DomainKind, MappedFile, Space};

const BYTES: usize = 8 << 20;

fn filled(backing: Arc<dyn Backing>, domain: Domain) -> Heap {
    let space = Arc::new(Space::new(backing, domain));
    fill(Heap::create(space, &with(None)).expect("a heap"))
}

fn with(supply: Option<supply::Options>) -> Options {
    Options { log_area_bytes: 1 << 20, supply, ..Options::default() }
}

fn fill(heap: Heap) -> Heap {
    for _ in 0..64 {
        heap.alloc(16 << 10).expect("room");
    }
    heap
}

#[test]
fn pages_of_memory_come_in_batches_and_pages_of_files_one_by_one() {
    let heap = filled(Arc::new(Anonymous::new(BYTES)), Domain::Battery);
    let Counts { batches, single_pages, .. } = heap.supplied();
    assert!(batches > 0 && single_pages == 0, "{:?}", heap.supplied());

    let directory = tempfile::tempdir().expect("a directory");
    let file = MappedFile::open(&directory.path().join("heap"), BYTES).expect("a mapped file");
    let heap = filled(Arc::new(file), DomainKind::File.domain());
    let Counts { batches, single_pages, .. } = heap.supplied();
    assert!(batches == 0 && single_pages >= 64 * 4, "{:?}", heap.supplied());
}

#[test]
fn a_heap_that_is_opened_again_goes_on_in_batches_and_finds_what_was_there() {
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
    let heap = Heap::create(space.clone(), &Options { log_area_bytes: 1 << 20, ..Options::default() });
    let heap = heap.expect("a heap");
    let first = heap.alloc(3 << 20).expect("room");
    space.write_bytes(first as usize, &[7; 4096]).expect("inside");
    drop(heap);
    let heap = Heap::open(space.clone()).expect("the heap");
    for _ in 0..20_000 {
        let at = heap.alloc(64).expect("room");
        assert!(at + 64 <= first || at >= first + (3 << 20));
    }
    assert!(heap.supplied().batches > 0);
    let mut bytes = [0; 4096];
    space.read_bytes(first as usize, &mut bytes).expect("inside");
    assert_eq!(bytes, [7; 4096]);
}

/// Small spaces need little memory: they get batches where a large one would leave it to others.
#[test]
fn watermarks_are_chosen_or_suit_the_space() {
    let of = |bytes: u64| (supply::Options::for_space(bytes).high, supply::Options::for_space(bytes).low);
    assert_eq!(of(8 << 20), (8 << 20, 2 << 20));
    assert_eq!(of(1 << 40), (1 << 30, 256 << 20));

    let space = || Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
    let none = supply::Options { high: u64::MAX, low: u64::MAX, ..supply::Options::for_space(0) };
    let heap = fill(Heap::create(space(), &with(Some(none))).expect("a heap"));
    let Counts { batches, single_pages, .. } = heap.supplied();
    assert!(batches == 0 && single_pages > 0, "no memory is as much as that: {:?}", heap.supplied());
    let space_of = |heap: Heap| heap.space().clone();
    let again = fill(Heap::open_with(space_of(heap), Some(none)).expect("a heap"));
    assert_eq!(again.supplied().batches, 0);
    let again = fill(Heap::open_or_create(space_of(again), &with(None)).expect("a heap"));
    assert!(again.supplied().batches > 0, "{:?}", again.supplied());

    let upside_down = Some(supply::Options { high: 1, low: 2, ..none });
    let blank = space();
    for refused in
        [Heap::create(blank.clone(), &with(upside_down)), Heap::open_with(again.space().clone(), upside_down)]
    {
        assert!(matches!(refused, Err(HeapError::Options(_))), "{refused:?}");
    }
    assert_eq!(Heap::open(blank).map(|_| ()), Err(HeapError::NotAHeap), "nothing was written");
}
