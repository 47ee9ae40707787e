//! A persistent heap: allocate, free, name roots, and find it all again.
//!
//! All that is needed to allocate lies in DRAM. The space holds the objects, and a compact log of which there
//! are: one word an object, appended to a line that only this thread writes. [`Heap::open`] rebuilds the rest
//! from it.
//!
//! An allocation passes `heap`, `desk`, `cache`, `core`, `chunks`, `log`; the modules:

pub mod capacity; // volatile memory from the same pages
pub mod check; // what is wrong
pub mod error;
pub mod heap; // the door
pub mod naive; // the rival
pub mod options;
pub mod supply; // fresh pages, next to each other in physical memory
pub mod trace; // what nobody can reach

mod cache; // what a thread has at hand
mod chunks; // who has which chunk
mod classes; // how sizes are rounded
mod core; // what threads share
mod desk; // where a cache lies, and who may use it
mod free; // giving back
mod layout; // where things lie in the space
mod log; // what is persistent of it all
mod open; // making a heap, and finding it again
mod opening; // what can be had of it meanwhile
mod pages; // which pages are free
mod publish; // for transactions
mod record; // the words of the log
mod replayed; // a log that stores at the next open
mod roots; // names

pub use capacity::Capacity;
pub use check::Report;
pub use error::HeapError;
pub use heap::Heap;
pub use opening::Opening;
pub use options::Options;
pub use publish::{Claimed, LANES, TID_MAX};
pub use replayed::Replayed;
pub use roots::Root;
pub use trace::{Reach, Traced, Tracer};
