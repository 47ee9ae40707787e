//! Transactions on a persistent heap: hybrid log, interleaved versions, decoupled persistence.

pub mod versions;
