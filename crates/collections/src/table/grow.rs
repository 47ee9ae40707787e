//! How a table grows and shrinks: by a few buckets, at the price of as many.

use bytemuck::cast_slice;
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use super::{
    AT_BUCKETS, BUCKETS, BUCKETS_MIN, CHAIN_MAX, Entries, Header, Line, MARK_BITS, SLOTS, Table, entry_of,
    mark_of,
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

/// Buckets that are split at once: neighbours, so that each half of theirs is one record of the log.
const SPLIT_AT_ONCE: usize = 4;

const _: () = assert!(BUCKETS_MIN.is_multiple_of(SPLIT_AT_ONCE as u64), "no segment ends between neighbours");

impl<E: Entries> Table<E> {
    /// Adds buckets, and moves to them what belongs there.
    pub(super) fn split(&self, tx: &mut Tx<'_>, header: &Header) -> Result<(), Error> {
        let half = 1 << header.buckets.ilog2();
        let new = BUCKETS.reserve(tx, self.directory(), header.buckets)?;
        let old = BUCKETS.item(tx, self.directory(), header.buckets - half)?;
        let count = SPLIT_AT_ONCE - header.buckets as usize % SPLIT_AT_ONCE;
        // The next split comes to the lines behind them.
        tx.soon(old + (count * LINE) as u64, SPLIT_AT_ONCE * LINE);
        tx.soon(new + (count * LINE) as u64, SPLIT_AT_ONCE * LINE);
        let (mut stay, mut go): ([Line; SPLIT_AT_ONCE], [Line; SPLIT_AT_ONCE]) = Default::default();
        for index in 0..count {
            let at = old + (index * LINE) as u64;
            let line: Line = tx.value(at)?;
            if line[SLOTS] != 0 || half >> MARK_BITS != 0 {
                (stay[index], go[index]) = self.split_chain(tx, header, at)?;
                continue;
            }
            let (mut stays, mut goes) = (0, 0);
            for slot in line[..SLOTS].iter().filter(|slot| **slot != 0) {
                let (to, count) = match mark_of(*slot) & half {
                    0 => (&mut stay[index], &mut stays),
                    _ => (&mut go[index], &mut goes),
                };
                to[*count] = *slot;
                *count += 1;
            }
        }
        tx.write_bytes(old, cast_slice(&stay[..count]))?;
        tx.write_bytes(new, cast_slice(&go[..count]))?;
        Ok(tx.write_word(Ptr::at(self.place.at() + AT_BUCKETS), header.buckets + count as u64)?)
    }

    /// The first lines of both halves of a chain of several lines, or of one in a table whose slots know too
    /// little of the hash.
    fn split_chain(&self, tx: &mut Tx<'_>, header: &Header, at: u64) -> Result<(Line, Line), Error> {
        let half = 1 << header.buckets.ilog2();
        let mut chain = Chain::default();
        chain.read(tx, at)?;
        let (mut stay, mut go) = (Vec::with_capacity(SLOTS), Vec::with_capacity(SLOTS));
        for slot in chain.slots {
            let hash = match half >> MARK_BITS {
                0 => mark_of(slot),
                _ => E::hash_at(tx, entry_of(slot), header.seed)?,
            };
            if hash & half == 0 { &mut stay } else { &mut go }.push(slot);
        }
        let mut spare = chain.lines.split_off(1);
        let halves = (self.chain_of(tx, &stay, &mut spare)?, self.chain_of(tx, &go, &mut spare)?);
        free_lines(tx, spare)?;
        Ok(halves)
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
        let line = self.chain_of(tx, &chain.slots, &mut spare)?;
        tx.write(Ptr::at(into), &line)?;
        free_lines(tx, spare)?;
        tx.write_word(Ptr::at(self.place.at() + AT_BUCKETS), last)?;
        if last.is_power_of_two() {
            BUCKETS.release(tx, self.directory(), last)?;
        }
        Ok(())
    }

    /// The first line of a chain that holds `slots`; the others are written, where there was a spare one first.
    fn chain_of(&self, tx: &mut Tx<'_>, slots: &[u64], spare: &mut Vec<u64>) -> Result<Line, Error> {
        let (first, rest) = slots.split_at(slots.len().min(SLOTS));
        let mut next = 0;
        for more in rest.chunks(SLOTS) {
            let line = filled(more, next);
            next = match spare.pop() {
                Some(at) => {
                    tx.write(Ptr::at(at), &line)?;
                    at
                }
                None => self.new_line(tx, &line)?,
            };
        }
        Ok(filled(first, next))
    }
}

fn free_lines(tx: &mut Tx<'_>, lines: Vec<u64>) -> Result<(), Error> {
    lines.into_iter().try_for_each(|line| Ok(tx.free(Ptr::<u8>::at(line))?))
}

/// A line of these slots, and where the chain goes on.
fn filled(slots: &[u64], next: u64) -> Line {
    let mut line = [0; SLOTS + 1];
    line[..slots.len()].copy_from_slice(slots);
    line[SLOTS] = next;
    line
}
