//! Bytes that survive, and how a store to them does.
//!
//! A [`Space`] is a range of bytes that outlives the program: a region of a store, a mapped file, or plain
//! memory for tests. Everything that is persistent is stored through it, by offset, so that one place knows
//! what a store needs before it (an announcement) and after it (a line written back, a fence). What that
//! is, the [`Domain`] says: nothing in DRAM with a battery, a cache flush on real persistent memory.
//!
//! The modules, in the order of a store:

pub mod backing; // whose bytes they are
pub mod counters; // what it cost
pub mod domain; // what makes a store durable
pub mod frames; // where in memory they lie
#[cfg(miri)]
mod interpreted;
pub mod lines; // the instructions behind it
pub mod pointer; // an offset that knows its type
pub mod refused; // why not
pub mod space; // the door: read, write, flush, fence
pub mod window; // stores that are announced together
pub mod witness; // who watches, in tests
pub mod words; // copies of bytes that others write
pub mod zeroed; // tables in DRAM about them

pub use backing::{Anonymous, Backing, MappedFile};
pub use bytemuck::{self, Pod, Zeroable};
pub use counters::Counted;
pub use domain::{Domain, DomainKind, Fence, LineFlush};
pub use frames::{Frames, Misses};
pub use pointer::Ptr;
pub use refused::Refused;
pub use space::{Claim, Space};
/// How stores to a backing are announced.
pub use wattkeep_announce::announcer;
/// Planted bugs, and barriers on other threads, for the crates above that stand on this one alone.
pub use wattkeep_sys::{barrier, mutant};
pub use window::Window;
pub use witness::Witness;
pub use zeroed::Zeroed;

/// Bytes of a cache line: the unit in which a store becomes durable.
pub const LINE: usize = 64;

/// Bytes of a page: the unit in which memory is had.
pub const PAGE: usize = 4096;

/// Bytes of a word: the largest store that a power cut never tears.
pub const WORD: usize = 8;
