//! The open epoch: operations write versions that nobody needs, and can be undone.
//!
//! Invariants:
//! - a version that the open epoch writes is no object's persistent one, nor one that is being persisted;
//! - what an epoch replaced is free when the epoch is persistent, and is used again first: its lines are in
//!   the cache still, since whoever replaced it had most often read it;
//! - an epoch is sealed between operations, never inside one;
//! - persistent words know nothing of the open epoch.

use wattkeep_persist::mutant;

use super::VersionsError;
use super::layout::{Layout, Word};
use super::objects::VersionedObjects;
use super::persister::Persister;
use super::round::{Pace, Written};

/// What operations change.
pub(super) struct Writer {
    /// The newest version of each object. Those of the open epoch may be written again in place.
    newest: Vec<Word>,
    /// What the open epoch wrote, each object once.
    written: Vec<Written>,
    /// Versions that nobody needs; the last one is used next.
    free: Vec<u32>,
    /// Versions that the open epoch replaced, and those that the sealed one did.
    replaced: Vec<u32>,
    retiring: Vec<u32>,
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
    pub(super) fn new(newest: Vec<Word>, layout: &Layout) -> Self {
        let mut taken = vec![false; layout.slots as usize];
        for word in newest.iter().filter(|word| **word != Word::NEVER) {
            taken[layout.slot_of(*word) as usize] = true;
        }
        Self {
            newest,
            written: Vec::new(),
            free: (0..layout.slots).rev().filter(|slot| !taken[*slot as usize]).collect(),
            replaced: Vec::new(),
            retiring: Vec::new(),
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
        self.free.append(&mut self.retiring);
        std::mem::swap(&mut self.replaced, &mut self.retiring);
        persister.seal(&mut self.written);
        self.sealed_operations = std::mem::take(&mut self.open_operations);
        self.rounds += 1;
    }

    /// Nothing was written since the last operation ended.
    pub(super) fn is_clean(&self) -> bool {
        self.undo.steps.is_empty()
    }

    /// A transaction's log made the open epoch persistent, with all that it wrote.
    fn committed_by_log(&mut self, persister: &mut Persister) {
        self.undo.clear();
        self.written.clear();
        self.free.append(&mut self.retiring);
        self.free.append(&mut self.replaced);
        (self.open_operations, self.sealed_operations) = (0, 0);
        self.operations += 1;
        persister.skip();
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

impl VersionedObjects {
    /// An operation begins. What one that was forgotten left behind is taken back.
    pub(super) fn begin(&mut self) -> Result<(), VersionsError> {
        self.persister.check()?;
        self.take_back()?;
        if self.persister.sealed() >= self.area.layout.epoch_max() {
            return Err(VersionsError::UsedUp);
        }
        self.writer.undo.written = self.writer.written.len();
        Ok(())
    }

    /// Writes `object` within the operation.
    pub(super) fn write(&mut self, object: u64, bytes: &[u8]) -> Result<(), VersionsError> {
        self.check_access(object, bytes.len())?;
        let before = self.writer.newest(object);
        let open = self.persister.sealed() + 1;
        let saved_at = self.writer.undo.bytes.len();
        let overwritten = before != Word::NEVER && self.area.layout.epoch_of(before) == open;
        let word = if overwritten {
            self.save(before)?;
            before
        } else {
            let slot = self.free_slot()?;
            let kept = if mutant::planted("version-named-in-the-newer-word") { Word::NEVER } else { before };
            self.area.layout.word(open, slot, kept)
        };
        // Refused bytes were not stored: nothing to undo.
        self.area.write(self.area.layout.slot_of(word), bytes)?;
        let writer = &mut self.writer;
        writer.undo.steps.push(Step { object, before, overwritten, saved_at });
        if !overwritten {
            writer.free.pop();
            if before != Word::NEVER {
                let early = mutant::planted("version-free-too-early");
                let list = if early { &mut writer.free } else { &mut writer.replaced };
                list.push(self.area.layout.slot_of(before));
            }
            writer.written.push(Written { object, word });
            writer.newest[object as usize] = word;
        }
        Ok(())
    }

    /// The operation happened: persistent now or later, by the pace.
    pub(super) fn commit(&mut self) -> Result<(), VersionsError> {
        self.persister.check()?;
        if self.writer.is_clean() {
            return Ok(());
        }
        self.writer.committed(&mut self.persister, self.persistence.pace())
    }

    /// A version that nobody needs. With two for each object it may be that the sealed epoch has to become
    /// persistent first: then objects have one each, and the open epoch has not written all of them.
    fn free_slot(&mut self) -> Result<u32, VersionsError> {
        if self.writer.free.is_empty() {
            self.persister.finish()?;
            self.writer.free.append(&mut self.writer.retiring);
        }
        Ok(*self.writer.free.last().expect("twice as many versions as objects"))
    }

    /// Keeps what the open epoch wrote before.
    fn save(&mut self, word: Word) -> Result<(), VersionsError> {
        let bytes = &mut self.writer.undo.bytes;
        let end = bytes.len();
        bytes.resize(end + self.area.layout.shape.object_bytes as usize, 0);
        self.area.read(self.area.layout.slot_of(word), &mut bytes[end..])
    }

    /// Takes the operation back. A refusal is final.
    pub(super) fn take_back(&mut self) -> Result<(), VersionsError> {
        let undone = self.undo();
        if let Err(error) = &undone {
            self.persister.fail(error.clone());
        }
        undone
    }

    fn undo(&mut self) -> Result<(), VersionsError> {
        let Self { area, writer, .. } = self;
        let object_bytes = area.layout.shape.object_bytes as usize;
        let Undo { steps, bytes, written } = &mut writer.undo;
        if steps.is_empty() {
            return Ok(());
        }
        while let Some(step) = steps.pop() {
            let word = std::mem::replace(&mut writer.newest[step.object as usize], step.before);
            let slot = area.layout.slot_of(word);
            if step.overwritten {
                area.write(slot, &bytes[step.saved_at..step.saved_at + object_bytes])?;
                continue;
            }
            writer.free.push(slot);
            if step.before != Word::NEVER {
                writer.replaced.pop();
            }
        }
        writer.written.truncate(*written);
        writer.undo.clear();
        Ok(())
    }

    /// Reads `object` as it was before the operation.
    pub(super) fn read_before(&self, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        self.check_access(object, into.len())?;
        let Undo { steps, bytes, .. } = &self.writer.undo;
        match steps.iter().find(|step| step.object == object) {
            None => self.read(object, into),
            Some(step) if step.overwritten => {
                into.copy_from_slice(&bytes[step.saved_at..step.saved_at + into.len()]);
                Ok(())
            }
            Some(step) if step.before == Word::NEVER => {
                into.fill(0);
                Ok(())
            }
            Some(step) => self.area.read(self.area.layout.slot_of(step.before), into),
        }
    }

    /// Waits until the open epoch is the next one to be persistent: its number.
    pub(super) fn open_epoch(&mut self) -> Result<u64, VersionsError> {
        self.persister.finish()?;
        Ok(self.persister.sealed() + 1)
    }

    /// Begins to write back all that the open epoch wrote, and names it in the objects' words: what commits
    /// it is a transaction's matter. An error, now or before it has committed, is final for the objects.
    pub(super) fn mark_open_epoch(&self) -> Result<(), VersionsError> {
        let mut written = self.writer.written.clone();
        written.sort_unstable_by_key(|written| written.object);
        self.area.mark(&written)
    }

    /// The transaction that logged the open epoch has committed.
    pub(super) fn committed_by_log(&mut self) {
        self.writer.committed_by_log(&mut self.persister);
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
    pub(super) fn begin(objects: &'a mut VersionedObjects) -> Result<Self, VersionsError> {
        objects.begin()?;
        Ok(Self { objects })
    }

    /// Reads all of `object`, with what this operation wrote. One never written is zeros.
    ///
    /// # Errors
    /// There is no such object, or it has another length.
    pub fn read(&self, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        self.objects.read(object, into)
    }

    /// Says that `object` will soon be read: it comes into the cache meanwhile. A hint.
    pub fn expect(&self, object: u64) {
        let VersionedObjects { area, writer, .. } = &*self.objects;
        if let Some(word) = writer.newest.get(object as usize).filter(|word| **word != Word::NEVER) {
            area.expect(area.layout.slot_of(*word));
        }
    }

    /// Writes all of `object`.
    ///
    /// # Errors
    /// There is no such object, it has another length, the space refuses, or persisting failed before.
    pub fn write(&mut self, object: u64, bytes: &[u8]) -> Result<(), VersionsError> {
        self.objects.write(object, bytes)
    }

    /// Commits: all of it happened. Persistent now or later, see [`super::Persistence`].
    ///
    /// # Errors
    /// Persisting failed. With [`super::Persistence::Each`] whether it is persistent is then not known until
    /// the objects are opened again.
    pub fn commit(self) -> Result<(), VersionsError> {
        self.objects.commit()
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
        // A refusal was kept: every later call answers with it.
        let _ = self.objects.take_back();
    }
}
