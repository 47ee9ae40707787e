//! Trials of what stands on persistent memory: the heap, transactions, versioned objects.
//!
//! [`cuts`] cuts the power of a twin of persistent memory behind a cache, at steps of a program's history;
//! [`timeline`] knows what had been promised by then.

mod cuts;
mod timeline;

pub(crate) mod versions_crash;
