//! What a transaction frees is claimed before the commit is decided: whoever was quicker has it, and the
//! transaction is refused as a whole.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{BOTH, Ground, SPACE_BYTES, heap_options, logging, memory};
use wattkeep_heap::{Heap, HeapError};
use wattkeep_persist::{Anonymous, Domain, DomainKind, Ptr, Space};
use wattkeep_sim::panics::Panics;
use wattkeep_tx::{Logging, Manager, Options, TxError};

type Done = Result<(), TxError>;

fn ground(mode: Logging, guard: bool) -> Ground {
    let options = wattkeep_heap::Options { guard, ..heap_options() };
    let heap = Heap::create(memory(DomainKind::Battery), &options).expect("room");
    Ground::on(heap, &logging(mode)).expect("made")
}

/// What another program finds, that opens the heap as it is now.
fn found(space: &Space, mode: Logging) -> Ground {
    let mut bytes = vec![0; space.len()];
    space.read_bytes(0, &mut bytes).expect("all of it");
    let copy = memory(DomainKind::Battery);
    copy.write_bytes(0, &bytes).expect("as long");
    Ground::open(&copy, &logging(mode)).expect("the log names nothing that the heap refuses")
}

/// The commit was decided before the heap was asked. So the manager was poisoned, and no later one could open the
/// heap: each was told that a record was damaged.
#[test]
fn an_object_that_was_freed_meanwhile_is_the_end_of_the_transaction_not_of_the_heap() {
    type Meanwhile = fn(&Ground, u64) -> Result<(), TxError>;
    let others: [Meanwhile; 3] = [
        |ground, at| Ok(ground.manager.heap().free(at)?),
        |ground, at| Ok(ground.manager.heap().resize(at, 5000).map(|_| ())?),
        |ground, at| {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| ground.manager.run(|tx| tx.free(Ptr::<u8>::at(at))));
                other.join().expect("it does not panic")
            })
        },
    ];
    for (mode, other) in BOTH.into_iter().flat_map(|mode| others.map(|other| (mode, other))) {
        let ground = ground(mode, false);
        let heap = ground.manager.heap();
        let [mine, lost] = [heap.alloc(64), heap.alloc(64)].map(|at| at.expect("room"));
        let mut tx = ground.manager.begin().expect("begun");
        let fresh = tx.alloc_bytes(64).expect("room");
        for (index, at) in [mine, lost].into_iter().enumerate() {
            tx.write_word(ground.word(index as u64), at).expect("stored");
            tx.free(Ptr::<u8>::at(at)).expect("it is there");
        }
        other(&ground, lost).expect("it has not committed");
        let refused = tx.commit();
        assert!(
            matches!(refused, Err(TxError::Heap(HeapError::DoubleFree { at })) if at == lost),
            "{refused:?}"
        );
        assert_eq!((ground.read(0), ground.read(1)), (0, 0), "{mode:?}");
        assert!(heap.is_allocated(mine) && !heap.is_allocated(fresh.offset()), "{mode:?}");
        ground.manager.run(|tx| tx.free(Ptr::<u8>::at(mine))).expect("the other one is as before");
        ground.manager.run(|tx| tx.write_word(ground.word(2), 7)).expect("nothing is poisoned");
        let found = found(ground.space(), mode);
        assert_eq!((found.read(0), found.read(2)), (0, 7), "{mode:?}");
        assert!(!found.manager.heap().is_allocated(mine), "{mode:?}");
        let report = found.manager.heap().check(None).expect("read");
        assert!(report.is_clean(), "{mode:?}: {report}");
    }
}

/// The same for an object behind whose end somebody had written.
#[test]
fn an_object_whose_guard_is_overwritten_is_not_freed_and_the_heap_opens() {
    for mode in BOTH {
        let ground = ground(mode, true);
        let at = ground.manager.heap().alloc(64).expect("room");
        ground.space().write_bytes(at as usize + 60, &[0xEE; 16]).expect("inside");
        let refused = ground.manager.run(|tx| {
            tx.write_word(ground.word(0), 1)?;
            tx.free(Ptr::<u8>::at(at))
        });
        assert!(matches!(refused, Err(TxError::Heap(HeapError::Overrun { .. }))), "{mode:?}: {refused:?}");
        assert!(ground.manager.heap().is_allocated(at) && ground.read(0) == 0, "{mode:?}");
        ground.manager.run(|tx| tx.write_word(ground.word(2), 7)).expect("nothing is poisoned");
        assert_eq!(found(ground.space(), mode).read(2), 7, "{mode:?}");
    }
}

#[test]
fn what_is_claimed_is_nobody_elses_until_it_is_given_up_or_published() {
    let heap = Arc::new(Heap::create(memory(DomainKind::Battery), &heap_options()).expect("room"));
    let (object, reserved) = (heap.alloc(64).expect("room"), heap.reserve(64).expect("room"));
    let claimed = heap.claim(3, 1, &[reserved], &[object]).expect("they are there");
    assert_eq!(heap.free(object), Err(HeapError::DoubleFree { at: object }));
    assert!(heap.claim(4, 1, &[], &[object]).is_err() && heap.cancel(reserved).is_err());
    drop(claimed);
    assert!(heap.is_allocated(object) && !heap.is_allocated(reserved));
    let claimed = heap.claim(4, 1, &[reserved], &[object]).expect("they are as before");
    claimed.publish().expect("claimed");
    assert!(!heap.is_allocated(object) && heap.is_allocated(reserved));
    assert_eq!(heap.published(4), Ok(1));
    for tid in [0, 1, wattkeep_heap::TID_MAX + 1] {
        assert!(matches!(heap.claim(4, tid, &[], &[reserved]), Err(HeapError::Transaction { .. })), "{tid}");
    }
    heap.free(reserved).expect("nobody has it");
    Manager::open(heap, &Options::default()).expect("a log of its own");
}

/// A heap was full to the last page, and a transaction freed more objects than there was room to say so. It had
/// committed before that was found: the manager was poisoned, and the next one refused to open.
#[test]
fn a_transaction_that_frees_more_than_the_log_of_a_full_heap_has_room_for_is_refused_whole() {
    for mode in BOTH {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(132 << 20)), Domain::Battery));
        let options = wattkeep_heap::Options { log_area_bytes: 128 << 20, ..Default::default() };
        let heap = Arc::new(Heap::create(space.clone(), &options).expect("room"));
        let manager = Manager::open(heap.clone(), &logging(mode)).expect("a manager");
        let (mut objects, mut bytes) = (Vec::new(), 1 << 20);
        while bytes >= 16 {
            match heap.alloc(if objects.len() < 30_000 { 64 } else { bytes }) {
                Ok(at) => objects.push(at),
                Err(HeapError::OutOfSpace { .. }) => bytes /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        let mut few = 30_000;
        // Fewer find room in the end.
        loop {
            let freed = manager
                .run(|tx| -> Done { objects[..few].iter().try_for_each(|at| tx.free(Ptr::<u8>::at(*at))) });
            match freed {
                Ok(()) => break,
                Err(TxError::Heap(HeapError::OutOfSpace { .. }) | TxError::TooLarge { .. }) => few /= 2,
                Err(error) => panic!("{mode:?}, {few} objects: {error}"),
            }
            assert!(objects.iter().all(|at| heap.is_allocated(*at)), "{mode:?}: refused whole");
        }
        assert!(few > 0, "{mode:?}");
        drop((manager, heap));
        let heap = Arc::new(Heap::open(space).expect("a heap"));
        Manager::open(heap.clone(), &logging(mode)).expect("nothing is left to do");
        assert_eq!(objects.iter().filter(|at| heap.is_allocated(**at)).count(), objects.len() - few);
        assert!(heap.check(None).expect("readable").is_clean());
    }
}

/// A panic behind the point of no return let the manager go on: with redo, the transaction was rolled back in memory
/// that its log would replay, and the next truncation forgot which objects it had allocated and freed.
#[test]
fn a_commit_that_a_panic_cuts_short_is_there_as_a_whole_or_not_at_all() {
    for mode in BOTH {
        let mut store = 0;
        loop {
            store += 1;
            let panics = Arc::new(Panics::default());
            let space = Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), Domain::Battery);
            let space = Arc::new(space.watched_by(panics.clone()));
            let ground = Ground::make(&space, &logging(mode)).expect("made");
            let freed = ground.manager.heap().alloc(64).expect("room");
            let mut fresh = 0;
            panics.plan(store);
            let committed = catch_unwind(AssertUnwindSafe(|| {
                ground.manager.run(|tx| {
                    fresh = tx.alloc_bytes(64)?.offset();
                    tx.write_word(ground.word(0), fresh)?;
                    tx.write_bytes(ground.word(1).offset(), &[1; 8])?;
                    tx.free(Ptr::<u8>::at(freed))
                })
            }));
            panics.plan(0);
            // As long as the manager lets it.
            let goes_on = ground.manager.run(|tx| tx.write_word(ground.word(2), 1)).is_ok();
            // A cut then, or an orderly end, which empties the log.
            let cut = found(&space, mode);
            drop(ground);
            for ground in [cut, found(&space, mode)] {
                let (heap, told) =
                    (ground.manager.heap(), format!("{mode:?}, store {store}, goes on: {goes_on}"));
                let is_there = ground.read(1) != 0;
                assert_eq!(ground.read(0) == fresh, is_there, "{told}");
                assert_eq!(heap.is_allocated(fresh), is_there, "{told}: {fresh:#x} allocated");
                assert_eq!(heap.is_allocated(freed), !is_there, "{told}: {freed:#x} freed");
                assert_eq!(ground.read(2) == 1, goes_on, "{told}");
            }
            if let Ok(committed) = committed {
                committed.expect("nothing is refused");
                break;
            }
        }
        assert!(store > 5, "{store} stores");
    }
}
