//! Power cuts at every step of small histories: what was committed is whole, the rest never was.
//!
//! The processor's cache is simulated (`wattkeep_sim::cache`): of the lines that were not written back and
//! fenced, any may be there after the cut, and any may not.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::assert_sound;
use wattkeep_collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Vector};
use wattkeep_heap::Heap;
use wattkeep_persist::{DomainKind, Space};
use wattkeep_sim::cache::Dimm;
use wattkeep_sim::random::{Random, seed_from_environment};
use wattkeep_tx::{Logging, Manager, Options};

const BYTES: usize = 1 << 20;
const LOG_BYTES: u64 = 64 << 10;
const SEED: u64 = 0x0C01_1EC7;

/// Transactions of a history.
const TRANSACTIONS: usize = 6;

/// What all structures hold, for comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    map: BTreeMap<u64, [u64; 2]>,
    bytes: BTreeMap<Vec<u8>, Vec<u8>>,
    tree: BTreeMap<[u64; 12], u64>,
    vector: Vec<u64>,
    text: String,
}

/// One of each.
struct Structures {
    map: HashMap<u64, [u64; 2]>,
    bytes: BytesMap,
    tree: BTree<[u64; 12], u64>,
    vector: Vector<u64>,
    text: PString,
}

impl Structures {
    fn open(manager: &Manager) -> Result<Self, Error> {
        Ok(Self {
            map: HashMap::open_or_create_root(manager, "map")?,
            bytes: BytesMap::open_or_create_root(manager, "bytes")?,
            tree: BTree::open_or_create_root(manager, "tree")?,
            vector: Vector::open_or_create_root(manager, "vector")?,
            text: PString::open_or_create_root(manager, "text")?,
        })
    }

    fn contents(&self) -> Contents {
        let contents = Contents {
            map: self.map.iter().map(|entry| entry.expect("an entry")).collect(),
            bytes: self.bytes.iter().map(|entry| entry.expect("an entry")).collect(),
            tree: self.tree.range(..).map(|entry| entry.expect("an entry")).collect(),
            vector: self.vector.iter().map(|element| element.expect("an element")).collect(),
            text: self.text.get().expect("text"),
        };
        assert_sound(self.map.check(), contents.map.len());
        assert_sound(self.bytes.check(), contents.bytes.len());
        assert_sound(self.tree.check(), contents.tree.len());
        assert_sound(self.vector.check(), contents.vector.len());
        assert_sound(self.text.check(), contents.text.len());
        contents
    }

    /// A transaction that changes all of them; `model` follows.
    fn change(&self, manager: &Manager, random: &mut Random, model: &mut Contents) -> Result<(), Error> {
        manager.run(|tx| {
            for _ in 0..=random.below(12) {
                let (key, value) = (random.below(60), random.number());
                if random.below(3) > 0 {
                    self.map.insert(tx, &key, &[value; 2])?;
                    model.map.insert(key, [value; 2]);
                    self.tree.insert(tx, &[key; 12], &value)?;
                    model.tree.insert([key; 12], value);
                    let (name, text) =
                        (vec![key as u8; key as usize], vec![value as u8; (value % 90) as usize]);
                    self.bytes.insert(tx, &name, &text)?;
                    model.bytes.insert(name, text);
                    self.vector.push(tx, &value)?;
                    model.vector.push(value);
                } else {
                    assert_eq!(self.map.remove(tx, &key)?, model.map.remove(&key));
                    assert_eq!(self.tree.remove(tx, &[key; 12])?, model.tree.remove(&[key; 12]));
                    let name = vec![key as u8; key as usize];
                    assert_eq!(self.bytes.remove(tx, &name)?, model.bytes.remove(&name));
                    assert_eq!(self.vector.pop(tx)?, model.vector.pop());
                }
            }
            model.text.push_str("more ");
            self.text.push_str(tx, "more ")
        })
    }
}

fn start(space: Arc<Space>, logging: Logging) -> Manager {
    let heap = Heap::open(space).expect("a heap");
    let options = Options { logging, ..Options::default() };
    Manager::open(Arc::new(heap), &options).expect("a manager")
}

/// Runs a history, then every prefix of its steps again from what a cut there may leave.
fn cut_everywhere(domain: DomainKind, logging: Logging, seed: u64) {
    let dimm = Dimm::new(BYTES, domain);
    let (space, _) = dimm.boot();
    let options = wattkeep_heap::Options { log_area_bytes: LOG_BYTES, ..Default::default() };
    drop(Heap::create(space, &options).expect("a heap"));
    let (space, _) = dimm.boot();
    Structures::open(&start(space, logging)).expect("structures");

    let mut rewind = dimm.before();
    let mut random = Random::new(seed);
    let mut model = Contents::default();
    let mut committed = vec![(0, model.clone())];
    let (space, cache) = dimm.boot();
    let manager = start(space, logging);
    let structures = Structures::open(&manager).expect("structures");
    for _ in 0..TRANSACTIONS {
        structures.change(&manager, &mut random, &mut model).expect("committed");
        committed.push((cache.now(), model.clone()));
    }
    let history = cache.history();
    drop((structures, manager));

    let (mut images, mut next) = (0, 0);
    for step in 0..=history.len() {
        rewind.moment.advance(&history, step);
        while committed.get(next + 1).is_some_and(|(at, _)| *at <= step) {
            next += 1;
        }
        // One image a step: neighbours differ in little, and a run in its seed.
        {
            let image = rewind.moment.sample(&mut random);
            dimm.load(&mut rewind, &image);
            let (space, _) = dimm.boot();
            let manager = start(space, logging);
            let found = Structures::open(&manager).expect("structures").contents();
            let kept = &committed[next].1;
            // The transaction that was being committed may be there, or not.
            let may_be = committed.get(next + 1).is_some_and(|(_, after)| found == *after);
            assert!(
                found == *kept || may_be,
                "seed {seed:#x}, {domain}, {logging:?}: step {step} of {}, image {image:?}\n\
                 {found:?}\nis not\n{kept:?}",
                history.len()
            );
            images += 1;
        }
    }
    assert!(images > TRANSACTIONS * 20, "a history of {} steps proves nothing", history.len());
}

#[test]
fn a_cut_keeps_what_was_committed_with_undo_behind_a_cache() {
    cut_everywhere(DomainKind::Adr, Logging::Undo, seed_from_environment(SEED));
}

#[test]
fn a_cut_keeps_what_was_committed_with_redo_behind_a_cache() {
    cut_everywhere(DomainKind::Adr, Logging::Redo, seed_from_environment(SEED));
}

#[test]
fn a_kill_keeps_what_was_committed_with_undo() {
    cut_everywhere(DomainKind::Battery, Logging::Undo, seed_from_environment(SEED));
}

#[test]
fn a_kill_keeps_what_was_committed_with_redo() {
    cut_everywhere(DomainKind::Battery, Logging::Redo, seed_from_environment(SEED));
}
