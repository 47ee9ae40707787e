//! Every bound of the store, with the reason for its value.
//!
//! Relations between the bounds are asserted at compile time. Holds no code.

use crate::types::PAGE_SIZE;

/// Superblock copies in a store: with four, one torn write and one worn-out block leave two.
pub const SUPERBLOCK_COPIES: u64 = 4;

/// Distance in bytes between superblock copies: larger than the erase unit of a small SSD's
/// translation page, so that one bad spot takes one copy.
pub const SUPERBLOCK_SPACING: u64 = 1 << 20;

/// Where segments start: right after the last copy's slot.
pub const SEGMENTS_START: u64 = SUPERBLOCK_COPIES * SUPERBLOCK_SPACING;

/// Regions in one store: the catalogue is written with every superblock update, so it stays small.
pub const REGIONS_MAX: usize = 64;

/// Bytes in a region's name.
pub const NAME_BYTES_MAX: usize = 128;

/// Remembered shrinks of one region (see `superblock`): five fit the record.
pub const CUTS_MAX: usize = 5;

/// Pages in a segment of a new store: 4 MiB, large enough for full sequential bandwidth, small
/// enough that cleaning one moves little.
pub const SEGMENT_PAGES: u32 = 1024;

/// The smallest segment accepted: tests use small ones to reach every corner quickly.
pub const SEGMENT_PAGES_MIN: u32 = 8;

/// The largest segment accepted: one staging buffer holds a whole segment.
pub const SEGMENT_PAGES_MAX: u32 = 1024;

/// Pages of the largest summary: 64 + 16 x 1020 bytes are exactly four pages.
pub const SUMMARY_PAGES_MAX: u32 = 4;

/// Batches being filled or written. Two keep the device busy (eight 1 MiB pieces), the others are
/// being filled or wait for an earlier one to be acknowledged.
pub const STAGING_BUFFERS: usize = 6;

/// Reads in flight for restore, or read and being filled.
pub const READ_BUFFERS: usize = 12;

/// Pages in one restore read: 1 MiB reaches full sequential bandwidth.
pub const READ_PAGES_MAX: u32 = 256;

/// Summary reads in flight while a store is scanned.
pub const SCAN_READS: usize = 64;

/// Reads of an index digest in flight or waiting for an earlier one.
pub const DIGEST_READS: usize = 4;

/// Entries in the submission queue of the device.
pub const QUEUE_DEPTH: u32 = 64;

/// Bytes handed to the kernel in one write: larger ones are submitted as several.
pub const PIECE_BYTES: usize = 1 << 20;

/// Free segments that only cleaning may use, on top of the save reserve: without them a full store
/// could not be cleaned.
pub const CLEANING_RESERVE_SEGMENTS: u32 = 2;

/// Free segments beyond every reserve in a store that holds nothing: open segments and slack.
pub const SLACK_SEGMENTS: u32 = 8;

/// Low bits of a sequence that count batches; the bits above count the openings of the store.
pub const SEQUENCE_BITS: u32 = 40;

/// Openings of one store for writing: what fits above [`SEQUENCE_BITS`] and below a token's two
/// kind bits.
pub const SESSIONS_MAX: u32 = (1 << 22) - 1;

const _: () = assert!(SUMMARY_PAGES_MAX as usize * PAGE_SIZE == 64 + 16 * 1020);
const _: () = assert!(SEGMENT_PAGES == SUMMARY_PAGES_MAX + 1020);
const _: () = assert!(SEGMENT_PAGES_MIN >= 2 * SUMMARY_PAGES_MAX);
const _: () = assert!(SEGMENT_PAGES <= SEGMENT_PAGES_MAX);
const _: () = assert!(STAGING_BUFFERS >= 4, "three heads, and one batch in flight");
const _: () = assert!(PIECE_BYTES.is_multiple_of(PAGE_SIZE));
