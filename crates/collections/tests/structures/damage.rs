//! Damaged bytes are refused or read as other values: no panic, no walk without an end.

use proptest::prelude::*;
use wattkeep_collections::{BTree, BytesMap, Findings, HashMap, PString, Structure, Vector};

use crate::support::{Pool, loggings};

const POOL: usize = 2 << 20;

/// Bytes that are written over a part of a structure: which part, how far in it, what.
type Damage = Vec<(usize, u64, u64)>;

fn damage(pool: &Pool, found: &Findings, damage: &Damage) {
    for (part, within, word) in damage {
        // The first parts are headers and directories: half of the damage goes there.
        let part = if part % 2 == 0 { 0 } else { part % found.reached.len() };
        let (at, bytes) = found.reached[part];
        let word = if word % 3 == 0 { word % 100 } else { *word };
        pool.heap.space().store((at + within % bytes.max(8)) as usize / 8 * 8, word).expect("inside");
    }
}

fn damages() -> impl Strategy<Value = Damage> {
    prop::collection::vec((any::<usize>(), any::<u64>(), any::<u64>()), 1..6)
}

/// How far an iterator is followed: damage may make a structure look very long.
const FAR: usize = 10_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn maps_survive_damage(logging in loggings(), words in damages()) {
        let pool = Pool::new(POOL, logging);
        let map: HashMap<u64, u64> = pool.manager.run(HashMap::create).expect("a map");
        let bytes: BytesMap = pool.manager.run(BytesMap::create).expect("a map");
        pool.for_all(0..150, |tx, n| {
            map.insert(tx, &n, &n)?;
            bytes.insert(tx, &n.to_le_bytes(), &vec![7; n as usize]).map(|_| ())
        });
        damage(&pool, &map.check().expect("a walk"), &words);
        damage(&pool, &bytes.check().expect("a walk"), &words);
        let _ = (map.check(), bytes.check());
        for n in 0..200_u64 {
            let _ = (map.get(&n), bytes.get(&n.to_le_bytes()));
        }
        let _ = (map.iter().take(FAR).count(), bytes.iter().take(FAR).count());
        for n in 100..300_u64 {
            let _ = pool.manager.run(|tx| map.remove(tx, &(n / 2)));
            let _ = pool.manager.run(|tx| map.insert(tx, &n, &n));
            let _ = pool.manager.run(|tx| bytes.remove(tx, &(n / 2).to_le_bytes()));
            let _ = pool.manager.run(|tx| bytes.insert(tx, &n.to_le_bytes(), b"new"));
        }
        let _ = pool.manager.run(|tx| map.destroy(tx));
        let _ = pool.manager.run(|tx| bytes.destroy(tx));
    }

    #[test]
    fn trees_survive_damage(logging in loggings(), words in damages()) {
        let pool = Pool::new(POOL, logging);
        let tree: BTree<[u64; 12], u64> = pool.manager.run(BTree::create).expect("a tree");
        let fill = |n| pool.manager.run(|tx| tree.insert(tx, &[n; 12], &n));
        (0..150_u64).for_each(|n| assert!(fill(n).expect("inserted")));
        damage(&pool, &tree.check().expect("a walk"), &words);
        let _ = tree.check();
        let _ = tree.range(..).count();
        let _ = tree.range([20; 12]..[90; 12]).count();
        for n in 100..300_u64 {
            let _ = tree.get(&[n; 12]);
            let _ = pool.manager.run(|tx| tree.remove(tx, &[n / 2; 12]));
            let _ = fill(n);
        }
        let _ = pool.manager.run(|tx| tree.destroy(tx));
    }

    #[test]
    fn vectors_and_strings_survive_damage(logging in loggings(), words in damages()) {
        let pool = Pool::new(POOL, logging);
        let vector: Vector<[u32; 3]> = pool.manager.run(Vector::create).expect("a vector");
        let text: PString = pool.manager.run(PString::create).expect("a string");
        pool.for_all(0..200, |tx, n| {
            text.set(tx, "some text")?;
            vector.push(tx, &[n as u32; 3])
        });
        damage(&pool, &vector.check().expect("a walk"), &words);
        damage(&pool, &text.check().expect("a walk"), &words);
        let _ = (vector.check(), text.check(), text.get(), vector.iter().take(FAR).count());
        for n in 0..100 {
            let _ = vector.get(n * 3);
            let _ = pool.manager.run(|tx| vector.pop(tx));
            let _ = pool.manager.run(|tx| vector.swap_remove(tx, n));
            let _ = pool.manager.run(|tx| vector.push(tx, &[1; 3]));
            let _ = pool.manager.run(|tx| text.push_str(tx, "more"));
            let _ = pool.manager.run(|tx| text.set(tx, &"x".repeat(n as usize)));
        }
        let _ = pool.manager.run(|tx| vector.truncate(tx, 1));
        let _ = pool.manager.run(|tx| vector.destroy(tx));
        let _ = pool.manager.run(|tx| text.destroy(tx));
    }
}
