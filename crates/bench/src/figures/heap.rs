//! The persistent heap beside other allocators. `heap.fragmentation`, `heap.alloc.*`, `heap.flushes`,
//! `heap.open`.
//!
//! - [`fragmentation`]: bytes in use for each that was asked for;
//! - [`alloc`]: allocations and frees;
//! - [`flushes`]: cache lines that an insert writes back, counted;
//! - [`open`]: how long a full heap takes to open;
//! - [`contiguity`]: whether the pages it hands out are neighbours.

mod alloc;
mod flushes;
mod fragmentation;
mod open;

use super::{Bench, BenchError, contiguity};
use crate::measure::Figure;

/// Measures all of them, or the one that is wanted.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    // First: it looks at what an unused mimalloc takes.
    let mut figures = fragmentation::run(bench)?;
    figures.extend(alloc::run(bench)?);
    figures.extend(flushes::run(bench)?);
    figures.extend(open::run(bench)?);
    figures.extend(contiguity::run(bench)?);
    Ok(figures)
}
