//! The page log on the SSD: format, segments, index, commits, recovery.
//!
//! The modules, in the order data flows through them:

pub mod disk;
pub mod types;
