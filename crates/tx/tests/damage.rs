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

fn copy(space: &Space) -> Arc<Space> {
    let copy = memory(space.domain().kind());
    copy.write_bytes(0, &content(space)).expect("as long");
    copy
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
    // As a crash leaves it: a manager that ends empties its log.
    (copy(&space), log_at(&ground), row)
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
        let kept = content(&space);
        drop(ground);
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
    let (_, last) = *slots(&content(&space), log).last().expect("slots were written");
    flip(&space, last + 17, 3);
    // Its witness is lost, too.
    space.write_bytes(last + 64, &[0; 64]).expect("inside");
    let damaged = content(&space);
    let refused = Ground::open(&space, &logging(Logging::Redo)).map(|_| ());
    assert!(
        matches!(refused, Err(TxError::Damaged { at, .. }) if at == last),
        "{refused:?}, not at {last:#x}"
    );
    assert!(content(&space) == damaged, "written to");
}

/// Bytes of a lane.
const LANE_BYTES: usize = (LOG_BYTES as usize - LANE_AT) / 4 / 64 * 64;

/// Where the slots of the last transactions lie in the log, the last one last, with their TIDs.
fn slots(bytes: &[u8], log: usize) -> Vec<(u64, usize)> {
    let lines = (0..4).flat_map(|lane| (0..part(1) / 64).map(move |slot| (lane, slot)));
    let places = lines.map(|(lane, slot)| log + SLOTS_AT + lane * LANE_BYTES + slot * 64);
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
    let mut slots: Vec<_> = places.map(|at| (word(at), at)).filter(|(tid, _)| *tid != 0).collect();
    slots.sort_unstable();
    slots
}

/// Opens a heap of these bytes, which were damaged at `at`: it is missed, and nothing is written.
fn assert_missed(bytes: &[u8], kind: DomainKind, at: usize, what: &str) {
    let space = memory(kind);
    space.write_bytes(0, bytes).expect("inside");
    let refused = Ground::open(&space, &logging(Logging::Redo)).map(|_| ());
    let named = matches!(refused, Err(TxError::Damaged { at: found, .. }) if found == at);
    assert!(named, "{kind} {what}: {refused:?}, not at {at:#x}");
    assert!(content(&space) == bytes, "{kind} {what}: written to");
}

/// The last slot of a lane ended it when it was damaged, as if it were torn; and with `adr` and `file` a damaged
/// record of it did, too. So a transaction that had committed and neither allocated nor freed was left out, and
/// nobody was told.
#[test]
fn a_last_transaction_that_is_damaged_is_missed_in_every_domain() {
    for kind in DomainKind::ALL {
        let space = memory(kind);
        let ground = Ground::make(&space, &logging(Logging::Redo)).expect("made");
        let log = log_at(&ground);
        // More than a lane has slots, so that it begins anew, at 30 and at 60.
        for round in 1..66 {
            let commit = ground.manager.run(|tx| -> Done {
                tx.write_word(ground.word(round), round)?;
                tx.write(ground.word(100 + round).cast(), &[round; 2])
            });
            commit.expect("committed");
            if round % 9 > 2 {
                continue;
            }
            let whole = content(&space);
            let (_, last) = *slots(&whole, log).last().expect("a slot");
            let damaged = |what: &str, change: &dyn Fn(&mut [u8])| {
                let mut bytes = whole.clone();
                change(&mut bytes[last..last + 64]);
                assert_missed(&bytes, kind, last, &format!("round {round}, {what}"));
            };
            damaged("a flipped bit", &|slot| slot[round as usize * 11 % 64] ^= 1 << (round % 8));
            damaged("lost", &|slot| slot.fill(0));
            damaged("garbage", &|slot| slot.fill(round as u8 | 1));
        }
        // Before it ends, and empties its log.
        let whole = content(&space);
        drop(ground);
        let (tid, last) = *slots(&whole, log).last().expect("a slot");
        // Its records, and what they hold, by the TID that both kinds of records begin with.
        let lane = (last - log - LANE_AT) / LANE_BYTES * LANE_BYTES + LANE_AT + log;
        let (records, at): (Vec<usize>, _) = (
            (lane + 64 + part(2)..lane + LANE_BYTES - 8)
                .filter(|at| whole[*at..*at + 8] == tid.to_le_bytes())
                .collect(),
            last,
        );
        assert_eq!(records.len(), 2, "a word record and an object record");
        for record in records {
            for byte in 0..24 {
                let mut bytes = whole.clone();
                bytes[record + byte] ^= 4;
                assert_missed(&bytes, kind, at, &format!("byte {byte} of a record"));
            }
        }
    }
}

/// What a program leaves that is killed between two stores of its commit: the last slot up to one of its words,
/// and no witness. It is torn, not damaged.
#[test]
fn a_slot_that_a_kill_tore_is_dropped_in_every_domain() {
    for kind in DomainKind::ALL {
        let space = memory(kind);
        let ground = Ground::make(&space, &logging(Logging::Redo)).expect("made");
        let log = log_at(&ground);
        let commit = |round: u64| ground.manager.run(|tx| tx.write_word(ground.word(round), round));
        (1..50).for_each(|round| commit(round).expect("committed"));
        let before = content(&space);
        commit(50).expect("committed");
        let after = content(&space);
        let (_, last) = *slots(&after, log).last().expect("a slot");
        for words in 0..=8 {
            let mut bytes = before.clone();
            // Its records come before it.
            let rest = last + 2 * 64..log + LOG_BYTES as usize;
            bytes[rest.clone()].copy_from_slice(&after[rest]);
            bytes[last..][..words * 8].copy_from_slice(&after[last..][..words * 8]);
            let cut = memory(kind);
            cut.write_bytes(0, &bytes).expect("inside");
            let opened = Ground::open(&cut, &logging(Logging::Redo)).expect("opened");
            assert_eq!(opened.read(50), if words == 8 { 50 } else { 0 }, "{kind} {words}");
            assert_eq!(opened.read(49), 49, "{kind} {words}");
        }
    }
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
    let other = answer(0, b"else");
    assert!(matches!(other, TxError::NotALog { .. }));
    // It sent to 'wattkeep check', which said the same.
    let text = other.to_string();
    assert!(text.contains(&format!("{log:#x}")) && text.contains("restore a copy"), "{text}");
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
