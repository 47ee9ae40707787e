//! Who runs the rounds: a thread of its own, or whoever asks.

use std::sync::Arc;

use super::VersionsError;
use super::area::Area;
use super::round::{Persistence, Round, Written};
use super::thread::PersistenceThread;

/// The rounds of persistence, from the side of the operations.
pub(super) struct Persister {
    hands: Hands,
    sealed: u64,
    failed: Option<VersionsError>,
}

enum Hands {
    Own(Round),
    Thread(PersistenceThread),
}

impl Persister {
    pub(super) fn new(area: Arc<Area>, persistence: Persistence) -> Result<Self, VersionsError> {
        let round = Round::new(area)?;
        let sealed = round.persistent();
        let hands = match persistence {
            Persistence::Decoupled(_) => Hands::Thread(PersistenceThread::start(round)?),
            Persistence::Each | Persistence::ByHand(_) => Hands::Own(round),
        };
        Ok(Self { hands, sealed, failed: None })
    }

    /// The epoch whose versions are being persisted, or were last.
    pub(super) fn sealed(&self) -> u64 {
        self.sealed
    }

    /// The last epoch that no crash can take back.
    pub(super) fn persistent(&self) -> u64 {
        match &self.hands {
            Hands::Own(round) => round.persistent(),
            Hands::Thread(thread) => thread.persistent(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.persistent() == self.sealed
    }

    /// Hands over what the open epoch wrote; it is empty then. The caller saw [`Self::is_idle`].
    pub(super) fn seal(&mut self, written: &mut Vec<Written>) {
        self.sealed += 1;
        let list = std::mem::take(written);
        *written = match &mut self.hands {
            Hands::Own(round) => {
                let empty = round.end();
                round.begin(self.sealed, list);
                empty
            }
            Hands::Thread(thread) => thread.begin(self.sealed, list),
        };
    }

    /// A transaction made the open epoch persistent. The caller saw [`Self::is_idle`].
    pub(super) fn skip(&mut self) {
        self.sealed += 1;
        match &mut self.hands {
            Hands::Own(round) => round.skip(self.sealed),
            Hands::Thread(thread) => thread.skip(self.sealed),
        }
    }

    /// Goes on with the sealed epoch, where that is not a thread's work. Whether nothing is left to do.
    pub(super) fn go_on(&mut self, versions_max: usize) -> Result<bool, VersionsError> {
        self.check()?;
        match &mut self.hands {
            Hands::Own(round) => {
                let went = round.go_on(versions_max);
                if let Err(error) = &went {
                    self.fail(error.clone());
                }
                went
            }
            Hands::Thread(_) => Ok(self.is_idle()),
        }
    }

    /// Makes the sealed epoch persistent, or waits for the thread that does.
    pub(super) fn finish(&mut self) -> Result<(), VersionsError> {
        match &self.hands {
            Hands::Own(_) => self.go_on(usize::MAX).map(|_| ()),
            Hands::Thread(thread) => thread.wait_for(self.sealed),
        }
    }

    /// Everything failed before.
    #[inline]
    pub(super) fn check(&self) -> Result<(), VersionsError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match &self.hands {
            Hands::Own(_) => Ok(()),
            Hands::Thread(thread) => thread.check(),
        }
    }

    /// A refusal is final: what is persistent is no longer known to grow.
    pub(super) fn fail(&mut self, error: VersionsError) {
        self.failed.get_or_insert(error.into_final());
    }
}
