//! Versioned objects in the hands of a transaction, from its first touch to its end.
//!
//! A transaction's writes are an operation of the objects, which ends with the transaction. Most often it
//! ends with the log's commit: the log has the number of the open epoch, so one slot (redo) or one mark
//! (undo) decides for the objects and for all else. Before it counts, the versions are flushed and fenced.
//! A transaction that changed nothing but the objects of one area needs no log: it ends as an operation does.
//!
//! Invariants: one transaction at a time has the objects; its writes are known to no other, and to no round;
//! from the first word that names them until the commit, an error is final for the objects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wattkeep_persist::{Space, mutant};

use super::VersionsError;
use super::objects::VersionedObjects;

/// No transaction has this number.
const NOBODY: u64 = 0;

/// The objects of one area, as all handles share them.
pub(crate) struct Opened {
    pub(super) space: Arc<Space>,
    /// What was allocated for them.
    pub(super) ptr: u64,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) objects: VersionedObjects,
    /// The transaction that has them.
    pub(super) owner: u64,
    /// They are destroyed when the owner commits.
    pub(super) ends: bool,
    /// The owner's writes are named in the objects' words.
    marked: bool,
}

/// Where the objects that are open lie: their space, by its address, and their offset.
static OPEN: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

/// What lies behind these locks is whole at every instant.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opened {
    /// Opens what `open` finds behind `ptr`, unless that is open already.
    pub(super) fn open(
        space: &Arc<Space>,
        ptr: u64,
        open: impl FnOnce() -> Result<VersionedObjects, VersionsError>,
    ) -> Result<Arc<Self>, VersionsError> {
        let mut all = lock(&OPEN);
        let place = (Arc::as_ptr(space).addr(), ptr);
        if all.contains(&place) {
            return Err(VersionsError::AlreadyOpen { at: ptr });
        }
        let state = State { objects: open()?, owner: NOBODY, ends: false, marked: false };
        all.push(place);
        Ok(Arc::new(Self { space: Arc::clone(space), ptr, state: Mutex::new(state) }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let place = (Arc::as_ptr(&self.space).addr(), self.ptr);
        lock(&OPEN).retain(|open| *open != place);
    }
}

impl State {
    /// Gives the objects to transaction `tx`, unless another one has them. Whether they were nobody's before.
    pub(super) fn own(&mut self, tx: u64) -> Result<bool, VersionsError> {
        if self.ends {
            return Err(VersionsError::Destroyed);
        }
        match self.owner {
            owner if owner == tx => Ok(false),
            NOBODY => {
                self.objects.begin()?;
                self.owner = tx;
                Ok(true)
            }
            _ => Err(VersionsError::Busy),
        }
    }

    /// An error while a transaction has the objects, or when they are no more.
    pub(super) fn check_free(&self) -> Result<(), VersionsError> {
        match (self.ends, self.owner) {
            (true, _) => Err(VersionsError::Destroyed),
            (false, NOBODY) => Ok(()),
            (false, _) => Err(VersionsError::Busy),
        }
    }

    fn writes(&self) -> bool {
        !self.objects.writer.is_clean()
    }
}

/// The objects that a transaction touched.
#[derive(Default)]
pub(crate) struct Enlisted(Vec<Arc<Opened>>);

impl Enlisted {
    pub(crate) fn add(&mut self, opened: Arc<Opened>) {
        self.0.push(opened);
    }

    /// The transaction touched none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Areas whose objects the transaction wrote.
    pub(crate) fn written(&self) -> usize {
        self.0.iter().filter(|opened| opened.state().writes()).count()
    }

    /// What the log is to hold for them: places of words, and the words. Waits for rounds to be over.
    pub(crate) fn epochs(&self) -> Result<Vec<(u64, u64)>, VersionsError> {
        let mut epochs = Vec::new();
        for opened in &self.0 {
            let mut state = opened.state();
            if state.writes() {
                let epoch = state.objects.open_epoch()?;
                if mutant::planted("tx-versions-beside-the-log") {
                    state.objects.mark_open_epoch()?;
                    state.objects.area.commit(epoch)?;
                }
                epochs.push((state.objects.area.logged_epoch_at() as u64, epoch));
            }
        }
        Ok(epochs)
    }

    /// Begins to write back all that the log's commit is to decide for. Whether there was anything.
    pub(crate) fn mark(&self) -> Result<bool, VersionsError> {
        let mut any = false;
        for opened in &self.0 {
            let mut state = opened.state();
            if state.writes() {
                (any, state.marked) = (true, true);
                state.objects.mark_open_epoch()?;
            }
        }
        Ok(any)
    }

    /// The transaction has committed, with its log.
    pub(crate) fn committed_by_log(&mut self) {
        for opened in self.0.drain(..) {
            let mut state = opened.state();
            if state.writes() {
                state.objects.committed_by_log();
            }
            // Who is destroyed stays so.
            (state.owner, state.marked) = (NOBODY, false);
        }
    }

    /// The transaction commits, and changed nothing else, and objects of one area at most.
    pub(crate) fn commit(&mut self) -> Result<(), VersionsError> {
        for opened in self.0.drain(..) {
            let mut state = opened.state();
            let committed = state.objects.commit();
            if committed.is_err() {
                // A refusal of this, too, is kept.
                let _ = state.objects.take_back();
            }
            state.owner = NOBODY;
            committed?;
        }
        Ok(())
    }

    /// The transaction has failed: nothing of it remains.
    pub(crate) fn take_back(&mut self) {
        for opened in self.0.drain(..) {
            let mut state = opened.state();
            let taken_back = state.objects.take_back();
            if state.marked {
                state.objects.persister.fail(VersionsError::Undecided);
            }
            // A refusal was kept: every later call answers with it.
            drop(taken_back);
            (state.owner, state.ends, state.marked) = (NOBODY, false, false);
        }
    }
}
