//! Power cuts on a twin of persistent memory behind a cache: whatever is left of the lines, the heap opens.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wattkeep_heap::{Heap, HeapError, Options};
use wattkeep_persist::{Anonymous, Backing, Domain, DomainKind, Space};
use wattkeep_sim::cache::Dimm;
use wattkeep_sim::panics::Panics;
use wattkeep_sim::random::{Random, seed_from_environment};

const SPACE_BYTES: usize = 512 << 10;
const IMAGES: usize = 3;

/// What a program had at a step of its history: the objects of each group, by the transaction's number.
type Groups = Vec<Vec<u64>>;

/// A heap without an area for transaction logs.
fn make(dimm: &Dimm) {
    let options = Options { log_area_bytes: 0, ..Options::default() };
    drop(Heap::create(dimm.boot().0, &options).expect("room"));
}

/// Every group up to the one that the lane has published is there, and no other.
fn check(space: Arc<Space>, groups: &Groups, least: u64, story: &str) -> u64 {
    let heap = Heap::open(space).unwrap_or_else(|error| panic!("{story}: {error}"));
    let published = heap.published(0).expect("a lane");
    assert!(published >= least, "{story}: {published} published, {least} promised");
    for (objects, tid) in groups.iter().zip(1..) {
        for at in objects {
            assert_eq!(heap.is_allocated(*at), tid <= published, "{story}: {at:#x} of transaction {tid}");
        }
    }
    published
}

/// A group whose records took more than one line was cut before its fence: a later line was in the memory,
/// the line with the group's header was not. The records behind the gap were taken for part of the group
/// before, which counted, so the heap was refused as damaged. And a recovery overwrote a torn group from its
/// header on: cut in between, it left records that the next one took for the group before, and published.
#[test]
fn a_torn_group_is_never_taken_for_the_one_before() {
    let random = &mut Random::new(seed_from_environment(1));
    let dimm = Dimm::new(SPACE_BYTES, DomainKind::Adr);
    make(&dimm);
    let mut before = dimm.before();
    let (space, cache) = dimm.boot();
    let heap = Heap::open(space).expect("just made");
    let (mut groups, mut promised) = (Groups::new(), vec![(0, 0)]);
    for tid in 1..=26 {
        let objects: Vec<_> = (0..1 + tid % 13).map(|_| heap.reserve(48).expect("room")).collect();
        heap.publish(0, tid, &objects, &[]).expect("published");
        groups.push(objects);
        promised.push((cache.now(), tid));
    }
    drop(heap);
    let history = cache.history();
    for step in 0..=history.len() {
        before.moment.advance(&history, step);
        let least = promised.iter().rev().find(|(at, _)| *at <= step).expect("the first is 0").1;
        for number in 0..IMAGES {
            let image = before.moment.sample(random);
            dimm.load(&mut before, &image);
            let story = format!("cut at step {step}, image {number}");
            let mut again = dimm.before();
            let (space, cache) = dimm.boot();
            let published = check(space, &groups, least, &story);
            let recovery = cache.history();
            again.moment.advance(&recovery, random.below(recovery.len() as u64 + 1) as usize);
            let image = again.moment.sample(random);
            dimm.load(&mut again, &image);
            let story = format!("{story}, recovery cut at step {}", again.moment.steps());
            assert_eq!(check(dimm.boot().0, &groups, least, &story), published, "{story}");
        }
    }
}

/// What excludes a large object's two records goes into one line. Where they did not fit, the gap before them
/// was filled without waiting until that was durable: a cut left the gap before records that count, and the
/// heap was refused.
#[test]
fn a_gap_before_a_pair_of_records_is_durable_with_them() {
    let random = &mut Random::new(seed_from_environment(1));
    let dimm = Dimm::new(2 * SPACE_BYTES, DomainKind::Adr);
    make(&dimm);
    let mut before = dimm.before();
    let (space, cache) = dimm.boot();
    let heap = Heap::open(space).expect("just made");
    // Small objects in between, so that the pair begins at every place of a line.
    for small in 0..16 {
        let large = heap.alloc(80_000).expect("room");
        heap.free(large).expect("an object");
        for _ in 0..small % 3 {
            heap.alloc(16).expect("room");
        }
    }
    drop(heap);
    let history = cache.history();
    for step in 0..=history.len() {
        before.moment.advance(&history, step);
        for _ in 0..IMAGES {
            let image = before.moment.sample(random);
            dimm.load(&mut before, &image);
            Heap::open(dimm.boot().0).unwrap_or_else(|error| panic!("cut at step {step}: {error}"));
        }
    }
}

/// A guard word was flushed, and not waited for, before the record of its object: a cut left the record
/// without the guard, and the object could never be freed, since it seemed to be overrun.
#[test]
fn an_object_is_never_there_without_its_guard() {
    let random = &mut Random::new(seed_from_environment(1));
    let dimm = Dimm::new(SPACE_BYTES, DomainKind::Adr);
    let options = Options { log_area_bytes: 0, guard: true, ..Options::default() };
    drop(Heap::create(dimm.boot().0, &options).expect("room"));
    let mut before = dimm.before();
    let (space, cache) = dimm.boot();
    let heap = Heap::open(space).expect("just made");
    let objects: Vec<_> = (0..12).map(|_| heap.alloc(100).expect("room")).collect();
    drop(heap);
    let history = cache.history();
    for step in 0..=history.len() {
        before.moment.advance(&history, step);
        for _ in 0..IMAGES {
            let image = before.moment.sample(random);
            dimm.load(&mut before, &image);
            let heap = Heap::open(dimm.boot().0).expect("a heap that a cut left");
            for at in objects.iter().filter(|at| heap.is_allocated(**at)) {
                heap.free(*at).unwrap_or_else(|error| panic!("cut at step {step}: {error}"));
            }
        }
    }
}

/// A cut amid the making of a heap left part of a superblock: neither a heap nor nothing, so the space could
/// never be used again.
#[test]
fn a_heap_whose_making_was_cut_is_made_again() {
    let dimm = Dimm::new(SPACE_BYTES, DomainKind::Adr);
    let mut before = dimm.before();
    let options = Options { log_area_bytes: 0, ..Options::default() };
    let (space, cache) = dimm.boot();
    drop(Heap::create(space, &options).expect("room"));
    let history = cache.history();
    for step in 0..=history.len() {
        before.moment.advance(&history, step);
        for number in 0..before.moment.images() {
            let image = before.moment.image(number);
            dimm.load(&mut before, &image);
            Heap::open_or_create(dimm.boot().0, &options)
                .unwrap_or_else(|error| panic!("cut at step {step}, image {number}: {error}"));
        }
    }
}

/// A panic among the stores of a group left its lane in use. Its next transaction had a higher number, which is what
/// says that a group counts: so the part that was there did.
#[test]
fn a_group_that_a_panic_cut_short_never_counts_in_part() {
    for store in 1..=4 {
        let plain: Arc<dyn Backing> = Arc::new(Anonymous::new(SPACE_BYTES));
        let panics = Arc::new(Panics::default());
        let space = Space::new(plain, Domain::Battery).watched_by(panics.clone());
        let options = Options { log_area_bytes: 0, ..Options::default() };
        let heap = Heap::create(Arc::new(space), &options).expect("room");
        let freed = heap.alloc(48).expect("room");
        let fresh = [(); 2].map(|()| heap.reserve(48).expect("room"));
        panics.plan(store);
        let published = catch_unwind(AssertUnwindSafe(|| heap.publish(0, 1, &fresh, &[freed])));
        assert!(published.is_err(), "it stores {store} words at least");
        let other = heap.reserve(48).expect("room");
        let refused = heap.publish(0, 2, &[other], &[]);
        assert!(matches!(refused, Err(HeapError::LanePoisoned { lane: 0 })), "{refused:?}");
        heap.alloc(48).expect("all else goes on");

        let mut bytes = vec![0; SPACE_BYTES];
        heap.space().read_bytes(0, &mut bytes).expect("all of it");
        let found = Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), Domain::Battery);
        found.write_bytes(0, &bytes).expect("as long");
        let heap = Heap::open(Arc::new(found)).expect("readable");
        assert!(heap.check(None).expect("readable").is_clean());
        let [first, second] = fresh.map(|at| heap.is_allocated(at));
        assert!(first == second && first != heap.is_allocated(freed), "store {store}: in part");
    }
}
