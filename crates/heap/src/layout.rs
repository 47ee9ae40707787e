//! Where things lie in the space of a heap, and the persistent structs outside the log.
//!
//! ```text
//!  page 0   superblock, its copy half a page behind
//!  page 1   lanes: how far each has published, a line each
//!  page 2   directory: where the log's extents lie
//!  page 3   root slots: 256, two lines each, 8 pages
//!  page 11  the area of the transaction logs
//!  then     pages of objects and of the log, in blocks of 64 KiB
//! ```
//!
//! Pure: does not know spaces.

use bytemuck::{Pod, Zeroable};
use twox_hash::XxHash3_64;

use crate::record::LANES_MAX;

/// Bytes of a page: the unit of runs.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of a block: what is cut into chunks of one class.
pub(crate) const BLOCK: u64 = 64 << 10;
/// Pages of a block.
pub(crate) const BLOCK_PAGES: u32 = (BLOCK / PAGE) as u32;
/// Chunks lie at multiples of it.
pub(crate) const GRANULE: u64 = 16;
/// Longest space that a record can name.
pub(crate) const SPACE_MAX: u64 = 1 << 40;

/// Version of this layout.
pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"wtkpheap";

pub(crate) const SUPERBLOCK_COPIES: [u64; 2] = [0, PAGE / 2];
pub(crate) const LANES_AT: u64 = PAGE;
pub(crate) const LANE_BYTES: u64 = 64;
pub(crate) const DIRECTORY_AT: u64 = 2 * PAGE;
pub(crate) const DIRECTORY_WORDS: u64 = PAGE / 8;
pub(crate) const ROOTS_AT: u64 = 3 * PAGE;
pub(crate) const ROOT_SLOTS: u64 = 256;
pub(crate) const ROOT_BYTES: u64 = 128;
/// Where the area of the transaction logs begins.
pub(crate) const LOG_AREA_AT: u64 = ROOTS_AT + ROOT_SLOTS * ROOT_BYTES;

const _: () = assert!(LANES_MAX as u64 * LANE_BYTES <= PAGE);
const _: () = assert!(LOG_AREA_AT.is_multiple_of(PAGE));
const _: () = assert!(size_of::<UntrustedSuperblock>() == 64);
const _: () = assert!(size_of::<UntrustedRoot>() as u64 == ROOT_BYTES);

/// Flag: a guard word lies behind each object.
pub(crate) const FLAG_GUARD: u32 = 1;

/// What says that a space is a heap. Written once, at create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct UntrustedSuperblock {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) flags: u32,
    /// Different for each heap.
    pub(crate) id: u64,
    /// Bytes of the space at create.
    pub(crate) created_bytes: u64,
    /// Bytes of the area of the transaction logs.
    pub(crate) log_area_bytes: u64,
    pub(crate) reserved: [u64; 2],
    /// Of all bytes before it, and never 0. Stored last of the line, so a cut leaves it 0.
    pub(crate) check: u64,
}

/// What reading a superblock came to.
pub(crate) enum Superblock {
    Valid(UntrustedSuperblock),
    Newer(u32),
    Blank,
    /// Its last word was never stored.
    Unfinished,
    Damaged,
}

impl UntrustedSuperblock {
    pub(crate) fn new(id: u64, flags: u32, created_bytes: u64, log_area_bytes: u64) -> Self {
        let mut block = Self {
            magic: MAGIC,
            version: VERSION,
            flags,
            id,
            created_bytes,
            log_area_bytes,
            reserved: [0; 2],
            check: 0,
        };
        block.check = block.checksum();
        block
    }

    fn checksum(&self) -> u64 {
        let bytes = bytemuck::bytes_of(self);
        XxHash3_64::oneshot(&bytes[..bytes.len() - 8]).max(1)
    }

    /// Somebody made a heap here, or began to, whatever became of it.
    pub(crate) fn is_marked(&self) -> bool {
        self.magic == MAGIC
    }

    /// Says whether it may be trusted. The version is looked at first: a later layout may lie differently.
    pub(crate) fn judge(self) -> Superblock {
        if self == Self::zeroed() {
            Superblock::Blank
        } else if !self.is_marked() {
            Superblock::Damaged
        } else if self.version > VERSION {
            Superblock::Newer(self.version)
        } else if self.check == 0 {
            Superblock::Unfinished
        } else if self.check != self.checksum() || self.flags & !FLAG_GUARD != 0 {
            Superblock::Damaged
        } else {
            Superblock::Valid(self)
        }
    }
}

/// Longest name of a root.
pub(crate) const ROOT_NAME_MAX: usize = 88;

/// A named root. The word is written by transactions; the rest is written once, under its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct UntrustedRoot {
    /// What the root points to.
    pub(crate) word: u64,
    /// Of all bytes behind it; 0: the slot is free.
    pub(crate) check: u64,
    pub(crate) size: u64,
    pub(crate) tag: u64,
    pub(crate) name_len: u64,
    pub(crate) name: [u8; ROOT_NAME_MAX],
}

impl UntrustedRoot {
    pub(crate) fn new(name: &str, size: u64, tag: u64) -> Self {
        let mut root = Self { size, tag, name_len: name.len() as u64, ..Self::zeroed() };
        root.name[..name.len()].copy_from_slice(name.as_bytes());
        root.check = root.checksum();
        root
    }

    fn checksum(&self) -> u64 {
        XxHash3_64::oneshot(&bytemuck::bytes_of(self)[16..]).max(1)
    }

    /// The name, if the slot holds what was written.
    pub(crate) fn trusted_name(&self) -> Option<&str> {
        let name = self.name.get(..usize::try_from(self.name_len).ok()?)?;
        if self.check == self.checksum() { std::str::from_utf8(name).ok() } else { None }
    }
}
