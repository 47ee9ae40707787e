//! Many entries: growing and shrinking, and giving everything back.

use wattkeep_collections::{BTree, Error, HashMap, Structure, Vector};
use wattkeep_tx::Tx;

use crate::support::{Pool, assert_sound};

const POOL: usize = 64 << 20;
const ENTRIES: u64 = 20_000;

fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[test]
fn maps_grow_by_thousands_and_shrink_again() {
    for pool in Pool::of_both_logs(POOL) {
        let map: HashMap<u64, u64> = pool.manager.run(HashMap::create).expect("a map");
        let tree: BTree<u64, u64> = pool.manager.run(BTree::create).expect("a tree");
        pool.for_all(0..ENTRIES, |tx, n| {
            assert!(map.insert(tx, &mixed(n), &n)?);
            tree.insert(tx, &mixed(n), &n).map(|new| assert!(new))
        });
        assert_sound(map.check(), ENTRIES as usize);
        assert_sound(tree.check(), ENTRIES as usize);
        for n in 0..ENTRIES {
            assert_eq!(map.get(&mixed(n)).expect("a look-up"), Some(n));
            assert_eq!(tree.get(&mixed(n)).expect("a look-up"), Some(n));
        }
        let large = map.check().expect("a walk").reached.len();
        pool.for_all(0..ENTRIES, |tx, n| {
            assert_eq!(map.remove(tx, &mixed(n))?, Some(n));
            tree.remove(tx, &mixed(n)).map(|old| assert_eq!(old, Some(n)))
        });
        assert_sound(map.check(), 0);
        assert_sound(tree.check(), 0);
        assert!(map.check().expect("a walk").reached.len() <= 4, "a map that shrank; it had {large} parts");
        assert_eq!(tree.check().expect("a walk").reached.len(), 2, "a header and a leaf");
    }
}

/// Ascending keys fill one leaf behind the other.
#[test]
fn rising_keys_leave_no_holes() {
    let pool = Pool::of_both_logs(POOL).into_iter().next().expect("a pool");
    let tree: BTree<u64, u64> = pool.manager.run(BTree::create).expect("a tree");
    pool.for_all(0..4800, |tx, n| tree.insert(tx, &n, &n).map(|_| ()));
    let parts = tree.check().expect("a walk").reached.len();
    assert!(parts < 4800 / 48 + 10, "{parts} nodes for 4800 entries, 48 to a leaf");
}

/// What was reached before is free afterwards: as much fits again, many times over.
#[test]
fn what_is_destroyed_is_free() {
    for pool in Pool::of_both_logs(16 << 20) {
        for _ in 0..40 {
            let vector: Vector<[u64; 8]> = pool.manager.run(Vector::create).expect("a vector");
            pool.for_all(0..8000, |tx, n| vector.push(tx, &[n; 8]));
            pool.manager.run(|tx| vector.destroy(tx)).expect("destroyed");
        }
    }
}

/// What the log takes of an operation: two words to insert or remove, whatever the entry's size; one object
/// to update.
#[test]
fn an_operation_logs_little() {
    for pool in Pool::of_both_logs(4 << 20) {
        let map: HashMap<u64, [u64; 8]> = pool.manager.run(HashMap::create).expect("a map");
        let logged = |change: &dyn Fn(&mut Tx<'_>) -> Result<(), Error>| {
            let before = pool.manager.logged();
            pool.manager.run(|tx| change(tx)).expect("committed");
            let logged = pool.manager.logged() - before;
            (logged.word_records, logged.object_records, logged.object_data_bytes)
        };
        assert_eq!(logged(&|tx| map.insert(tx, &1, &[1; 8]).map(drop)), (2, 0, 0));
        assert_eq!(logged(&|tx| map.insert(tx, &1, &[2; 8]).map(drop)), (0, 1, 64));
        assert_eq!(logged(&|tx| map.remove(tx, &1).map(drop)), (2, 0, 0));
    }
}
