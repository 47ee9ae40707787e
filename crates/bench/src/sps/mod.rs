//! SPS: swaps of random pairs in an array of strings, by every scheme of fault tolerance.
//!
//! The benchmark of Liu, Qing Yi, Zhao, "Using Memory-Style Storage to Support Fault Tolerance in Data
//! Centers": 100,000 strings of 256 bytes, 100 K and 1 M swaps. A swap is one transaction: both strings
//! change, or none.
//!
//! | letter | scheme | module |
//! |---|---|---|
//! | N | no fault tolerance | [`plain`] |
//! | L | a redo log; DL: that is also written to a file on the disk | [`logging`] |
//! | I | interleaved persistent updates, three versions | [`interleaved`] |
//! | T | the same, and persistence in a thread of its own | [`interleaved`] |
//!
//! What makes a store durable is the [`Domain`]'s matter: C is `clflush`, M `mfence`, S `sfence`.
//!
//! Invariant: every scheme makes the same swaps, and [`Swaps::verify`] finds each string where they put it.
//!
//! Does not measure.

pub mod interleaved;
pub mod logging;
pub mod plain;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use wattkeep_persist::{Anonymous, Backing, Domain, Fence, LineFlush, MappedFile, Refused, Space, Witness};
use wattkeep_tx::versions::{Pace, VersionsError};

use crate::workload::pattern;
use crate::workload::random::Random;

/// Bytes of a string.
pub const STRING_BYTES: usize = 256;

/// One string.
pub type Text = [u8; STRING_BYTES];

/// Strings that are swapped.
pub trait Strings {
    /// Reads one.
    ///
    /// # Errors
    /// The space refuses.
    fn read(&self, string: usize, into: &mut Text) -> Result<(), SpsError>;

    /// Swaps two, which differ.
    ///
    /// # Errors
    /// The space refuses, or the disk.
    fn swap(&mut self, one: usize, other: usize) -> Result<(), SpsError>;

    /// Makes all swaps so far as durable as the scheme can.
    ///
    /// # Errors
    /// The space refuses, or the disk.
    fn settle(&mut self) -> Result<(), SpsError>;

    /// Lets the persistence thread's work go on, where it is done by hand: up to so many versions.
    ///
    /// # Errors
    /// The space refuses.
    fn persist_some(&mut self, versions_max: usize) -> Result<(), SpsError> {
        let _ = versions_max;
        Ok(())
    }
}

/// Why a swap was not made.
#[derive(Debug)]
pub enum SpsError {
    /// The space refused.
    Space(Refused),
    /// The versions did.
    Versions(VersionsError),
    /// The disk did.
    Disk(std::io::Error),
    /// A string is not where the swaps put it.
    Wrong {
        /// Which.
        string: usize,
    },
}

impl fmt::Display for SpsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Space(refused) => refused.fmt(f),
            Self::Versions(error) => error.fmt(f),
            Self::Disk(error) => write!(f, "writing the log to the disk: {error}"),
            Self::Wrong { string } => write!(f, "string {string} is not where the swaps put it"),
        }
    }
}

impl std::error::Error for SpsError {}

impl From<Refused> for SpsError {
    fn from(refused: Refused) -> Self {
        Self::Space(refused)
    }
}

impl From<VersionsError> for SpsError {
    fn from(error: VersionsError) -> Self {
        Self::Versions(error)
    }
}

/// Who keeps the strings whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mechanism {
    /// Nobody.
    None,
    /// A redo log in the space.
    Log,
    /// The same, written to a file and synced whenever it is full.
    DiskLog,
    /// Versions, persistent at each commit.
    Interleaved,
    /// Versions, persistent by a thread of their own.
    Threaded(Pace),
    /// The same, the thread's work done by [`Strings::persist_some`]: for simulations.
    ThreadedByHand(Pace),
}

/// A mechanism in a domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// As the paper names it.
    pub name: &'static str,
    /// Who keeps the strings whole.
    pub mechanism: Mechanism,
    /// What makes a store durable.
    pub domain: Domain,
}

const CLFLUSH_MFENCE: Domain = Domain::Adr(LineFlush::Clflush, Fence::Mfence);
const CLFLUSH_SFENCE: Domain = Domain::Adr(LineFlush::Clflush, Fence::Sfence);

/// The paper's threshold.
pub const THRESHOLD: f64 = 0.6;

/// Threads in the paper's manner.
pub fn threaded(threshold: f64) -> Mechanism {
    Mechanism::Threaded(Pace { threshold, ..Pace::default() })
}

/// The paper's schemes, the one without fault tolerance first, and two without flushes: their domain saves
/// the cache, and only order is left to keep.
pub fn paper_schemes() -> [Scheme; 11] {
    let scheme = |name, mechanism, domain| Scheme { name, mechanism, domain };
    [
        scheme("none", Mechanism::None, Domain::Battery),
        scheme("DL", Mechanism::DiskLog, Domain::Battery),
        scheme("L", Mechanism::Log, Domain::Battery),
        scheme("LCM", Mechanism::Log, CLFLUSH_MFENCE),
        scheme("LCS", Mechanism::Log, CLFLUSH_SFENCE),
        scheme("ICM", Mechanism::Interleaved, CLFLUSH_MFENCE),
        scheme("ICS", Mechanism::Interleaved, CLFLUSH_SFENCE),
        scheme("TCM", threaded(THRESHOLD), CLFLUSH_MFENCE),
        scheme("TCS", threaded(THRESHOLD), CLFLUSH_SFENCE),
        scheme("IS", Mechanism::Interleaved, Domain::Eadr),
        scheme("TS", threaded(THRESHOLD), Domain::Eadr),
    ]
}

impl Scheme {
    /// Makes `strings` strings. `directory` is for the schemes that need a disk.
    ///
    /// # Errors
    /// The space refuses, or the disk.
    pub fn make(&self, strings: usize, directory: &Path) -> Result<Box<dyn Strings>, SpsError> {
        self.make_watched(strings, directory, None)
    }

    /// The same; `witness` sees every access to the space, the loading too.
    ///
    /// # Errors
    /// The space refuses, or the disk.
    pub fn make_watched(
        &self,
        strings: usize,
        directory: &Path,
        witness: Option<Arc<dyn Witness>>,
    ) -> Result<Box<dyn Strings>, SpsError> {
        let bytes = match self.mechanism {
            Mechanism::None => strings * STRING_BYTES,
            Mechanism::Log | Mechanism::DiskLog => logging::bytes(strings),
            _ => interleaved::bytes(strings)?,
        };
        let backing: Arc<dyn Backing> = match self.domain {
            Domain::File => {
                let path = directory.join(format!("sps-{}", self.name));
                Arc::new(MappedFile::open(&path, bytes).map_err(SpsError::Disk)?)
            }
            _ => Arc::new(Anonymous::new(bytes)),
        };
        let space = Space::new(backing, self.domain);
        let space = Arc::new(match witness {
            Some(witness) => space.watched_by(witness),
            None => space,
        });
        let path = directory.join(format!("sps-{}.log", self.name));
        Ok(match self.mechanism {
            Mechanism::None => Box::new(plain::Plain::make(space, strings)?),
            Mechanism::Log => Box::new(logging::Logging::make(space, strings, None)?),
            Mechanism::DiskLog => Box::new(logging::Logging::make(space, strings, Some(&path))?),
            _ => Box::new(interleaved::Interleaved::make(space, strings, self.mechanism)?),
        })
    }
}

/// What string number `string` was before the first swap.
pub fn original(string: usize) -> Text {
    let mut text = [0; STRING_BYTES];
    pattern::fill(pattern::mix(1, string as u64), &mut text);
    text
}

/// A seeded stream of swaps, which knows where every string went.
#[derive(Clone, Debug)]
pub struct Swaps {
    random: Random,
    /// By place: which string lies there.
    lies_at: Vec<u32>,
}

impl Swaps {
    /// The stream of `seed` over `strings` strings, at least two.
    pub fn new(strings: usize, seed: u64) -> Self {
        assert!(strings >= 2, "a swap needs two strings");
        Self { random: Random::new(seed), lies_at: (0..strings as u32).collect() }
    }

    fn next(&mut self) -> (usize, usize) {
        let strings = self.lies_at.len() as u64;
        let one = self.random.below(strings);
        // Any other one, each as likely.
        let other = (one + 1 + self.random.below(strings - 1)) % strings;
        self.lies_at.swap(one as usize, other as usize);
        (one as usize, other as usize)
    }

    /// Makes `count` swaps.
    ///
    /// # Errors
    /// The first refusal.
    pub fn run(&mut self, strings: &mut dyn Strings, count: u64) -> Result<(), SpsError> {
        for _ in 0..count {
            let (one, other) = self.next();
            strings.swap(one, other)?;
        }
        Ok(())
    }

    /// Looks for every string where the swaps put it.
    ///
    /// # Errors
    /// One is not there.
    pub fn verify(&self, strings: &dyn Strings) -> Result<(), SpsError> {
        let mut text = [0; STRING_BYTES];
        for (string, lies) in self.lies_at.iter().enumerate() {
            strings.read(string, &mut text)?;
            if text != original(*lies as usize) {
                return Err(SpsError::Wrong { string });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_puts_every_string_where_it_belongs() {
        let directory = tempfile::tempdir().expect("a directory");
        let by_hand = Mechanism::ThreadedByHand(Pace::default());
        let files = [Mechanism::Log, Mechanism::Interleaved, threaded(0.5), by_hand];
        let files = files.map(|mechanism| Scheme { name: "file", mechanism, domain: Domain::File });
        for scheme in paper_schemes().iter().chain(&files) {
            let mut strings = scheme.make(50, directory.path()).expect("made");
            let mut swaps = Swaps::new(50, 7);
            let count = if scheme.domain == Domain::File { 20 } else { 5_000 };
            swaps.run(&mut *strings, count).expect("swapped");
            swaps.verify(&*strings).expect("in place");
            strings.settle().expect("durable");
            swaps.verify(&*strings).expect("in place");
            swaps.next();
            assert!(matches!(swaps.verify(&*strings), Err(SpsError::Wrong { .. })), "a lost swap is seen");
        }
    }
}
