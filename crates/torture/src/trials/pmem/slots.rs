//! The table of [`super::changes`] in a heap: changed by transactions, read back from the bytes.
//!
//! ```text
//! table    number of the last transaction 8 | entry of slot 0 8 | entry of slot 1 8 | ..
//! entry    transaction that touched it 8 | words behind 8 | words
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use wattkeep_persist::{Ptr, Space};
use wattkeep_tx::{Hint, Manager, Tx, TxError};

use super::changes::{Change, End, Entry, SLOTS, Table, filling, transaction};

/// Bytes of the table.
pub(crate) const TABLE_BYTES: u64 = 8 + 8 * SLOTS as u64;

/// Every so many transactions make their last changes in a nested one.
const NESTED: u64 = 5;
/// Every so many transactions log words as objects.
const HINTED: u64 = 7;

/// Why a transaction that the program gives up ends.
struct GivenUp;

/// A table in a heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) at: u64,
    pub(crate) seed: u64,
}

impl Slots {
    fn slot(&self, slot: usize) -> Ptr<u64> {
        Ptr::at(self.at + 8 + 8 * slot as u64)
    }

    /// Makes transaction number `number`, with `more` in it. True if it commits.
    pub(crate) fn run(
        &self,
        manager: &Manager,
        number: u64,
        more: impl Fn(&mut Tx<'_>) -> Result<(), TxError>,
    ) -> Result<bool, TxError> {
        let (changes, end) = transaction(self.seed, number);
        let nested = if number.is_multiple_of(NESTED) { changes.len() / 2 } else { changes.len() };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            manager.run(|tx| -> Result<(), TxError> {
                changes[..nested].iter().try_for_each(|change| self.change(tx, number, *change))?;
                more(tx)?;
                if nested < changes.len() {
                    manager.run(|tx| -> Result<(), TxError> {
                        changes[nested..].iter().try_for_each(|change| self.change(tx, number, *change))
                    })?;
                }
                tx.write_word(Ptr::at(self.at), number)?;
                match end {
                    End::Commit => Ok(()),
                    End::Abort => Err(TxError::Aborted),
                    End::Panic => resume_unwind(Box::new(GivenUp)),
                }
            })
        }));
        match (ran, end) {
            (Ok(Ok(())), End::Commit) => Ok(true),
            (Ok(Err(TxError::Aborted)), End::Abort) => Ok(false),
            (Err(payload), End::Panic) if payload.is::<GivenUp>() => Ok(false),
            (Err(payload), _) => resume_unwind(payload),
            (Ok(Err(error)), _) => Err(error),
            (Ok(Ok(())), _) => panic!("a transaction that was given up committed"),
        }
    }

    fn change(&self, tx: &mut Tx<'_>, number: u64, change: Change) -> Result<(), TxError> {
        let (Change::Put(slot, _) | Change::Rewrite(slot) | Change::Touch(slot) | Change::Clear(slot)) =
            change;
        let old = tx.read::<u64>(self.slot(slot))?;
        match change {
            Change::Put(_, words) => {
                let entry = tx.alloc_bytes(16 + 8 * words as usize)?.offset();
                self.fill(tx, entry, number, slot, words)?;
                tx.write_word(self.slot(slot), entry)?;
                if old != 0 {
                    tx.free(Ptr::<u8>::at(old))?;
                }
            }
            Change::Rewrite(_) if old != 0 => {
                let words = tx.read::<u64>(Ptr::at(old + 8))?;
                self.fill(tx, old, number, slot, words)?;
            }
            Change::Touch(_) if old != 0 && number.is_multiple_of(HINTED) => {
                tx.write_bytes_as(old, &number.to_ne_bytes(), Hint::Object)?;
            }
            Change::Touch(_) if old != 0 => tx.write_word(Ptr::at(old), number)?,
            Change::Clear(_) if old != 0 => {
                tx.write_word(self.slot(slot), 0)?;
                tx.free(Ptr::<u8>::at(old))?;
            }
            Change::Rewrite(_) | Change::Touch(_) | Change::Clear(_) => {}
        }
        Ok(())
    }

    fn fill(&self, tx: &mut Tx<'_>, entry: u64, number: u64, slot: usize, words: u64) -> Result<(), TxError> {
        let filling = filling(self.seed, number, slot, words as usize);
        let bytes: Vec<u8> =
            [number, words].iter().chain(&filling).flat_map(|word| word.to_ne_bytes()).collect();
        tx.write_bytes(entry, &bytes)
    }

    /// Number of the last transaction that is in it.
    pub(crate) fn number(&self, space: &Space) -> Result<u64, String> {
        space.load(self.at as usize).map_err(|error| error.to_string())
    }

    /// Where its entries lie.
    pub(crate) fn entries(&self, space: &Space) -> Result<Vec<u64>, String> {
        let loaded = (0..SLOTS).map(|slot| space.load(self.slot(slot).offset() as usize));
        let all: Vec<u64> = loaded.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        Ok(all.into_iter().filter(|at| *at != 0).collect())
    }

    /// What it holds.
    pub(crate) fn read(&self, space: &Space) -> Result<Table, String> {
        let word = |at: u64| space.load(at as usize).map_err(|error| error.to_string());
        let mut table = Table::new(self.seed);
        table.number = self.number(space)?;
        for (slot, content) in table.slots.iter_mut().enumerate() {
            let at = word(self.slot(slot).offset())?;
            if at == 0 {
                continue;
            }
            let count = word(at + 8)?;
            if count > space.len() as u64 / 8 {
                return Err(format!("slot {slot}: an entry of {count} words at {at:#x}"));
            }
            let words = (0..count).map(|number| word(at + 16 + 8 * number)).collect::<Result<_, _>>()?;
            *content = Some(Entry { touched: word(at)?, words });
        }
        Ok(table)
    }
}

/// In what two tables differ, for people.
pub(crate) fn difference(found: &Table, expected: &Table) -> Option<String> {
    let mut differing = found.slots.iter().zip(&expected.slots).enumerate().filter(|(_, (a, b))| a != b);
    let (slot, (found, expected)) = differing.next()?;
    let show = |entry: &Option<Entry>| match entry {
        None => "nothing".to_owned(),
        Some(entry) => format!(
            "an entry of transaction {} with {} words, {:x?} first",
            entry.touched,
            entry.words.len(),
            entry.words.first()
        ),
    };
    Some(format!(
        "slot {slot} holds {}, not {}; {} more differ",
        show(found),
        show(expected),
        differing.count()
    ))
}
