//! The memory that client and keeper share: page states, permits, queues, counters.
//!
//! Everything here is atomics of a fixed layout; either side may be killed at any instruction and
//! leaves every word meaningful. Does not know addresses, files, or who reads it.

pub mod block;
pub mod ledger;
#[cfg(not(any(loom, shuttle)))]
mod mapped;
#[cfg(any(loom, shuttle))]
#[path = "heaped.rs"]
mod mapped;
pub mod ring;

pub use wattkeep_announce::{page_word, primitives};
