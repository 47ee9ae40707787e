//! What must not be, one by one: each is one clear error, and leaves the heap as it was.
//!
//! "As it was" is: the same entries, nothing wrong, nothing lost, before and after opening it again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wattkeep_collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Structures, Vector};
use wattkeep_heap::{Heap, HeapError};
use wattkeep_persist::{Anonymous, Domain, Ptr, Space};
use wattkeep_tx::{Manager, Options, Tx, TxError};

use crate::support::Pool;

const POOL: usize = 4 << 20;

/// Entries before anything goes wrong.
const ENTRIES: u64 = 100;

/// Bytes of a large object.
const LARGE: usize = 40_000;

fn made() -> [(Pool, HashMap<u64, u64>); 2] {
    Pool::of_both_logs(POOL).map(|pool| {
        let map = HashMap::open_or_create_root(&pool.manager, "map").expect("a map");
        pool.for_all(0..ENTRIES, |tx, n| map.insert(tx, &n, &(n * n)).map(|_| ()));
        (pool, map)
    })
}

/// The heap holds the map with its first entries, and nothing else.
fn assert_as_it_was(pool: &Pool) {
    let map = HashMap::<u64, u64>::open_root(&pool.heap, "map").expect("the map");
    assert_eq!(map.len().expect("whole"), ENTRIES);
    assert!((0..ENTRIES).all(|n| map.get(&n).expect("whole") == Some(n * n)));
    let report = pool.heap.check(Some(&Structures)).expect("readable");
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.leaks.as_ref().map(|leaks| leaks.objects), Some(0), "{report}");
}

fn assert_intact(pool: Pool, map: HashMap<u64, u64>) {
    assert_as_it_was(&pool);
    pool.manager.run(|tx| map.insert(tx, &0, &0)).expect("it goes on");
    drop(map);
    assert_as_it_was(&pool.reopen());
}

/// The message names what happened, and what to do, in one line.
fn assert_clear(error: &Error, says: &str) {
    let text = error.to_string();
    assert!(text.contains(says) && text.contains(": ") && !text.contains('\n'), "{text}");
}

#[test]
fn out_of_space() {
    for (pool, map) in made() {
        // In a transaction: all that it did is taken back.
        let mut last = 0;
        let full = pool.manager.run(|tx| -> Result<(), Error> {
            map.insert(tx, &ENTRIES, &7)?;
            loop {
                last = tx.alloc_bytes(LARGE)?.offset();
            }
        });
        let full = full.expect_err("a small heap");
        assert!(matches!(full, Error::Tx(TxError::Heap(HeapError::OutOfSpace { .. }))), "{full:?}");
        assert_clear(&full, "no room for");
        assert!(last != 0 && !pool.heap.is_allocated(last));
        // By small objects, which fill every block, and then no more.
        let mut small = Vec::new();
        let full = loop {
            match pool.heap.alloc(48) {
                Ok(at) => small.push(at),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, HeapError::OutOfSpace { .. }), "{full:?}");
        assert!(small.len() * 48 > POOL / 2, "{} objects", small.len());
        let full = (ENTRIES..).find_map(|n| pool.manager.run(|tx| map.insert(tx, &n, &n)).err());
        let full = full.expect("a full heap");
        assert!(matches!(full, Error::Tx(TxError::Heap(HeapError::OutOfSpace { .. }))), "{full:?}");
        // A full heap can be made emptier: by frees, and by transactions.
        let kept = map.len().expect("whole");
        for n in ENTRIES..kept {
            pool.manager.run(|tx| map.remove(tx, &n)).expect("removed");
        }
        small.into_iter().for_each(|at| pool.heap.free(at).expect("an object"));
        assert_intact(pool, map);
    }
}

/// A heap whose last room goes to one change after the other, each of which says so when it fails, and is not
/// listened to.
fn fill_and_swallow(name: &str, mut change: impl FnMut(&Pool, &mut Tx<'_>, u64) -> Result<(), Error>) {
    for pool in Pool::of_both_logs(POOL) {
        let large: Vec<u64> = std::iter::from_fn(|| pool.heap.alloc(LARGE as u64).ok()).collect();
        large[..12].iter().for_each(|at| pool.heap.free(*at).expect("an object"));
        let mut failures = 0;
        for n in 0.. {
            let mut change_made = Ok(());
            let end = pool.manager.run(|tx| {
                change_made = change(&pool, tx, n);
                Ok::<_, TxError>(())
            });
            let Err(full) = change_made else {
                end.expect("nothing failed");
                continue;
            };
            assert!(
                matches!(full, Error::Tx(TxError::Heap(HeapError::OutOfSpace { .. }))),
                "{name}: {full:?}"
            );
            assert!(matches!(end, Err(TxError::Doomed)), "{name}: {n} is half made, and {end:?}");
            failures += 1;
            if failures == 40 {
                break;
            }
        }
        large[12..].iter().for_each(|at| pool.heap.free(*at).expect("an object"));
        let report = pool.heap.check(Some(&Structures)).expect("readable");
        assert!(report.is_clean(), "{name}: {report}");
        assert_eq!(report.leaks.as_ref().map(|leaks| leaks.objects), Some(0), "{name}: {report}");
    }
}

/// A program did not hand on that the heap was full, and committed. The change that had failed had made an
/// entry, and no bucket for it; a node, and none above it; a header, and nothing behind it: these were allocated,
/// and nobody's. A change that fails half way is the end of its transaction now.
#[test]
fn a_change_that_fails_half_way_is_not_committed() {
    fill_and_swallow("a hash map", |pool, tx, n| {
        let map = HashMap::<u64, [u64; 9]>::open_or_create_root(tx.manager(), "root")?;
        assert!(Arc::ptr_eq(tx.heap(), &pool.heap));
        map.insert(tx, &n, &[n; 9]).map(|_| ())
    });
    fill_and_swallow("a map of bytes", |_, tx, n| {
        let map = BytesMap::open_or_create_root(tx.manager(), "root")?;
        map.insert(tx, &n.to_le_bytes(), &vec![1; n as usize % 1000]).map(|_| ())
    });
    fill_and_swallow("a tree", |_, tx, n| {
        let tree = BTree::<u64, [u64; 4]>::open_or_create_root(tx.manager(), "root")?;
        tree.insert(tx, &n.wrapping_mul(0x9e37_79b9_7f4a_7c15), &[n; 4]).map(|_| ())
    });
    fill_and_swallow("a vector of strings", |_, tx, n| {
        let texts = Vector::open_or_create_root(tx.manager(), "root")?;
        let text = PString::create(tx)?;
        text.set(tx, &"text".repeat(n as usize % 300))?;
        texts.push(tx, &text.ptr())
    });
    fill_and_swallow("structures", |_, tx, _| {
        let all = Vector::open_or_create_root(tx.manager(), "root")?;
        let map = HashMap::<u64, u64>::create(tx)?;
        all.push(tx, &map.ptr())
    });
}

#[test]
fn a_size_that_overflows() {
    for (pool, map) in made() {
        for bytes in [usize::MAX, usize::MAX - 7, 1 << 62, 1 << 35] {
            let refused = pool.manager.run(|tx| {
                map.insert(tx, &ENTRIES, &7)?;
                Ok::<_, Error>(tx.alloc_bytes(bytes)?)
            });
            let refused = refused.expect_err("larger than any object");
            assert!(matches!(refused, Error::Tx(TxError::Heap(HeapError::TooLarge { .. }))), "{refused:?}");
            assert_clear(&refused, "are the most");
        }
        let outside = pool.manager.run(|tx| Ok::<_, Error>(tx.write_bytes(u64::MAX - 3, &[1; 8])?));
        assert!(matches!(outside, Err(Error::Tx(TxError::Space(_)))), "{outside:?}");
        assert_intact(pool, map);
    }
}

#[test]
fn a_root_of_the_wrong_type_or_size() {
    for (pool, map) in made() {
        let wrong = BTree::<u64, u64>::open_or_create_root(&pool.manager, "map").expect_err("a hash map");
        assert!(matches!(wrong, Error::WrongKind { .. }));
        assert_clear(&wrong, "not a B+tree");
        let wrong = HashMap::<u64, u32>::open_root(&pool.heap, "map").expect_err("other values");
        assert_clear(&wrong, "8-byte values, not a hash map of 8-byte keys and 4-byte values");
        let root = pool.heap.root("map").expect("readable").expect("there");
        for (size, tag) in [(root.size + 1, root.tag), (root.size, root.tag + 1)] {
            let wrong = pool.heap.open_or_create_root("map", size, tag).expect_err("another");
            assert!(matches!(wrong, HeapError::RootMismatch { .. }), "{wrong:?}");
        }
        assert_intact(pool, map);
    }
}

/// A copy of the pool's bytes as another version would have left them.
fn changed(pool: &Pool, at: u64, change: impl Fn(u64) -> u64) -> Arc<Space> {
    let mut bytes = vec![0; POOL];
    pool.heap.space().read_bytes(0, &mut bytes).expect("inside");
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(POOL)), Domain::Battery));
    space.write_bytes(0, &bytes).expect("inside");
    space.store(at as usize, change(space.load(at as usize).expect("inside"))).expect("inside");
    space
}

#[test]
fn a_heap_a_log_or_a_structure_from_a_newer_version() {
    for (pool, map) in made() {
        // The second word of the superblock and of the transaction log: its lower half is the version.
        let newer = changed(&pool, 8, |word| word + 1);
        let refused = Heap::open(newer).map(|_| ()).expect_err("newer");
        assert_eq!(refused, HeapError::NewerVersion { found: 2, known: 1 });
        let newer = changed(&pool, pool.heap.log_area().start + 8, |word| word + 1);
        let refused = Manager::open(Arc::new(Heap::open(newer).expect("a heap")), &Options::default());
        let refused = refused.map(|_| ()).expect_err("newer");
        assert!(
            matches!(refused, TxError::Newer { .. }) && refused.to_string().contains("use a newer wattkeep")
        );
        // The first word of a structure: its second byte is the version.
        let newer = changed(&pool, map.ptr().offset(), |word| word + 0x100);
        let heap = Arc::new(Heap::open(newer).expect("a heap"));
        let refused = HashMap::<u64, u64>::open_root(&heap, "map").expect_err("newer");
        assert_clear(&refused, "with a newer version");
        assert_intact(pool, map);
    }
}

/// Places of the heap's log that hold records, the first word of each segment apart: kind 2 is an allocation.
fn records(pool: &Pool) -> Vec<u64> {
    let objects = pool.heap.log_area().end;
    let word = |at: &u64| pool.heap.space().load(*at as usize).expect("inside");
    let is_record = |at: &u64| {
        let object = (word(at) >> 6 & ((1 << 50) - 1)) << 4;
        word(at) & 0xf == 2 && word(at) >> 56 != 0 && pool.heap.is_allocated(object)
    };
    (objects..POOL as u64).step_by(8).filter(is_record).collect()
}

#[test]
fn a_damaged_tail_or_middle_of_the_heaps_log() {
    for (pool, map) in made() {
        let records = records(&pool);
        assert!(records.len() as u64 > ENTRIES);
        for at in [records[0], records[records.len() / 2], records[records.len() - 1]] {
            let damaged = changed(&pool, at, |word| word ^ 1 << 30);
            let refused = Heap::open(damaged).map(|_| ()).expect_err("damaged");
            assert!(matches!(refused, HeapError::Damaged { .. }), "{refused:?}");
            assert!(refused.to_string().contains("wattkeep check"), "{refused}");
        }
        assert_intact(pool, map);
    }
}

#[test]
fn a_nested_transaction_that_fails_and_one_that_is_aborted() {
    for (pool, map) in made() {
        let aborted = pool.manager.run(|tx| {
            map.insert(tx, &ENTRIES, &1)?;
            map.remove(tx, &3)?;
            Vector::<u64>::create(tx)?;
            Err::<(), Error>(TxError::Aborted.into())
        });
        assert!(matches!(aborted, Err(Error::Tx(TxError::Aborted))));
        let doomed = pool.manager.run(|tx| {
            map.insert(tx, &ENTRIES, &1)?;
            let inner = pool.manager.run(|tx| {
                map.remove(tx, &5)?;
                Err::<(), Error>(TxError::Aborted.into())
            });
            assert!(inner.is_err());
            map.insert(tx, &(ENTRIES + 1), &1)
        });
        let doomed = doomed.expect_err("the inner one failed");
        assert!(matches!(doomed, Error::Tx(TxError::Doomed)), "{doomed:?}");
        assert_clear(&doomed, "run it again");
        assert_intact(pool, map);
    }
}

#[test]
fn a_transaction_larger_than_the_log() {
    for (pool, map) in made() {
        let large =
            pool.manager.run(|tx| (0..5000).try_for_each(|n| map.insert(tx, &(ENTRIES + n), &n).map(|_| ())));
        let large = large.expect_err("no log is so long");
        assert!(matches!(large, Error::Tx(TxError::TooLarge { .. })), "{large:?}");
        assert_clear(&large, "split it");
        assert_intact(pool, map);
    }
}

#[test]
fn a_panic_inside_a_transaction() {
    for (pool, map) in made() {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.manager.run(|tx| -> Result<(), Error> {
                map.insert(tx, &ENTRIES, &1)?;
                map.remove(tx, &3)?;
                let lost = tx.alloc_bytes(LARGE)?;
                tx.write_bytes(lost.offset(), &[1; LARGE])?;
                tx.free(Ptr::<u8>::at(map.ptr().offset()))?;
                std::panic::resume_unwind(Box::new("a panic that was planned"))
            })
        }));
        let panic = panicked.map(|_| ()).expect_err("it is handed on");
        assert_eq!(panic.downcast_ref(), Some(&"a panic that was planned"));
        // In the midst of a change, and caught before the transaction ends.
        let doomed = pool.manager.run(|tx| {
            let change = AssertUnwindSafe(|| {
                map.update(tx, &3, |_| std::panic::resume_unwind(Box::new("a panic that was planned")))
            });
            assert!(catch_unwind(change).is_err());
            Ok::<_, TxError>(())
        });
        assert!(matches!(doomed, Err(TxError::Doomed)), "{doomed:?}");
        assert_intact(pool, map);
    }
}
