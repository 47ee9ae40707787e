//! What a walk over a structure finds, and who is told.

use std::fmt;

use crate::error::Error;
use crate::view::WORD;

/// So many faults are told; of a structure that has more, no more is learnt from them.
const FAULTS_MAX: usize = 32;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Offset of the part that it was seen in.
    pub at: u64,
    /// What it is.
    pub what: &'static str,
}

/// What a walk over all of a structure found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Entries, elements or bytes that were met.
    pub items: u64,
    /// Allocations that belong to the structure: offset, and bytes that it uses of each.
    pub reached: Vec<(u64, u64)>,
    /// What is wrong, the first 32 of it.
    pub faults: Vec<Fault>,
    /// The damage hides parts: `items` and `reached` are not all.
    pub hidden: bool,
}

/// Where in bytes of the program's own pointers may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointers {
    /// In whole words.
    InWords,
    /// Anywhere: the bytes are packed.
    AtAnyByte,
}

impl Pointers {
    /// In a value of so many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        if (bytes as u64).is_multiple_of(WORD) { Self::InWords } else { Self::AtAnyByte }
    }
}

/// Who is told what a walk meets. A walk goes on behind a fault where it can.
pub trait Met {
    /// An allocation that belongs to the structure, which uses `bytes` of it.
    fn part(&mut self, at: u64, bytes: u64);

    /// Bytes of the program's own: keys, values, elements. Persistent pointers may lie in them.
    fn content(&mut self, at: u64, bytes: u64, pointers: Pointers);

    /// Entries, elements or bytes.
    fn items(&mut self, count: u64);

    /// Something is wrong.
    fn fault(&mut self, at: u64, what: &'static str);

    /// Parts of the structure, or all of it, cannot be found behind a fault.
    fn hide(&mut self);

    /// What the walk could not look at.
    fn note(&mut self, at: u64, what: &'static str);

    /// Notes a fault unless `holds`.
    fn hold(&mut self, holds: bool, at: u64, what: &'static str) {
        if !holds {
            self.fault(at, what);
        }
    }

    /// What was read, or a fault that hides what comes behind it.
    fn found<T>(&mut self, at: u64, read: Result<T, Error>) -> Option<T> {
        let (at, what) = match read {
            Ok(read) => return Some(read),
            Err(Error::Damaged { at, what }) => (at, what),
            Err(_) => (at, "it points to what cannot be read"),
        };
        self.fault(at, what);
        self.hide();
        None
    }
}

impl Findings {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

impl Met for Findings {
    fn part(&mut self, at: u64, bytes: u64) {
        self.reached.push((at, bytes));
    }

    fn content(&mut self, _at: u64, _bytes: u64, _pointers: Pointers) {}

    fn items(&mut self, count: u64) {
        self.items += count;
    }

    fn fault(&mut self, at: u64, what: &'static str) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault { at, what });
        }
    }

    fn hide(&mut self) {
        self.hidden = true;
    }

    fn note(&mut self, _at: u64, _what: &'static str) {}
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:#x}: {}", self.at, self.what)
    }
}
