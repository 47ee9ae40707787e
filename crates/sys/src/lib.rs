//! Raw system calls, without policy: every wrapper keeps errno whole and never retries.
//!
//! The modules, in the order data meets them:

pub mod buffer;
