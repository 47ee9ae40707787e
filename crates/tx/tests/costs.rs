//! What transactions cost: bytes of log, lines written back, fences. `docs/heap.md` holds the table.

mod common;

use common::{BOTH, Ground, SPACE_BYTES, heap_options, logging};
use std::sync::Arc;
use wattkeep_persist::{Anonymous, Counted, DomainKind, Space};
use wattkeep_tx::{Granularity, Logging, Manager, Options, Tx, TxError};

type Done = Result<(), TxError>;

/// Section 4.3 of the paper: an insert into its hash table changes five words of an entry. A word log takes a
/// record of 24 bytes for each; the hybrid log one of 28 for the object.
#[test]
fn the_papers_hash_insert_takes_28_bytes_of_records_instead_of_120() {
    for mode in BOTH {
        let metadata = [Granularity::WordOnly, Granularity::Hybrid].map(|granularity| {
            let ground = Ground::in_memory(&Options { granularity, ..logging(mode) });
            let before = ground.manager.logged();
            // Hash, key, value, next entry, count of the bucket.
            let entry = [0xABCD_u64, 64, 4096, 0, 1];
            ground.manager.run(|tx| tx.write(ground.word(0).cast(), &entry)).expect("committed");
            let logged = ground.manager.logged() - before;
            assert_eq!(logged.bytes() - logged.metadata_bytes(), 40, "the data is the same");
            logged.metadata_bytes()
        });
        assert_eq!(metadata, [120, 28], "{mode:?}");
    }
}

/// Figure 17: the count is a word, the value and the table's fields are objects; the key and the value are
/// new, so they are not logged at all.
#[test]
fn memory_of_the_same_transaction_is_not_logged() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let before = ground.manager.logged();
        ground
            .manager
            .run(|tx| -> Done {
                tx.write_word(ground.word(0), 1)?;
                let key = tx.alloc(&[1_u8; 64])?;
                let value = tx.alloc(&[2_u8; 4096])?;
                tx.write(ground.word(1).cast(), &[key.offset(), value.offset()])
            })
            .expect("committed");
        let logged = ground.manager.logged() - before;
        assert_eq!((logged.word_records, logged.object_records), (1, 1), "{mode:?}");
        assert_eq!(logged.bytes(), 24 + 8 + 28 + 16, "{mode:?}");
    }
}

#[test]
fn the_same_range_is_logged_once() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let before = ground.manager.logged();
        ground
            .manager
            .run(|tx| -> Done {
                for round in 0..100 {
                    tx.write_word(ground.word(0), round)?;
                    tx.write(ground.word(8).cast(), &[round; 4])?;
                    tx.write_word(ground.word(9), round)?;
                }
                Ok(())
            })
            .expect("committed");
        let logged = ground.manager.logged() - before;
        assert_eq!((logged.word_records, logged.object_records), (1, 1), "{mode:?}");
        assert_eq!(logged.object_data_bytes, 32, "{mode:?}");
    }
}

/// What one transaction costs once the log is warm.
fn cost(mode: Logging, body: impl Fn(&mut Tx<'_>, &Ground) -> Done) -> Counted {
    let space =
        Arc::new(Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), DomainKind::Adr.domain()).counting());
    let ground = Ground::make(&space, &logging(mode)).expect("made");
    ground.manager.run(|tx| body(tx, &ground)).expect("committed");
    let before = space.counted();
    ground.manager.run(|tx| body(tx, &ground)).expect("committed");
    space.counted() - before
}

/// The table of `docs/heap.md`, rows 1 to 4.
#[test]
fn fences_and_lines_are_as_few_as_the_table_says() {
    let read = |mode| cost(mode, |tx, ground| tx.read_word(ground.word(0)).map(|_| ()));
    let word = |mode| cost(mode, |tx, ground| tx.write_word(ground.word(0), 2));
    let words =
        |mode| cost(mode, |tx, ground| (0..4).try_for_each(|step| tx.write_word(ground.word(step * 16), 2)));
    let fresh = |mode| {
        cost(mode, |tx, ground| {
            let new = tx.alloc_bytes(64)?;
            tx.write_bytes(new.offset(), &[1; 64])?;
            tx.write_word(ground.word(0), new.offset())
        })
    };
    for mode in BOTH {
        assert_eq!(read(mode), Counted::default(), "a transaction that only reads costs nothing");
    }
    // Redo: the log of any size, one fence.
    assert_eq!(word(Logging::Redo).fences, 1);
    assert_eq!(words(Logging::Redo).fences, 1);
    // Its word, record, slot, and the home; a record may lie in two lines.
    assert!(word(Logging::Redo).flushed_lines <= 5, "{:?}", word(Logging::Redo));
    // Undo: a fence for each range, one for the homes, one for the mark.
    assert_eq!(word(Logging::Undo).fences, 3);
    assert_eq!(words(Logging::Undo).fences, 6);
    assert!(word(Logging::Undo).flushed_lines <= 5, "{:?}", word(Logging::Undo));
    // New memory: one more with redo, for its stores are in no digest. What the heap adds is its own.
    let heap_alone = {
        let space =
            Arc::new(Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), DomainKind::Adr.domain()).counting());
        let heap = wattkeep_heap::Heap::create(space.clone(), &heap_options()).expect("made");
        let at = [heap.reserve(64).expect("room"), heap.reserve(64).expect("room")];
        heap.publish(0, 1, &at[..1], &[]).expect("published");
        let before = space.counted();
        heap.publish(0, 2, &at[1..], &[]).expect("published");
        space.counted() - before
    };
    assert_eq!(fresh(Logging::Redo).fences - heap_alone.fences, 2);
    assert_eq!(fresh(Logging::Undo).fences - heap_alone.fences, 3);
}

/// What a battery saves need not be flushed, but is counted as if: so one run tells what another domain pays.
#[test]
fn the_log_is_truncated_before_it_outgrows_the_limit() {
    let space = common::memory(DomainKind::Battery);
    let ground = Ground::make(&space, &Options { truncate_bytes: 1024, ..Options::default() }).expect("made");
    let before = space.counted();
    let rounds = 100;
    for round in 0..rounds {
        ground.manager.run(|tx| tx.write_word(ground.word(0), round)).expect("committed");
    }
    let fences = (space.counted() - before).fences;
    // A transaction takes 96 bytes of log, so ten fit; truncating takes two fences. The first time is when
    // the row is in the log, too.
    assert_eq!(fences, rounds + 2 * rounds / 10);
    assert_eq!(ground.read(0), rounds - 1);
    drop(ground);
    let manager =
        Manager::open(Arc::new(wattkeep_heap::Heap::open(space).expect("opened")), &Options::default());
    let replayed = manager.expect("opened").recovered().replayed;
    assert!(replayed <= 10, "{replayed} transactions in the log");
}
