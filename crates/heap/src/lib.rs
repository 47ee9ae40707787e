//! A persistent heap: allocate, free, name roots, and find it all again.

pub mod supply;
