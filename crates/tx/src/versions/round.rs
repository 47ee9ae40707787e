//! A sealed epoch becomes persistent: one round of persistence.
//!
//! Invariant: at most one epoch is sealed and not persistent. Nobody writes the versions of a sealed epoch,
//! so a round may run beside the operations of the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use wattkeep_persist::{LINE, WORD};

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
    written: Vec<Written>,
    marked: usize,
    /// By lines of words: the epoch that flushed it last, so that each is flushed once.
    flushed: Vec<u64>,
}

/// What operations and rounds share. The writer's lock is taken before the round's, never after.
pub(super) struct Rounds {
    pub(super) area: Area,
    round: Mutex<Round>,
    sealed: AtomicU64,
    persistent: AtomicU64,
    failed: OnceLock<VersionsError>,
}

const WORDS_PER_LINE: usize = LINE / WORD;

impl Rounds {
    pub(super) fn new(area: Area) -> Result<Self, VersionsError> {
        let epoch = area.epoch()?;
        let lines = (area.layout.shape.objects as usize).div_ceil(WORDS_PER_LINE);
        let round = Round { written: Vec::new(), marked: 0, flushed: vec![0; lines] };
        Ok(Self {
            area,
            round: round.into(),
            sealed: epoch.into(),
            persistent: epoch.into(),
            failed: OnceLock::new(),
        })
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        // Whoever panicked in a round left it as it was: an epoch that is not persistent yet.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch whose versions are being persisted, or were last.
    pub(super) fn sealed(&self) -> u64 {
        self.sealed.load(Ordering::Acquire)
    }

    /// The last epoch that no crash can take back.
    pub(super) fn persistent(&self) -> u64 {
        self.persistent.load(Ordering::Acquire)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.persistent() == self.sealed()
    }

    /// Hands the versions of the next epoch over. The caller gets an empty list back, and saw
    /// [`Self::is_idle`].
    pub(super) fn seal(&self, written: &mut Vec<Written>) {
        let mut round = self.round();
        assert!(self.is_idle(), "an epoch is sealed while another is");
        round.written.clear();
        round.marked = 0;
        std::mem::swap(&mut round.written, written);
        self.sealed.fetch_add(1, Ordering::SeqCst);
    }

    /// Persists up to `versions_max` versions of the sealed epoch, and commits it after the last one.
    /// Whether no epoch is left.
    pub(super) fn persist_some(&self, versions_max: usize) -> Result<bool, VersionsError> {
        self.check()?;
        if self.is_idle() {
            return Ok(true);
        }
        self.persist_more(versions_max).inspect_err(|error| self.fail(error))
    }

    /// Persists the sealed epoch, if there is one.
    pub(super) fn finish(&self) -> Result<(), VersionsError> {
        self.persist_some(usize::MAX).map(|_| ())
    }

    fn persist_more(&self, versions_max: usize) -> Result<bool, VersionsError> {
        let mut round = self.round();
        if self.is_idle() {
            return Ok(true);
        }
        let end = round.written.len().min(round.marked.saturating_add(versions_max));
        for written in &round.written[round.marked..end] {
            self.area.mark(written.object, written.word)?;
        }
        round.marked = end;
        if end < round.written.len() {
            // Another thread may go on, and its fence orders only what it flushed itself.
            self.area.fence();
            return Ok(false);
        }
        let epoch = self.sealed();
        round.flush_words(&self.area, epoch)?;
        self.area.commit(epoch)?;
        self.persistent.store(epoch, Ordering::Release);
        Ok(true)
    }

    /// Everything failed before.
    pub(super) fn check(&self) -> Result<(), VersionsError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// A refusal is final: what is persistent is no longer known to grow.
    pub(super) fn fail(&self, error: &VersionsError) {
        let _ = self.failed.set(match error {
            VersionsError::Space(refused) => VersionsError::Failed(refused.clone()),
            error => error.clone(),
        });
    }
}

impl Round {
    fn flush_words(&mut self, area: &Area, epoch: u64) -> Result<(), VersionsError> {
        for written in &self.written {
            let flushed = &mut self.flushed[written.object as usize / WORDS_PER_LINE];
            if *flushed != epoch {
                *flushed = epoch;
                area.flush_word(written.object)?;
            }
        }
        Ok(())
    }
}
