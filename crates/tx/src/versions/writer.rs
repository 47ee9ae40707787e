//! The open epoch: operations write versions that nobody needs, and can be undone.
//!
//! Invariants:
//! - the version of an object that the open epoch writes is neither the persistent one nor one that is
//!   being persisted;
//! - an epoch is sealed between operations, never inside one;
//! - persistent words know nothing of the open epoch.

use super::VersionsError;
use super::layout::{Versions, Word};
use super::objects::VersionedObjects;
use super::persister::Persister;
use super::round::{Pace, Written};

/// What operations change.
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

    /// The newest version of `object`, which exists.
    pub(super) fn newest(&self, object: u64) -> Word {
        self.newest[object as usize]
    }

    /// Operations that a crash could take back.
    pub(super) fn behind(&self, persister: &Persister) -> u64 {
        self.open_operations + if persister.is_idle() { 0 } else { self.sealed_operations }
    }

    /// Operations and rounds since the objects were opened.
    pub(super) fn done(&self) -> (u64, u64) {
        (self.operations, self.rounds)
    }

    /// Seals the open epoch. The round before is over.
    fn seal(&mut self, persister: &mut Persister) {
        persister.seal(&mut self.written);
        self.sealed_operations = std::mem::take(&mut self.open_operations);
        self.rounds += 1;
    }

    /// Makes all operations persistent.
    pub(super) fn sync(&mut self, persister: &mut Persister) -> Result<(), VersionsError> {
        persister.finish()?;
        if self.open_operations > 0 {
            self.seal(persister);
            persister.finish()?;
        }
        Ok(())
    }

    /// An operation was committed: what becomes of it depends on the pace.
    fn committed(&mut self, persister: &mut Persister, pace: Option<Pace>) -> Result<(), VersionsError> {
        self.undo.clear();
        self.open_operations += 1;
        self.operations += 1;
        let Some(pace) = pace else {
            return self.sync(persister);
        };
        if self.open_operations + self.sealed_operations >= pace.behind_max
            && self.behind(persister) >= pace.behind_max
        {
            persister.finish()?;
        }
        let may_begin = (self.rounds + 1) as f64 <= pace.threshold * self.operations as f64;
        if (may_begin || self.open_operations >= pace.behind_max) && persister.is_idle() {
            self.seal(persister);
        }
        Ok(())
    }
}

/// Reads and writes of objects that belong together: all of the writes happen, or none.
///
/// Dropped without a commit, it is undone.
#[must_use = "dropped without a commit, it is undone"]
pub struct Operation<'a> {
    objects: &'a mut VersionedObjects,
}

impl<'a> Operation<'a> {
    pub(super) fn begin(objects: &'a mut VersionedObjects) -> Self {
        objects.writer.undo.written = objects.writer.written.len();
        Self { objects }
    }

    /// Reads all of `object`, with what this operation wrote. One never written is zeros.
    ///
    /// What an operation reads it usually writes, so the place of the next version is brought into the cache
    /// meanwhile: it is cold, and stores to it would wait. [`VersionedObjects::read`] only reads.
    ///
    /// # Errors
    /// There is no such object, or it has another length.
    pub fn read(&self, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        self.objects.check_access(object, into.len())?;
        let VersionedObjects { area, writer, persister, .. } = &*self.objects;
        let newest = writer.newest(object);
        if newest.epoch() <= persister.sealed() {
            area.expect_write(object, area.layout.after(newest.slot()));
        }
        self.objects.read(object, into)
    }

    /// Writes all of `object`.
    ///
    /// # Errors
    /// There is no such object, it has another length, the space refuses, or persisting failed before.
    pub fn write(&mut self, object: u64, bytes: &[u8]) -> Result<(), VersionsError> {
        self.objects.check_access(object, bytes.len())?;
        let before = self.objects.writer.newest(object);
        let open = self.objects.persister.sealed() + 1;
        let saved_at = self.objects.writer.undo.bytes.len();
        let overwritten = before != Word::NEVER && before.epoch() == open;
        let word = if overwritten {
            self.save(object, before)?;
            before
        } else {
            self.wait_for(before)?;
            let first = before == Word::NEVER;
            let slot = if first { 0 } else { self.objects.area.layout.after(before.slot()) };
            Word::new(open, first, slot)
        };
        // Refused bytes were not stored: nothing to undo.
        self.objects.area.write(object, word.slot(), bytes)?;
        let writer = &mut self.objects.writer;
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
    pub fn commit(self) -> Result<(), VersionsError> {
        let VersionedObjects { writer, persister, persistence, .. } = &mut *self.objects;
        persister.check()?;
        if writer.undo.steps.is_empty() {
            return Ok(());
        }
        writer.committed(persister, persistence.pace())
    }

    /// With two versions, the one to be overwritten stays until the newer one is persistent.
    fn wait_for(&mut self, newest: Word) -> Result<(), VersionsError> {
        let VersionedObjects { area, persister, .. } = &mut *self.objects;
        if area.layout.shape.versions == Versions::Two && newest.epoch() > persister.persistent() {
            persister.finish()?;
        }
        Ok(())
    }

    /// Keeps what the open epoch wrote before.
    fn save(&mut self, object: u64, word: Word) -> Result<(), VersionsError> {
        let VersionedObjects { area, writer, .. } = &mut *self.objects;
        let bytes = &mut writer.undo.bytes;
        let end = bytes.len();
        bytes.resize(end + area.layout.shape.object_bytes as usize, 0);
        area.read(object, word.slot(), &mut bytes[end..])
    }

    fn undo(&mut self) -> Result<(), VersionsError> {
        let VersionedObjects { area, writer, .. } = &mut *self.objects;
        if writer.undo.steps.is_empty() {
            return Ok(());
        }
        let object_bytes = area.layout.shape.object_bytes as usize;
        let Undo { steps, bytes, written } = &mut writer.undo;
        while let Some(step) = steps.pop() {
            writer.newest[step.object as usize] = step.before;
            if step.overwritten {
                let saved = &bytes[step.saved_at..step.saved_at + object_bytes];
                area.write(step.object, step.before.slot(), saved)?;
            }
        }
        writer.written.truncate(*written);
        writer.undo.clear();
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
            self.objects.persister.fail(error);
        }
    }
}
