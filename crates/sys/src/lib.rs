//! Raw system calls, without policy: every wrapper keeps errno whole and never retries.
//!
//! The modules, in the order data meets them:

pub mod barrier;
pub mod buffer;
pub mod file;
pub mod futex;
pub mod huge;
pub mod map;
pub mod memfd;
pub mod mutant;
pub mod pagemap;
pub mod signal;
pub mod socket;
pub mod uffd;
pub mod uring;
