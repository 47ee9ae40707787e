//! A sealed epoch becomes persistent: one round of persistence.
//!
//! Invariant: at most one epoch is sealed and not persistent. Nobody writes the versions of a sealed epoch,
//! so a round may run beside the operations of the next one.

use std::sync::Arc;

use super::VersionsError;
use super::area::Area;
use super::layout::Word;

/// How far persistence may stay behind the operations, and how often it catches up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Rounds of persistence begun for each operation, at most: above 0, up to 1. The paper's 0.6 lets
    /// three rounds begin for five operations. Fewer rounds cost less, and a crash loses more.
    pub threshold: f64,
    /// Operations that are committed and not persistent, at most: one more waits for the round.
    pub behind_max: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { threshold: 0.6, behind_max: 4096 }
    }
}

impl Pace {
    pub(super) fn check(self) -> Result<Self, VersionsError> {
        let Self { threshold, behind_max } = self;
        if threshold > 0.0 && threshold <= 1.0 && behind_max > 0 {
            return Ok(self);
        }
        Err(VersionsError::Pace { threshold, behind_max })
    }
}

/// Who makes an operation persistent, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Persistence {
    /// Its own commit.
    Each,
    /// A thread of its own, later.
    Decoupled(Pace),
    /// Whoever calls [`super::VersionedObjects::persist_some`], later.
    ByHand(Pace),
}

impl Persistence {
    pub(super) fn pace(self) -> Option<Pace> {
        match self {
            Self::Each => None,
            Self::Decoupled(pace) | Self::ByHand(pace) => Some(pace),
        }
    }
}

/// A version that an epoch wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) object: u64,
    pub(super) word: Word,
}

/// The versions of the sealed epoch, and how many of them were marked.
pub(super) struct Round {
    area: Arc<Area>,
    epoch: u64,
    written: Vec<Written>,
    marked: usize,
    /// The last epoch that no crash can take back.
    persistent: u64,
}

impl Round {
    pub(super) fn new(area: Arc<Area>) -> Result<Self, VersionsError> {
        let epoch = area.epoch()?;
        Ok(Self { area, epoch, written: Vec::new(), marked: 0, persistent: epoch })
    }

    pub(super) fn persistent(&self) -> u64 {
        self.persistent
    }

    /// Takes the versions of `epoch`. The one before is persistent, by the last round or by a transaction.
    pub(super) fn begin(&mut self, epoch: u64, written: Vec<Written>) {
        assert!(self.persistent == self.epoch && epoch > self.epoch, "an epoch is sealed while another is");
        self.epoch = epoch;
        self.persistent = epoch - 1;
        self.written = written;
        self.written.sort_unstable_by_key(|written| written.object);
        self.marked = 0;
    }

    /// A transaction made `epoch` persistent, the one behind the last.
    pub(super) fn skip(&mut self, epoch: u64) {
        assert!(self.persistent == self.epoch && epoch == self.epoch + 1, "an epoch is skipped");
        (self.epoch, self.persistent) = (epoch, epoch);
    }

    /// Persists up to `versions_max` versions of the sealed epoch, and commits it after the last one.
    /// Whether nothing is left to do.
    pub(super) fn go_on(&mut self, versions_max: usize) -> Result<bool, VersionsError> {
        if self.persistent == self.epoch {
            return Ok(true);
        }
        if self.mark_some(versions_max)? {
            self.area.commit(self.epoch)?;
            self.persistent = self.epoch;
        }
        Ok(self.persistent == self.epoch)
    }

    /// Flushes up to `versions_max` versions and the words that name them; whether it was the last of them.
    fn mark_some(&mut self, versions_max: usize) -> Result<bool, VersionsError> {
        let end = self.written.len().min(self.marked.saturating_add(versions_max));
        self.area.mark(&self.written[self.marked..end])?;
        self.marked = end;
        Ok(end == self.written.len())
    }

    /// The list of the epoch before, to be used again.
    pub(super) fn end(&mut self) -> Vec<Written> {
        let mut written = std::mem::take(&mut self.written);
        written.clear();
        written
    }
}
