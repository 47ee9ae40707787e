//! How a table grows and shrinks: by one bucket, at the price of one bucket.

use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use super::{
    AT_BUCKETS, BUCKETS, CHAIN_MAX, Entries, Header, Line, MARK_BITS, SLOTS, Table, entry_of, mark_of,
};
use crate::error::Error;
use crate::view::View;

/// All of a bucket: its slots that are not empty, and the lines of its chain.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) slots: Vec<u64>,
    pub(super) lines: Vec<u64>,
}

impl Chain {
    /// Reads the chain whose first line lies at `at`.
    pub(super) fn read(&mut self, view: &impl View, at: u64) -> Result<(), Error> {
        let mut next = at;
        for _ in 0..CHAIN_MAX {
            let line: Line = view.value(next)?;
            self.lines.push(next);
            self.slots.extend(line[..SLOTS].iter().filter(|slot| **slot != 0));
            next = line[SLOTS];
            if next == 0 {
                return Ok(());
            }
        }
        Err(Error::Damaged { at, what: "a chain of buckets without an end" })
    }
}

impl<E: Entries> Table<E> {
    /// Adds a bucket, and moves to it what belongs there.
    pub(super) fn split(&self, tx: &mut Tx<'_>, header: &Header) -> Result<(), Error> {
        let half = 1 << header.buckets.ilog2();
        let new = BUCKETS.reserve(tx, self.directory(), header.buckets)?;
        let old = BUCKETS.item(tx, self.directory(), header.buckets - half)?;
        let line: Line = tx.value(old)?;
        // The next split comes to the lines behind them.
        tx.soon(old + LINE as u64, LINE);
        tx.soon(new + LINE as u64, LINE);
        if line[SLOTS] != 0 || half >> MARK_BITS != 0 {
            return self.split_chain(tx, header, old, new);
        }
        let (mut stay, mut go): (Line, Line) = Default::default();
        let (mut stays, mut goes) = (0, 0);
        for slot in line[..SLOTS].iter().filter(|slot| **slot != 0) {
            let (to, count) =
                if mark_of(*slot) & half == 0 { (&mut stay, &mut stays) } else { (&mut go, &mut goes) };
            to[*count] = *slot;
            *count += 1;
        }
        tx.write(Ptr::at(old), &stay)?;
        tx.write(Ptr::at(new), &go)?;
        Ok(tx.write_word(Ptr::at(self.place.at() + AT_BUCKETS), header.buckets + 1)?)
    }

    /// The same for a chain of several lines, or a table whose slots know too little of the hash.
    fn split_chain(&self, tx: &mut Tx<'_>, header: &Header, old: u64, new: u64) -> Result<(), Error> {
        let half = 1 << header.buckets.ilog2();
        let mut chain = Chain::default();
        chain.read(tx, old)?;
        let (mut stay, mut go) = (Vec::with_capacity(SLOTS), Vec::with_capacity(SLOTS));
        for slot in chain.slots {
            let hash = match half >> MARK_BITS {
                0 => mark_of(slot),
                _ => E::hash_at(tx, entry_of(slot), header.seed)?,
            };
            if hash & half == 0 { &mut stay } else { &mut go }.push(slot);
        }
        let mut spare = chain.lines.split_off(1);
        self.write_chain(tx, old, &stay, &mut spare)?;
        self.write_chain(tx, new, &go, &mut spare)?;
        self.end_resize(tx, spare, header.buckets + 1)
    }

    /// Merges the last bucket with the one that it was split from.
    pub(super) fn merge(&self, tx: &mut Tx<'_>, header: &Header) -> Result<(), Error> {
        let last = header.buckets - 1;
        let half = 1 << last.ilog2();
        let into = BUCKETS.item(tx, self.directory(), last - half)?;
        let from = BUCKETS.item(tx, self.directory(), last)?;
        let mut chain = Chain::default();
        chain.read(tx, into)?;
        let gone = chain.lines.len();
        chain.read(tx, from)?;
        // Both first lines lie in segments, the others are allocations of their own.
        chain.lines.remove(gone);
        let mut spare = chain.lines.split_off(1);
        self.write_chain(tx, into, &chain.slots, &mut spare)?;
        self.end_resize(tx, spare, last)?;
        if last.is_power_of_two() {
            BUCKETS.release(tx, self.directory(), last)?;
        }
        Ok(())
    }

    /// Writes `slots` to the chain whose first line lies at `at`, and takes further lines from `spare`.
    fn write_chain(
        &self,
        tx: &mut Tx<'_>,
        mut at: u64,
        slots: &[u64],
        spare: &mut Vec<u64>,
    ) -> Result<(), Error> {
        let (first, rest) = slots.split_at(slots.len().min(SLOTS));
        let mut line = filled(first);
        for more in rest.chunks(SLOTS) {
            let next = match spare.pop() {
                Some(next) => next,
                None => self.new_line(tx, &[0; SLOTS + 1])?,
            };
            line[SLOTS] = next;
            tx.write(Ptr::at(at), &line)?;
            (at, line) = (next, filled(more));
        }
        Ok(tx.write(Ptr::at(at), &line)?)
    }

    fn end_resize(&self, tx: &mut Tx<'_>, spare: Vec<u64>, buckets: u64) -> Result<(), Error> {
        for line in spare {
            tx.free(Ptr::<u8>::at(line))?;
        }
        Ok(tx.write_word(Ptr::at(self.place.at() + AT_BUCKETS), buckets)?)
    }
}

fn filled(slots: &[u64]) -> Line {
    let mut line = [0; SLOTS + 1];
    line[..slots.len()].copy_from_slice(slots);
    line
}
