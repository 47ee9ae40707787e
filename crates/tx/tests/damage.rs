//! Damaged logs: what was committed is there, or opening says that it cannot be. Never something else.

mod common;

use std::sync::Arc;

use common::{BOTH, Ground, LOG_BYTES, ROW, logging, memory};
use wattkeep_persist::{DomainKind, Ptr, Space};
use wattkeep_sim::random::{Random, seed_from_environment};
use wattkeep_tx::{Logging, TxError};

type Done = Result<(), TxError>;

/// Bytes before the first lane, and its parts (see `layout.rs`): a lane of 16 KiB.
const LANE_AT: usize = 4096;
const SLOTS_AT: usize = LANE_AT + 64;

/// Where the part with this number begins, behind [`SLOTS_AT`].
fn part(number: usize) -> usize {
    [2, 1, 3, 1, 2, 7][..number].iter().map(|sixteenths| (16384 - 64) * sixteenths / 16 / 64 * 64).sum()
}

fn log_at(ground: &Ground) -> usize {
    ground.manager.heap().log_area().start as usize
}

fn content(space: &Space) -> Vec<u8> {
    let mut bytes = vec![0; space.len()];
    space.read_bytes(0, &mut bytes).expect("all of it");
    bytes
}

fn flip(space: &Space, at: usize, bit: u8) {
    let byte: u8 = space.read(at).expect("inside");
    space.write_bytes(at, &[byte ^ 1 << bit]).expect("inside");
}

/// A log of some transactions with words and objects, one of which allocates.
fn written(mode: Logging) -> (Arc<Space>, usize, Vec<u64>) {
    let space = memory(DomainKind::Battery);
    let ground = Ground::make(&space, &logging(mode)).expect("made");
    for round in 1..20 {
        ground
            .manager
            .run(|tx| -> Done {
                tx.write_word(ground.word(round), round)?;
                tx.write(ground.word(100 + round).cast(), &[round; 3])?;
                let new = tx.alloc(&round)?;
                tx.write_word(ground.word(200), new.offset())
            })
            .expect("committed");
    }
    let row = (0..ROW).map(|index| ground.read(index)).collect();
    (space.clone(), log_at(&ground), row)
}

/// Older bytes of the heap beside a log that has moved on, as damage can leave them: the transaction's homes
/// were written again before the heap refused what it freed.
#[test]
fn a_heap_that_has_lost_what_a_transaction_freed_is_refused_before_anything_is_written() {
    for mode in BOTH {
        let space = memory(DomainKind::Battery);
        let ground = Ground::make(&space, &logging(mode)).expect("made");
        let older = content(&space);
        let object = ground.manager.heap().alloc(100).expect("room");
        let freed = ground.manager.run(|tx| -> Done {
            tx.write_word(ground.word(3), 7)?;
            tx.free(Ptr::<u8>::at(object))
        });
        freed.expect("committed");
        let log = ground.manager.heap().log_area();
        drop(ground);
        let kept = content(&space);
        space.write_bytes(0, &older).expect("inside");
        let (start, end) = (log.start as usize, log.end as usize);
        space.write_bytes(start, &kept[start..end]).expect("inside");
        let before = content(&space);
        let refused = Ground::open(&space, &logging(mode)).map(|_| ());
        assert!(matches!(refused, Err(TxError::Damaged { at, .. }) if at == object as usize), "{refused:?}");
        assert!(content(&space) == before, "{mode:?}: written to");
    }
}

/// The last slot of a lane ends it when it is torn; but the heap had heard of this transaction, so it had been
/// whole. It was left out, older ones were applied again over a part of what it had written, and nobody was told.
#[test]
fn a_last_slot_whose_transaction_the_heap_knows_is_missed() {
    let (space, log, _) = written(Logging::Redo);
    let stride = (LOG_BYTES as usize - 4096) / 4 / 64 * 64;
    let bytes = content(&space);
    let mut lines =
        (0..4).flat_map(|lane| (0..part(1) / 64).map(move |slot| SLOTS_AT + lane * stride + slot * 64));
    let last = lines.rfind(|at| bytes[log + at..][..64].iter().any(|byte| *byte != 0));
    let last = log + last.expect("slots were written");
    flip(&space, last + 17, 3);
    let damaged = content(&space);
    let refused = Ground::open(&space, &logging(Logging::Redo)).map(|_| ());
    assert!(
        matches!(refused, Err(TxError::Damaged { at, .. }) if at == last),
        "{refused:?}, not at {last:#x}"
    );
    assert!(content(&space) == damaged, "written to");
}

#[test]
fn any_flipped_bit_is_refused_or_does_not_matter() {
    let seed = seed_from_environment(3);
    let mut random = Random::new(seed);
    for mode in BOTH {
        let (space, log, row) = written(mode);
        let whole = content(&space);
        let mut refused = 0;
        for _ in 0..600 {
            // Half of them among the first bytes of a part, where something lies.
            let lane = LANE_AT + random.below(4) as usize * ((LOG_BYTES as usize - 4096) / 4 / 64 * 64);
            let at = match random.below(4) {
                0 => random.below(128) as usize,
                1 => random.below(LOG_BYTES) as usize,
                _ => lane + part(random.below(6) as usize) + random.below(700) as usize,
            };
            let bit = random.below(8) as u8;
            flip(&space, log + at, bit);
            match Ground::open(&space, &logging(mode)) {
                Ok(ground) => {
                    let found: Vec<u64> = (0..ROW).map(|index| ground.read(index)).collect();
                    assert_eq!(found, row, "{mode:?} seed {seed}: bit {bit} of byte {at:#x} of the log");
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                    let unchanged = content(&space);
                    flip(&space, log + at, bit);
                    assert!(
                        content(&space) == whole,
                        "{mode:?} seed {seed}: opening changed what it refused"
                    );
                    drop(unchanged);
                }
            }
            space.write_bytes(0, &whole).expect("all of it");
        }
        assert!(refused > 20, "{mode:?} seed {seed}: {refused} refused: the log is not looked at");
    }
}

#[test]
fn damage_in_the_middle_of_what_was_committed_is_named() {
    let places = [
        ("a commit slot", SLOTS_AT + 3 * 64 + 8),
        ("a word record", SLOTS_AT + part(2) + 5 * 24 + 9),
        ("a word", SLOTS_AT + part(3) + 5 * 8),
        ("an object record", SLOTS_AT + part(4) + 2 * 28 + 17),
        ("an object", SLOTS_AT + part(5) + 2 * 24 + 1),
    ];
    for (what, at) in places {
        let (space, log, _) = written(Logging::Redo);
        let lanes = (0..4).map(|lane| lane * ((LOG_BYTES as usize - 4096) / 4 / 64 * 64));
        // Whichever lane this thread had.
        lanes.for_each(|lane| flip(&space, log + lane + at, 2));
        let answer = Ground::open(&space, &logging(Logging::Redo)).map(|_| ());
        assert!(matches!(answer, Err(TxError::Damaged { .. })), "{what}: {answer:?}");
    }
}

#[test]
fn an_old_value_of_an_unfinished_transaction_that_is_damaged_is_named() {
    for damaged in [false, true] {
        let space = memory(DomainKind::Battery);
        let ground = Ground::make(&space, &logging(Logging::Undo)).expect("made");
        let log = log_at(&ground);
        let row = ground.row;
        // A program that dies in its transaction: the thread ends, and nobody rolls back.
        std::thread::scope(|scope| {
            let dying = scope.spawn(|| {
                let mut tx = ground.manager.begin().expect("begun");
                for index in 0..10 {
                    tx.write_word(ground.word(index), 77).expect("stored");
                }
                std::mem::forget(tx);
            });
            dying.join().expect("it does not panic");
        });
        drop(ground);
        assert_eq!(space.load(row as usize).expect("inside"), 77);
        let lane_bytes = (LOG_BYTES as usize - 4096) / 4 / 64 * 64;
        if damaged {
            (0..4).for_each(|lane| flip(&space, log + lane * lane_bytes + SLOTS_AT + part(3) + 8, 1));
        }
        let answer = Ground::open(&space, &logging(Logging::Undo));
        if damaged {
            assert!(matches!(answer, Err(TxError::Damaged { .. })), "{:?}", answer.map(|_| ()));
        } else {
            let ground = answer.expect("opened");
            assert!((0..ROW).all(|index| ground.read(index) == 0));
            assert_eq!(ground.manager.recovered().dropped, 1);
        }
    }
}

#[test]
fn a_log_of_another_kind_is_refused_and_one_of_the_other_mode_is_taken_over() {
    let (space, log, row) = written(Logging::Redo);
    let whole = content(&space);
    let answer = |at: usize, bytes: &[u8]| {
        space.write_bytes(0, &whole).expect("all of it");
        space.write_bytes(log + at, bytes).expect("inside");
        Ground::open(&space, &logging(Logging::Redo)).map(|_| ()).expect_err("refused")
    };
    assert!(matches!(answer(0, b"else"), TxError::NotALog { .. }));
    assert!(matches!(answer(8, &[9]), TxError::Newer { version: 9 }));
    assert!(matches!(answer(12, &[9]), TxError::Damaged { .. }), "lanes that its check does not know");
    assert!(matches!(answer(64, &[1; 8]), TxError::Damaged { .. }), "a floor that nobody wrote");
    space.write_bytes(0, &whole).expect("all of it");
    for mode in [Logging::Undo, Logging::Redo, Logging::Undo] {
        let ground = Ground::open(&space, &logging(mode)).expect("opened");
        assert_eq!((0..ROW).map(|index| ground.read(index)).collect::<Vec<_>>(), row);
        ground.manager.run(|tx| tx.write_word(ground.word(0), 0)).expect("committed");
    }
}
