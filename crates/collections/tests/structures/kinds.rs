//! Opening: what is something else, or gone, is said to be so.

use std::thread;
use std::time::Duration;

use wattkeep_collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Structures, Vector};
use wattkeep_persist::Ptr;

use crate::support::{End, Pool};

const POOL: usize = 4 << 20;

#[test]
fn a_root_of_another_type_says_what_it_is() {
    for pool in Pool::of_both_logs(POOL) {
        HashMap::<u64, [u64; 8]>::open_or_create_root(&pool.manager, "accounts").expect("a map");
        let other =
            HashMap::<u64, u64>::open_or_create_root(&pool.manager, "accounts").expect_err("other sizes");
        assert_eq!(
            other.to_string(),
            "root 'accounts' holds a hash map of 8-byte keys and 64-byte values, not a hash map of 8-byte keys \
             and 8-byte values: open it as what it is"
        );
        let other = PString::open_root(&pool.heap, "accounts").expect_err("no string");
        assert!(other.to_string().ends_with("not a string: open it as what it is"), "{other}");
        let none = BytesMap::open_root(&pool.heap, "sessions").expect_err("nothing");
        assert_eq!(none.to_string(), "there is no root 'sessions': create it in a transaction");
    }
}

/// The header's last word became a mark, and the version stayed: a check called each older structure damaged.
#[test]
fn a_structure_of_another_format_is_refused_by_its_version_and_left_alone() {
    let cases = [
        (
            1,
            "format 1, where this version knows format 2: read it with the version that made it, and make it anew",
        ),
        (3, "format 3, where this version knows format 2: open it with a newer version"),
    ];
    for pool in Pool::of_both_logs(POOL) {
        for (version, says) in cases {
            let name = format!("accounts {version}");
            let map = HashMap::<u64, u64>::open_or_create_root(&pool.manager, &name).expect("a map");
            let (space, at) = (pool.heap.space(), map.ptr().offset() as usize);
            let tag = space.load(at).expect("a header") & !0xff00 | version << 8;
            space.store(at, tag).expect("a header");
            let header: [u64; 8] = space.read(at).expect("a header");

            let place = HashMap::<u64, u64>::open(&pool.heap, map.ptr()).expect_err("another format");
            assert!(place.to_string().contains(says), "{place}");
            let made = pool.manager.run(|tx| map.insert(tx, &1, &1)).expect_err("another format");
            assert!(made.to_string().contains(says), "{made}");

            // Its root was made by the same version.
            pool.heap.remove_root(&name).expect("a root");
            let root = pool.heap.create_root(&name, 0, tag).expect("a root");
            space.store(root.word.offset() as usize, at as u64).expect("a root");
            let opened =
                HashMap::<u64, u64>::open_or_create_root(&pool.manager, &name).expect_err("the same");
            assert!(
                opened.to_string().starts_with(&format!("root '{name}' holds a hash map of 8-byte keys"))
            );
            assert!(opened.to_string().contains(says), "{opened}");
            assert_eq!(space.read(at), Ok(header), "it was left alone");
            let report = pool.heap.check(Some(&Structures)).expect("readable");
            assert!(report.is_clean() && report.leaks.is_none(), "{report}");
            assert!(report.undecided.iter().any(|undecided| undecided.why.contains(says)), "{report}");
        }
    }
}

#[test]
fn a_place_of_another_type_says_what_it_is() {
    for pool in Pool::of_both_logs(POOL) {
        let vector: Vector<u32> = pool.manager.run(Vector::create).expect("a vector");
        let place = vector.ptr().cast::<BTree<u64, u64>>();
        let other = BTree::open(&pool.heap, place).expect_err("a vector");
        assert!(other.to_string().contains("holds a vector of 4-byte elements, not a B+tree"), "{other}");
        assert!(matches!(PString::open(&pool.heap, Ptr::NULL), Err(Error::WrongKind { .. })));
        let outside = Ptr::at(POOL as u64);
        assert!(matches!(PString::open(&pool.heap, outside), Err(Error::Space(_))));
    }
}

/// A handle is DRAM: it may outlive what it stands for.
#[test]
fn handles_of_what_is_gone_say_so() {
    for pool in Pool::of_both_logs(POOL) {
        let map: HashMap<u64, u64> = pool.manager.run(HashMap::create).expect("a map");
        pool.manager.run(|tx| map.insert(tx, &1, &1)).expect("set");
        let other = map.clone();
        pool.manager.run(|tx| map.destroy(tx)).expect("destroyed");
        assert!(matches!(other.get(&1), Err(Error::Gone { .. })));
        assert!(matches!(pool.manager.run(|tx| other.insert(tx, &1, &2)), Err(Error::Gone { .. })));

        for end in [End::Abort, End::Panic] {
            let mut never = None;
            pool.end_as(end, |tx| {
                never = Some(Vector::<u64>::create(tx)?);
                Ok(())
            });
            let never = never.expect("a handle");
            assert!(matches!(never.len(), Err(Error::Gone { .. })));
            assert!(matches!(pool.manager.run(|tx| never.push(tx, &1)), Err(Error::Gone { .. })));
        }
    }
}

/// An insert foresaw a map in new memory, while the transaction that made it was open. That one was aborted, which
/// changes no byte of what was committed: so what had been foreseen counted, and the insert changed freed memory.
#[test]
fn an_insert_that_waited_for_the_maker_of_its_map_finds_it_gone_when_that_one_aborts() {
    for pool in Pool::of_both_logs(POOL) {
        let mut tx = pool.manager.begin().expect("begun");
        let map: HashMap<u64, u64> = HashMap::create(&mut tx).expect("a map");
        let (manager, other) = (&pool.manager, map.clone());
        thread::scope(|scope| {
            let insert = scope.spawn(move || manager.run(|tx| other.insert(tx, &1, &1)));
            // Until it waits, as a rule: it is right whenever it comes.
            thread::sleep(Duration::from_millis(50));
            tx.abort().expect("nothing is refused");
            let inserted = insert.join().expect("it does not panic");
            assert!(matches!(inserted, Err(Error::Gone { .. })), "{inserted:?}");
        });
        let report = pool.heap.check(None).expect("readable");
        assert!(report.is_clean() && report.objects == 0, "{report}");
    }
}

/// A handle of a map that was destroyed read the next map that was made in its place, and changed it.
#[test]
fn a_handle_never_becomes_that_of_another_structure() {
    type Map = HashMap<u64, u64>;
    for pool in Pool::of_both_logs(POOL) {
        let mut again = 0;
        for round in 0..400 {
            let old: Map = pool.manager.run(Map::create).expect("a map");
            let (stale, found) = (old.clone(), Map::open(&pool.heap, old.ptr()).expect("there"));
            // A destruction that does not come to pass ends nothing.
            pool.end_as(End::Abort, |tx| old.clone().destroy(tx));
            pool.manager.run(|tx| found.insert(tx, &1, &round)).expect("set");
            assert_eq!(stale.get(&1).expect("there"), Some(round));
            pool.manager.run(|tx| old.destroy(tx)).expect("destroyed");
            // The second is made in the place of the first of the same transaction, if the heap likes.
            let (first, new) = pool
                .manager
                .run(|tx| {
                    let first = Map::create(tx)?;
                    first.clone().destroy(tx)?;
                    let new = Map::create(tx)?;
                    new.insert(tx, &1, &7).map(|_| (first, new))
                })
                .expect("a map");
            again += u64::from(stale.ptr() == new.ptr()) + u64::from(first.ptr() == new.ptr());
            for gone in [&stale, &found, &first] {
                let stands = gone.get(&1);
                assert!(matches!(stands, Err(Error::Gone { .. })), "{stands:?} in round {round}");
                let changed = pool.manager.run(|tx| gone.insert(tx, &1, &2));
                assert!(matches!(changed, Err(Error::Gone { .. })), "{changed:?} in round {round}");
            }
            let opened = pool.manager.run(|tx| Map::open_in(tx, new.ptr())).expect("there");
            assert_eq!((new.get(&1).expect("there"), opened.get(&1).expect("there")), (Some(7), Some(7)));
            pool.manager.run(|tx| new.destroy(tx)).expect("destroyed");
            assert!(matches!(opened.len(), Err(Error::Gone { .. })));
        }
        assert!(again > 100, "only {again} places were used again");
    }
}

/// Two threads that ask for a root that is not there get one structure.
#[test]
fn a_root_is_made_once() {
    for pool in Pool::of_both_logs(POOL) {
        let open = || Vector::<u64>::open_or_create_root(&pool.manager, "once").expect("a vector").ptr();
        let places = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    }
}
