//! What can go wrong, one enum per operation. Each message names the cause and the next command.
//!
//! `place` in a message is the directory of the store. Holds no logic but choosing words.
#![expect(missing_docs, reason = "a variant's comment and message say what its fields are")]

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::limits::{CUTS_MAX, NAME_BYTES_MAX, REGIONS_MAX, SUPERBLOCK_COPIES};
use crate::recover::Recovery;
use crate::types::{PageId, RegionId};

/// Regions, and ranges of pages in each list, that a refusal names: one line. `wattkeep check` names more.
const REFUSED_REGIONS: usize = 3;
const REFUSED_RANGES: usize = 4;

/// Why a store could not be created on a disk.
#[derive(Debug)]
pub enum CreateError {
    /// The disk could not be made large enough.
    Grow { place: String, bytes: u64, source: io::Error },
    /// A write or a flush failed.
    Write { place: String, source: io::Error },
    /// The options ask for more than a store can address.
    TooLarge { budget_pages: u32 },
    /// The kernel gave no random bytes.
    Random(io::Error),
}

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A read failed.
    Read { place: String, source: io::Error },
    /// A write or a flush failed while the store was made ready.
    Write { place: String, source: io::Error },
    /// There is no superblock, only zeros: creation never finished.
    NeverCreated { place: String },
    /// The bytes belong to some other program.
    Foreign { place: String },
    /// No superblock copy is whole.
    SuperblockDamaged { place: String },
    /// A newer program wrote the store.
    Newer { place: String, version: u32 },
    /// The store uses features that this program does not know.
    UnknownFeatures { place: String, flags: u64 },
    /// The store may be read and not written by this program.
    ReadOnlyFeatures { place: String, flags: u64 },
    /// A superblock whose checksum holds and whose fields do not.
    Malformed { place: String, field: &'static str },
    /// The file is shorter than the superblock says.
    TooShort { place: String, bytes: u64, needed: u64 },
    /// The log holds batches that are newer than any superblock: the newest superblock is lost.
    SuperblockOutdated { place: String },
    /// The log does not add up to the committed image.
    Incomplete { place: String, recovery: Box<Recovery> },
    /// The store was opened more often than it can count.
    WornOut { place: String },
}

/// Why an operation on an open store failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A write or a flush failed earlier, or just now. Final: the data is still in memory.
    Poisoned { place: String, cause: Arc<str> },
    /// The store was opened for reading.
    ReadOnly { place: String },
    /// The file system cannot give the space that the store needs.
    NoSpace { place: String, needed: u64, cause: Arc<str> },
    /// More segments are needed than a store can address.
    TooLarge { place: String },
    /// A region of that name exists.
    RegionExists { name: String },
    /// No region has this id.
    NoSuchRegion { id: RegionId },
    /// A name is empty or too long.
    BadName { name: String },
    /// The catalogue is full.
    TooManyRegions,
    /// A region was shrunk to ever higher sizes, more often than its record remembers.
    TooManyShrinks { id: RegionId },
    /// Pages were dropped by `forget_latest` and not written again.
    PagesForgotten { pages: u64 },
}

/// Why a page could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The device failed.
    Device { page: PageId, slot: u32, cause: Arc<str> },
    /// The bytes are not those that were written.
    Damaged { place: String, page: PageId, slot: u32 },
    /// The store is poisoned.
    Store(StoreError),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grow { place, bytes, source } => write!(
                f,
                "cannot reserve {} MiB for the store in {place}: {source}; \
                 free some space ('df {place}') or choose another directory",
                bytes >> 20
            ),
            Self::Write { place, source } => {
                write!(f, "cannot write the new store in {place}: {source}; see 'dmesg'")
            }
            Self::TooLarge { budget_pages } => write!(
                f,
                "a dirty budget of {budget_pages} pages is more than a store can address; \
                 choose a smaller budget"
            ),
            Self::Random(source) => write!(f, "the kernel gives no random bytes: {source}"),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { place, source } => write!(
                f,
                "cannot read the store in {place}: {source}; see 'dmesg', copy the file, \
                 then run 'wattkeep check {place}'"
            ),
            Self::Write { place, source } => {
                write!(f, "cannot write the store in {place}: {source}; see 'dmesg'")
            }
            Self::NeverCreated { place } => write!(
                f,
                "the store in {place} was never finished: remove it, \
                 then run 'wattkeep create {place}'"
            ),
            Self::Foreign { place } => {
                write!(f, "the file in {place} is not a Wattkeep store; name another directory")
            }
            Self::SuperblockDamaged { place } => write!(
                f,
                "all {SUPERBLOCK_COPIES} superblock copies in {place} are damaged: copy the \
                 file, then run 'wattkeep check {place}'"
            ),
            Self::Newer { place, version } => write!(
                f,
                "the store in {place} has format {version}, newer than this program knows; \
                 nothing was changed; install a newer wattkeep"
            ),
            Self::UnknownFeatures { place, flags } => write!(
                f,
                "the store in {place} uses features that this program does not know \
                 ({flags:#x}); nothing was changed; install a newer wattkeep"
            ),
            Self::ReadOnlyFeatures { place, flags } => write!(
                f,
                "this program can read the store in {place} and not write it (features \
                 {flags:#x}); install a newer wattkeep, or read it with 'wattkeep dump {place}'"
            ),
            Self::Malformed { place, field } => write!(
                f,
                "the superblock in {place} has a valid checksum and an impossible value \
                 ({field}); nothing was changed; run 'wattkeep check {place}'"
            ),
            Self::TooShort { place, bytes, needed } => write!(
                f,
                "the store in {place} has {bytes} bytes and needs {needed}: it was cut off or \
                 copied in part; copy it again from its source"
            ),
            Self::SuperblockOutdated { place } => write!(
                f,
                "the log in {place} is newer than its superblock: the newest superblock is \
                 lost; nothing was changed; copy the file, then run 'wattkeep check {place}'"
            ),
            Self::Incomplete { place, recovery } => write!(
                f,
                "the store in {place} lacks part of its last commit: {}; nothing was changed; \
                 list it all with 'wattkeep check {place}', which also says how to give it up",
                recovery.loss(REFUSED_REGIONS, REFUSED_RANGES)
            ),
            Self::WornOut { place } => write!(
                f,
                "the store in {place} was opened more often than it can count; \
                 create a new one and copy the regions"
            ),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisoned { place, cause } => write!(
                f,
                "the store in {place} has failed ({cause}) and takes no more writes; the data \
                 is still in memory; see 'dmesg', then run 'wattkeep status {place}'"
            ),
            Self::ReadOnly { place } => {
                write!(f, "the store in {place} was opened for reading; open it for writing")
            }
            Self::NoSpace { place, needed, cause } => write!(
                f,
                "the store in {place} needs {} MiB more: {cause}; free some space \
                 ('df {place}')",
                needed >> 20
            ),
            Self::TooLarge { place } => write!(
                f,
                "the store in {place} would be larger than it can address; \
                 create a second store"
            ),
            Self::RegionExists { name } => {
                write!(f, "a region named '{name}' exists; choose another name, or see 'wattkeep info'")
            }
            Self::NoSuchRegion { id } => {
                write!(f, "the store has no region {}; see 'wattkeep info'", id.0)
            }
            Self::BadName { name } => {
                write!(f, "a region's name has 1 to {NAME_BYTES_MAX} bytes: '{name}' has not")
            }
            Self::TooManyRegions => {
                write!(f, "a store holds at most {REGIONS_MAX} regions; remove one with 'wattkeep rm'")
            }
            Self::TooManyShrinks { id } => write!(
                f,
                "region {} was shrunk {CUTS_MAX} times to ever larger sizes; close and open \
                 the store, or shrink it to a smaller size first",
                id.0
            ),
            Self::PagesForgotten { pages } => {
                write!(f, "{pages} pages were forgotten and not written again before a commit")
            }
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { page, slot, cause } => {
                write!(f, "cannot read {page} (slot {slot}): {cause}; see 'dmesg'")
            }
            Self::Damaged { place, page, slot } => {
                write!(f, "{page} (slot {slot}) is damaged in {place}; run 'wattkeep check {place}'")
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CreateError {}
impl std::error::Error for OpenError {}
impl std::error::Error for StoreError {}
impl std::error::Error for ReadError {}
