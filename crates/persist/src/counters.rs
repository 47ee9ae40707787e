//! What persistence costs: lines, fences, bytes.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a space was asked for so far. Flushes are counted as they are asked for, whatever the domain makes
/// of them: so one run on any domain says what ADR would pay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Cache lines asked to be written back.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
    /// Bytes stored.
    pub stored_bytes: u64,
}

impl Sub for Counted {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            flushed_lines: self.flushed_lines - earlier.flushed_lines,
            fences: self.fences - earlier.fences,
            stored_bytes: self.stored_bytes - earlier.stored_bytes,
        }
    }
}

/// The counters of one space that counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    flushed_lines: AtomicU64,
    fences: AtomicU64,
    stored_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn flushed(&self, lines: usize) {
        self.flushed_lines.fetch_add(lines as u64, Ordering::Relaxed);
    }

    pub(crate) fn fenced(&self) {
        self.fences.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stored(&self, bytes: usize) {
        self.stored_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Counted {
        Counted {
            flushed_lines: self.flushed_lines.load(Ordering::Relaxed),
            fences: self.fences.load(Ordering::Relaxed),
            stored_bytes: self.stored_bytes.load(Ordering::Relaxed),
        }
    }
}
