//! Twins of what the real program meets, for tests: deterministic, seeded, and mean.
//!
//! The modules:

pub mod disk; // a disk with a volatile cache, faults and power cuts
pub mod random; // the one source of chance
