//! Data structures that live in a persistent heap: hash tables, an ordered map, a vector, a string.
//!
//! Every change is part of a transaction (`&mut Tx`): after a crash it is there as a whole, or not at all.
//! Handles are cheap, live in DRAM, and may be shared by threads: one transaction at a time changes a
//! structure, readers run beside it without a lock (`latch.rs` says how).
//!
//! The modules, from the bottom up:

pub mod error; // what can go wrong
pub mod kind; // what lies behind a root, in one word
mod latch; // one writer, many readers
pub mod structure; // what all of them have in common

mod place; // a structure's place: heap, latch, offset
mod segments; // arrays that grow and never move
mod view; // reading: committed bytes, or a transaction's own

mod table; // the hash table below both maps

mod btree; // keys in order
mod bytes_map; // keys and values of any length
mod map; // keys and values of one size
mod string; // text
mod vector; // elements by number

pub mod check; // what a walk over a structure finds
mod tracer; // which objects of a heap structures reach

pub use btree::{BTree, Range};
pub use bytes_map::{BytesIter, BytesMap};
pub use check::Findings;
pub use error::Error;
pub use kind::Kind;
pub use map::{HashMap, Iter};
pub use string::PString;
pub use structure::Structure;
pub use tracer::Structures;
pub use vector::{Elements, Vector};
