//! The open epoch: operations write versions that nobody needs, and can be undone.
//!
//! Invariants:
//! - the version of an object that the open epoch writes is neither the persistent one nor one that is
//!   being persisted;
//! - an epoch is sealed between operations, never inside one;
//! - persistent words know nothing of the open epoch.

use std::sync::MutexGuard;

use super::VersionsError;
use super::layout::{Versions, Word};
use super::objects::Shared;
use super::round::Written;

/// What operations change, behind one lock.
pub(super) struct Writer {
    /// The newest version of each object. Those of the open epoch may be written again in place.
    newest: Vec<Word>,
    /// What the open epoch wrote, each object once.
    written: Vec<Written>,
    /// Operations of the open epoch, and of the sealed one.
    open_operations: u64,
    sealed_operations: u64,
    /// Since the objects were opened.
    operations: u64,
    rounds: u64,
    undo: Undo,
}

/// How to take the current operation back.
#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
    /// Bytes that were overwritten in place.
    bytes: Vec<u8>,
    /// How much the open epoch had written.
    written: usize,
}

struct Step {
    object: u64,
    before: Word,
    overwritten: bool,
    /// Where in the undo bytes lies what was overwritten, if it was.
    saved_at: usize,
}

impl Writer {
    pub(super) fn new(newest: Vec<Word>) -> Self {
        Self {
            newest,
            written: Vec::new(),
            open_operations: 0,
            sealed_operations: 0,
            operations: 0,
            rounds: 0,
            undo: Undo::default(),
        }
    }

    /// Operations that a crash could take back.
    pub(super) fn behind(&self, shared: &Shared) -> u64 {
        self.open_operations + if shared.rounds.is_idle() { 0 } else { self.sealed_operations }
    }

    /// Operations and rounds since the objects were opened.
    pub(super) fn done(&self) -> (u64, u64) {
        (self.operations, self.rounds)
    }

    pub(super) fn read(&self, shared: &Shared, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        shared.check_access(object, into.len())?;
        match self.newest[object as usize] {
            Word::NEVER => into.fill(0),
            word => shared.rounds.area.read(object, word.slot(), into)?,
        }
        Ok(())
    }

    /// Seals the open epoch. The round before is over.
    fn seal(&mut self, shared: &Shared) {
        shared.rounds.seal(&mut self.written);
        self.sealed_operations = std::mem::take(&mut self.open_operations);
        self.rounds += 1;
        shared.wake();
    }

    /// Makes all operations persistent.
    pub(super) fn sync(&mut self, shared: &Shared) -> Result<(), VersionsError> {
        shared.rounds.finish()?;
        if self.open_operations > 0 {
            self.seal(shared);
            shared.rounds.finish()?;
        }
        Ok(())
    }

    /// An operation was committed: what becomes of it depends on the pace.
    fn committed(&mut self, shared: &Shared) -> Result<(), VersionsError> {
        self.open_operations += 1;
        self.operations += 1;
        let Some(pace) = shared.persistence.pace() else {
            return self.sync(shared);
        };
        if self.behind(shared) >= pace.behind_max {
            shared.rounds.finish()?;
        }
        let may_begin = (self.rounds + 1) as f64 <= pace.threshold * self.operations as f64;
        if shared.rounds.is_idle() && (may_begin || self.open_operations >= pace.behind_max) {
            self.seal(shared);
        }
        Ok(())
    }
}

/// Reads and writes of objects that belong together: all of the writes happen, or none.
///
/// Nobody else reads or writes the objects meanwhile. Dropped without a commit, it is undone.
#[must_use = "dropped without a commit, it is undone"]
pub struct Operation<'a> {
    shared: &'a Shared,
    writer: MutexGuard<'a, Writer>,
}

impl<'a> Operation<'a> {
    pub(super) fn begin(shared: &'a Shared, mut writer: MutexGuard<'a, Writer>) -> Self {
        let written = writer.written.len();
        writer.undo.written = written;
        Self { shared, writer }
    }

    /// Reads all of `object`, with what this operation wrote. One never written is zeros.
    ///
    /// # Errors
    /// There is no such object, or it has another length.
    pub fn read(&self, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        self.writer.read(self.shared, object, into)
    }

    /// Writes all of `object`.
    ///
    /// # Errors
    /// There is no such object, it has another length, the space refuses, or persisting failed before.
    pub fn write(&mut self, object: u64, bytes: &[u8]) -> Result<(), VersionsError> {
        self.shared.check_access(object, bytes.len())?;
        let before = self.writer.newest[object as usize];
        // Only this thread seals: the lock of the writer is ours.
        let open = self.shared.rounds.sealed() + 1;
        let area = &self.shared.rounds.area;
        let overwritten = before != Word::NEVER && before.epoch() == open;
        let saved_at = self.writer.undo.bytes.len();
        let word = if overwritten {
            self.save(object, before)?;
            before
        } else {
            self.wait_for(before)?;
            let slot = if before == Word::NEVER { 0 } else { area.layout.after(before.slot()) };
            Word::new(open, before == Word::NEVER, slot)
        };
        // Refused bytes were not stored: nothing to undo.
        area.write(object, word.slot(), bytes)?;
        let writer = &mut *self.writer;
        writer.undo.steps.push(Step { object, before, overwritten, saved_at });
        if !overwritten {
            writer.written.push(Written { object, word });
            writer.newest[object as usize] = word;
        }
        Ok(())
    }

    /// Commits: all of it happened. Persistent now or later, see [`super::Persistence`].
    ///
    /// # Errors
    /// Persisting failed. With [`super::Persistence::Each`] whether it is persistent is then not known until
    /// the objects are opened again.
    pub fn commit(mut self) -> Result<(), VersionsError> {
        self.shared.rounds.check()?;
        if self.writer.undo.steps.is_empty() {
            return Ok(());
        }
        self.writer.undo.clear();
        self.writer.committed(self.shared)
    }

    /// With two versions, the one to be overwritten stays until the newer one is persistent.
    fn wait_for(&self, newest: Word) -> Result<(), VersionsError> {
        let rounds = &self.shared.rounds;
        if rounds.area.layout.shape.versions == Versions::Two && newest.epoch() > rounds.persistent() {
            rounds.finish()?;
        }
        Ok(())
    }

    /// Keeps what the open epoch wrote before.
    fn save(&mut self, object: u64, word: Word) -> Result<(), VersionsError> {
        let area = &self.shared.rounds.area;
        let bytes = &mut self.writer.undo.bytes;
        let end = bytes.len();
        bytes.resize(end + area.layout.shape.object_bytes as usize, 0);
        area.read(object, word.slot(), &mut bytes[end..])
    }

    fn undo(&mut self) -> Result<(), VersionsError> {
        let writer = &mut *self.writer;
        if writer.undo.steps.is_empty() {
            return Ok(());
        }
        let mut undo = std::mem::take(&mut writer.undo);
        let object_bytes = self.shared.rounds.area.layout.shape.object_bytes as usize;
        while let Some(step) = undo.steps.pop() {
            writer.newest[step.object as usize] = step.before;
            if step.overwritten {
                let saved = step.saved_at..step.saved_at + object_bytes;
                self.shared.rounds.area.write(step.object, step.before.slot(), &undo.bytes[saved])?;
            }
        }
        writer.written.truncate(undo.written);
        undo.clear();
        writer.undo = undo;
        Ok(())
    }
}

impl Undo {
    fn clear(&mut self) {
        self.steps.clear();
        self.bytes.clear();
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.undo() {
            self.shared.rounds.fail(&error);
        }
    }
}
