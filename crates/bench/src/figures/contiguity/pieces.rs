//! One more size of memory pieces that programs may ask for, allowed for a while.
//!
//! It holds for the whole machine, but only for memory that asks: see [`crate::figures::put_back`].

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::figures::put_back::PutBack;

/// The size is allowed until this is dropped.
pub(super) struct AllowedPieces {
    /// None: it was allowed before.
    _put_back: Option<PutBack>,
}

impl AllowedPieces {
    /// Lets memory that asks for it come in pieces of `bytes`.
    pub(super) fn of(bytes: usize) -> io::Result<Self> {
        if wattkeep_sys::huge::sizes_on_request().contains(&bytes) {
            return Ok(Self { _put_back: None });
        }
        let directory = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{}kB", bytes >> 10);
        let path = PathBuf::from(directory).join("enabled");
        let text = fs::read_to_string(&path)?;
        let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
        let word = word.ok_or_else(|| io::Error::other(format!("{} says '{text}'", path.display())))?;
        let put_back = PutBack::by(&format!("echo {word} > {}", path.display()))?;
        fs::write(&path, "madvise")?;
        Ok(Self { _put_back: Some(put_back) })
    }
}
