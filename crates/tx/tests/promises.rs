//! What a transaction promises while the program lives: all or nothing, its own stores, one clear error.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use common::{BOTH, Ground, LOG_BYTES, ROW, every_domain, logging, memory};
use wattkeep_heap::Heap;
use wattkeep_persist::{DomainKind, Ptr};
use wattkeep_tx::{Granularity, Logging, Manager, Options, Partner, Tx, TxError};

type Done = Result<(), TxError>;

/// More words than are searched without a table, and as many as a small lane logs.
const FEW: u64 = 100;

#[test]
fn a_committed_transaction_is_there_in_every_domain_and_after_opening() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in BOTH {
        for space in every_domain(directory.path()) {
            space.write_bytes(0, &vec![0; space.len()]).expect("all of it");
            let ground = Ground::make(&space, &logging(mode)).expect("made");
            for round in 0..50 {
                ground
                    .manager
                    .run(|tx| -> Done {
                        tx.write_word(ground.word(round % ROW), round)?;
                        tx.write(ground.word((round + 1) % ROW).cast(), &[round as u8; 5])
                    })
                    .expect("committed");
            }
            let before: Vec<u64> = (0..ROW).map(|index| ground.read(index)).collect();
            drop(ground);
            let again = Ground::open(&space, &logging(mode)).expect("opened");
            assert_eq!(
                (0..ROW).map(|index| again.read(index)).collect::<Vec<_>>(),
                before,
                "{mode:?} {space:?}"
            );
        }
    }
}

#[test]
fn an_aborted_one_leaves_no_trace_however_it_ends() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let change = |tx: &mut wattkeep_tx::Tx<'_>| -> Done {
            for index in 0..FEW {
                tx.write_word(ground.word(index), 7)?;
            }
            tx.write(ground.word(3).cast(), &[9_u8; 100])?;
            tx.alloc(&[1_u64; 10])?;
            Ok(())
        };
        let answer: Done = ground.manager.run(|tx| {
            change(tx)?;
            Err(TxError::Aborted)
        });
        assert!(matches!(answer, Err(TxError::Aborted)));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ground.manager.run(|tx| -> Done {
                change(tx)?;
                panic!("in the middle");
            })
        }));
        assert!(panicked.is_err());
        let mut tx = ground.manager.begin().expect("begun");
        change(&mut tx).expect("stored");
        drop(tx);
        let mut tx = ground.manager.begin().expect("begun");
        change(&mut tx).expect("stored");
        tx.abort().expect("aborted");
        assert!((0..ROW).all(|index| ground.read(index) == 0), "{mode:?}");
        ground.manager.run(|tx| tx.write_word(ground.word(0), 1)).expect("the next one commits");
        assert_eq!(ground.read(0), 1);
    }
}

#[test]
fn it_reads_its_own_stores_and_others_do_not_before_a_redo_commit() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let mut tx = ground.manager.begin().expect("begun");
        for index in 0..FEW {
            tx.write_word(ground.word(index), index + 1).expect("stored");
        }
        tx.write(ground.word(5).byte_add(3), &[0xAB_u8; 2]).expect("stored");
        for index in (0..FEW).filter(|index| *index != 5) {
            assert_eq!(tx.read(ground.word(index)).expect("read"), index + 1);
        }
        assert_eq!(tx.read_word(ground.word(5)).expect("read"), 6 | 0xABAB << 24);
        let mut bytes = [0; 24];
        tx.read_bytes(ground.word(4).offset() + 4, &mut bytes).expect("read");
        assert_eq!(bytes[4], 6);
        assert_eq!(ground.read(9) == 10, tx.in_place());
        tx.commit().expect("committed");
        assert_eq!(ground.read(9), 10);
    }
}

#[test]
fn it_compares_with_its_own_stores_too() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let at = ground.word(0).offset() + 3;
        let answer = ground.manager.run(|tx| -> Done {
            let mut row: Vec<u8> = (0..150).collect();
            assert!(!tx.holds(at, &row)?);
            tx.write_bytes(at, &row)?;
            assert!(tx.holds(at, &row)?, "{mode:?}");
            for byte in [0, 60, 61, 149] {
                row[byte] ^= 1;
                assert!(!tx.holds(at, &row)?, "{mode:?} {byte}");
                row[byte] ^= 1;
            }
            // It is refused as a whole, whatever the part of it says that is inside.
            let end = tx.heap().space().len() as u64;
            for (at, bytes) in [(u64::MAX - 2, &row[..]), (end - 100, &row[..]), (u64::MAX, &[])] {
                assert!(tx.holds(at, bytes).is_err(), "{mode:?} {at}");
            }
            Ok(())
        });
        answer.expect("committed");
    }
}

#[test]
fn a_nested_one_is_part_of_the_outer_one() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let manager = &ground.manager;
        let answer: Done = manager.run(|outer| {
            outer.write_word(ground.word(0), 1)?;
            manager.run(|inner| {
                assert_eq!(inner.id(), outer.id());
                assert_eq!(inner.read_word(ground.word(0))?, 1);
                inner.write_word(ground.word(1), 2)
            })?;
            assert_eq!(outer.read_word(ground.word(1))?, 2);
            Err(TxError::Aborted)
        });
        assert!(answer.is_err());
        assert_eq!((ground.read(0), ground.read(1)), (0, 0));
        // An inner failure that the outer one ignores is the end of both.
        let answer: Done = manager.run(|outer| {
            outer.write_word(ground.word(0), 1)?;
            let inner: Done = manager.run(|_| Err(TxError::Aborted));
            assert!(inner.is_err());
            assert!(matches!(outer.write_word(ground.word(0), 2), Err(TxError::Doomed)));
            Ok(())
        });
        assert!(matches!(answer, Err(TxError::Doomed)));
        assert_eq!(ground.read(0), 0);
        manager.run(|tx| manager.run(|_| tx.write_word(ground.word(0), 3))).expect("committed");
        assert_eq!(ground.read(0), 3);
    }
}

#[test]
fn too_large_a_transaction_is_refused_and_the_heap_is_as_before() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let large = ground
            .manager
            .run(|tx| {
                let large = tx.alloc_bytes(64 << 10)?;
                tx.write_bytes(large.offset(), &vec![1; 64 << 10])?;
                Ok::<_, TxError>(large)
            })
            .expect("stores to what it allocated need no log");
        let answer = ground.manager.run(|tx| -> Done {
            tx.write_word(ground.word(0), 1)?;
            tx.write_bytes(large.offset(), &vec![2; 64 << 10])
        });
        let Err(TxError::TooLarge { part, needed, room, .. }) = answer else {
            panic!("{mode:?}: {answer:?}")
        };
        assert!(part == "object data" && needed >= 64 << 10 && room < needed, "{mode:?}");
        assert_eq!(ground.read(0), 0);
        assert_eq!(ground.space().read::<[u8; 8]>(large.offset() as usize).expect("inside"), [1; 8]);
        ground.manager.run(|tx| tx.write_word(ground.word(0), 1)).expect("the next one commits");
    }
}

/// Where bytes lie that a transaction may change, and objects that it may free.
type Things = (u64, Vec<u64>);

/// A heap with a log area of so many bytes, and things in it.
fn with_log_of(log_area_bytes: u64, mode: Logging) -> (Ground, Things) {
    let options = wattkeep_heap::Options { log_area_bytes, ..Default::default() };
    let heap = Heap::create(memory(DomainKind::Battery), &options).expect("room");
    let bytes = heap.alloc(100 << 10).expect("room");
    let objects = (0..300).map(|_| heap.alloc(16).expect("room")).collect();
    (Ground::on(heap, &logging(mode)).expect("made"), (bytes, objects))
}

/// With redo, a transaction that was too large was refused when it committed, by an error that did not say how
/// large a log it takes. Now the call that would overflow the log is: no more than it would not fit.
#[test]
fn the_call_that_overflows_the_log_is_refused_and_says_how_large_a_log_has_room() {
    type Step = fn(&mut Tx<'_>, &Things, u64) -> Done;
    let steps: [(&str, Step); 6] = [
        ("word", |tx, things, step| tx.write_word(Ptr::at(things.0 + step * 8), step)),
        ("object records", |tx, things, step| tx.write_bytes(things.0 + step * 16, &[1; 4])),
        ("object data", |tx, things, step| tx.write_bytes(things.0 + step * 1000, &[1; 1000])),
        ("object data", |tx, things, step| tx.write_bytes(things.0 + step * 50_000, &[1; 50_000])),
        ("lists of objects", |tx, _, _| tx.alloc_bytes(16).map(|_| ())),
        ("lists of objects", |tx, things, step| tx.free(Ptr::<u8>::at(things.1[step as usize]))),
    ];
    for (mode, (name, step)) in BOTH.into_iter().flat_map(|mode| steps.map(|step| (mode, step))) {
        let (ground, things) = with_log_of(LOG_BYTES, mode);
        let run = |ground: &Ground, things: &Things, steps: u64| {
            ground.manager.run(|tx| (0..steps).try_for_each(|number| step(tx, things, number)))
        };
        let mut tx = ground.manager.begin().expect("begun");
        let (steps, refused) = (0..)
            .find_map(|number| step(&mut tx, &things, number).err().map(|error| (number, error)))
            .expect("no log is endless");
        let text = refused.to_string();
        let TxError::TooLarge { part, needed, room, log_area_bytes: Some(larger) } = refused else {
            panic!("{mode:?} {name}: {refused:?}")
        };
        assert!(part.starts_with(name) && needed > room && larger > LOG_BYTES, "{mode:?} {name}: {text}");
        assert!(text.contains(&format!("log_area_bytes of {larger} or more")), "{text}");
        assert!(matches!(tx.write_word(ground.word(0), 1), Err(TxError::Doomed)), "{mode:?} {name}");
        assert!(matches!(tx.alloc_bytes(16), Err(TxError::Doomed)), "{mode:?} {name}");
        assert!(matches!(tx.commit(), Err(TxError::Doomed)), "{mode:?} {name}");
        run(&ground, &things, steps).expect("without the call there is room");
        let (larger, things) = with_log_of(larger, mode);
        run(&larger, &things, steps + 1).expect("the error said how large a log has room");
    }
}

#[test]
fn a_heap_without_room_for_a_log_is_told_how_much_it_takes() {
    for few in [0, 4096] {
        let options = wattkeep_heap::Options { log_area_bytes: few, ..Default::default() };
        let heap = Arc::new(Heap::create(memory(DomainKind::Battery), &options).expect("room"));
        let refused = Manager::open(heap, &Options::default()).map(|_| ()).expect_err("no lane");
        assert!(matches!(refused, TxError::NotALog { .. }), "{refused:?}");
        assert!(refused.to_string().contains("log_area_bytes of 8192 or more"), "{refused}");
    }
    let options = wattkeep_heap::Options { log_area_bytes: 8192, ..Default::default() };
    let heap = Arc::new(Heap::create(memory(DomainKind::Battery), &options).expect("room"));
    Manager::open(heap, &Options::default()).expect("it has room");
}

#[test]
fn a_transaction_that_no_log_has_room_for_is_told_to_be_split() {
    let error = TxError::TooLarge { part: "words", needed: 1 << 40, room: 64, log_area_bytes: None };
    let text = error.to_string();
    assert!(text.contains("split it") && !text.contains("log_area_bytes"), "{text}");
}

#[test]
fn objects_are_allocated_and_freed_with_the_transaction() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let heap = ground.manager.heap();
        let mut kept = Ptr::NULL;
        let mut dropped = Ptr::NULL;
        ground
            .manager
            .run(|tx| -> Done {
                kept = tx.alloc(&5_u64)?;
                dropped = tx.alloc(&6_u64)?;
                assert!(!heap.is_allocated(kept.offset()));
                tx.free(dropped)
            })
            .expect("committed");
        assert!(heap.is_allocated(kept.offset()) && !heap.is_allocated(dropped.offset()));
        let answer = ground.manager.run(|tx| -> Done {
            tx.free(kept)?;
            assert!(matches!(tx.free(kept), Err(TxError::FreedTwice { .. })));
            Err(TxError::Aborted)
        });
        assert!(answer.is_err() && heap.is_allocated(kept.offset()));
        ground.manager.run(|tx| tx.free(kept)).expect("freed");
        assert!(!heap.is_allocated(kept.offset()));
        let again = ground.manager.run(|tx| tx.free(kept));
        assert!(matches!(again, Err(TxError::NotAllocated { .. })), "{again:?}");
        let foreign = ground.manager.run(|tx| tx.free(Ptr::<u64>::at(12_345)));
        assert!(matches!(foreign, Err(TxError::NotAllocated { .. })), "{foreign:?}");
    }
}

/// With redo, what was freed waits for the log to be truncated: a record of it must not be replayed over
/// whoever has the memory next.
#[test]
fn a_full_heap_gets_back_what_was_freed() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        for _ in 0..200 {
            let large =
                ground.manager.run(|tx| tx.alloc_bytes(200 << 10)).expect("room for one, again and again");
            ground.manager.run(|tx| tx.free(large)).expect("freed");
        }
    }
}

#[test]
fn stores_outside_are_refused() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        for at in [u64::MAX, u64::MAX - 3, ground.space().len() as u64 - 4] {
            let answer = ground.manager.run(|tx| tx.write_bytes(at, &[1; 8]));
            assert!(matches!(answer, Err(TxError::Space(_))), "{answer:?}");
        }
        assert!(
            ground.manager.run(|tx| tx.write_field(ground.word(0), 4, &1_u64, Default::default())).is_err()
        );
    }
}

#[test]
fn a_heap_has_one_manager_at_a_time() {
    let ground = Ground::in_memory(&Options::default());
    let heap = ground.manager.heap().clone();
    assert!(matches!(Manager::open(heap.clone(), &Options::default()), Err(TxError::Managed)));
    drop(ground);
    Manager::open(heap, &Options::default()).expect("the first one is gone");
}

/// A guard is released when the transaction has ended, and not before its stores are at home; and who takes
/// part is told then.
#[test]
fn guards_are_held_to_the_end() {
    #[derive(Default)]
    struct Lock {
        applied: AtomicU32,
        ended: AtomicU32,
    }
    impl Partner for Lock {
        fn before_apply(&self) {
            self.applied.fetch_add(1, Ordering::Relaxed);
        }
        fn ended(&self) {
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
    struct Guard(Rc<Cell<u32>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let released = Rc::new(Cell::new(0));
        let lock = Arc::new(Lock::default());
        for (round, commits) in [(1, true), (2, false)] {
            let answer = ground.manager.run(|tx| -> Done {
                tx.hold(Guard(released.clone()));
                tx.tell(lock.clone());
                tx.write_word(ground.word(0), round)?;
                ground.manager.run(|inner| inner.write_word(ground.word(1), 1))?;
                assert_eq!(released.get() + 1, round as u32);
                assert_eq!(lock.ended.load(Ordering::Relaxed) + 1, round as u32);
                if commits { Ok(()) } else { Err(TxError::Aborted) }
            });
            assert_eq!((answer.is_ok(), released.get()), (commits, round as u32));
            assert_eq!(lock.ended.load(Ordering::Relaxed), round as u32);
        }
        // With undo the stores were in place before, and what is rolled back is never applied.
        assert_eq!(lock.applied.load(Ordering::Relaxed), if mode == Logging::Undo { 0 } else { 1 });
    }
}

/// Parts are stored whether they lie in one page of new memory, in two, or in memory that is logged.
#[test]
fn parts_are_filled_wherever_they_lie() {
    const BYTES: usize = 80;
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let fill = |tx: &mut Tx<'_>, at: u64, first: u8| -> Done {
            tx.fill(at, BYTES, [(0, &[first; BYTES / 2]), (BYTES as u64 / 2, &[first + 1; BYTES / 2])])
        };
        let holds = |at: u64, first: u8| {
            let bytes: [u8; BYTES] = ground.space().read(at as usize).expect("inside");
            bytes == std::array::from_fn(|byte| first + (byte / (BYTES / 2)) as u8)
        };
        let add = |tx: &mut Tx<'_>| {
            let at = tx.alloc_bytes(BYTES)?.offset();
            fill(tx, at, 1).map(|()| at)
        };
        let places: Vec<u64> = (0..100).map(|_| ground.manager.run(add).expect("room")).collect();
        assert!(places.iter().any(|at| at % 4096 > 4096 - BYTES as u64), "one lies in two pages");
        assert!(places.iter().all(|at| holds(*at, 1)), "{mode:?}");
        let answer = ground.manager.run(|tx| fill(tx, places[0], 3).and(Err::<(), _>(TxError::Aborted)));
        assert!(answer.is_err() && holds(places[0], 1), "{mode:?}");
        ground.manager.run(|tx| fill(tx, places[0], 5)).expect("committed");
        assert!(holds(places[0], 5), "{mode:?}");
    }
}

/// More threads than lanes, each with its own word, and one that all share under a lock.
#[test]
fn threads_wait_for_lanes_and_lose_nothing() {
    const THREADS: u64 = 9;
    const EACH: u64 = 400;
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let turn = std::sync::Mutex::new(());
        let begun = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (ground, turn, begun) = (&ground, &turn, &begun);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        begun.fetch_add(1, Ordering::Relaxed);
                        let own = ground.word(1 + thread);
                        ground
                            .manager
                            .run(|tx| tx.write_word(own, tx.read_word(own)? + 1))
                            .expect("committed");
                        let _turn = turn.lock().expect("no panic");
                        let shared = ground.word(0);
                        ground
                            .manager
                            .run(|tx| tx.write_word(shared, tx.read_word(shared)? + 1))
                            .expect("committed");
                    }
                });
            }
        });
        assert_eq!(ground.read(0), THREADS * EACH, "{mode:?}");
        assert!((1..=THREADS).all(|index| ground.read(index) == EACH), "{mode:?}");
        let space = Arc::clone(ground.manager.heap().space());
        drop(ground);
        let again = Ground::open(&space, &logging(mode)).expect("opened");
        assert_eq!(again.read(0), THREADS * EACH, "{mode:?}");
    }
}

#[test]
fn the_granularity_changes_what_is_logged_and_not_what_is_stored() {
    for mode in BOTH {
        let mut contents = Vec::new();
        for granularity in [Granularity::Hybrid, Granularity::WordOnly, Granularity::ObjectOnly] {
            let ground = Ground::in_memory(&Options { granularity, ..logging(mode) });
            let before = ground.manager.logged();
            ground
                .manager
                .run(|tx| -> Done {
                    tx.write(ground.word(2).byte_add(3), &[5_u8; 61])?;
                    tx.write_field(ground.word(16).cast::<[u64; 16]>(), 24, &77_u64, Default::default())?;
                    tx.write_word(ground.word(40), 3)
                })
                .expect("committed");
            let logged = ground.manager.logged() - before;
            match granularity {
                Granularity::Hybrid => assert_eq!((logged.word_records, logged.object_records), (1, 2)),
                Granularity::WordOnly => assert_eq!((logged.word_records, logged.object_records), (9, 1)),
                Granularity::ObjectOnly => {
                    assert_eq!((logged.word_records, logged.object_records), (0, 3));
                    assert_eq!(logged.object_data_bytes, 61 + 128 + 8);
                }
            }
            contents.push((0..ROW).map(|index| ground.read(index)).collect::<Vec<_>>());
        }
        assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "{mode:?}");
    }
}
