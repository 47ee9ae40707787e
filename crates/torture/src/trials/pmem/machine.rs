//! A program's heap with its transactions and tables: opened, changed, verified.

use std::sync::Arc;

use wattkeep_heap::Heap;
use wattkeep_persist::{Ptr, Space};
use wattkeep_tx::{Logging, Manager, TxError};

use super::aside::Aside;
use super::beside::Beside;
use super::changes::{End, Table, transaction};
use super::check_heap;
use super::slots::{Slots, TABLE_BYTES, difference};

/// Type of the roots.
const TAG: u64 = 0x7461_626c_6500;

/// How a heap is made and opened.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Names the transactions.
    pub(crate) seed: u64,
    pub(crate) tables: usize,
    pub(crate) logging: Logging,
    /// Bytes of all transaction logs, and of what they may hold before they are truncated.
    pub(crate) log_bytes: u64,
    pub(crate) truncate_bytes: usize,
    /// Guard words behind objects.
    pub(crate) guard: bool,
}

/// A table, and what its transactions change besides.
struct Part {
    slots: Slots,
    aside: Aside,
    beside: Beside,
}

/// An open heap.
pub(crate) struct Machine {
    heap: Arc<Heap>,
    manager: Manager,
    tables: Vec<Part>,
}

impl Machine {
    /// Finds the heap in the space, or makes it; and its tables.
    pub(crate) fn open(space: Arc<Space>, setup: &Setup) -> Result<Self, String> {
        let options = wattkeep_heap::Options {
            log_area_bytes: setup.log_bytes,
            guard: setup.guard,
            ..Default::default()
        };
        let heap = Heap::open_or_create(space, &options).map_err(|e| format!("the heap is refused: {e}"))?;
        let heap = Arc::new(heap);
        let options = wattkeep_tx::Options {
            logging: setup.logging,
            truncate_bytes: setup.truncate_bytes,
            ..wattkeep_tx::Options::default()
        };
        let manager =
            Manager::open(heap.clone(), &options).map_err(|e| format!("the log is refused: {e}"))?;
        let tables = (0..setup.tables).map(|number| {
            let slots = table(&heap, &manager, setup.seed, number)?;
            let aside =
                Aside::open(&manager, number, slots.seed).map_err(|e| format!("table {number}: {e}"))?;
            let beside =
                Beside::open(&manager, number, slots.seed).map_err(|e| format!("table {number}: {e}"))?;
            Ok::<_, String>(Part { slots, aside, beside })
        });
        let tables = tables.collect::<Result<_, _>>()?;
        Ok(Self { heap, manager, tables })
    }

    /// Makes transaction `number` of a table. True if it commits.
    pub(crate) fn step(&self, table: usize, number: u64) -> Result<bool, String> {
        let Part { slots, aside, beside } = &self.tables[table];
        let ran = slots.run(&self.manager, number, |tx| {
            aside.change(tx, number)?;
            beside.change(tx, number)
        });
        let followed = ran.and_then(|commits| aside.follow(&self.manager, number).map(|()| commits));
        followed.map_err(|e| format!("transaction {number}: {e}"))
    }

    /// Reads of all tables what may be read while they are changed.
    pub(crate) fn read(&self, turn: u64) -> Result<(), String> {
        self.tables.iter().enumerate().try_for_each(|(table, part)| {
            part.beside.read(turn).map_err(|cause| format!("table {table}: {cause}"))
        })
    }

    /// Makes again what a cut may take without the last transaction of the table, number `last`.
    pub(crate) fn catch_up(&self, table: usize, last: u64) -> Result<(), String> {
        self.tables[table]
            .aside
            .catch_up(&self.manager, last)
            .map_err(|e| format!("behind transaction {last}: {e}"))
    }

    /// The numbers of the last transactions of all tables, if each table is what they left, and the heap
    /// holds that and nothing else.
    pub(crate) fn verify(&self) -> Result<Vec<u64>, String> {
        let mut numbers = Vec::new();
        let mut objects = 2 * self.tables.len() as u64;
        for (table, Part { slots, aside, beside }) in self.tables.iter().enumerate() {
            let found = self.verify_table(slots).map_err(|cause| format!("table {table}: {cause}"))?;
            aside.verify(found.number).map_err(|cause| format!("table {table}: {cause}"))?;
            let parts = beside.verify(&found).map_err(|cause| format!("table {table}: {cause}"))?;
            numbers.push(found.number);
            objects += found.entries() + parts;
        }
        check_heap(&self.heap, objects)?;
        Ok(numbers)
    }

    fn verify_table(&self, slots: &Slots) -> Result<Table, String> {
        let space = self.heap.space();
        let found = slots.read(space)?;
        if found.number > 0 && transaction(slots.seed, found.number).1 != End::Commit {
            return Err(format!("transaction {} was given up, and is there", found.number));
        }
        let mut expected = Table::new(slots.seed);
        (0..found.number).for_each(|_| expected.step());
        if let Some(difference) = difference(&found, &expected) {
            return Err(format!("after transaction {}: {difference}", found.number));
        }
        for at in slots.entries(space)? {
            if !self.heap.is_allocated(at) {
                return Err(format!("the heap does not know the entry at {at:#x}"));
            }
        }
        Ok(found)
    }
}

/// Table `number`, made if it is not there.
fn table(heap: &Heap, manager: &Manager, seed: u64, number: usize) -> Result<Slots, String> {
    let text = |error: &dyn std::fmt::Display| format!("table {number}: {error}");
    let root =
        heap.open_or_create_root(&format!("table-{number}"), TABLE_BYTES, TAG).map_err(|e| text(&e))?;
    let linked = heap.space().load(root.word.offset() as usize).map_err(|e| text(&e))?;
    let seed = seed.wrapping_add(number as u64);
    if linked != 0 {
        return Ok(Slots { at: linked, seed });
    }
    let made = manager.run(|tx| -> Result<u64, TxError> {
        let table: Ptr<u8> = tx.alloc_bytes(TABLE_BYTES as usize)?;
        tx.write_bytes(table.offset(), &[0; TABLE_BYTES as usize])?;
        tx.write_word(root.word, table.offset())?;
        Ok(table.offset())
    });
    Ok(Slots { at: made.map_err(|e| text(&e))?, seed })
}
