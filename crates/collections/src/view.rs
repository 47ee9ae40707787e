//! Reading persistent bytes: as they lie there, or as a transaction sees them.
//!
//! Structures are walked by the same code for both. What lies there may be damaged, or change under the
//! reader: no offset, length or count is trusted, and no walk is without a bound.

use wattkeep_persist::{Pod, Ptr, Space};
use wattkeep_tx::Tx;

use crate::error::Error;

/// Bytes of a word, as offsets count them.
pub(crate) const WORD: u64 = 8;

/// Where bytes are read from.
pub trait View {
    /// Reads the bytes at `at`.
    fn bytes(&self, at: u64, into: &mut [u8]) -> Result<(), Error>;

    /// Whether the bytes at `at` are `bytes`.
    fn holds(&self, at: u64, bytes: &[u8]) -> Result<bool, Error>;

    /// Reads the word at `at`.
    fn word(&self, at: u64) -> Result<u64, Error>;

    /// Reads the value at `at`.
    #[inline(always)]
    fn value<T: Pod>(&self, at: u64) -> Result<T, Error> {
        let mut value = T::zeroed();
        self.bytes(at, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Bytes that there are: whatever claims to be longer is damaged.
    fn bound(&self) -> u64;

    /// `len` bytes at `at` are needed soon. Only a hint: any numbers may be told.
    fn soon(&self, at: u64, len: usize);

    /// Fails if what was read so far was changed meanwhile: asked before something costly is done with it.
    fn still(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl View for Tx<'_> {
    #[inline(always)]
    fn bytes(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.read_bytes(at, into)?)
    }

    #[inline]
    fn holds(&self, at: u64, bytes: &[u8]) -> Result<bool, Error> {
        Ok(self.holds(at, bytes)?)
    }

    #[inline(always)]
    fn word(&self, at: u64) -> Result<u64, Error> {
        Ok(self.read(Ptr::<u64>::at(at))?)
    }

    #[inline]
    fn bound(&self) -> u64 {
        self.heap().space().len() as u64
    }

    #[inline]
    fn soon(&self, at: u64, len: usize) {
        self.heap().space().prefetch_to_write(at as usize, len);
    }
}

impl View for Space {
    #[inline(always)]
    fn bytes(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.read_bytes(at as usize, into)?)
    }

    #[inline]
    fn holds(&self, at: u64, bytes: &[u8]) -> Result<bool, Error> {
        Ok(self.holds(at as usize, bytes)?)
    }

    #[inline(always)]
    fn word(&self, at: u64) -> Result<u64, Error> {
        Ok(self.load(at as usize)?)
    }

    #[inline]
    fn bound(&self) -> u64 {
        self.len() as u64
    }

    #[inline]
    fn soon(&self, at: u64, len: usize) {
        self.prefetch(at as usize, len);
    }
}

/// Rounds up to whole words: what keeps every part of a structure on a word.
pub(crate) const fn whole_words(bytes: usize) -> usize {
    bytes.next_multiple_of(WORD as usize)
}
