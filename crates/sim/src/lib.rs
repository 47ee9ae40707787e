//! Twins of what the real program meets, for tests: deterministic, seeded, and mean.
//!
//! The modules:

pub mod disk; // a disk with a volatile cache, faults and power cuts
pub mod golden; // stores of every released format, as text
pub mod medium; // what it holds, and what a cut leaves
pub mod pace; // how fast it is, on a simulated clock
pub mod page_table; // what the kernel keeps of a region
pub mod random; // the one source of chance
pub mod rewind; // a disk that goes back to how it was
pub mod store_model; // a store on that disk, beside what it promises

pub mod cache; // a processor's cache before persistent memory
pub mod panics; // a store that panics

pub mod oracle; // what the store promises
pub mod script; // a history as data
pub mod world; // a whole machine

pub mod generate; // histories by chance
pub mod shrink; // the shortest that fails
pub mod tally; // what a campaign counts

pub mod campaign; // many histories, and what each is asked
