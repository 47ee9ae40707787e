//! A transaction in the hands of the program: reads, stores, allocations.
//!
//! Who else may see the data meanwhile is decided by whoever wrote the data structure: locks go in with
//! [`Tx::hold`], and open when the transaction has ended.

use std::fmt;
use std::sync::Arc;

use wattkeep_heap::Heap;
use wattkeep_persist::{LINE, Pod, Ptr, WORD, bytemuck};

use crate::error::TxError;
use crate::lane::{PAGE, put};
use crate::manager::Manager;
use crate::options::{Granularity, Hint, Logging};
use crate::versions::enlisted::Opened;
use crate::work::{self, Partner, Shared, Work};

/// An open transaction. Dropped without [`Tx::commit`], it is aborted. One that is forgotten stays
/// open: what its thread runs next is part of it, and ends with it. It stays on its thread:
///
/// ```compile_fail,E0277
/// fn elsewhere(tx: wattkeep_tx::Tx<'_>) {
///     std::thread::scope(|threads| {
///         threads.spawn(move || drop(tx));
///     });
/// }
/// ```
#[must_use = "a transaction that is dropped is aborted"]
pub struct Tx<'a> {
    manager: &'a Manager,
    work: Shared,
    id: u64,
    /// How deep it was begun: 1 for an outermost one.
    depth: u32,
    committed: bool,
}

impl<'a> Tx<'a> {
    #[inline]
    pub(crate) fn new(manager: &'a Manager, (work, id, depth): (Shared, u64, u32)) -> Self {
        Self { manager, work, id, depth, committed: false }
    }

    /// Its manager.
    pub fn manager(&self) -> &'a Manager {
        self.manager
    }

    /// The heap that it works on.
    #[inline]
    pub fn heap(&self) -> &'a Arc<Heap> {
        &self.manager.heap
    }

    /// A number that no other transaction of this process has.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Stores reach their place at once (undo), not when it commits.
    #[inline]
    pub fn in_place(&self) -> bool {
        self.manager.options.logging == Logging::Undo
    }

    /// Reads the value at `from`, with this transaction's own stores.
    ///
    /// # Errors
    /// It leaves the space.
    #[inline(always)]
    pub fn read<T: Pod>(&self, from: Ptr<T>) -> Result<T, TxError> {
        let mut value = T::zeroed();
        self.read_bytes(from.offset(), bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Reads the word at `from`, with this transaction's own stores.
    ///
    /// # Errors
    /// It leaves the space.
    #[inline]
    pub fn read_word(&self, from: Ptr<u64>) -> Result<u64, TxError> {
        self.read(from)
    }

    /// Reads the bytes at `at`, with this transaction's own stores.
    ///
    /// # Errors
    /// They leave the space.
    // Inlined with the length of a type, it is a load a word, and not a loop.
    #[inline(always)]
    pub fn read_bytes(&self, at: u64, into: &mut [u8]) -> Result<(), TxError> {
        self.manager.space.read_bytes(at as usize, into)?;
        self.overlay(at, into);
        Ok(())
    }

    /// Whether the bytes at `at` are `bytes`, with this transaction's own stores.
    ///
    /// # Errors
    /// They leave the space.
    #[inline]
    pub fn holds(&self, at: u64, bytes: &[u8]) -> Result<bool, TxError> {
        if self.in_place() || self.work.borrow().lines.is_empty() {
            return Ok(self.manager.space.holds(at as usize, bytes)?);
        }
        self.manager.space.check(at as usize, bytes.len())?;
        let mut read = [0; LINE];
        for (index, piece) in bytes.chunks(LINE).enumerate() {
            let read = &mut read[..piece.len()];
            self.read_bytes(at + (index * LINE) as u64, read)?;
            if read != piece {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts its own stores, which are not in place yet, over what was read at `at`.
    #[inline(always)]
    fn overlay(&self, at: u64, into: &mut [u8]) {
        if self.manager.options.logging == Logging::Redo {
            self.work.borrow().lines.overlay(at, into);
        }
    }

    /// Stores the value at `to`, as an object.
    ///
    /// # Errors
    /// It leaves the space, or lies where the heap keeps books, as a null pointer does; the log has no room for
    /// it, and the transaction can only be aborted; or that was said before.
    #[inline]
    pub fn write<T: Pod>(&mut self, to: Ptr<T>, value: &T) -> Result<(), TxError> {
        self.write_bytes_as(to.offset(), bytemuck::bytes_of(value), Hint::Object)
    }

    /// Stores a word at `to`, which lies on a word.
    ///
    /// # Errors
    /// As [`Tx::write`].
    #[inline]
    pub fn write_word(&mut self, to: Ptr<u64>, word: u64) -> Result<(), TxError> {
        self.write_bytes_as(to.offset(), &word.to_ne_bytes(), Hint::Word)
    }

    /// Stores the bytes at `at`, as an object.
    ///
    /// # Errors
    /// As [`Tx::write`].
    #[inline]
    pub fn write_bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), TxError> {
        self.write_bytes_as(at, bytes, Hint::Object)
    }

    /// Stores part of an object: `value`, `offset` bytes behind its beginning. Only the part is logged.
    ///
    /// # Errors
    /// As [`Tx::write`]; it leaves the object.
    pub fn write_field<T: Pod, F: Pod>(
        &mut self,
        object: Ptr<T>,
        offset: usize,
        value: &F,
        hint: Hint,
    ) -> Result<(), TxError> {
        let at = object.byte_add::<F>(offset as u64).offset();
        if offset.checked_add(size_of::<F>()).is_none_or(|end| end > size_of::<T>()) {
            return Err(TxError::NotAllocated { at });
        }
        if self.manager.options.granularity == Granularity::ObjectOnly {
            let mut whole = self.read(object)?;
            let field = &mut bytemuck::bytes_of_mut(&mut whole)[offset..offset + size_of::<F>()];
            field.copy_from_slice(bytemuck::bytes_of(value));
            return self.store(object.offset(), bytemuck::bytes_of(&whole), false);
        }
        self.write_bytes_as(at, bytemuck::bytes_of(value), hint)
    }

    /// Stores the bytes at `at`, and says how they are to be logged. Words are logged whole: what does not
    /// cover one is logged as an object all the same.
    ///
    /// # Errors
    /// As [`Tx::write`].
    #[inline]
    pub fn write_bytes_as(&mut self, at: u64, bytes: &[u8], hint: Hint) -> Result<(), TxError> {
        match (self.manager.options.granularity, hint) {
            (Granularity::Hybrid, Hint::Object) | (Granularity::ObjectOnly, _) => {
                self.store(at, bytes, false)
            }
            (Granularity::Hybrid, Hint::Word) | (Granularity::WordOnly, _) => self.store_words(at, bytes),
        }
    }

    /// Whole words as words, what is before and behind them as objects.
    #[inline]
    fn store_words(&mut self, at: u64, bytes: &[u8]) -> Result<(), TxError> {
        let head = (at.wrapping_neg() % WORD as u64) as usize;
        if head == 0 && bytes.len() == WORD {
            return self.store(at, bytes, true);
        }
        let (head, rest) = bytes.split_at(head.min(bytes.len()));
        let (words, tail) = rest.split_at(rest.len() / WORD * WORD);
        // What wraps around comes behind what leaves the space.
        let words_at = at.wrapping_add(head.len() as u64);
        for (at, bytes, as_words) in [
            (at, head, false),
            (words_at, words, true),
            (words_at.wrapping_add(words.len() as u64), tail, false),
        ] {
            if !bytes.is_empty() {
                self.store(at, bytes, as_words)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn store(&mut self, at: u64, bytes: &[u8], words: bool) -> Result<(), TxError> {
        let work = &mut *self.work.borrow_mut();
        if work.doomed {
            return Err(TxError::Doomed);
        }
        Self::store_in(self.manager, work, at, bytes, words)
    }

    #[inline]
    fn store_in(
        manager: &Manager,
        work: &mut Work,
        at: u64,
        bytes: &[u8],
        words: bool,
    ) -> Result<(), TxError> {
        if work.fresh.stores(at, bytes.len()) {
            return Ok(put(&manager.space, at as usize, bytes)?);
        }
        if !manager.heap.is_data(at) {
            return Err(TxError::NotAllocated { at });
        }
        manager.space.check(at as usize, bytes.len())?;
        match manager.options.logging {
            Logging::Redo => {
                let staged = match bytes.try_into() {
                    Ok(word) if words => work.lines.stage_word(at, word, &manager.most.runs),
                    _ => work.lines.stage(at, bytes, words, &manager.most.runs),
                };
                staged.map_err(|left_out| manager.overflown(work, left_out, words))?;
            }
            Logging::Undo => {
                manager.log_old(work, at, bytes.len(), words)?;
                put(&manager.space, at as usize, bytes)?;
            }
        }
        Ok(())
    }

    /// Bytes of objects that one transaction may log.
    #[inline]
    pub fn log_bytes(&self) -> usize {
        self.manager.most.runs.object_bytes
    }

    /// Whether stores to the `len` bytes at `at` are logged: not, where this transaction allocated them.
    pub fn logs(&self, at: u64, len: usize) -> bool {
        !self.work.borrow().fresh.holds(at, len)
    }

    /// Allocates memory that holds `value`. It is allocated when the transaction commits, and never was
    /// otherwise.
    ///
    /// # Errors
    /// The heap is full.
    pub fn alloc<T: Pod>(&mut self, value: &T) -> Result<Ptr<T>, TxError> {
        let at = self.alloc_bytes(size_of::<T>())?;
        self.write_bytes(at.offset(), bytemuck::bytes_of(value))?;
        Ok(at.cast())
    }

    /// Allocates `len` bytes, which hold anything. Stores to them are not logged.
    ///
    /// # Errors
    /// The heap is full, or the log has no room for one object more.
    pub fn alloc_bytes(&mut self, len: usize) -> Result<Ptr<u8>, TxError> {
        {
            let work = &mut *self.work.borrow_mut();
            if work.doomed {
                return Err(TxError::Doomed);
            }
            self.manager.check_list(work)?;
        }
        let bytes = len.max(1) as u64;
        let at = match self.manager.heap.reserve(bytes) {
            // What was freed may only wait for the log to be truncated.
            Err(_) if self.manager.options.logging == Logging::Redo => {
                self.manager.log.truncate()?;
                self.manager.heap.reserve(bytes)?
            }
            answer => answer?,
        };
        self.work.borrow_mut().fresh.add(at, bytes);
        Ok(Ptr::at(at))
    }

    /// Stores the parts to memory that this transaction allocated, each at its offset from `at`, and `len` bytes
    /// in all: announced once, where they lie in one page.
    ///
    /// # Errors
    /// As [`Tx::write`].
    #[inline]
    pub fn fill<const N: usize>(
        &mut self,
        at: u64,
        len: usize,
        parts: [(u64, &[u8]); N],
    ) -> Result<(), TxError> {
        {
            let work = &mut *self.work.borrow_mut();
            if !work.doomed && at as usize % PAGE + len <= PAGE && work.fresh.stores(at, len) {
                let window = self.manager.space.window(at as usize, len)?;
                return parts
                    .into_iter()
                    .try_for_each(|(offset, bytes)| Ok(window.write_bytes((at + offset) as usize, bytes)?));
            }
        }
        parts.into_iter().try_for_each(|(offset, bytes)| self.write_bytes(at.saturating_add(offset), bytes))
    }

    /// Frees the object at `object`, when the transaction commits.
    ///
    /// # Errors
    /// It is no live object, or was freed in this transaction already; the log has no room for one more.
    pub fn free<T>(&mut self, object: Ptr<T>) -> Result<(), TxError> {
        let (work, at) = (&mut *self.work.borrow_mut(), object.offset());
        if work.doomed {
            return Err(TxError::Doomed);
        }
        if work.fresh.remove(at) {
            self.manager.heap.cancel(at)?;
            return Ok(());
        }
        if work.freed.has(at) {
            return Err(TxError::FreedTwice { at });
        }
        if !self.manager.heap.is_allocated(at) {
            return Err(TxError::NotAllocated { at });
        }
        self.manager.check_list(work)?;
        work.freed.add(at);
        Ok(())
    }

    /// It can only be aborted from here on: for a data structure whose change failed half way.
    #[cold]
    pub fn doom(&mut self) {
        self.work.borrow_mut().doomed = true;
    }

    /// An error if it cannot commit any more.
    pub(crate) fn check_not_doomed(&self) -> Result<(), TxError> {
        if self.work.borrow().doomed { Err(TxError::Doomed) } else { Ok(()) }
    }

    /// It has these versioned objects until it ends.
    pub(crate) fn enlist(&mut self, objects: Arc<Opened>) {
        self.work.borrow_mut().versions.add(objects);
    }

    /// Keeps `guard` until the transaction has ended: committed and applied, or rolled back.
    pub fn hold(&mut self, guard: impl Sized + 'static) {
        self.work.borrow_mut().hold(Box::new(guard));
    }

    /// Tells `partner` when stores reach their place and when the transaction has ended.
    #[inline]
    pub fn tell(&mut self, partner: Arc<dyn Partner>) {
        self.work.borrow_mut().tell(partner);
    }

    /// Ends the transaction: behind this, all of it survives. Part of an outer one, it ends with that.
    ///
    /// # Errors
    /// Why nothing of it was done, an inner one that is still open among that; or that the manager is poisoned,
    /// and the next open decides.
    #[inline]
    pub fn commit(mut self) -> Result<(), TxError> {
        let mut guard = self.work.borrow_mut();
        let work = &mut *guard;
        if work.depth != self.depth {
            return Err(TxError::NotInnermost);
        }
        if work.depth > 1 {
            work.depth -= 1;
            let doomed = work.doomed;
            drop(guard);
            self.committed = true;
            return if doomed { Err(TxError::Doomed) } else { Ok(()) };
        }
        if work.doomed {
            return Err(TxError::Doomed);
        }
        self.manager.log.check_poison()?;
        let logs = !work.is_read_only() || work.open.is_some();
        if logs || work.versions.written() > 1 {
            if !work.versions.is_empty() {
                Self::log_epochs(self.manager, work)?;
            }
            match self.manager.options.logging {
                Logging::Redo => self.manager.commit_redo(work)?,
                Logging::Undo => self.manager.commit_undo(work)?,
            }
            if !work.versions.is_empty() {
                work.versions.committed_by_log();
            }
        } else if !work.versions.is_empty() {
            work.versions.commit()?;
        }
        drop(guard);
        self.committed = true;
        work::end(&self.work);
        Ok(())
    }

    /// The log is to hold how far the versioned objects are.
    #[cold]
    fn log_epochs(manager: &Manager, work: &mut Work) -> Result<(), TxError> {
        let epochs = work.versions.epochs()?;
        epochs
            .into_iter()
            .try_for_each(|(at, epoch)| Self::store_in(manager, work, at, &epoch.to_ne_bytes(), true))
    }

    /// Gives it up: nothing of it remains.
    ///
    /// # Errors
    /// The old state could not be restored now: the manager is poisoned, and the next open does it.
    pub fn abort(mut self) -> Result<(), TxError> {
        self.committed = true;
        self.take_back()
    }

    fn take_back(&mut self) -> Result<(), TxError> {
        let mut work = self.work.borrow_mut();
        if work.depth > 1 {
            work.depth -= 1;
            work.doomed = true;
            return Ok(());
        }
        let undone = self.undo(&mut work);
        drop(work);
        work::end(&self.work);
        undone
    }

    fn undo(&self, work: &mut Work) -> Result<(), TxError> {
        work.versions.take_back();
        if let Err(poisoned) = self.manager.log.check_poison() {
            // What it decided is the log's to say: what it reserved may be allocated there.
            self.manager.close_lane(work);
            return Err(poisoned);
        }
        let undone = self.manager.roll_back(work);
        let cancelled = work.fresh.objects().try_for_each(|at| self.manager.heap.cancel(at));
        undone.and(cancelled.map_err(TxError::from))
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.committed {
            // An error here is the poison, which the next transaction reports.
            let _ = self.take_back();
        }
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tx({:?})", self.work)
    }
}
