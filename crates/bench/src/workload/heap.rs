//! Transactions on a hash table in a persistent heap: what a drill of a heap runs, and what proves it.
//!
//! They are named by a seed and a number: each puts, updates and removes a few entries, and one of sixteen is
//! given up at its end. An entry says which transaction wrote it, and is filled with what follows from that.
//!
//! Invariants, which a drill's oracle stands on:
//! - what a transaction does follows from seed and number alone, so [`HeapModel`] tells what the first so many
//!   of them leave, without a heap;
//! - no two of the first `n` and `n + 1` transactions that commit leave the same table.
//!
//! Does not know what keeps the space. Where the heap puts things is its own affair: two heaps that did the same
//! transactions need not have the same bytes.

use std::sync::Arc;

use wattkeep_collections::{Error, HashMap, Structure, Structures};
use wattkeep_heap::Heap;
use wattkeep_persist::Space;
use wattkeep_tx::{Manager, Tx, TxError};

use super::WorkloadError;
use super::pattern::mix;
use super::random::Random;

/// The smallest region for a heap: its own pages, a log, and a few thousand entries.
pub const HEAP_BYTES_MIN: u64 = 8 << 20;

/// Name of the table's root.
const ROOT: &str = "drill";
/// Changes of a transaction, at most.
const CHANGES_MAX: u64 = 6;
/// One of so many transactions is given up at its end.
const GIVEN_UP: u64 = 16;
/// Entries of a transaction of the load.
const LOADED_AT_ONCE: u64 = 16;
/// The logs take this part of the region, up to the heap's default.
const LOG_PART: u64 = 8;
/// Bytes of region for each key: its entry of 256 bytes, its share of the table, and much room for what is freed
/// and waits, for classes that are not full, and for what threads keep at hand.
const KEY_BYTES: u64 = 1024;

/// First the transaction that wrote it, then what follows from that.
type Value = [u64; 31];

/// A change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// There is a new value, whether there was one or not.
    Put(u64),
    /// There is a new value if there was one.
    Update(u64),
    /// There is none.
    Remove(u64),
}

/// The transactions of a seed, for a region of some size.
#[derive(Clone, Debug)]
pub struct HeapPlan {
    seed: u64,
    keys: u64,
    log_bytes: u64,
}

impl HeapPlan {
    /// For a region of `region_bytes`.
    ///
    /// # Errors
    /// The region is too small.
    pub fn new(seed: u64, region_bytes: u64) -> Result<Self, WorkloadError> {
        if region_bytes < HEAP_BYTES_MIN {
            return Err(WorkloadError::RegionTooSmall { region_bytes, least: HEAP_BYTES_MIN });
        }
        let log_bytes = (region_bytes / LOG_PART).min(wattkeep_heap::Options::default().log_area_bytes);
        Ok(Self { seed, keys: (region_bytes - log_bytes) / KEY_BYTES, log_bytes })
    }

    /// Entries that the load makes.
    pub fn loaded(&self) -> u64 {
        self.keys / 4 * 3
    }

    /// The changes of a transaction, and whether it commits.
    fn transaction(&self, number: u64) -> (impl Iterator<Item = Change>, bool) {
        let mut random = Random::new(mix(self.seed, number));
        let commits = random.below(GIVEN_UP) > 0;
        // The first change tells the transaction from the one before it.
        let first = Change::Put(random.below(self.keys));
        let more = random.below(CHANGES_MAX);
        let keys = self.keys;
        let rest = (0..more).map(move |_| {
            let key = random.below(keys);
            match random.below(8) {
                0 | 1 => Change::Put(key),
                2..6 => Change::Update(key),
                _ => Change::Remove(key),
            }
        });
        (rest.chain([first]), commits)
    }

    fn value(&self, key: u64, number: u64) -> Value {
        let seed = mix(mix(self.seed, number), key);
        std::array::from_fn(|word| if word == 0 { number } else { mix(seed, word as u64) })
    }
}

/// What the load and the first so many transactions leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapModel {
    steps: u64,
    /// For each key, the transaction that wrote its value.
    writers: Vec<Option<u64>>,
}

impl HeapModel {
    /// After the load.
    pub fn new(plan: &HeapPlan) -> Self {
        let writers = (0..plan.keys).map(|key| (key < plan.loaded()).then_some(0)).collect();
        Self { steps: 0, writers }
    }

    /// Makes the next transaction.
    pub fn step(&mut self, plan: &HeapPlan) {
        self.steps += 1;
        let (changes, commits) = plan.transaction(self.steps);
        for change in changes.filter(|_| commits) {
            let (Change::Put(key) | Change::Update(key) | Change::Remove(key)) = change;
            let writer = &mut self.writers[key as usize];
            match change {
                Change::Put(_) => *writer = Some(self.steps),
                Change::Update(_) => *writer = writer.map(|_| self.steps),
                Change::Remove(_) => *writer = None,
            }
        }
    }

    /// Transactions made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// In what a table differs, for people.
    fn difference(&self, found: &[Option<u64>]) -> Option<String> {
        let mut differing = self.writers.iter().zip(found).enumerate().filter(|(_, (a, b))| a != b);
        let (key, (expected, found)) = differing.next()?;
        let show = |writer: &Option<u64>| {
            writer.map_or("no entry".to_owned(), |number| format!("the entry of transaction {number}"))
        };
        let more = differing.count();
        Some(format!("key {key} has {}, not {}; {more} more differ", show(found), show(expected)))
    }
}

/// What a heap was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapFound {
    /// Transactions that its table shows.
    pub steps: u64,
    /// Entries of the table.
    pub entries: u64,
    /// Objects in the heap: those of the table, and no more.
    pub objects: u64,
}

/// A heap with the table.
pub struct HeapTable {
    plan: HeapPlan,
    manager: Manager,
    table: HashMap<u64, Value>,
}

impl HeapTable {
    /// Opens the heap in `space`, with what recovery does, or makes it.
    ///
    /// # Errors
    /// The heap, its log or its table is refused.
    pub fn open(space: Arc<Space>, plan: &HeapPlan) -> Result<Self, Error> {
        let options = wattkeep_heap::Options { log_area_bytes: plan.log_bytes, ..Default::default() };
        let heap = Heap::open_or_create(space, &options)?;
        let manager = Manager::open(Arc::new(heap), &wattkeep_tx::Options::default())?;
        let table = HashMap::open_or_create_root(&manager, ROOT)?;
        Ok(Self { plan: plan.clone(), manager, table })
    }

    /// Fills an empty table; calls `progress` with a share from 0 to 1.
    ///
    /// # Errors
    /// The heap refuses.
    pub fn load(&self, progress: &mut dyn FnMut(f64)) -> Result<(), Error> {
        let entries = self.plan.loaded();
        for first in (0..entries).step_by(LOADED_AT_ONCE as usize) {
            self.manager.run(|tx| {
                (first..entries.min(first + LOADED_AT_ONCE)).try_for_each(|key| self.put(tx, key, 0))
            })?;
            progress(first as f64 / entries as f64);
        }
        progress(1.0);
        Ok(())
    }

    /// Makes transaction `number`.
    ///
    /// # Errors
    /// The heap refuses.
    pub fn step(&self, number: u64) -> Result<(), Error> {
        let (changes, commits) = self.plan.transaction(number);
        let ended = self.manager.run(|tx| {
            for change in changes {
                match change {
                    Change::Put(key) => self.put(tx, key, number)?,
                    Change::Update(key) => {
                        let value = self.plan.value(key, number);
                        self.table.update(tx, &key, |old| *old = value)?;
                    }
                    Change::Remove(key) => {
                        self.table.remove(tx, &key)?;
                    }
                }
            }
            if commits { Ok(()) } else { Err(Error::Tx(TxError::Aborted)) }
        });
        match ended {
            Err(Error::Tx(TxError::Aborted)) if !commits => Ok(()),
            ended => ended,
        }
    }

    fn put(&self, tx: &mut Tx<'_>, key: u64, number: u64) -> Result<(), Error> {
        self.table.insert(tx, &key, &self.plan.value(key, number)).map(|_| ())
    }

    /// Whether the heap's and the table's own checks find nothing wrong, and the table is what the transactions
    /// of `model` left, or those up to `most`. Moves `model` to what was found. The heap was just opened: later,
    /// freed objects may still wait.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify(&self, model: &mut HeapModel, most: u64) -> Result<HeapFound, String> {
        let findings = self.table.check().map_err(|error| format!("the table is refused: {error}"))?;
        if let Some(fault) = findings.faults.first() {
            return Err(format!("the table has {} faults: {fault}", findings.faults.len()));
        }
        let heap = self.manager.heap();
        let report =
            heap.check(Some(&Structures)).map_err(|error| format!("the heap is refused: {error}"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("the heap has {} problems: {problem:?}", report.problems_count));
        }
        if report.leaks.as_ref().is_none_or(|leaks| leaks.objects > 0)
            || findings.reached.len() as u64 != report.objects
        {
            return Err(format!("the heap has objects that nobody reaches: {report}"));
        }
        let found = self.writers()?;
        let entries = found.iter().flatten().count() as u64;
        if findings.items != entries {
            return Err(format!("the table counts {} entries and has {entries}", findings.items));
        }
        let least = model.steps;
        let mut why = String::new();
        loop {
            match model.difference(&found) {
                None => return Ok(HeapFound { steps: model.steps, entries, objects: report.objects }),
                Some(difference) => why.push_str(&format!("; after {}: {difference}", model.steps)),
            }
            if model.steps >= most {
                return Err(format!("the table is not that of {least} to {most} transactions{why}"));
            }
            model.step(&self.plan);
        }
    }

    /// Who wrote the entries.
    fn writers(&self) -> Result<Vec<Option<u64>>, String> {
        let mut writers = vec![None; self.plan.keys as usize];
        for entry in self.table.iter() {
            let (key, value) = entry.map_err(|error| format!("the table is refused: {error}"))?;
            let writer = writers.get_mut(key as usize);
            let writer = writer.ok_or_else(|| format!("the table has a key {key} that nobody put there"))?;
            if value != self.plan.value(key, value[0]) {
                return Err(format!("the entry of key {key} is not as transaction {} wrote it", value[0]));
            }
            if writer.replace(value[0]).is_some() {
                return Err(format!("the table has two entries of key {key}"));
            }
        }
        Ok(writers)
    }
}

#[cfg(test)]
mod tests {
    use wattkeep_persist::{Anonymous, Domain};

    use super::*;

    fn space() -> Arc<Space> {
        Arc::new(Space::new(Arc::new(Anonymous::new(HEAP_BYTES_MIN as usize)), Domain::Battery))
    }

    fn plan(seed: u64) -> HeapPlan {
        HeapPlan::new(seed, HEAP_BYTES_MIN).expect("large enough")
    }

    fn run(space: &Arc<Space>, plan: &HeapPlan, steps: std::ops::RangeInclusive<u64>) {
        let heap = HeapTable::open(space.clone(), plan).expect("a heap");
        if *steps.start() == 1 {
            heap.load(&mut |_| ()).expect("room for all");
        }
        steps.for_each(|number| heap.step(number).expect("a transaction"));
    }

    fn verify(space: &Arc<Space>, plan: &HeapPlan, least: u64, most: u64) -> Result<HeapFound, String> {
        let mut model = HeapModel::new(plan);
        (0..least).for_each(|_| model.step(plan));
        HeapTable::open(space.clone(), plan).expect("a heap").verify(&mut model, most)
    }

    #[test]
    fn a_heap_that_is_opened_again_is_what_its_transactions_left() {
        let (space, plan) = (space(), plan(5));
        run(&space, &plan, 1..=3_000);
        let found = verify(&space, &plan, 3_000, 3_000).expect("whole");
        assert!(found.entries > 3_000 && found.objects > found.entries, "{found:?}");
        run(&space, &plan, 3_001..=4_000);
        assert_eq!(verify(&space, &plan, 4_000, 4_000).expect("whole").steps, 4_000);
    }

    #[test]
    fn a_transaction_more_is_found_and_two_more_or_one_less_are_told() {
        let (space, plan) = (space(), plan(7));
        let commits = |number: &u64| plan.transaction(*number).1;
        let last =
            (200..).find(|last| (last - 1..=last + 1).all(|number| commits(&number))).expect("most do");
        run(&space, &plan, 1..=last);
        assert_eq!(verify(&space, &plan, last - 1, last).expect("the next one's").steps, last);
        for (least, most) in [(last - 2, last - 1), (last + 1, last + 2)] {
            let why = verify(&space, &plan, least, most).expect_err("not these");
            assert!(why.contains("is not that of"), "{why}");
        }
    }

    #[test]
    fn a_transaction_that_is_given_up_leaves_nothing() {
        let plan = plan(9);
        let given_up = (1..).find(|number| !plan.transaction(*number).1).expect("one of sixteen");
        let mut before = HeapModel::new(&plan);
        (1..given_up).for_each(|_| before.step(&plan));
        let mut after = before.clone();
        after.step(&plan);
        assert_eq!(before.writers, after.writers);
    }

    #[test]
    fn a_damaged_entry_and_a_lost_object_are_told() {
        let (space, plan) = (space(), plan(11));
        run(&space, &plan, 1..=100);
        let heap = HeapTable::open(space.clone(), &plan).expect("a heap");
        let entry = heap.table.check().expect("a walk").reached.last().expect("parts").0 as usize;
        drop(heap);
        let word = space.load(entry + 32).expect("inside");
        space.store(entry + 32, word ^ 1).expect("inside");
        let why = verify(&space, &plan, 100, 100).expect_err("a flipped bit");
        assert!(why.contains("as transaction"), "{why}");
        space.store(entry + 32, word).expect("inside");
        let heap = HeapTable::open(space.clone(), &plan).expect("a heap");
        heap.manager.heap().alloc(100).expect("room");
        drop(heap);
        let why = verify(&space, &plan, 100, 100).expect_err("a leak");
        assert!(why.contains("nobody reaches"), "{why}");
    }

    #[test]
    fn a_small_region_is_refused() {
        let why = HeapPlan::new(1, HEAP_BYTES_MIN - 1).expect_err("too small").to_string();
        assert!(why.contains(&HEAP_BYTES_MIN.to_string()), "{why}");
    }
}
