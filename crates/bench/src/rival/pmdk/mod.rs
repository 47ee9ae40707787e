//! libpmemobj of PMDK: a transactional heap for persistent memory, here on a pool in tmpfs.
//!
//! - [`api`]: the shared library's calls, loaded at run time;
//! - [`pool`]: one pool: allocations;
//! - [`heap`]: its atomic allocator.

mod api;
mod heap;
mod pool;

pub(crate) use heap::PmdkHeap;
pub(crate) use pool::Pool;
