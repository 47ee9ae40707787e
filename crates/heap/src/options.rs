//! How a heap is made and opened.

use crate::publish::LANES;
use crate::supply;

/// Bytes of transaction log for each of 16 lanes, by default.
const LOG_BYTES_PER_LANE: u64 = 1 << 20;
const LANES_DEFAULT: u64 = 16;

const _: () = assert!(LANES_DEFAULT <= LANES as u64);

/// What can be chosen: for good when a heap is made, but for the supply, which every opening chooses.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes set apart for transaction logs, rounded up to pages.
    pub log_area_bytes: u64,
    /// Whether a guard word lies behind each object: eight bytes and a line flush more, and whoever writes
    /// behind the end of an object is noticed when it is freed or checked.
    pub guard: bool,
    /// How fresh pages come into memory, for this opening; `None`: as suits the length of the space.
    pub supply: Option<supply::Options>,
}

impl Default for Options {
    fn default() -> Self {
        Self { log_area_bytes: LANES_DEFAULT * LOG_BYTES_PER_LANE, guard: false, supply: None }
    }
}
