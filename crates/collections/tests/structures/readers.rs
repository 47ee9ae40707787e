//! One writer, many readers: what is read was committed, as a whole; nobody starves, nobody hangs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::{End, Pool, assert_sound};
use wattkeep_collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Vector};

const POOL: usize = 64 << 20;
const READERS: usize = 3;
const TRANSACTIONS: u64 = 3000;

/// Keys that are always there; those above come and go.
const STEADY: u64 = 100;
const KEYS: u64 = 600;

/// What a value says: words that belong together. Transactions that abort write odd ones.
fn value(n: u64) -> [u64; 8] {
    [n, n.wrapping_mul(3), n ^ 7, !n, n, n + 1, n + 2, n + 3]
}

fn assert_committed(found: [u64; 8], key: u64) {
    assert_eq!(found, value(found[0]), "a value of {key} that nobody wrote");
    assert!(found[0].is_multiple_of(2), "a value of {key} that was rolled back");
}

/// Runs `write` for each transaction and `read` in other threads until all are over.
fn stress(pool: &Pool, write: impl Fn(u64, End), read: impl Fn() + Sync) {
    let (over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    read();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in 0..TRANSACTIONS {
            write(n, if n.is_multiple_of(2) { End::Commit } else { End::Abort });
        }
        while reads.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    });
    let _ = pool;
}

/// Keys that a transaction changes: a few, spread by a multiplication.
fn keys_of(n: u64) -> impl Iterator<Item = u64> {
    (0..4).map(move |i| (n * 4 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) % KEYS)
}

#[test]
fn readers_of_a_hash_map_see_what_was_committed() {
    for pool in Pool::of_both_logs(POOL) {
        let map: HashMap<u64, [u64; 8]> = pool.manager.run(HashMap::create).expect("a map");
        pool.end_as(End::Commit, |tx| {
            (0..STEADY).try_for_each(|key| map.insert(tx, &key, &value(0)).map(|_| ()))
        });
        let write = |n, end| {
            pool.end_as(end, |tx| {
                for key in keys_of(n) {
                    if key < STEADY || map.get_in(tx, &key)?.is_none() {
                        map.insert(tx, &key, &value(n))?;
                    } else {
                        map.remove(tx, &key)?;
                    }
                }
                Ok(())
            });
        };
        let read = || {
            for key in (0..KEYS).step_by(7) {
                let found = map.get(&key).expect("a look-up");
                assert!(found.is_some() || key >= STEADY, "{key} was never removed");
                found.into_iter().for_each(|found| assert_committed(found, key));
            }
            let mut met = BTreeMap::new();
            for entry in map.iter() {
                let (key, found) = entry.expect("a step");
                assert_committed(found, key);
                *met.entry(key).or_insert(0) += 1;
            }
            assert!((0..STEADY).all(|key| met.get(&key) == Some(&1)), "each is met once: {met:?}");
        };
        stress(&pool, write, read);
        let left = map.iter().count();
        assert_sound(map.check(), left);
    }
}

#[test]
fn readers_of_a_tree_see_what_was_committed() {
    for pool in Pool::of_both_logs(POOL) {
        let tree: BTree<u64, [u64; 8]> = pool.manager.run(BTree::create).expect("a tree");
        pool.end_as(End::Commit, |tx| {
            (0..STEADY).try_for_each(|key| tree.insert(tx, &key, &value(0)).map(|_| ()))
        });
        let write = |n, end| {
            pool.end_as(end, |tx| {
                for key in keys_of(n) {
                    if key < STEADY || tree.get_in(tx, &key)?.is_none() {
                        tree.insert(tx, &key, &value(n))?;
                    } else {
                        tree.remove(tx, &key)?;
                    }
                }
                Ok(())
            });
        };
        let read = || {
            let mut last = None;
            let mut steady = 0;
            for entry in tree.range(..) {
                let (key, found) = entry.expect("a step");
                assert_committed(found, key);
                assert!(last < Some(key), "{key} behind {last:?}");
                last = Some(key);
                steady += u64::from(key < STEADY);
            }
            assert_eq!(steady, STEADY);
        };
        stress(&pool, write, read);
        assert_sound(tree.check(), tree.range(..).count());
    }
}

#[test]
fn readers_of_bytes_a_vector_and_a_string_see_what_was_committed() {
    for pool in Pool::of_both_logs(POOL) {
        let map: BytesMap = pool.manager.run(BytesMap::create).expect("a map");
        let vector: Vector<[u64; 8]> = pool.manager.run(Vector::create).expect("a vector");
        let text: PString = pool.manager.run(PString::create).expect("a string");
        let word = |n: u64| ["even ", "odd "][(n % 2) as usize].repeat((n % 50) as usize);
        let write = |n, end| {
            pool.end_as(end, |tx| {
                for key in keys_of(n) {
                    map.insert(tx, &key.to_le_bytes(), word(n).as_bytes())?;
                }
                text.set(tx, &word(n))?;
                let len = vector.len_in(tx)?;
                if n % 300 < 200 { vector.push(tx, &value(n)) } else { vector.truncate(tx, len / 2) }
            });
        };
        let committed = |text: &str| assert!(!text.contains("odd"), "rolled back: {text}");
        let read = || {
            for key in 0..KEYS {
                if let Some(found) = map.get(&key.to_le_bytes()).expect("a look-up") {
                    committed(std::str::from_utf8(&found).expect("whole words"));
                }
            }
            committed(&text.get().expect("text"));
            for element in vector.iter() {
                assert_committed(element.expect("an element"), 0);
            }
        };
        stress(&pool, write, read);
        assert_sound(map.check(), map.iter().count());
        assert_sound(vector.check(), vector.iter().count());
    }
}

/// Transactions of several threads on one structure follow each other: none of their additions is lost.
#[test]
fn writers_of_one_structure_take_turns() {
    for pool in Pool::of_both_logs(POOL) {
        let map: HashMap<u64, u64> = pool.manager.run(HashMap::create).expect("a map");
        pool.manager.run(|tx| map.insert(tx, &1, &0)).expect("set");
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    for n in 0..500 {
                        let end = if n % 2 == 0 { End::Commit } else { End::Abort };
                        // A handle of its own: the latch is the structure's, not the handle's.
                        let map = HashMap::<u64, u64>::open(&pool.heap, map.ptr()).expect("the map");
                        pool.end_as(end, |tx| map.update(tx, &1, |count| *count += 1).map(|_| ()));
                    }
                });
            }
        });
        assert_eq!(map.get(&1).expect("the count"), Some(250 * READERS as u64));
    }
}

#[test]
fn of_two_transactions_that_wait_for_each_other_one_is_told() {
    for pool in Pool::of_both_logs(POOL) {
        let one: Vector<u64> = pool.manager.run(Vector::create).expect("a vector");
        let other: Vector<u64> = pool.manager.run(Vector::create).expect("a vector");
        let both = Arc::new(Barrier::new(2));
        let crosswise = |first: &Vector<u64>, second: &Vector<u64>| {
            pool.manager.run(|tx| {
                first.push(tx, &1)?;
                both.wait();
                second.push(tx, &2)
            })
        };
        let (here, there) = thread::scope(|scope| {
            let there = scope.spawn(|| crosswise(&other, &one));
            (crosswise(&one, &other), there.join().expect("no panic"))
        });
        let told = [&here, &there].into_iter().filter(|end| matches!(end, Err(Error::Deadlock))).count();
        assert_eq!(told, 1, "{here:?} and {there:?}");
        assert_eq!((one.len().expect("len"), other.len().expect("len")), (1, 1), "the other one went on");
    }
}

#[test]
fn a_thread_does_not_wait_for_its_own_transaction() {
    for pool in Pool::of_both_logs(POOL) {
        let vector: Vector<u64> = pool.manager.run(Vector::create).expect("a vector");
        let ended = pool.manager.run(|tx| {
            vector.push(tx, &1)?;
            assert!(matches!(vector.check(), Err(Error::OwnTransaction)));
            if tx.in_place() {
                assert!(matches!(vector.len(), Err(Error::OwnTransaction)));
            } else {
                assert_eq!(vector.len()?, 0, "what was committed last");
            }
            vector.len_in(tx)
        });
        assert_eq!(ended.expect("committed"), 1);
    }
}
