//! The door to persistent bytes: every load, store, flush and fence of what stands on a region.
//!
//! Offsets are bytes from the beginning of the space. A range that leaves it is refused, so a damaged
//! offset is an error and never undefined behaviour.
//!
//! # Safety
//!
//! 1. The backing keeps its bytes mapped at one address as long as the space lives (see
//!    [`crate::backing`]); `len` never exceeds what it has; every access is checked against `len`.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};

use bytemuck::Pod;
use wattkeep_announce::announcer::Announcer;

use crate::backing::Backing;
use crate::counters::{Counted, Counters};
use crate::domain::Domain;
use crate::refused::Refused;
use crate::window::Window;
use crate::witness::Witness;
use crate::{LINE, PAGE, WORD, lines, words};

/// A range of bytes that survive.
pub struct Space {
    pub(crate) start: *mut u8,
    len: AtomicUsize,
    domain: Domain,
    pub(crate) announces: bool,
    /// Something watches or counts: looked at once a store.
    pub(crate) watched: bool,
    /// A store that was announced needs nothing else to be durable, and nobody watches.
    plain: bool,
    counts: bool,
    counters: Counters,
    witness: Option<Arc<dyn Witness>>,
    backing: Arc<dyn Backing>,
    announcer: Option<Announcer>,
    claimed: AtomicBool,
}

// SAFETY: 1: the bytes are touched by atomic copies only.
unsafe impl Send for Space {}
// SAFETY: 1: as above.
unsafe impl Sync for Space {}

/// The right to be the only one who decides what lies in a space.
#[derive(Debug)]
pub struct Claim(Arc<Space>);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.backing.release();
        self.0.claimed.store(false, Ordering::Release);
    }
}

impl Space {
    /// The bytes of `backing` in `domain`.
    pub fn new(backing: Arc<dyn Backing>, domain: Domain) -> Self {
        Self {
            start: backing.start().as_ptr(),
            len: backing.len().into(),
            domain,
            announces: backing.announces(),
            watched: false,
            plain: domain == Domain::Battery,
            counts: false,
            counters: Counters::default(),
            witness: None,
            announcer: backing.announcer(),
            backing,
            claimed: AtomicBool::new(false),
        }
    }

    /// Claims the space, and the file that it may be, until the answer is dropped. `None`: somebody else has it.
    pub fn claim(space: &Arc<Self>) -> Option<Claim> {
        if space.claimed.swap(true, Ordering::Acquire) {
            return None;
        }
        let ours = space.backing.claim();
        if !ours {
            space.claimed.store(false, Ordering::Release);
        }
        ours.then(|| Claim(Arc::clone(space)))
    }

    /// Counts lines, fences and bytes from now on.
    pub fn counting(mut self) -> Self {
        (self.counts, self.watched, self.plain) = (true, true, false);
        self
    }

    /// Shows every store, flush, fence and load to `witness`.
    pub fn watched_by(mut self, witness: Arc<dyn Witness>) -> Self {
        (self.witness, self.watched, self.plain) = (Some(witness), true, false);
        self
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// There are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What makes a store durable here.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// What it was asked for since [`Self::counting`].
    pub fn counted(&self) -> Counted {
        self.counters.now()
    }

    /// Makes the space `bytes` long. The new bytes are zero.
    ///
    /// # Errors
    /// The backing has no room.
    pub fn grow(&self, bytes: usize) -> Result<(), Refused> {
        self.backing.grow(bytes)?;
        self.len.fetch_max(self.backing.len().min(bytes.max(self.len())), Ordering::AcqRel);
        Ok(())
    }

    /// The least number of bytes, from `at_least` on, that [`Self::populate`] brings in as neighbouring
    /// frames of memory, where they begin at a multiple of it. None: single pages only.
    pub fn piece(&self, at_least: usize) -> Option<usize> {
        self.backing.piece(at_least)
    }

    /// Brings `len` bytes at `at` into memory together, as neighbouring frames if they can be had. Only
    /// for bytes that nobody stored to yet: they may be made zero. Whole pages of the range count.
    /// `false`: the backing does not, and each page comes with its first access.
    ///
    /// # Errors
    /// They leave the space, or there is no memory or no room on the disk.
    pub fn populate(&self, at: usize, len: usize) -> Result<bool, Refused> {
        self.check(at, len)?;
        let (first, last) = (at.next_multiple_of(PAGE), (at + len) / PAGE * PAGE);
        if first >= last { Ok(false) } else { self.backing.populate(first, last - first) }
    }

    /// `len` bytes at `at`, which nobody stored to yet, will be used soon: they may come into memory in
    /// larger pieces. Only a hint; a range that leaves the space is none.
    pub fn expect(&self, at: usize, len: usize) {
        let (first, last) = (at.next_multiple_of(PAGE), at.saturating_add(len) / PAGE * PAGE);
        if first < last && self.check(at, len).is_ok() {
            self.backing.expect(first, last - first);
        }
    }

    /// Address of offset `at`, for looking it up in the page table. Not to be dereferenced.
    pub(crate) fn address(&self, at: usize) -> usize {
        self.start as usize + at
    }

    /// Whether `len` bytes at `at` lie in the space.
    ///
    /// # Errors
    /// They do not.
    #[inline]
    pub fn check(&self, at: usize, len: usize) -> Result<(), Refused> {
        let space = self.len();
        if at <= space && len <= space - at { Ok(()) } else { Err(Refused::Outside { at, len, space }) }
    }

    #[inline]
    fn check_word(&self, at: usize) -> Result<(), Refused> {
        if !at.is_multiple_of(WORD) {
            return Err(Refused::Unaligned { at });
        }
        self.check(at, WORD)
    }

    /// Reads the value at `at`: whole words of it are never torn.
    ///
    /// # Errors
    /// It leaves the space.
    #[inline(always)]
    pub fn read<T: Pod>(&self, at: usize) -> Result<T, Refused> {
        let mut value = T::zeroed();
        self.read_bytes(at, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Reads the bytes at `at`.
    ///
    /// # Errors
    /// They leave the space.
    #[inline(always)]
    pub fn read_bytes(&self, at: usize, into: &mut [u8]) -> Result<(), Refused> {
        self.check(at, into.len())?;
        if self.watched {
            self.show_load(at, into.len());
        }
        // SAFETY: 1: checked above.
        unsafe { words::copy_out(self.start.add(at), into) };
        Ok(())
    }

    /// Whether the bytes at `at` are `bytes`.
    ///
    /// # Errors
    /// They leave the space.
    #[inline]
    pub fn holds(&self, at: usize, bytes: &[u8]) -> Result<bool, Refused> {
        self.check(at, bytes.len())?;
        if self.watched {
            self.show_load(at, bytes.len());
        }
        // SAFETY: 1: checked above.
        Ok(unsafe { words::same(self.start.add(at), bytes) })
    }

    /// Reads the word at `at`; what its writer stored before it is visible afterwards.
    ///
    /// # Errors
    /// It leaves the space, or is no word's place.
    #[inline]
    pub fn load(&self, at: usize) -> Result<u64, Refused> {
        self.check_word(at)?;
        if self.watched {
            self.show_load(at, WORD);
        }
        // SAFETY: 1: checked above, a word.
        Ok(unsafe { words::load(self.start.add(at)) })
    }

    /// Stores the word at `at`, after everything that this thread stored before.
    ///
    /// # Errors
    /// It leaves the space, is no word's place, or cannot be announced.
    #[inline]
    pub fn store(&self, at: usize, word: u64) -> Result<(), Refused> {
        self.window(at, WORD)?.store(at, word)
    }

    /// Stores the word at `at`, if the store is all that it takes to make it durable, and can be made at once:
    /// then it is. `false`: nothing was done. For whoever stores a word often: [`Self::store`], [`Self::flush`]
    /// and [`Self::fence`] do the same in every space.
    #[inline(always)]
    pub fn store_at_once(&self, at: usize, word: u64) -> bool {
        let inside = self.len().checked_sub(WORD).is_some_and(|last| at <= last);
        if !self.plain || !inside || !at.is_multiple_of(WORD) {
            return false;
        }
        let hazard = self.announcer.as_ref().and_then(|announcer| announcer.announce(at, WORD));
        let does = !self.announces || hazard.is_some();
        if does {
            // SAFETY: 1: checked above, a word.
            unsafe { words::store(self.start.add(at), word) };
            compiler_fence(Ordering::SeqCst);
        }
        does
    }

    /// Stores the value at `at`.
    ///
    /// # Errors
    /// It leaves the space, or cannot be announced.
    #[inline]
    pub fn write<T: Pod>(&self, at: usize, value: &T) -> Result<(), Refused> {
        self.write_bytes(at, bytemuck::bytes_of(value))
    }

    /// Stores the bytes at `at`.
    ///
    /// # Errors
    /// They leave the space, or cannot be announced.
    #[inline(always)]
    pub fn write_bytes(&self, at: usize, bytes: &[u8]) -> Result<(), Refused> {
        self.window(at, bytes.len())?.write_bytes(at, bytes)
    }

    /// Announces stores to `len` bytes at `at`, for as long as the window lives: cheaper than announcing
    /// each. Hold few pages, and not for long: a cut waits for it.
    ///
    /// # Errors
    /// They leave the space, or cannot be announced.
    #[inline]
    pub fn window(&self, at: usize, len: usize) -> Result<Window<'_>, Refused> {
        self.check(at, len)?;
        let hazard = self.announcer.as_ref().and_then(|announcer| announcer.announce(at, len));
        if self.announces && hazard.is_none() {
            self.begin_write(at, len)?;
        }
        Ok(Window { space: self, at, len, hazard })
    }

    #[inline(never)]
    fn begin_write(&self, at: usize, len: usize) -> Result<(), Refused> {
        if len > 0 { self.backing.begin_write(at, len) } else { Ok(()) }
    }

    #[inline(never)]
    pub(crate) fn end_write(&self, at: usize, len: usize) {
        if len > 0 {
            self.backing.end_write(at, len);
        }
    }

    /// Says that `len` bytes at `at` will soon be stored to: their lines come into the cache meanwhile. A hint;
    /// bytes outside of the space are left out.
    #[inline]
    pub fn prefetch_to_write(&self, at: usize, len: usize) {
        if self.check(at, len).is_ok() {
            (at / LINE * LINE..at + len).step_by(LINE).for_each(|line| {
                lines::prefetch_to_write(self.start.wrapping_add(line));
            });
        }
    }

    /// The same for bytes that will soon be read.
    #[inline]
    pub fn prefetch(&self, at: usize, len: usize) {
        if self.check(at, len).is_ok() {
            (at / LINE * LINE..at + len).step_by(LINE).for_each(|line| {
                lines::prefetch(self.start.wrapping_add(line));
            });
        }
    }

    /// Begins to write back the lines of `len` bytes at `at`: they are durable behind the next fence.
    ///
    /// # Errors
    /// They leave the space, or the device refuses.
    #[inline]
    pub fn flush(&self, at: usize, len: usize) -> Result<(), Refused> {
        if self.domain == Domain::Battery && !self.watched {
            return Ok(());
        }
        self.flush_lines(at, len)
    }

    fn flush_lines(&self, at: usize, len: usize) -> Result<(), Refused> {
        self.check(at, len)?;
        if len == 0 {
            return Ok(());
        }
        let lines = (at / LINE * LINE..at + len).step_by(LINE);
        if self.counts {
            self.counters.flushed(lines.clone().count());
        }
        if let Some(witness) = &self.witness {
            lines.clone().for_each(|line| witness.flushed(line));
        }
        match self.domain {
            Domain::Battery | Domain::Eadr => {}
            // SAFETY: 1: lines of the range that was checked.
            Domain::Adr(how, _) => lines.for_each(|line| unsafe { lines::flush(how, self.start.add(line)) }),
            Domain::File => self.backing.sync(at, len)?,
        }
        Ok(())
    }

    /// What was stored and flushed before it is durable before anything stored behind it.
    #[inline]
    pub fn fence(&self) {
        if self.watched {
            self.show_fence();
        }
        match self.domain {
            Domain::Battery | Domain::File => compiler_fence(Ordering::SeqCst),
            Domain::Eadr => lines::fence(crate::Fence::Sfence),
            Domain::Adr(_, how) => lines::fence(how),
        }
    }

    #[cold]
    fn show_fence(&self) {
        if self.counts {
            self.counters.fenced();
        }
        if let Some(witness) = &self.witness {
            witness.fenced();
        }
    }

    /// [`Self::flush`] and [`Self::fence`].
    ///
    /// # Errors
    /// As [`Self::flush`].
    #[inline]
    pub fn persist(&self, at: usize, len: usize) -> Result<(), Refused> {
        self.flush(at, len)?;
        self.fence();
        Ok(())
    }

    #[cold]
    fn show_load(&self, at: usize, len: usize) {
        if let Some(witness) = &self.witness {
            witness.loaded(at, len);
        }
    }

    #[cold]
    pub(crate) fn show_store(&self, at: usize, bytes: &[u8]) {
        if self.counts {
            self.counters.stored(bytes.len());
        }
        if let Some(witness) = &self.witness {
            witness.stored(at, bytes);
        }
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({:#x} bytes, {})", self.len(), self.domain.kind())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Anonymous, DomainKind, MappedFile};

    fn spaces() -> Vec<(Space, tempfile::TempDir)> {
        DomainKind::ALL
            .into_iter()
            .map(|kind| {
                let directory = tempfile::tempdir().expect("a directory");
                let backing: Arc<dyn Backing> = match kind {
                    DomainKind::File => Arc::new(
                        MappedFile::open(&directory.path().join("space"), 8192).expect("a mapped file"),
                    ),
                    _ => Arc::new(Anonymous::new(8192)),
                };
                (Space::new(backing, kind.domain()).counting(), directory)
            })
            .collect()
    }

    #[test]
    fn what_is_stored_is_read_in_every_domain_at_every_alignment() {
        for (space, _directory) in spaces() {
            for at in 0..24 {
                for len in 0..40 {
                    let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
                    space.write_bytes(at, &bytes).expect("inside");
                    space.persist(at, len).expect("durable");
                    let mut read = vec![0; len];
                    space.read_bytes(at, &mut read).expect("inside");
                    assert_eq!(read, bytes, "{space:?}");
                    assert_eq!(space.holds(at, &bytes), Ok(true), "{at} {len}");
                    for byte in 0..len {
                        read[byte] ^= 0x10;
                        assert_eq!(space.holds(at, &read), Ok(false), "{at} {len} {byte}");
                        read[byte] ^= 0x10;
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_outside_is_touched() {
        let space = Space::new(Arc::new(Anonymous::new(4096)), Domain::Battery);
        for (at, len) in [(4096, 1), (4095, 2), (usize::MAX, 1), (1, usize::MAX), (usize::MAX, usize::MAX)] {
            assert!(matches!(space.window(at, len), Err(Refused::Outside { .. })), "{at} {len}");
        }
        assert!(space.window(4096, 0).is_ok());
        assert!(matches!(space.load(4), Err(Refused::Unaligned { at: 4 })));
        let window = space.window(64, 64).expect("inside");
        assert!(window.store(56, 1).is_err());
        assert!(window.store(128, 1).is_err());
        assert!(window.write_bytes(120, &[0; 9]).is_err());
        assert!(window.store(120, 1).is_ok());
    }

    #[test]
    fn a_flush_counts_each_line_it_touches_once() {
        let space = Space::new(Arc::new(Anonymous::new(4096)), Domain::Battery).counting();
        space.flush(60, 8).expect("inside");
        space.flush(64, 64).expect("inside");
        space.flush(0, 0).expect("inside");
        space.fence();
        assert_eq!(space.counted(), Counted { flushed_lines: 3, fences: 1, stored_bytes: 0 });
    }

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Witness for Notes {
        fn stored(&self, at: usize, bytes: &[u8]) {
            self.0.lock().expect("one thread").push(format!("store {at}+{}", bytes.len()));
        }

        fn flushed(&self, line: usize) {
            self.0.lock().expect("one thread").push(format!("flush {line}"));
        }

        fn fenced(&self) {
            self.0.lock().expect("one thread").push("fence".into());
        }

        fn loaded(&self, at: usize, len: usize) {
            self.0.lock().expect("one thread").push(format!("load {at}+{len}"));
        }
    }

    #[test]
    fn a_witness_sees_every_step_in_order() {
        let notes = Arc::new(Notes::default());
        let space = Space::new(Arc::new(Anonymous::new(4096)), Domain::Battery).watched_by(notes.clone());
        space.store(8, 1).expect("inside");
        space.write_bytes(100, &[1, 2, 3]).expect("inside");
        space.persist(60, 50).expect("inside");
        space.load(8).expect("inside");
        space.read::<[u8; 3]>(100).expect("inside");
        assert_eq!(
            *notes.0.lock().expect("one thread"),
            ["store 8+8", "store 100+3", "flush 0", "flush 64", "fence", "load 8+8", "load 100+3"]
        );
    }
}
