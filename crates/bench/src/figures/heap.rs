//! The persistent heap beside other allocators. `heap.alloc.*`, `heap.flushes`, `heap.open`.
//!
//! - [`alloc`]: allocations and frees;
//! - [`flushes`]: cache lines that an insert writes back, counted;
//! - [`open`]: how long a full heap takes to open;
//! - [`contiguity`]: whether the pages it hands out are neighbours.

mod alloc;
mod flushes;
mod open;

use super::{Bench, BenchError, contiguity};
use crate::measure::Figure;

/// Measures all of them, or the one that is wanted.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = alloc::run(bench)?;
    figures.extend(flushes::run(bench)?);
    figures.extend(open::run(bench)?);
    figures.extend(contiguity::run(bench)?);
    Ok(figures)
}
