//! A batch being filled, and the buffers that batches are filled in.
//!
//! A batch has its place in the log from the start. A [`StagingBuffer`] can also be filled first, on
//! any thread, and be placed when it is full.
//!
//! Invariants: at most `STAGING_BUFFERS` of them exist; the pages of a batch lie behind the room
//! for its largest summary, so that summary and data are one contiguous write. Does not know which
//! page is dirty, and does no I/O.

use wattkeep_sys::buffer::AlignedBuffer;

use crate::hash::Hasher;
use crate::layout::{entries_max, summary_pages};
use crate::limits::STAGING_BUFFERS;
use crate::summary::{self, Entry, SummaryHead, VOID_REGION};
use crate::types::{Checksum, PAGE_SIZE, PageId};

/// What a batch is for: decides which free segments it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Ordinary writing of dirty pages.
    Writeback,
    /// Moving live pages together.
    Cleaning,
    /// The same while nothing is dirty and nobody may write: what a save has used is won back.
    Refill,
    /// The power is going: everything that is free may be used.
    Save,
    /// Writing what is dirty at a consistent point.
    Checkpoint,
}

/// What [`crate::Store::begin`] found.
#[derive(Debug)]
#[must_use = "a batch that is dropped blocks its head: submit it, also when empty"]
pub enum Begin {
    /// A batch to fill and submit.
    Batch(Batch),
    /// No segment is free for this purpose: clean, or make a checkpoint.
    NoSpace,
    /// No staging buffer is free, or the head's batch was not submitted yet: submit and poll.
    Busy,
}

/// Where batches go: each head has its own open segment and writes batches of growing epochs, so
/// that the lost tail is at the end of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Hot,
    /// Cleaning, copies of committed versions.
    ColdCommitted,
    /// Cleaning, versions written since the last commit.
    ColdCurrent,
}

impl Head {
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn number(self) -> usize {
        match self {
            Self::Hot => 0,
            Self::ColdCommitted => 1,
            Self::ColdCurrent => 2,
        }
    }
}

/// A page in a batch, with the caller's mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) entry: Entry,
    pub(crate) cookie: u32,
}

/// What [`crate::Store::place`] found for staged pages.
#[derive(Debug)]
#[must_use = "a batch that is dropped blocks its head: submit it"]
pub enum Placed {
    /// The pages with their place in the log: submit it.
    Batch(Batch),
    /// No segment is free for this purpose: here are the pages again.
    NoSpace(StagingBuffer),
}

/// Pages on their way into the log: copied here, then written in one go.
#[derive(Debug)]
#[must_use = "a batch that is dropped blocks its head: submit it, also when empty"]
pub struct Batch {
    pub(crate) head: Head,
    /// The slot of the summary's first page.
    pub(crate) position: u32,
    pub(crate) staging: StagingBuffer,
}

impl Batch {
    pub(crate) fn new(head: Head, position: u32, room: u32, mut staging: StagingBuffer) -> Self {
        if staging.is_empty() {
            staging.set_room(room);
        }
        assert!(staging.len() <= room as usize, "a batch fits the rest of its segment");
        Self { head, position, staging }
    }

    /// Pages that can still be pushed.
    pub fn room(&self) -> usize {
        self.staging.room()
    }

    /// Pages pushed.
    pub fn len(&self) -> usize {
        self.staging.len()
    }

    /// Whether no page was pushed.
    pub fn is_empty(&self) -> bool {
        self.staging.is_empty()
    }

    /// As [`StagingBuffer::next_page`].
    pub fn next_page(&mut self) -> &mut [u8; PAGE_SIZE] {
        self.staging.next_page()
    }

    /// As [`StagingBuffer::push`].
    pub fn push(&mut self, page: PageId, checksum: Checksum, cookie: u32) {
        self.staging.push(page, checksum, cookie);
    }

    /// Slots that the batch takes.
    pub(crate) fn pages(&self) -> u32 {
        let count = self.len() as u32;
        summary_pages(count) + count
    }

    /// Writes the summary, right before the data. Returns the bytes to write from the front.
    pub(crate) fn finish(&mut self, head: &SummaryHead, hasher: &Hasher) -> usize {
        let StagingBuffer { buffer, staged, summary_room, .. } = &mut self.staging;
        let count = staged.len();
        let summary = summary_pages(count as u32) as usize;
        if summary < *summary_room {
            // Fewer pages came than were announced: the data moves up to the shorter summary.
            let from = *summary_room * PAGE_SIZE;
            buffer.copy_within(from..from + count * PAGE_SIZE, summary * PAGE_SIZE);
        }
        let entries = staged.iter().map(|staged| staged.entry);
        let len = summary::encode(head, entries, hasher, buffer);
        len + count * PAGE_SIZE
    }
}

/// Memory for one batch, and the pages that are in it.
#[derive(Debug)]
pub struct StagingBuffer {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) staged: Vec<Staged>,
    room: usize,
    summary_room: usize,
}

impl StagingBuffer {
    fn set_room(&mut self, room: u32) {
        self.room = room as usize;
        self.summary_room = summary_pages(room) as usize;
    }

    /// Pages that can still be pushed.
    pub fn room(&self) -> usize {
        self.room - self.staged.len()
    }

    /// Pages pushed.
    pub fn len(&self) -> usize {
        self.staged.len()
    }

    /// Whether no page was pushed.
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    fn page_bytes(&self, number: usize) -> std::ops::Range<usize> {
        let at = (self.summary_room + number) * PAGE_SIZE;
        at..at + PAGE_SIZE
    }

    /// Space for the next page: copy it here, hash the copy, then [`Self::push`] it. Panics when
    /// there is no room.
    pub fn next_page(&mut self) -> &mut [u8; PAGE_SIZE] {
        assert!(self.room() > 0, "a batch is filled up to its room");
        let bytes = self.page_bytes(self.staged.len());
        (&mut self.buffer[bytes]).try_into().expect("one page was sliced")
    }

    /// Accepts the staged page. `checksum` is the store's hash of the staged bytes; `cookie` comes
    /// back with [`crate::Event::Written`].
    pub fn push(&mut self, page: PageId, checksum: Checksum, cookie: u32) {
        assert!(self.room() > 0, "a batch is filled up to its room");
        assert!(page.region != VOID_REGION, "region 0 does not exist");
        self.staged.push(Staged { entry: Entry { page, checksum }, cookie });
    }

    /// Decides on every page in the order it was pushed: keeps it with the cookie that `cookie_of`
    /// gives for its number and checksum, or drops it. Those behind a dropped one move up.
    pub fn keep(&mut self, mut cookie_of: impl FnMut(usize, Checksum) -> Option<u32>) {
        let mut kept = 0;
        for number in 0..self.staged.len() {
            let Staged { entry, .. } = self.staged[number];
            let Some(cookie) = cookie_of(number, entry.checksum) else { continue };
            if kept < number {
                let (from, to) = (self.page_bytes(number), self.page_bytes(kept).start);
                self.buffer.copy_within(from, to);
            }
            self.staged[kept] = Staged { entry, cookie };
            kept += 1;
        }
        self.staged.truncate(kept);
    }
}

/// The bounded supply of [`StagingBuffer`]s.
#[derive(Debug)]
pub(crate) struct Staging {
    segment_pages: u32,
    made: usize,
    idle: Vec<StagingBuffer>,
}

impl Staging {
    pub(crate) fn new(segment_pages: u32) -> Self {
        Self { segment_pages, made: 0, idle: Vec::new() }
    }

    /// An empty buffer with room for a whole segment.
    pub(crate) fn take(&mut self) -> Option<StagingBuffer> {
        let mut staging = self.supply()?;
        staging.set_room(entries_max(self.segment_pages));
        Some(staging)
    }

    fn supply(&mut self) -> Option<StagingBuffer> {
        if let Some(staging) = self.idle.pop() {
            return Some(staging);
        }
        (self.made < STAGING_BUFFERS).then(|| {
            self.made += 1;
            let buffer = AlignedBuffer::zeroed(self.segment_pages as usize * PAGE_SIZE);
            StagingBuffer { buffer, staged: Vec::new(), room: 0, summary_room: 0 }
        })
    }

    pub(crate) fn put_back(&mut self, mut staging: StagingBuffer) {
        staging.staged.clear();
        self.idle.push(staging);
    }

    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer, staged: Vec<Staged>) {
        self.put_back(StagingBuffer { buffer, staged, room: 0, summary_room: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RegionId;

    fn page(number: u32) -> PageId {
        PageId { region: RegionId(7), page: number }
    }

    /// Five pages, filled with their numbers.
    fn five() -> StagingBuffer {
        let mut staging = Staging::new(8).take().expect("none is in use");
        for number in 0..5 {
            staging.next_page().fill(number as u8);
            staging.push(page(number), Checksum(u64::from(number) + 10), 0);
        }
        staging
    }

    #[test]
    fn pages_behind_a_dropped_one_move_up_with_their_entries() {
        let mut staging = five();
        staging.keep(|number, checksum| {
            assert_eq!(checksum, Checksum(number as u64 + 10));
            (number % 2 == 0).then_some(number as u32 + 100)
        });
        assert_eq!(staging.len(), 3);
        for (place, number) in [0u32, 2, 4].into_iter().enumerate() {
            let Staged { entry, cookie } = staging.staged[place];
            assert_eq!((entry.page, entry.checksum), (page(number), Checksum(u64::from(number) + 10)));
            assert_eq!(cookie, number + 100);
            let bytes = staging.page_bytes(place);
            assert!(staging.buffer[bytes].iter().all(|byte| *byte == number as u8), "page {number}");
        }
    }

    #[test]
    fn a_buffer_that_comes_back_is_empty_and_has_room_for_a_segment() {
        let mut supply = Staging::new(8);
        let mut staging = supply.take().expect("none is in use");
        assert_eq!(staging.room(), 7, "eight pages, one of them the summary");
        staging.push(page(0), Checksum(1), 0);
        supply.put_back(staging);
        let again = supply.take().expect("it came back");
        assert_eq!((again.len(), again.room()), (0, 7));
    }
}
