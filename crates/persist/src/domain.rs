//! Persistence domains: how far a store must travel to be safe.
//!
//! | domain | safe as soon as it is in | a flush | a fence |
//! |---|---|---|---|
//! | battery | the cache: a save reads through it | nothing | keeps the compiler's order |
//! | eADR | the cache | nothing | `sfence` |
//! | ADR | the memory controller | `clwb`, `clflushopt` or `clflush` a line | `sfence` or `mfence` |
//! | file | the file | `msync` of the pages | nothing |
//!
//! One code serves all: it flushes and fences where ADR needs it, and the domain leaves out the rest.

use std::fmt;
use std::str::FromStr;

use crate::lines;

/// How a line is written back (ADR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFlush {
    /// Written back, and kept in the cache.
    Clwb,
    /// Written back and thrown out, in any order.
    Clflushopt,
    /// Written back and thrown out, one after the other.
    Clflush,
}

/// What orders flushes (ADR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Stores and flushes only.
    Sfence,
    /// Loads, too.
    Mfence,
}

/// Where a store is safe, and what takes it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// DRAM that a battery saves, in the order of the program.
    Battery,
    /// Persistent memory behind a cache that loses power.
    Adr(LineFlush, Fence),
    /// Persistent memory, and a cache that is saved, too.
    Eadr,
    /// A mapped file: `msync`.
    File,
}

/// The kinds of domains, for tables and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainKind {
    /// [`Domain::Battery`].
    Battery,
    /// [`Domain::Adr`].
    Adr,
    /// [`Domain::Eadr`].
    Eadr,
    /// [`Domain::File`].
    File,
}

impl DomainKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Battery, Self::Eadr, Self::Adr, Self::File];

    /// The domain, with the best instructions that this processor has.
    pub fn domain(self) -> Domain {
        match self {
            Self::Battery => Domain::Battery,
            Self::Adr => Domain::adr(),
            Self::Eadr => Domain::Eadr,
            Self::File => Domain::File,
        }
    }
}

impl Domain {
    /// ADR with the best flush that this processor has.
    pub fn adr() -> Self {
        Self::Adr(lines::best_flush(), Fence::Sfence)
    }

    /// Its kind.
    pub fn kind(self) -> DomainKind {
        match self {
            Self::Battery => DomainKind::Battery,
            Self::Adr(..) => DomainKind::Adr,
            Self::Eadr => DomainKind::Eadr,
            Self::File => DomainKind::File,
        }
    }
}

impl fmt::Display for DomainKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Battery => "battery",
            Self::Adr => "adr",
            Self::Eadr => "eadr",
            Self::File => "file",
        })
    }
}

impl FromStr for DomainKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        known.ok_or_else(|| format!("unknown domain '{name}': choose one of battery, eadr, adr, file"))
    }
}
