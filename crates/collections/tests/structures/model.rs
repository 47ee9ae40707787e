//! Every structure does what its model in the standard library does, whichever way transactions end.

use std::collections::{BTreeMap, HashMap as StdMap};
use std::ops::Bound;

use crate::support::{End, Pool, assert_sound, ends, loggings};
use proptest::collection::vec;
use proptest::prelude::*;
use wattkeep_collections::{BTree, BytesMap, HashMap, PString, Structure, Vector};
use wattkeep_tx::Logging;

const POOL: usize = 8 << 20;
const ROOT: &str = "model";

/// What is done to one key.
#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(u8),
    Update(u8),
    Remove,
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => any::<u8>().prop_map(Change::Insert),
        1 => any::<u8>().prop_map(Change::Update),
        2 => Just(Change::Remove),
    ]
}

/// Transactions, each of some changes and an end.
fn histories(keys: u16) -> impl Strategy<Value = Vec<(Vec<(u16, Change)>, End)>> {
    vec((vec((0..keys, changes()), 1..60), ends()), 1..20)
}

/// Keys so large that nodes have few entries, and trees many levels.
fn wide(key: u16) -> [u64; 12] {
    let mut wide = [7; 12];
    wide[0] = u64::from(key) / 3;
    wide[11] = u64::from(key) % 3;
    wide
}

fn run_map(logging: Logging, histories: Vec<(Vec<(u16, Change)>, End)>) {
    let mut pool = Pool::new(POOL, logging);
    HashMap::<u16, [u64; 3]>::open_or_create_root(&pool.manager, ROOT).expect("a map");
    let mut model = StdMap::new();
    for (changes, end) in histories {
        let map = HashMap::<u16, [u64; 3]>::open_root(&pool.heap, ROOT).expect("a map");
        let mut next = model.clone();
        let committed = pool.end_as(end, |tx| {
            for (key, change) in changes {
                match change {
                    Change::Insert(value) => {
                        let value = [value.into(); 3];
                        assert_eq!(map.insert(tx, &key, &value)?, next.insert(key, value).is_none());
                    }
                    Change::Update(value) => {
                        let there = map.update(tx, &key, |old| old[1] += u64::from(value))?;
                        assert_eq!(there, next.contains_key(&key));
                        next.entry(key).and_modify(|old| old[1] += u64::from(value));
                    }
                    Change::Remove => assert_eq!(map.remove(tx, &key)?, next.remove(&key)),
                }
                assert_eq!(map.get_in(tx, &key)?, next.get(&key).copied());
            }
            assert_eq!(map.len_in(tx)?, next.len() as u64);
            Ok(())
        });
        if committed {
            model = next;
        }
        assert_sound(map.check(), model.len());
        let found: StdMap<_, _> = map.iter().map(|entry| entry.expect("an entry")).collect();
        assert_eq!(found, model, "after {end:?}");
        drop(map);
        pool = pool.reopen();
    }
}

fn run_bytes(logging: Logging, histories: Vec<(Vec<(u16, Change)>, End)>) {
    let mut pool = Pool::new(POOL, logging);
    BytesMap::open_or_create_root(&pool.manager, ROOT).expect("a map");
    let mut model = StdMap::new();
    let key_of = |key: u16| key.to_le_bytes().repeat(usize::from(key % 40));
    for (changes, end) in histories {
        let map = BytesMap::open_root(&pool.heap, ROOT).expect("a map");
        let mut next = model.clone();
        let committed = pool.end_as(end, |tx| {
            for (key, change) in changes {
                let key = key_of(key);
                match change {
                    Change::Insert(value) | Change::Update(value) => {
                        let value = vec![value; usize::from(value) * 3 / 2];
                        let new = map.insert(tx, &key, &value)?;
                        assert_eq!(new, next.insert(key.clone(), value).is_none());
                    }
                    Change::Remove => assert_eq!(map.remove(tx, &key)?, next.remove(&key)),
                }
                assert_eq!(map.get_in(tx, &key)?, next.get(&key).cloned());
            }
            Ok(())
        });
        if committed {
            model = next;
        }
        assert_sound(map.check(), model.len());
        let found: StdMap<_, _> = map.iter().map(|entry| entry.expect("an entry")).collect();
        assert_eq!(found, model, "after {end:?}");
        for key in model.keys() {
            assert_eq!(map.get(key).expect("a value").as_ref(), model.get(key));
        }
        drop(map);
        pool = pool.reopen();
    }
}

fn run_tree(logging: Logging, histories: Vec<(Vec<(u16, Change)>, End)>, ranges: Vec<(u16, u16)>) {
    let mut pool = Pool::new(POOL, logging);
    BTree::<[u64; 12], u64>::open_or_create_root(&pool.manager, ROOT).expect("a tree");
    let mut model = BTreeMap::new();
    for (changes, end) in histories {
        let tree = BTree::<[u64; 12], u64>::open_root(&pool.heap, ROOT).expect("a tree");
        let mut next = model.clone();
        let committed = pool.end_as(end, |tx| {
            for (key, change) in changes {
                let key = wide(key);
                match change {
                    Change::Insert(value) => {
                        let new = tree.insert(tx, &key, &value.into())?;
                        assert_eq!(new, next.insert(key, u64::from(value)).is_none());
                    }
                    Change::Update(value) => {
                        let there = tree.update(tx, &key, |old| *old += u64::from(value))?;
                        assert_eq!(there, next.contains_key(&key));
                        next.entry(key).and_modify(|old| *old += u64::from(value));
                    }
                    Change::Remove => assert_eq!(tree.remove(tx, &key)?, next.remove(&key)),
                }
                assert_eq!(tree.get_in(tx, &key)?, next.get(&key).copied());
            }
            let mut all = Vec::new();
            tree.for_each_in(tx, .., |key, value| {
                all.push((key, value));
                Ok(())
            })?;
            assert!(all.into_iter().eq(next.clone()), "what a transaction sees of its own");
            Ok(())
        });
        if committed {
            model = next;
        }
        assert_sound(tree.check(), model.len());
        for (from, to) in &ranges {
            let (from, to) = (wide(*from.min(to)), wide(*from.max(to)));
            let found = tree.range(from..to).map(|entry| entry.expect("an entry"));
            assert!(found.eq(model.range(from..to).map(|(key, value)| (*key, *value))), "{from:?}..{to:?}");
            let bounds = (Bound::Excluded(from), Bound::Included(to));
            if from < to {
                let found = tree.range(bounds).map(|entry| entry.expect("an entry"));
                assert!(found.eq(model.range(bounds).map(|(key, value)| (*key, *value))), "{bounds:?}");
            }
        }
        assert!(tree.range(..).map(|entry| entry.expect("an entry")).eq(model.clone()), "after {end:?}");
        drop(tree);
        pool = pool.reopen();
    }
}

/// What is done to a vector.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u32),
    Pop,
    Set(u16, u32),
    SwapRemove(u16),
    Truncate(u16),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<u32>().prop_map(Step::Push),
        2 => Just(Step::Pop),
        2 => any::<(u16, u32)>().prop_map(|(index, value)| Step::Set(index % 300, value)),
        1 => any::<u16>().prop_map(|index| Step::SwapRemove(index % 300)),
        1 => any::<u16>().prop_map(|len| Step::Truncate(len % 500)),
    ]
}

fn run_vector(logging: Logging, histories: Vec<(Vec<Step>, End)>) {
    let mut pool = Pool::new(POOL, logging);
    Vector::<u32>::open_or_create_root(&pool.manager, ROOT).expect("a vector");
    let mut model = Vec::new();
    for (steps, end) in histories {
        let vector = Vector::<u32>::open_root(&pool.heap, ROOT).expect("a vector");
        let mut next = model.clone();
        let committed = pool.end_as(end, |tx| {
            for step in steps {
                match step {
                    Step::Push(value) => {
                        vector.push(tx, &value)?;
                        next.push(value);
                    }
                    Step::Pop => assert_eq!(vector.pop(tx)?, next.pop()),
                    Step::Set(index, value) => {
                        let there = next.get_mut(usize::from(index)).map(|old| *old = value).is_some();
                        assert_eq!(vector.set(tx, index.into(), &value)?, there);
                    }
                    Step::SwapRemove(index) => {
                        let there = usize::from(index) < next.len();
                        let gone = there.then(|| next.swap_remove(index.into()));
                        assert_eq!(vector.swap_remove(tx, index.into())?, gone);
                    }
                    Step::Truncate(len) => {
                        vector.truncate(tx, len.into())?;
                        next.truncate(len.into());
                    }
                }
            }
            Ok(())
        });
        if committed {
            model = next;
        }
        assert_sound(vector.check(), model.len());
        assert!(vector.iter().map(|element| element.expect("an element")).eq(model.iter().copied()));
        assert_eq!(vector.get(model.len() as u64).expect("no element"), None);
        drop(vector);
        pool = pool.reopen();
    }
}

fn run_string(logging: Logging, histories: Vec<(Vec<(bool, String)>, End)>) {
    let mut pool = Pool::new(POOL, logging);
    PString::open_or_create_root(&pool.manager, ROOT).expect("a string");
    let mut model = String::new();
    for (steps, end) in histories {
        let text = PString::open_root(&pool.heap, ROOT).expect("a string");
        let mut next = model.clone();
        let committed = pool.end_as(end, |tx| {
            for (replaces, part) in steps {
                if replaces {
                    text.set(tx, &part)?;
                    next = part;
                } else {
                    text.push_str(tx, &part)?;
                    next.push_str(&part);
                }
                assert_eq!(text.get_in(tx)?, next);
            }
            Ok(())
        });
        if committed {
            model = next;
        }
        assert_sound(text.check(), model.len());
        assert_eq!(text.get().expect("text"), model);
        drop(text);
        pool = pool.reopen();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_hash_map_is_a_hash_map(logging in loggings(), histories in histories(300)) {
        run_map(logging, histories);
    }

    #[test]
    fn a_bytes_map_is_a_hash_map(logging in loggings(), histories in histories(200)) {
        run_bytes(logging, histories);
    }

    #[test]
    fn a_tree_is_a_btree_map(
        logging in loggings(),
        histories in histories(400),
        ranges in vec((0..400_u16, 0..400_u16), 4),
    ) {
        run_tree(logging, histories, ranges);
    }

    #[test]
    fn a_vector_is_a_vector(logging in loggings(), histories in vec((vec(steps(), 1..80), ends()), 1..20)) {
        run_vector(logging, histories);
    }

    #[test]
    fn a_string_is_a_string(
        logging in loggings(),
        histories in vec((vec((any::<bool>(), "\\PC{0,60}"), 1..8), ends()), 1..20),
    ) {
        run_string(logging, histories);
    }
}
