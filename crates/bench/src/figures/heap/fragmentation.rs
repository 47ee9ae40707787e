//! Bytes in use for each byte that live objects asked for, after objects of 16 to 4,095 bytes were replaced
//! many times over: `heap.fragmentation`.
//!
//! In use, of ours, are all pages of the space that are not free: blocks with all of their chunks, free ones
//! too; and the log's segments, room in them too. Left out is what the space has in front whatever is
//! allocated, the area of the transaction logs above all; and what the heap knows in DRAM, four bytes a chunk
//! and more. It is counted, the same on every run.
//!
//! Of mimalloc it is what came into this process's resident memory for the same stream, its own metadata with
//! it. Each object is written, as a program does: what nobody touches is not resident. Only the first time in a
//! process counts, for mimalloc keeps what it has: so this is measured before mimalloc is used for anything
//! else.

use crate::figures::heap::alloc::{Load, Ours, Stream};
use crate::figures::places::{Place, new_heap};
use crate::figures::process::resident_bytes;
use crate::figures::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds};
use crate::rival::{self, Absent, Allocator};

const ID: &str = "heap.fragmentation";
const RIVAL: &str = "mimalloc, volatile, resident";
const UNIT: &str = "bytes/byte";

const SLOTS: usize = 200_000;
const QUICK_SLOTS: usize = 500;

/// How often each slot is replaced, on average.
const REPLACED: usize = 20;

/// Counts ours, and looks at the rival's.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    if !bench.wants(ID) {
        return Ok(Vec::new());
    }
    let slots = if bench.quick { QUICK_SLOTS } else { SLOTS };
    let (ours, live) = ours(bench, slots)?;
    let theirs = theirs(slots);
    let note = format!("{live} bytes live in {slots} objects, replaced {REPLACED} times each; counted");
    Ok(vec![match theirs {
        Ok(theirs) if theirs > 0.0 => {
            let mut rounds = Rounds::default();
            rounds.push(ours, theirs);
            Figure::beside(ID, RIVAL, UNIT, &rounds, &Reach::Shown).with_note(note)
        }
        Ok(_) => Figure::alone(ID, UNIT, &[ours], &Reach::Shown).with_note(note),
        Err(why) => Figure::alone(ID, UNIT, &[ours], &Reach::Shown).with_note(format!("{note}; {why}")),
    }])
}

fn ours(bench: &mut Bench, slots: usize) -> Result<(f64, u64), BenchError> {
    let stand = Place::Memory.make(bench, "fragmentation")?;
    let mut ours = Ours::new(new_heap(&stand.space, bench)?, slots);
    let live =
        churn(&mut ours, &mut vec![0; slots]).map_err(|why| BenchError::Side { who: "the heap", why })?;
    let (free, _) = ours.heap.free_bytes();
    let in_use = stand.space.len() as u64 - free - ours.heap.log_area().end;
    drop(ours);
    stand.close(bench)?;
    Ok((in_use as f64 / live as f64, live))
}

fn theirs(slots: usize) -> Result<f64, Absent> {
    let mut mimalloc = rival::mimalloc::<true>(slots)?;
    // Not zeros, which come into memory later.
    let mut sizes = vec![1; slots];
    let before = resident_bytes(std::process::id());
    let live = churn(&mut mimalloc, &mut sizes)?;
    let after = resident_bytes(std::process::id());
    Ok(after.saturating_sub(before) as f64 / live as f64)
}

/// Fills all slots, and replaces what is in them: bytes of what is there in the end.
fn churn(allocator: &mut impl Allocator, sizes: &mut [u64]) -> Result<u64, Absent> {
    let slots = sizes.len();
    let mut stream = Stream::new(slots, Load::Mixed);
    for turn in 0..slots * (1 + REPLACED) {
        let (chosen, bytes) = stream.next();
        let slot = if turn < slots { turn } else { chosen };
        allocator.replace(slot, bytes)?;
        sizes[slot] = bytes as u64;
    }
    Ok(sizes.iter().sum())
}
