//! What is wrong is found and said, and what cannot be is refused: never silent, never half done.

mod common;

use common::{copy, heap, reopened, small, space};
use proptest::prelude::*;
use wattkeep_heap::trace::{Leak, Leaks};
use wattkeep_heap::{Heap, HeapError, LANES, Options, Reach, Root, Tracer};
use wattkeep_persist::{Ptr, Refused, Space};

/// Follows a list: the first word of an object points to the next one.
struct List;

impl Tracer for List {
    fn trace(&self, heap: &Heap, root: &Root, reach: &mut Reach<'_>) -> Result<(), HeapError> {
        let mut at = heap.space().load(root.word.offset() as usize)?;
        while at != 0 && reach.object(at) {
            at = heap.space().load(at as usize)?;
        }
        Ok(())
    }
}

/// Links a list of so many objects to the root "list".
fn list(heap: &Heap, objects: usize) -> Vec<u64> {
    let root = heap.create_root("list", 8, 1).expect("a free name");
    let mut link = root.word.offset();
    let objects: Vec<u64> = (0..objects).map(|_| heap.alloc(48).expect("room")).collect();
    for &at in &objects {
        heap.space().store(at as usize, 0).expect("inside");
        heap.space().store(link as usize, at).expect("inside");
        link = at;
    }
    objects
}

/// Where the log has this word's object: the place of its record.
fn record_of(space: &Space, at: u64) -> usize {
    let payload = |word: u64| word >> 6 & ((1 << 50) - 1);
    let word = |place: &usize| space.load(*place).expect("inside");
    (0..space.len())
        .step_by(8)
        .find(|place| word(place) & 0xf == 2 && payload(word(place)) == at >> 4 && word(place) >> 56 != 0)
        .expect("an allocated object has a record")
}

#[test]
fn a_heap_that_is_well_says_so_and_counts_what_is_in_it() {
    let heap = heap(8 << 20);
    let objects = list(&heap, 100);
    let at = heap.alloc(100_000).expect("room");
    let report = heap.check(Some(&List)).expect("readable");
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.objects, report.reachable_objects), (101, Some(100)));
    let first = vec![Leak { at, bytes: 102_400 }];
    assert_eq!(report.leaks, Some(Leaks { objects: 1, bytes: 102_400, first }));
    assert_eq!(report.roots, ["list"]);
    for at in objects {
        heap.free(at).expect("an object");
    }
    let report = heap.check(Some(&List)).expect("readable");
    assert_eq!(report.problems_count, 101, "a root and a tracer that point to what was freed: {report}");
}

#[test]
fn an_overwritten_guard_is_found_when_it_is_freed_and_when_the_heap_is_checked() {
    let heap = Heap::create(space(4 << 20), &Options { guard: true, ..small() }).expect("room");
    let (at, other) = (heap.alloc(100).expect("room"), heap.alloc(100).expect("room"));
    let bytes = heap.usable_size(at).expect("an object") as usize;
    heap.space().write_bytes(at as usize, &vec![7; bytes]).expect("inside");
    assert!(heap.check(None).expect("readable").is_clean());
    heap.space().write_bytes(at as usize, &vec![7; bytes + 1]).expect("inside");
    for heap in [&heap, &reopened(&heap)] {
        assert_eq!(heap.free(at), Err(HeapError::Overrun { at }));
        assert_eq!(heap.check(None).expect("readable").problems[0].at, at);
        assert!(heap.is_allocated(at), "a refused free leaves the object");
        heap.free(other).expect("its guard is whole");
    }
}

#[test]
fn a_wrong_offset_is_refused_whatever_it_is() {
    let heap = heap(4 << 20);
    let (small, large) = (heap.alloc(64).expect("room"), heap.alloc(100_000).expect("room"));
    for at in [0, 1, small + 1, small + 16, large + 16, large + 4096, 4 << 20, u64::MAX, u64::MAX / 2] {
        assert!(matches!(heap.free(at), Err(HeapError::Foreign { .. })), "{at:#x}");
        assert!(heap.usable_size(at).is_err() && heap.resize(at, 10).is_err() && !heap.is_allocated(at));
    }
    assert!(matches!(heap.free(small + 64), Err(HeapError::DoubleFree { .. })), "never given out");
    for at in [small, large] {
        heap.free(at).expect("an object");
        assert!(heap.free(at).is_err(), "freed twice");
    }
    // Capacity has no offset; but one can be guessed, as that of the object that lies there next.
    let object = heap.alloc(64).expect("room");
    heap.free(object).expect("an object");
    let capacity = heap.cap_alloc(64).expect("room");
    for refused in [heap.free(object), heap.resize(object, 10).map(|_| ()), heap.cancel(object)] {
        assert!(
            matches!(refused, Err(HeapError::WrongOwner { owner: "volatile capacity", .. })),
            "{refused:?}"
        );
    }
    assert!(
        matches!(heap.usable_size(object), Err(HeapError::WrongOwner { .. })) && !heap.is_allocated(object)
    );
    heap.cap_free(capacity).expect("capacity");
    let object = heap.alloc(64).expect("room");
    assert!(matches!(heap.cancel(object), Err(HeapError::WrongOwner { .. })));
    assert!(heap.check(None).expect("readable").is_clean());
}

#[test]
fn a_group_that_cannot_be_is_refused_as_a_whole() {
    let heap = heap(4 << 20);
    let (object, reserved) = (heap.alloc(64).expect("room"), heap.reserve(64).expect("room"));
    let foreign = heap.publish(0, 1, &[reserved], &[object, 12345]);
    assert_eq!(foreign, Err(HeapError::Foreign { at: 12345 }));
    assert!(heap.publish(0, 1, &[reserved], &[object, object]).is_err(), "freed twice in one group");
    assert!(heap.publish(0, 1, &[reserved, object], &[]).is_err(), "allocated already");
    assert!(matches!(heap.publish(LANES, 1, &[], &[]), Err(HeapError::Transaction { .. })));
    assert!(matches!(heap.publish(0, 0, &[], &[]), Err(HeapError::Transaction { .. })));
    assert_eq!(heap.published(0), Ok(0));
    assert!(heap.is_allocated(object) && !heap.is_allocated(reserved));
    heap.publish(0, 1, &[reserved], &[object]).expect("a group");
    assert!(!heap.is_allocated(object) && heap.is_allocated(reserved));
    heap.publish(0, 1, &[], &[reserved]).expect("published already, nothing is done");
    assert!(heap.is_allocated(reserved));
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let heap = heap(4 << 20);
    for bytes in [u64::MAX, u64::MAX - 7, 1 << 40, 1 << 34] {
        assert!(matches!(heap.alloc(bytes), Err(HeapError::TooLarge { .. })), "{bytes}");
    }
    assert!(matches!(heap.alloc(8 << 20), Err(HeapError::OutOfSpace { .. })));
    for align in [0, 3, 1 << 31, u64::MAX] {
        assert!(matches!(heap.alloc_aligned(10, align), Err(HeapError::Alignment { .. })), "{align}");
    }
    assert!(matches!(Heap::create(space(64 << 10), &small()), Err(HeapError::TooSmall { .. })));
    assert!(matches!(Heap::create(copy(heap.space()), &small()), Err(HeapError::Exists)));
    assert!(matches!(Heap::open(space(1 << 20)), Err(HeapError::NotAHeap)));
    assert!(heap.check(None).expect("readable").is_clean());
}

#[test]
fn roots_are_what_they_were_made_for() {
    let heap = heap(4 << 20);
    heap.create_root("table", 24, 7).expect("a free name");
    assert!(matches!(heap.create_root("table", 24, 7), Err(HeapError::RootTaken { .. })));
    assert!(matches!(heap.open_root("table", 32, 7), Err(HeapError::RootMismatch { .. })));
    assert!(matches!(heap.open_root("table", 24, 8), Err(HeapError::RootMismatch { .. })));
    assert!(matches!(heap.open_root("tables", 24, 7), Err(HeapError::RootMissing { .. })));
    assert!(matches!(heap.create_root(&"x".repeat(89), 1, 1), Err(HeapError::RootName { .. })));
    let at = heap.persist_alloc(100, Some("object")).expect("room");
    assert!(matches!(heap.persist_alloc(100, Some("object")), Err(HeapError::RootTaken { .. })));
    assert!(matches!(heap.persist_alloc(99, Some("object")), Err(HeapError::RootMismatch { .. })));
    let again = reopened(&heap);
    let root = again.root("object").expect("readable").expect("there");
    assert_eq!(again.space().load(root.word.offset() as usize), Ok(at));
    // A cut may keep the word as it was before the object's record was durable: marked, by its lowest bit.
    let marked = copy(heap.space());
    marked.store(root.word.offset() as usize, at | 1).expect("inside");
    Heap::open(marked.clone()).expect("a heap");
    assert_eq!(marked.load(root.word.offset() as usize), Ok(at));
    assert_eq!((root.size, root.word.is_null()), (100, root.word == Ptr::NULL));
    again.remove_root("table").expect("there");
    assert_eq!(again.root("table"), Ok(None));
    for number in 0.. {
        match again.create_root(&format!("root {number}"), 1, 1) {
            Ok(_) => assert!(number < 256),
            Err(error) => return assert!(matches!(error, HeapError::RootsFull { .. }), "{error}"),
        }
    }
}

/// The root was made first. With no room for the object it stayed, of a size that every smaller request was
/// refused for.
#[test]
fn an_object_that_cannot_be_had_leaves_no_root() {
    let heap = heap(4 << 20);
    for bytes in [1 << 40, 16 << 20] {
        assert!(heap.persist_alloc(bytes, Some("root")).is_err());
        assert_eq!(heap.roots(), Ok(Vec::new()));
    }
    let at = heap.persist_alloc(64, Some("root")).expect("room");
    assert!(matches!(heap.persist_alloc(64, Some("root")), Err(HeapError::RootTaken { .. })));
    assert!(matches!(heap.persist_alloc(65, Some("root")), Err(HeapError::RootMismatch { .. })));
    let long = "x".repeat(89);
    assert!(matches!(heap.persist_alloc(64, Some(&long)), Err(HeapError::RootName { .. })));
    let heap = reopened(&heap);
    let report = heap.check(Some(&List)).expect("readable");
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.objects, heap.is_allocated(at)), (1, true));
}

/// A size was told of an object that a transaction had freed.
#[test]
fn what_a_transaction_freed_has_no_size() {
    let heap = heap(4 << 20);
    for bytes in [64, 100_000] {
        let at = heap.alloc(bytes).expect("room");
        heap.publish(0, bytes, &[], &[at]).expect("freed");
        assert_eq!(heap.usable_size(at), Err(HeapError::DoubleFree { at }));
    }
}

/// An offset of volatile capacity could be stored in an object or given to a transaction, and named another
/// object after a restart. What was taken before a restart, or from another heap, is refused now; the compiler
/// refuses to store it (`Capacity`).
#[test]
fn capacity_is_of_one_opening_of_one_heap() {
    let (heap, other) = (heap(4 << 20), heap(4 << 20));
    for bytes in [0, 100, 100_000] {
        let (mine, lost) = (heap.cap_alloc(bytes).expect("room"), other.cap_alloc(bytes).expect("room"));
        let filled = vec![7; bytes as usize];
        heap.cap_write(&mine, 0, &filled).expect("its own");
        let mut read = vec![0; bytes as usize];
        heap.cap_read(&mine, 0, &mut read).expect("its own");
        assert_eq!((read, mine.bytes()), (filled, bytes));
        for (offset, len) in [(bytes, 1), (0, bytes as usize + 1), (u64::MAX, 2)] {
            let outside =
                Err(HeapError::Space(Refused::Outside { at: offset as usize, len, space: bytes as usize }));
            assert_eq!(heap.cap_write(&mine, offset, &vec![1; len]), outside);
            assert_eq!(heap.cap_read(&mine, offset, &mut vec![1; len]), outside);
        }
        assert!(matches!(heap.cap_write(&lost, 0, &[]), Err(HeapError::Foreign { .. })));
        assert!(matches!(heap.cap_free(lost), Err(HeapError::Foreign { .. })));
        heap.cap_free(mine).expect("its own");
    }
    let before = heap.cap_alloc(100).expect("room");
    let heap = reopened(&heap);
    assert!(matches!(heap.cap_read(&before, 0, &mut [0; 8]), Err(HeapError::Foreign { .. })));
    assert!(matches!(heap.cap_free(before), Err(HeapError::Foreign { .. })));
    let report = heap.check(None).expect("readable");
    assert!(report.is_clean() && report.objects == 0, "{report}");
}

#[test]
fn a_heap_from_a_later_version_is_left_alone() {
    let heap = heap(4 << 20);
    let later = copy(heap.space());
    later.write(8, &2u32).expect("inside");
    let before = copy(&later);
    assert!(matches!(Heap::open(later.clone()), Err(HeapError::NewerVersion { found: 2, known: 1 })));
    assert!(matches!(Heap::create(later.clone(), &small()), Err(HeapError::NewerVersion { .. })));
    let (mut left, mut was) = (vec![0; later.len()], vec![0; before.len()]);
    later.read_bytes(0, &mut left).expect("inside");
    before.read_bytes(0, &mut was).expect("inside");
    assert!(left == was, "nothing was written");
}

#[test]
fn a_superblock_has_a_copy() {
    let heap = heap(4 << 20);
    let at = heap.alloc(64).expect("room");
    for copies in [&[0][..], &[2048], &[0, 2048]] {
        let damaged = copy(heap.space());
        copies.iter().for_each(|place| damaged.write_bytes(place + 16, &[9; 8]).expect("inside"));
        match Heap::open(damaged) {
            Ok(heap) => assert!(copies.len() == 1 && heap.is_allocated(at)),
            Err(error) => assert!(copies.len() == 2, "{error}"),
        }
    }
}

#[test]
fn damage_in_the_log_is_refused_and_tracing_mends_it() {
    let heap = heap(4 << 20);
    let objects = list(&heap, 300);
    let leaked = heap.alloc(64).expect("room");
    let whole = copy(heap.space());
    // The first record, one in the middle, the last one of the list; wiped, or with a bit flipped.
    for at in [objects[0], objects[150], objects[299]] {
        let place = record_of(&whole, at);
        let word = whole.load(place).expect("inside");
        for damage in [0, word ^ 1 << 40, word ^ 1 << 60, u64::MAX] {
            let damaged = copy(&whole);
            damaged.store(place, damage).expect("inside");
            match Heap::open(copy(&damaged)) {
                Err(HeapError::Damaged { .. }) => {}
                other => panic!("{at:#x}: {damage:#x} for {word:#x}: {other:?}"),
            }
            let (mended, traced) = Heap::open_tracing(damaged, &List).expect("reachable");
            assert_eq!((traced.kept, traced.restored, traced.freed), (299, 1, 1));
            assert!(!mended.is_allocated(leaked) && objects.iter().all(|at| mended.is_allocated(*at)));
            assert!(mended.check(Some(&List)).expect("readable").is_clean());
            let again = reopened(&mended);
            assert_eq!(again.check(Some(&List)).expect("readable").leaks, Some(Leaks::default()));
        }
    }
}

#[test]
fn the_check_sees_a_record_that_was_changed_behind_its_back() {
    let heap = heap(4 << 20);
    let objects = list(&heap, 20);
    let place = record_of(heap.space(), objects[7]);
    let pad = {
        let freed = copy(heap.space());
        Heap::open(freed.clone()).expect("a heap").free(objects[7]).expect("an object");
        freed.load(place).expect("inside")
    };
    heap.space().store(place, pad).expect("inside");
    let report = heap.check(None).expect("readable");
    assert_eq!(report.problems.first().map(|problem| problem.at), Some(objects[7]), "{report}");
}

/// A cut had come between the two copies of the superblock. The heap opened, and a check called the first one lost.
#[test]
fn a_heap_whose_making_was_cut_between_the_copies_of_its_superblock_is_whole_when_it_is_opened() {
    let heap = heap(4 << 20);
    for written in [0, 8, 40] {
        let space = copy(heap.space());
        space.write_bytes(written, &vec![0; 64 - written]).expect("inside");
        let opened = Heap::open(space).expect("the second copy says that it is a heap");
        let report = opened.check(None).expect("readable");
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn a_heap_can_be_read_while_it_is_opened() {
    let heap = heap(4 << 20);
    let objects = list(&heap, 50);
    let named = heap.persist_alloc(64, Some("named")).expect("room");
    heap.space().store(named as usize, 77).expect("inside");
    heap.create_root("empty", 8, 0).expect("a root");
    let space = copy(heap.space());
    let opening = Heap::begin_open(space.clone(), None).expect("a heap");
    let object = opening.object::<u64>("named").expect("readable").expect("linked");
    assert_eq!(opening.space().read::<u64>(object.offset() as usize), Ok(77));
    for unlinked in ["empty", "no root"] {
        assert_eq!(opening.object::<u64>(unlinked), Ok(None));
    }
    assert!(matches!(Heap::open(space.clone()), Err(HeapError::InUse)));
    let opened = opening.heap().expect("sound");
    assert!(objects.iter().chain([&named]).all(|at| opened.is_allocated(*at)));
    drop(opened);
    drop(Heap::begin_open(space.clone(), None).expect("a heap"));
    Heap::open(space).expect("nobody has it any more");
}

#[test]
fn a_heap_that_is_damaged_is_refused_when_it_is_waited_for() {
    let heap = heap(4 << 20);
    let place = record_of(heap.space(), list(&heap, 50)[9]);
    let space = copy(heap.space());
    let word = space.load(place).expect("inside");
    space.store(place, word ^ 1 << 60).expect("inside");
    let opening = Heap::begin_open(space.clone(), None).expect("it holds a heap");
    assert!(matches!(opening.heap(), Err(HeapError::Damaged { .. })));
    assert!(matches!(Heap::open(space), Err(HeapError::Damaged { .. })), "not in use");
    let blank = Heap::begin_open(common::space(1 << 20), None);
    assert!(matches!(blank, Err(HeapError::NotAHeap)), "at once: {blank:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]

    /// Whatever bytes are changed, an open answers: with a heap that can be used, or with an error.
    #[test]
    fn any_damage_is_an_answer(damage in prop::collection::vec((0u32..(1 << 20), any::<u64>()), 1..20)) {
        let heap = heap(1 << 20);
        list(&heap, 50);
        let damaged = copy(heap.space());
        for (at, word) in damage {
            let at = if at % 4 == 0 { at } else { at % (80 << 10) };
            damaged.store(at as usize / 8 * 8, word).expect("inside");
        }
        if let Ok(heap) = Heap::open(copy(&damaged)) {
            let _ = heap.check(Some(&List));
            if let Ok(at) = heap.alloc(64) {
                // Bytes where a log may be are taken for one, and nobody has opened it.
                let freed = heap.free(at);
                assert!(matches!(freed, Ok(()) | Err(HeapError::Replayed { .. })), "{freed:?}");
            }
        }
        let _ = Heap::open_tracing(damaged, &List).map(|(heap, _)| heap.check(None));
    }
}
