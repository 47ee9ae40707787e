//! The words that client and keeper share, beyond the store's.
//!
//! Plain data only.

use serde::{Deserialize, Serialize};

pub use wattkeep_store::types::{Checksum, Epoch, PAGE_SIZE, PageId, RegionId, Sequence};

/// How the stores to a region are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracking {
    /// First stores fault. For programs that do not know us.
    Transparent,
    /// The program announces its stores; nothing faults.
    Explicit,
    /// An explicit region whose unannounced stores fault and are reported.
    Checking,
}

impl Tracking {
    /// Pages of the region are protected.
    pub fn protects(self) -> bool {
        self != Tracking::Explicit
    }
}

/// How a first store reaches us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultMode {
    /// userfaultfd raises SIGBUS in the storing thread.
    Signal,
    /// mprotect raises SIGSEGV in the storing thread.
    Mprotect,
    /// A thread of ours answers userfaultfd's messages; system calls may store, too.
    Monitor,
}

impl std::fmt::Display for FaultMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FaultMode::Signal => "signal",
            FaultMode::Mprotect => "mprotect",
            FaultMode::Monitor => "monitor",
        })
    }
}

/// Which page is cleaned next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// First in, first out.
    Fifo,
    /// First in, first out, but a page that was written again gets a second chance.
    SecondChance,
    /// A small queue for pages written once, a main queue for the others.
    #[default]
    S3Fifo,
    /// The paper's: least recently updated, by a 64-epoch history.
    LeastRecentlyUpdated,
}
