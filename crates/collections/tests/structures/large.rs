//! Values and texts that are larger than what a transaction may log.

use wattkeep_collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Structures, Vector};

use crate::support::{End, Pool, assert_sound};

const POOL: usize = 4 << 20;

/// Bytes of a value: the log has room for 27 KiB.
const LARGE: usize = 100_000;

/// Words of a value of one size.
const WORDS: usize = 4096;

/// Times that each is replaced: more than the heap has room for at once.
const TIMES: u8 = 40;

fn text(of: u8, bytes: usize) -> String {
    char::from(b'a' + of % 26).to_string().repeat(bytes)
}

fn assert_no_leaks(pool: &Pool) {
    let report = pool.heap.check(Some(&Structures)).expect("readable");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.leaks.as_ref().map(|leaks| leaks.objects), Some(0), "{report}");
}

/// A value could be inserted and never changed: the insert wrote to memory that no log needs, and one of the same
/// size over it was logged, for which there was no room. "Split it" was no advice for a value.
#[test]
fn a_value_larger_than_the_log_is_replaced() {
    for pool in Pool::of_both_logs(POOL) {
        let bytes = BytesMap::open_or_create_root(&pool.manager, "bytes").expect("a map");
        let map: HashMap<u64, [u64; WORDS]> =
            HashMap::open_or_create_root(&pool.manager, "map").expect("a map");
        for n in 0..TIMES {
            // What does not commit changes nothing; within one transaction it is replaced twice.
            for end in [End::Abort, End::Panic, End::Commit] {
                pool.end_as(end, |tx| {
                    bytes.insert(tx, b"key", &vec![n + 100; LARGE])?;
                    bytes.insert(tx, b"key", &vec![n; LARGE])?;
                    map.insert(tx, &1, &[u64::from(n) + 100; WORDS])?;
                    map.update(tx, &1, |value| *value = [u64::from(n); WORDS]).map(|_| ())
                });
                let now = if end == End::Commit { Some(n) } else { n.checked_sub(1) };
                assert_eq!(bytes.get(b"key").expect("whole"), now.map(|n| vec![n; LARGE]));
                assert_eq!(map.get(&1).expect("whole"), now.map(|n| [u64::from(n); WORDS]));
            }
            // Alone, over what was committed.
            pool.manager.run(|tx| map.update(tx, &1, |value| value[0] += 1)).expect("committed");
            assert_eq!(map.get(&1).expect("whole").expect("there")[0], u64::from(n) + 1);
            pool.manager.run(|tx| map.update(tx, &1, |value| value[0] -= 1)).expect("committed");
        }
        assert_sound(bytes.check(), 1);
        assert_no_leaks(&pool);
        drop((bytes, map));
        let pool = pool.reopen();
        let bytes = BytesMap::open_root(&pool.heap, "bytes").expect("a map");
        assert_eq!(bytes.get(b"key").expect("whole"), Some(vec![TIMES - 1; LARGE]));
        assert_no_leaks(&pool);
    }
}

/// The same with a text: set to another one that its memory had room for, or made longer by much at once.
#[test]
fn a_text_larger_than_the_log_is_replaced_and_grows() {
    for pool in Pool::of_both_logs(POOL) {
        let string = PString::open_or_create_root(&pool.manager, "text").expect("a string");
        for n in 0..TIMES {
            pool.end_as(End::Abort, |tx| string.set(tx, &text(n + 1, LARGE)));
            pool.manager.run(|tx| string.set(tx, &text(n, LARGE))).expect("committed");
            assert_eq!(string.get().expect("whole"), text(n, LARGE));
        }
        let mut all = text(TIMES - 1, LARGE);
        for n in 0..6 {
            pool.end_as(End::Panic, |tx| string.push_str(tx, &text(n + 1, LARGE)));
            pool.manager.run(|tx| string.push_str(tx, &text(n, LARGE))).expect("committed");
            all.push_str(&text(n, LARGE));
            assert_eq!(string.get().expect("whole"), all);
        }
        assert_no_leaks(&pool);
        drop(string);
        let pool = pool.reopen();
        assert_eq!(PString::open_root(&pool.heap, "text").expect("there").get().expect("whole"), all);
    }
}

/// What a structure keeps in place can be no larger than the log. It was made, took some entries, and then
/// refused each change; it is not made now, and says why.
#[test]
fn a_structure_whose_changes_no_log_holds_is_not_made() {
    for pool in Pool::of_both_logs(POOL) {
        let tree = BTree::<u64, [u64; WORDS]>::open_or_create_root(&pool.manager, "tree").map(|_| ());
        let vector = Vector::<[u64; WORDS]>::open_or_create_root(&pool.manager, "vector").map(|_| ());
        for refused in [tree, vector] {
            let refused = refused.expect_err("27 KiB");
            assert!(matches!(refused, Error::LogTooSmall { .. }), "{refused:?}");
            let says = refused.to_string();
            assert!(says.contains("32768-byte") && says.contains("a larger log_area_bytes"), "{says}");
        }
        assert_no_leaks(&pool);
    }
}

/// The largest that are made take and lose entries, one in a transaction.
#[test]
fn a_structure_that_is_made_can_be_changed() {
    type Largest = [u64; 200];
    for pool in Pool::of_both_logs(POOL) {
        let tree: BTree<u64, Largest> = BTree::open_or_create_root(&pool.manager, "tree").expect("a tree");
        let vector: Vector<[u64; 3400]> = Vector::open_or_create_root(&pool.manager, "v").expect("a vector");
        let shuffled = |n: u64| n * 7919 % 500;
        for n in (0..500).map(shuffled) {
            pool.manager.run(|tx| tree.insert(tx, &n, &[n; 200])).expect("committed");
        }
        assert_sound(tree.check(), 500);
        for n in (0..500).map(|n| shuffled(n + 250)) {
            pool.manager.run(|tx| tree.insert(tx, &n, &[n + 1; 200])).expect("committed");
            let removed = pool.manager.run(|tx| tree.remove(tx, &n)).expect("committed");
            assert_eq!(removed, Some([n + 1; 200]));
        }
        assert_sound(tree.check(), 0);
        for n in 0..10 {
            pool.manager.run(|tx| vector.push(tx, &[n; 3400])).expect("committed");
            pool.manager.run(|tx| vector.set(tx, n / 2, &[n; 3400])).expect("committed");
        }
        let removed = pool.manager.run(|tx| vector.swap_remove(tx, 0)).expect("committed");
        assert_eq!(removed, Some([1; 3400]));
        assert_no_leaks(&pool);
    }
}
