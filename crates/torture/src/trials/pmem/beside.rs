//! A hash map and a B+tree beside a table, changed by its transactions, and read while they are.
//!
//! Each has an entry for each slot of the table that has one: which transaction touched it last, and a number that
//! follows from that, so that a torn entry shows.

use std::collections::BTreeMap;

use wattkeep::collections::{BTree, Error, HashMap, Structure};
use wattkeep_tx::{Manager, Tx, TxError};

use super::changes::{Change, End, SLOTS, Table, transaction};

type Value = [u64; 2];

/// The two structures of one table.
pub(crate) struct Beside {
    map: HashMap<u64, Value>,
    tree: BTree<u64, Value>,
    seed: u64,
}

fn value(seed: u64, slot: u64, number: u64) -> Value {
    [number, (seed ^ slot << 32 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15)]
}

impl Beside {
    /// Opens those of table `number`, or makes them.
    pub(crate) fn open(manager: &Manager, number: usize, seed: u64) -> Result<Self, Error> {
        Ok(Self {
            map: HashMap::open_or_create_root(manager, &format!("map-{number}"))?,
            tree: BTree::open_or_create_root(manager, &format!("tree-{number}"))?,
            seed,
        })
    }

    /// What transaction `number` of the table does here.
    pub(crate) fn change(&self, tx: &mut Tx<'_>, number: u64) -> Result<(), TxError> {
        let (changes, _) = transaction(self.seed, number);
        changes.into_iter().try_for_each(|change| self.make(tx, change, number)).map_err(
            |error| match error {
                Error::Tx(error) => error,
                Error::Heap(error) => error.into(),
                other => panic!("transaction {number}: {other}"),
            },
        )
    }

    fn make(&self, tx: &mut Tx<'_>, change: Change, number: u64) -> Result<(), Error> {
        let (Change::Put(slot, _) | Change::Rewrite(slot) | Change::Touch(slot) | Change::Clear(slot)) =
            change;
        let key = slot as u64;
        let value = value(self.seed, key, number);
        match change {
            Change::Put(..) => {
                self.map.insert(tx, &key, &value)?;
                self.tree.insert(tx, &key, &value)?;
            }
            Change::Rewrite(_) | Change::Touch(_) => {
                self.map.update(tx, &key, |old| *old = value)?;
                self.tree.update(tx, &key, |old| *old = value)?;
            }
            Change::Clear(_) => {
                self.map.remove(tx, &key)?;
                self.tree.remove(tx, &key)?;
            }
        }
        Ok(())
    }

    /// Whether both are what the transactions left that left the table, and sound. Answers how many objects
    /// they have.
    pub(crate) fn verify(&self, table: &Table) -> Result<u64, String> {
        let text = |error: Error| error.to_string();
        let slots = (0..).zip(&table.slots);
        let expected: BTreeMap<u64, Value> = slots
            .filter_map(|(slot, entry)| Some((slot, value(self.seed, slot, entry.as_ref()?.touched))))
            .collect();
        let map: BTreeMap<u64, Value> = self.map.iter().collect::<Result<_, _>>().map_err(text)?;
        let tree: Vec<(u64, Value)> = self.tree.range(..).collect::<Result<_, _>>().map_err(text)?;
        if map != expected {
            return Err(format!("the hash map holds {map:?}, not {expected:?}"));
        }
        if !tree.iter().copied().eq(expected.iter().map(|(key, value)| (*key, *value))) {
            return Err(format!("the B+tree holds {tree:?}, not {expected:?}"));
        }
        let mut objects = 0;
        for findings in [self.map.check().map_err(text)?, self.tree.check().map_err(text)?] {
            if let Some(fault) = findings.faults.first() {
                return Err(format!("{} faults: {fault}", findings.faults.len()));
            }
            objects += findings.reached.len() as u64;
        }
        Ok(objects)
    }

    /// Reads while others change: every entry is whole, and of a transaction that committed.
    pub(crate) fn read(&self, turn: u64) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let slot = turn % SLOTS as u64;
        for found in [self.map.get(&slot).map_err(text)?, self.tree.get(&slot).map_err(text)?] {
            found.map_or(Ok(()), |found| self.judge(slot, found))?;
        }
        if slot == 0 {
            self.map
                .iter()
                .try_for_each(|entry| entry.map_err(text).and_then(|(key, found)| self.judge(key, found)))?;
            let mut last = None;
            for entry in self.tree.range(..) {
                let (key, found) = entry.map_err(text)?;
                self.judge(key, found)?;
                if last.replace(key).is_some_and(|last| last >= key) {
                    return Err(format!("a reader walks the B+tree from {last:?} to {key}"));
                }
            }
        }
        Ok(())
    }

    fn judge(&self, slot: u64, found: Value) -> Result<(), String> {
        let commits = transaction(self.seed, found[0]).1 == End::Commit;
        if commits && found == value(self.seed, slot, found[0]) {
            return Ok(());
        }
        Err(format!("a reader sees {found:?} in slot {slot}; that transaction commits: {commits}"))
    }
}
