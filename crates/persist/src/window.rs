//! Stores to a range that is announced: many of them for the price of one announcement.
//!
//! # Safety
//!
//! 1. A window lies in its space, which checked that; every store is checked against the window.
#![allow(unsafe_code)]

use wattkeep_announce::hazard::Hazard;

use crate::refused::Refused;
use crate::space::Space;
use crate::{WORD, words};

/// Announced stores to a range: it is pinned until this is dropped.
#[must_use = "the announcement ends when this is dropped"]
pub struct Window<'a> {
    pub(crate) space: &'a Space,
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Its drop ends the announcement, if it is this one's.
    pub(crate) hazard: Option<Hazard<'a>>,
}

impl Window<'_> {
    #[inline]
    fn check_word(&self, at: usize) -> Result<(), Refused> {
        if !at.is_multiple_of(WORD) {
            return Err(Refused::Unaligned { at });
        }
        self.check(at, WORD)
    }

    #[inline]
    fn check(&self, at: usize, len: usize) -> Result<(), Refused> {
        if self.covers(at, len) {
            return Ok(());
        }
        Err(Refused::Outside { at, len, space: self.at + self.len })
    }

    /// Whether `len` bytes at `at` are announced.
    #[inline]
    pub fn covers(&self, at: usize, len: usize) -> bool {
        at >= self.at && at - self.at <= self.len && len <= self.len - (at - self.at)
    }

    /// Stores the word at offset `at` of the space, after everything that this thread stored before.
    ///
    /// # Errors
    /// It leaves the window, or is no word's place.
    #[inline]
    pub fn store(&self, at: usize, word: u64) -> Result<(), Refused> {
        self.check_word(at)?;
        // SAFETY: 1: inside the window, which was checked; a word.
        unsafe { words::store(self.space.start.add(at), word) };
        if self.space.watched {
            self.space.show_store(at, &word.to_ne_bytes());
        }
        Ok(())
    }

    /// Exchanges the word at offset `at` of the space if it is `now`; `Ok(Err(word))` says what it is.
    ///
    /// # Errors
    /// It leaves the window, or is no word's place.
    #[inline]
    pub fn exchange(&self, at: usize, now: u64, next: u64) -> Result<Result<(), u64>, Refused> {
        self.check_word(at)?;
        // SAFETY: 1: inside the window, which was checked; a word.
        let exchanged = unsafe { words::exchange(self.space.start.add(at), now, next) };
        if self.space.watched && exchanged.is_ok() {
            self.space.show_store(at, &next.to_ne_bytes());
        }
        Ok(exchanged)
    }

    /// Stores the bytes at offset `at` of the space.
    ///
    /// # Errors
    /// They leave the window.
    #[inline(always)]
    pub fn write_bytes(&self, at: usize, bytes: &[u8]) -> Result<(), Refused> {
        self.check(at, bytes.len())?;
        // SAFETY: 1: inside the window, which was checked.
        unsafe { words::copy_in(self.space.start.add(at), bytes) };
        if self.space.watched {
            self.space.show_store(at, bytes);
        }
        Ok(())
    }
}

impl Drop for Window<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.space.announces && self.hazard.is_none() {
            self.space.end_write(self.at, self.len);
        }
    }
}
