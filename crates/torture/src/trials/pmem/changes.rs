//! A program's transactions, by seed and number: so anyone can tell what the first so many of them leave.
//!
//! They change a table of slots, each empty or with an entry. Every entry says which transaction wrote it, and
//! is filled with what follows from that: what another transaction would have left is never taken for it.

use wattkeep_sim::random::Random;

/// Slots of the table.
pub(crate) const SLOTS: usize = 48;
/// An entry's words behind its first one, at most.
const WORDS_MAX: u64 = 24;
/// Changes of one transaction, at most.
const CHANGES_MAX: u64 = 6;

/// One change of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new entry with so many words; an old one is freed.
    Put(usize, u64),
    /// The entry is rewritten where it lies, if there is one.
    Rewrite(usize),
    /// One word of the entry is replaced where it lies, if there is one.
    Touch(usize),
    /// The entry is freed, if there is one.
    Clear(usize),
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    /// The program gives it up after all changes.
    Abort,
    /// The program panics after all changes.
    Panic,
}

/// Transaction number `number` of a seed.
pub(crate) fn transaction(seed: u64, number: u64) -> (Vec<Change>, End) {
    let mut random = Random::new(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let changes = (0..=random.below(CHANGES_MAX)).map(|_| {
        let slot = random.below(SLOTS as u64) as usize;
        match random.below(8) {
            0..3 => Change::Put(slot, random.below(WORDS_MAX)),
            3 | 4 => Change::Rewrite(slot),
            5 | 6 => Change::Touch(slot),
            _ => Change::Clear(slot),
        }
    });
    let changes = changes.collect();
    let end = match random.below(12) {
        0 => End::Abort,
        1 => End::Panic,
        _ => End::Commit,
    };
    (changes, end)
}

/// An entry, as the table should hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Transaction that touched it last.
    pub(crate) touched: u64,
    /// What lies behind: its words were written together.
    pub(crate) words: Vec<u64>,
}

/// What a transaction writes behind the first word of an entry.
pub(crate) fn filling(seed: u64, number: u64, slot: usize, words: usize) -> Vec<u64> {
    let mut random = Random::new(seed ^ number << 8 ^ slot as u64);
    (0..words).map(|_| random.number()).collect()
}

/// What the first so many transactions leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) seed: u64,
    /// Transactions that committed, or would have if their program had not given them up.
    pub(crate) number: u64,
    pub(crate) slots: Vec<Option<Entry>>,
}

impl Table {
    /// Before the first transaction, which is number 1.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, number: 0, slots: vec![None; SLOTS] }
    }

    /// Entries.
    pub(crate) fn entries(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// Makes the next transaction.
    pub(crate) fn step(&mut self) {
        self.number += 1;
        let (changes, end) = transaction(self.seed, self.number);
        if end == End::Commit {
            changes.into_iter().for_each(|change| self.change(change));
        }
    }

    fn change(&mut self, change: Change) {
        let number = self.number;
        match change {
            Change::Put(slot, words) => {
                let words = filling(self.seed, number, slot, words as usize);
                self.slots[slot] = Some(Entry { touched: number, words });
            }
            Change::Rewrite(slot) => {
                if let Some(entry) = &mut self.slots[slot] {
                    let words = filling(self.seed, number, slot, entry.words.len());
                    *entry = Entry { touched: number, words };
                }
            }
            Change::Touch(slot) => {
                if let Some(entry) = &mut self.slots[slot] {
                    entry.touched = number;
                }
            }
            Change::Clear(slot) => self.slots[slot] = None,
        }
    }
}
