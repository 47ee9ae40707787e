//! libpmemobj of PMDK: a transactional heap for persistent memory, here on a pool in tmpfs.
//!
//! - [`api`]: the shared library's calls, loaded at run time;
//! - [`pool`]: one pool: allocations, transactions, bytes by offset;
//! - [`heap`]: its atomic allocator;
//! - [`table`]: a chained hash table with its transactions, in the way of PMDK's example `hashmap_tx`.

mod api;
mod heap;
mod pool;
mod table;

pub(crate) use heap::PmdkHeap;
pub(crate) use pool::Pool;
pub(crate) use table::PmdkTable;
