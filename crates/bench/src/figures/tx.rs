//! Transactions: bytes of the hybrid log beside a word log and an object log, and redo beside undo.
//! `tx.hybrid.word`, `tx.hybrid.object`, `tx.redo`, in every place.
//!
//! A transaction updates three of many entries of 256 bytes, as a hash table's operations do: it counts in
//! one, links another, and stores a new value to a third (figure 17 of the paper: two words, one object).
//!
//! The bytes are counted: records and data, without the commit slot, which is the same for all.

use std::sync::Arc;
use std::time::Instant;

use wattkeep_heap::Heap;
use wattkeep_persist::Ptr;
use wattkeep_tx::{Granularity, Hint, Logging, Manager, Options, Tx, TxError};

use super::places::{Place, new_heap};
use super::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds};

/// An entry: a count, a link, and the rest of a value.
type Entry = [u64; 32];

const ENTRIES: u64 = 4_096;
const QUICK_ENTRIES: u64 = 64;

/// Transactions whose bytes are counted. They are the same everywhere, and slow in a file.
const COUNTED: u64 = 100;
/// Transactions between two looks at the clock.
const AT_ONCE: u64 = 5;

const WORD_LOG: &str = "a log of words only";
const OBJECT_LOG: &str = "a log of objects only";
const UNDO: &str = "the same with an undo log";

/// Counts and measures in every place.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for place in Place::ALL {
        let stand = place.make(bench, "tx")?;
        let table = Table::new(Arc::new(new_heap(&stand.space, bench)?), bench).map_err(failed)?;
        figures.extend(count(&table, place).map_err(failed)?);
        figures.push(race(&table, place, bench).map_err(failed)?);
        drop(table);
        stand.close(bench)?;
    }
    Ok(figures)
}

fn failed(error: TxError) -> BenchError {
    BenchError::Side { who: "a transaction", why: error.to_string() }
}

/// Entries on a heap, and which of them is next.
struct Table {
    heap: Arc<Heap>,
    entries: Vec<Ptr<Entry>>,
}

impl Table {
    fn new(heap: Arc<Heap>, bench: &Bench) -> Result<Self, TxError> {
        let entries = if bench.quick { QUICK_ENTRIES } else { ENTRIES };
        let manager = Manager::open(heap.clone(), &Options::default())?;
        let entries =
            (0..entries).map(|_| manager.run(|tx| tx.alloc::<Entry>(&[0; 32]))).collect::<Result<_, _>>()?;
        drop(manager);
        Ok(Self { heap, entries })
    }

    fn open(&self, logging: Logging, granularity: Granularity) -> Result<Manager, TxError> {
        Manager::open(self.heap.clone(), &Options { logging, granularity, ..Options::default() })
    }

    #[inline]
    fn pick(&self, number: u64) -> Ptr<Entry> {
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.entries[((spread * self.entries.len() as u64) >> 32) as usize]
    }

    #[inline]
    fn update(&self, tx: &mut Tx<'_>, number: u64) -> Result<(), TxError> {
        tx.write_field(self.pick(number * 3), 0, &number, Hint::Word)?;
        tx.write_field(self.pick(number * 3 + 1), 8, &number, Hint::Word)?;
        tx.write(self.pick(number * 3 + 2), &[number; 32])
    }

    /// Bytes of records and data that an update logs.
    fn bytes(&self, granularity: Granularity) -> Result<f64, TxError> {
        let manager = self.open(Logging::Redo, granularity)?;
        for number in 0..COUNTED {
            manager.run(|tx| self.update(tx, number))?;
        }
        Ok(manager.logged().bytes() as f64 / COUNTED as f64)
    }
}

fn count(table: &Table, place: Place) -> Result<Vec<Figure>, TxError> {
    let hybrid = table.bytes(Granularity::Hybrid)?;
    let rivals = [("word", WORD_LOG, Granularity::WordOnly), ("object", OBJECT_LOG, Granularity::ObjectOnly)];
    let figures = rivals.into_iter().map(|(name, rival, granularity)| {
        let mut rounds = Rounds::default();
        rounds.push(hybrid, table.bytes(granularity)?);
        let id = format!("tx.hybrid.{name}{}", place.suffix());
        let figure = Figure::beside(&id, rival, "bytes/transaction", &rounds, &Reach::AtMost(0.5));
        Ok(figure.with_note(format!("{COUNTED} transactions that store two words and 256 bytes, counted")))
    });
    figures.collect()
}

fn race(table: &Table, place: Place, bench: &Bench) -> Result<Figure, TxError> {
    let mut rounds = Rounds::default();
    for _ in 0..bench.rounds {
        let mut speeds = [0.0; 2];
        for (speed, logging) in speeds.iter_mut().zip([Logging::Redo, Logging::Undo]) {
            let manager = table.open(logging, Granularity::Hybrid)?;
            let (began, mut done) = (Instant::now(), 0);
            while began.elapsed() < bench.slice {
                for number in done..done + AT_ONCE {
                    manager.run(|tx| table.update(tx, number))?;
                }
                done += AT_ONCE;
            }
            *speed = done as f64 / began.elapsed().as_secs_f64() / 1e6;
        }
        rounds.push(speeds[0], speeds[1]);
    }
    let id = format!("tx.redo{}", place.suffix());
    Ok(Figure::beside(&id, UNDO, "Mtransactions/s", &rounds, &Reach::Shown))
}
