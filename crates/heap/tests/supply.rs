//! A heap takes its fresh pages in batches, where that costs nothing: not from files, whose syncs would
//! write as much as was brought in together.

use std::sync::Arc;

use wattkeep_heap::supply::Counts;
use wattkeep_heap::{Heap, Options};
use wattkeep_persist::{Anonymous, Backing, Domain, DomainKind, MappedFile, Space};

const BYTES: usize = 8 << 20;

fn filled(backing: Arc<dyn Backing>, domain: Domain) -> Heap {
    let space = Arc::new(Space::new(backing, domain));
    let options = Options { log_area_bytes: 1 << 20, ..Options::default() };
    let heap = Heap::create(space, &options).expect("a heap");
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
