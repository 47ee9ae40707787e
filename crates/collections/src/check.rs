//! What a walk over a structure finds.

use std::fmt;

/// So many faults are told; of a structure that has more, no more is learnt from them.
const FAULTS_MAX: usize = 32;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Offset of the part that it was seen in.
    pub at: u64,
    /// What it is.
    pub what: &'static str,
}

/// What a walk over all of a structure found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Entries, elements or bytes that were met.
    pub items: u64,
    /// Allocations that belong to the structure: offset, and bytes that it uses of each.
    pub reached: Vec<(u64, u64)>,
    /// What is wrong, the first 32 of it.
    pub faults: Vec<Fault>,
}

impl Findings {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    pub(crate) fn fault(&mut self, at: u64, what: &'static str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { at, what });
        }
    }

    /// Notes a fault unless `holds`.
    pub(crate) fn hold(&mut self, holds: bool, at: u64, what: &'static str) {
        if !holds {
            self.fault(at, what);
        }
    }

    pub(crate) fn reach(&mut self, at: u64, bytes: u64) {
        self.reached.push((at, bytes));
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:#x}: {}", self.at, self.what)
    }
}
