//! The bytes of versioned objects: the only file here that stores, flushes and fences.
//!
//! Invariants of what is durable, at any instant and for any subset of unflushed lines:
//! - the version that an object's word names is whole, if the word's epoch is at most the persistent epoch;
//! - an object has two words, and the newer one is at most one epoch ahead of it; if it is, the version that
//!   the other word names is whole: nobody writes that one until the epoch is persistent.
//!
//! So the persistent epoch, one word, commits all objects of its epoch at once. There are two such words, and
//! the greater one counts: rounds store theirs at once, and transactions store theirs through their log,
//! which may put an older value of it back while it is replayed, but never touches the other one.

use std::sync::Arc;

use wattkeep_persist::{LINE, Ptr, Refused, Space, WORD, mutant};

use super::VersionsError;
use super::layout::{EPOCH_AT, Keeper, LOGGED_EPOCH_AT, Layout, Shape, UntrustedHeader, Word};
use super::round::Written;
use crate::error::TxError;
use crate::tx::Tx;

/// Lines of words that are on their way at once.
const EXPECTED_MAX: usize = 16;

/// The place of the objects in their space.
pub(super) struct Area {
    pub(super) space: Arc<Space>,
    at: usize,
    pub(super) layout: Layout,
}

impl Area {
    /// Makes objects that were never written. They exist once this has returned: the header comes last.
    pub(super) fn create(space: Arc<Space>, at: usize, shape: &Shape) -> Result<Self, VersionsError> {
        let layout = Layout::of(shape)?;
        check_place(&space, at, &layout)?;
        let area = Self { space, at, layout };
        // What stood here before is gone before its words are.
        area.space.write(at, &[0_u8; LINE])?;
        area.space.persist(at, LINE)?;
        let zeros = [0; 4096];
        let words = at..at + layout.slot_at(0);
        for first in words.clone().step_by(zeros.len()) {
            area.space.write_bytes(first, &zeros[..zeros.len().min(words.end - first)])?;
        }
        area.space.persist(at, words.len())?;
        area.space.write(at, &UntrustedHeader::of(shape, Keeper::Rounds))?;
        area.space.persist(at, LINE)?;
        Ok(area)
    }

    /// The same in memory that `tx` allocated: they exist once it has committed.
    pub(super) fn create_in(tx: &mut Tx<'_>, at: usize, layout: &Layout) -> Result<(), TxError> {
        let zeros = [0; 4096];
        let words = at..at + layout.slot_at(0);
        for first in words.clone().step_by(zeros.len()) {
            tx.write_bytes(first as u64, &zeros[..zeros.len().min(words.end - first)])?;
        }
        tx.write(Ptr::at(at as u64), &UntrustedHeader::of(&layout.shape, Keeper::Transactions))
    }

    /// Finds the objects of `keeper` at `at`, and what their newest persistent versions are.
    pub(super) fn open(
        space: Arc<Space>,
        at: usize,
        keeper: Keeper,
    ) -> Result<(Self, Vec<Word>), VersionsError> {
        let (shape, kept_by) = space.read::<UntrustedHeader>(at)?.validate(at)?;
        match (kept_by, keeper) {
            (Keeper::Transactions, Keeper::Rounds) => return Err(VersionsError::NeedsTransactions { at }),
            (Keeper::Rounds, Keeper::Transactions) => {
                return Err(VersionsError::Damaged {
                    at,
                    why: "these objects were made without transactions",
                });
            }
            _ => {}
        }
        let layout = Layout::of(&shape)?;
        check_place(&space, at, &layout)?;
        let area = Self { space, at, layout };
        let words = area.recover()?;
        Ok((area, words))
    }

    /// Takes back what the epoch behind the persistent one had already marked, durably: the next epoch
    /// has the same number.
    fn recover(&self) -> Result<Vec<Word>, VersionsError> {
        let persistent = self.epoch()?;
        if persistent > self.layout.epoch_max() {
            return Err(VersionsError::Damaged {
                at: self.epoch_at(),
                why: "the epoch is one that never was",
            });
        }
        let mut taken = vec![false; self.layout.slots as usize];
        let words = (0..self.layout.shape.objects).map(|object| {
            let at = self.at + self.layout.words_at(object);
            let mut newest = Word::NEVER;
            for (place, at) in [(0, at), (1, at + WORD)] {
                let found = Word(self.space.load(at)?);
                if found != Word::NEVER && self.layout.place_of(found) != place {
                    return Err(VersionsError::Damaged { at, why: "a word stands where another belongs" });
                }
                if self.counts(found, persistent, at)? {
                    newest = newest.max(found);
                } else {
                    self.space.store(at, Word::NEVER.0)?;
                    self.space.flush(at, WORD)?;
                }
            }
            if newest != Word::NEVER
                && std::mem::replace(&mut taken[self.layout.slot_of(newest) as usize], true)
            {
                return Err(VersionsError::Damaged { at, why: "two objects have one version" });
            }
            Ok(newest)
        });
        let words = words.collect::<Result<_, VersionsError>>()?;
        self.space.fence();
        Ok(words)
    }

    /// Whether a word is of a persistent epoch; otherwise it is of the one behind it.
    fn counts(&self, word: Word, persistent: u64, at: usize) -> Result<bool, VersionsError> {
        let damaged = |why| Err(VersionsError::Damaged { at, why });
        if word == Word::NEVER {
            return Ok(true);
        }
        let (epoch, slot) = (self.layout.epoch_of(word), self.layout.slot_of(word));
        if slot >= self.layout.slots || epoch == 0 {
            return damaged("a word names a version that cannot be");
        }
        if epoch > persistent + 1 {
            return damaged("a word is from an epoch that never was");
        }
        Ok(epoch <= persistent)
    }

    /// The persistent epoch.
    pub(super) fn epoch(&self) -> Result<u64, VersionsError> {
        let (of_rounds, logged) =
            (self.space.load(self.epoch_at())?, self.space.load(self.logged_epoch_at())?);
        Ok(of_rounds.max(logged))
    }

    /// Where rounds store the persistent epoch.
    pub(super) fn epoch_at(&self) -> usize {
        self.at + EPOCH_AT
    }

    /// Where transactions do.
    pub(super) fn logged_epoch_at(&self) -> usize {
        self.at + LOGGED_EPOCH_AT
    }

    pub(super) fn read(&self, slot: u32, into: &mut [u8]) -> Result<(), VersionsError> {
        Ok(self.space.read_bytes(self.at + self.layout.slot_at(slot), into)?)
    }

    pub(super) fn write(&self, slot: u32, bytes: &[u8]) -> Result<(), VersionsError> {
        Ok(self.space.write_bytes(self.at + self.layout.slot_at(slot), bytes)?)
    }

    /// A version will soon be read, and then be written by whoever gets it: its lines are on their way meanwhile.
    pub(super) fn expect(&self, slot: u32) {
        let at = self.at + self.layout.slot_at(slot);
        self.space.prefetch_to_write(at, self.layout.shape.object_bytes as usize);
    }

    /// Begins to write versions back, and names them in their objects' words. The objects rise, so that the
    /// lines of words do, too: each is flushed once, while its row of the memory is open.
    pub(super) fn mark(&self, written: &[Written]) -> Result<(), VersionsError> {
        let bytes = self.layout.shape.object_bytes as usize;
        for batch in written.chunks(EXPECTED_MAX) {
            for Written { object, .. } in batch {
                self.space.prefetch_to_write(self.at + self.layout.words_at(*object), WORD);
            }
            let mut stored: Option<usize> = None;
            for Written { object, word } in batch {
                let at = self.at + self.layout.word_at(*object, *word);
                if let Some(before) = stored.filter(|before| before / LINE != at / LINE) {
                    self.space.flush(before, WORD)?;
                }
                if !mutant::planted("version-never-flushed") {
                    let slot = self.layout.slot_at(self.layout.slot_of(*word));
                    self.space.flush(self.at + slot, bytes)?;
                }
                self.space.store(at, word.0)?;
                stored = Some(at);
            }
            if let Some(last) = stored {
                self.space.flush(last, WORD)?;
            }
        }
        Ok(())
    }

    /// Makes everything of `epoch` persistent, at once. All of it was flushed.
    pub(super) fn commit(&self, epoch: u64) -> Result<(), VersionsError> {
        if !mutant::planted("epoch-before-versions") {
            self.space.fence();
        }
        self.space.store(self.epoch_at(), epoch)?;
        Ok(self.space.persist(self.epoch_at(), WORD)?)
    }
}

fn check_place(space: &Space, at: usize, layout: &Layout) -> Result<(), VersionsError> {
    if !at.is_multiple_of(LINE) {
        return Err(VersionsError::Shape { why: "the objects begin on a line of 64 bytes" });
    }
    drop(space.window(at, 0)?);
    let left = space.len() - at;
    if layout.bytes > left {
        return Err(Refused::Outside { at, len: layout.bytes, space: space.len() }.into());
    }
    Ok(())
}
