//! A heap that is used directly beside its transactions, and what neither may do.

mod common;

use std::sync::Arc;

use common::{BOTH, Ground, heap_options, logging, memory};
use wattkeep_heap::{Heap, HeapError};
use wattkeep_persist::{DomainKind, Ptr, Space};
use wattkeep_tx::{Hint, Logging, Manager, TxError};

type Done = Result<(), TxError>;

/// What a crash leaves in memory that survives: all that was stored.
fn crashed(space: &Space) -> Arc<Space> {
    let mut bytes = vec![0; space.len()];
    space.read_bytes(0, &mut bytes).expect("all of it");
    let copy = memory(space.domain().kind());
    copy.write_bytes(0, &bytes).expect("as long");
    copy
}

fn open(space: Arc<Space>, mode: Logging) -> (Arc<Heap>, Manager) {
    let heap = Arc::new(Heap::open(space).expect("a heap"));
    (heap.clone(), Manager::open(heap, &logging(mode)).expect("a manager"))
}

fn made(mode: Logging) -> (Arc<Heap>, Manager) {
    let heap = Arc::new(Heap::create(memory(DomainKind::Battery), &heap_options()).expect("room"));
    (heap.clone(), Manager::open(heap, &logging(mode)).expect("a manager"))
}

/// Takes memory away that the log names. The offset is that of 64 bytes that a transaction stored to.
type Taking = fn(&Heap, u64);

const TAKINGS: [(&str, Taking); 2] = [
    ("freed", |heap, at| heap.free(at).expect("an object")),
    ("moved", |heap, at| assert_ne!(heap.resize(at, 1000).expect("room"), at)),
];

/// An object that a transaction had stored to was freed without one, and its memory was given out again. The log
/// still named it: after a crash the next open stored the old values over what the new owner had committed.
#[test]
fn memory_that_is_taken_without_a_transaction_is_not_stored_to_at_the_next_open() {
    for (what, take) in TAKINGS {
        for mode in BOTH {
            let (heap, manager) = made(mode);
            let old = manager.run(|tx| tx.alloc(&[1u64; 8])).expect("committed");
            manager.run(|tx| tx.write(old, &[0xDEAD; 8])).expect("committed");
            take(&heap, old.offset());
            let new = manager.run(|tx| tx.alloc(&[7u64; 8])).expect("committed");
            assert_eq!(new, old, "{what}, {mode:?}: the heap gives out what was freed last");
            let (_, manager) = open(crashed(heap.space()), mode);
            assert_eq!(manager.run(|tx| tx.read(new)).expect("read"), [7; 8], "{what}, {mode:?}");
        }
    }
}

/// The same of the word of a root: the next root of that place pointed where the removed one had.
#[test]
fn a_root_that_is_removed_leaves_nothing_to_the_next_one() {
    for mode in BOTH {
        let (heap, manager) = made(mode);
        let old = heap.create_root("old", 8, 0).expect("a root");
        let link = |tx: &mut wattkeep_tx::Tx<'_>| {
            let object = tx.alloc(&1u64)?;
            tx.write_word(old.word, object.offset())
        };
        manager.run(link).expect("committed");
        heap.remove_root("old").expect("there");
        let new = heap.create_root("new", 8, 0).expect("a root");
        assert_eq!(new.word, old.word);
        let (heap, _manager) = open(crashed(heap.space()), mode);
        assert_eq!(heap.space().load(new.word.offset() as usize), Ok(0), "{mode:?}");
    }
}

/// The link of an object that was allocated without a transaction was undone by an older one's, and the object
/// was lost.
#[test]
fn a_link_that_is_made_without_a_transaction_stays() {
    for mode in BOTH {
        let (heap, manager) = made(mode);
        let first = heap.persist_alloc(64, Some("root")).expect("room");
        let word = heap.root("root").expect("readable").expect("there").word;
        let unlink = |tx: &mut wattkeep_tx::Tx<'_>| {
            tx.write_word(word, 0)?;
            tx.free(Ptr::<u8>::at(first))
        };
        manager.run(unlink).expect("committed");
        let second = heap.persist_alloc(64, Some("root")).expect("room");
        let (heap, _manager) = open(crashed(heap.space()), mode);
        assert_eq!(heap.space().load(word.offset() as usize), Ok(second), "{mode:?}");
        assert!(heap.check(None).expect("readable").is_clean());
    }
}

/// A manager ended, the heap was used without it, and the next manager repeated what the first had committed.
#[test]
fn a_manager_that_ends_leaves_nothing_to_repeat() {
    for mode in BOTH {
        let ground = Ground::make(&memory(DomainKind::Battery), &logging(mode)).expect("made");
        ground.manager.run(|tx| tx.write_word(ground.word(3), 7)).expect("committed");
        let (heap, word) = (ground.manager.heap().clone(), ground.word(3).offset() as usize);
        drop(ground);
        heap.space().store(word, 8).expect("inside");
        let manager = Manager::open(heap.clone(), &logging(mode)).expect("a manager");
        assert_eq!((manager.recovered().replayed, heap.space().load(word)), (0, Ok(8)), "{mode:?}");
    }
}

#[test]
fn a_heap_whose_log_nobody_opened_gives_up_no_memory() {
    let (heap, manager) = made(Logging::Redo);
    let object = manager.run(|tx| tx.alloc(&[1u64; 8])).expect("committed");
    manager.run(|tx| tx.write(object, &[2; 8])).expect("committed");
    let heap = Arc::new(Heap::open(crashed(heap.space())).expect("a heap"));
    let refused = heap.free(object.offset());
    assert!(matches!(refused, Err(HeapError::Replayed { .. })), "{refused:?}");
    let manager = Manager::open(heap.clone(), &logging(Logging::Redo)).expect("a manager");
    assert_eq!(manager.recovered().replayed, 2);
    heap.free(object.offset()).expect("nothing names it any more");
}

/// The outer one answered that it was committed; then the inner one was dropped, and nothing of it remained.
#[test]
fn an_outer_transaction_does_not_commit_while_an_inner_one_is_open() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let manager = &ground.manager;
        for drop_inner in [true, false] {
            let mut outer = manager.begin().expect("begun");
            outer.write_word(ground.word(0), 1).expect("stored");
            let inner = manager.begin().expect("begun");
            assert!(matches!(outer.commit(), Err(TxError::NotInnermost)));
            if drop_inner {
                drop(inner);
            } else {
                assert!(inner.commit().is_err(), "all of it is aborted");
            }
            assert_eq!(ground.read(0), 0);
        }
        manager.run(|tx| tx.write_word(ground.word(0), 3)).expect("a new one");
        assert_eq!(ground.read(0), 3);
    }
}

/// A store through a null pointer was committed: over the superblock.
#[test]
fn a_store_to_the_heaps_own_pages_is_refused_and_changes_nothing() {
    for mode in BOTH {
        let (heap, manager) = made(mode);
        let root = heap.create_root("root", 8, 0).expect("a root").word;
        let log = heap.log_area();
        let before = crashed(heap.space());
        for at in [0, 8, 4096, root.offset() + 8, log.start + 64, log.end - 8] {
            let refused: Done = manager.run(|tx| tx.write_word(Ptr::at(at), 0x41));
            assert!(matches!(refused, Err(TxError::NotAllocated { .. })), "{at:#x}: {refused:?}");
        }
        let refused: Done = manager.run(|tx| tx.write(Ptr::NULL, &[0x41u64; 4]));
        assert!(matches!(refused, Err(TxError::NotAllocated { at: 0 })), "{refused:?}");
        for at in [u64::MAX, u64::MAX - 7, u64::MAX - 12] {
            let stored: Done = manager.run(|tx| tx.write_bytes_as(at, &[1; 40], Hint::Word));
            assert!(stored.is_err());
            let stored: Done =
                manager.run(|tx| tx.write_field(Ptr::<[u64; 4]>::at(at), 8, &1u64, Hint::Object));
            assert!(stored.is_err());
            let stored: Done = manager.run(|tx| tx.fill(at, 16, [(8, &[1; 8])]));
            assert!(stored.is_err());
            assert!(manager.run(|tx| tx.read::<u64>(Ptr::at(at))).is_err());
        }
        let after = crashed(heap.space());
        let pages = |space: &Space| space.read::<[u8; 4096]>(0).expect("inside");
        assert_eq!(pages(&before), pages(&after));
        manager.run(|tx| tx.write_word(root, 0)).expect("the word of a root is a transaction's to write");
    }
}

/// Two heaps on one space, or on one file, each gave out what the other had given.
#[test]
fn a_space_has_one_heap_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    for space in common::every_domain(directory.path()) {
        let heap = Heap::create(space.clone(), &heap_options()).expect("room");
        assert!(matches!(Heap::open(space.clone()), Err(HeapError::InUse)));
        assert!(matches!(Heap::create(space.clone(), &heap_options()), Err(HeapError::InUse)));
        let clone = heap.clone();
        drop(heap);
        assert!(matches!(Heap::open(space.clone()), Err(HeapError::InUse)));
        drop(clone);
        Heap::open(space).expect("free again");
    }
    let same_file = || common::every_domain(directory.path()).pop().expect("that of a file");
    let heap = Heap::open(same_file()).expect("a heap");
    assert!(matches!(Heap::open(same_file()), Err(HeapError::InUse)));
    drop(heap);
    Heap::open(same_file()).expect("free again");
}

/// One of the two copies was overwritten, and a check found nothing wrong.
#[test]
fn a_lost_copy_of_the_superblock_is_named() {
    let (heap, _manager) = made(Logging::Redo);
    for at in [0, 2048] {
        let word = heap.space().load(at + 16).expect("inside");
        heap.space().store(at + 16, word ^ 1).expect("inside");
        let report = heap.check(None).expect("readable");
        assert!(!report.is_clean() && report.problems[0].at == at as u64, "{report}");
        heap.space().store(at + 16, word).expect("inside");
        assert!(heap.check(None).expect("readable").is_clean());
    }
}
