//! A batch being filled, and the buffers that batches are filled in.
//!
//! Invariants: at most `STAGING_BUFFERS` batches exist; the pages of a batch lie behind the room
//! for its largest summary, so that summary and data are one contiguous write. Does not know which
//! page is dirty, and does no I/O.

use wattkeep_sys::buffer::AlignedBuffer;

use crate::hash::Hasher;
use crate::layout::summary_pages;
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

/// Pages on their way into the log: copied here, then written in one go.
#[derive(Debug)]
#[must_use = "a batch that is dropped blocks its head: submit it, also when empty"]
pub struct Batch {
    pub(crate) head: Head,
    /// The slot of the summary's first page.
    pub(crate) position: u32,
    pub(crate) staged: Vec<Staged>,
    pub(crate) buffer: AlignedBuffer,
    room: usize,
    summary_room: usize,
}

impl Batch {
    pub(crate) fn new(head: Head, position: u32, room: u32, staging: StagingBuffer) -> Self {
        let summary_room = summary_pages(room) as usize;
        Self {
            head,
            position,
            staged: staging.staged,
            buffer: staging.buffer,
            room: room as usize,
            summary_room,
        }
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

    /// Space for the next page: copy it here, hash the copy, then [`Batch::push`] it. Panics when
    /// there is no room.
    pub fn next_page(&mut self) -> &mut [u8; PAGE_SIZE] {
        assert!(self.room() > 0, "a batch is filled up to its room");
        let at = (self.summary_room + self.staged.len()) * PAGE_SIZE;
        (&mut self.buffer[at..at + PAGE_SIZE]).try_into().expect("one page was sliced")
    }

    /// Accepts the staged page. `checksum` is the store's hash of the staged bytes; `cookie` comes
    /// back with [`crate::Event::Written`].
    pub fn push(&mut self, page: PageId, checksum: Checksum, cookie: u32) {
        assert!(self.room() > 0, "a batch is filled up to its room");
        assert!(page.region != VOID_REGION, "region 0 does not exist");
        self.staged.push(Staged { entry: Entry { page, checksum }, cookie });
    }

    /// Slots that the batch takes.
    pub(crate) fn pages(&self) -> u32 {
        let count = self.staged.len() as u32;
        summary_pages(count) + count
    }

    /// Writes the summary, right before the data. Returns the bytes to write from the front.
    pub(crate) fn finish(&mut self, head: &SummaryHead, hasher: &Hasher) -> usize {
        let count = self.staged.len();
        let summary = summary_pages(count as u32) as usize;
        if summary < self.summary_room {
            // Fewer pages came than were announced: the data moves up to the shorter summary.
            let from = self.summary_room * PAGE_SIZE;
            self.buffer.copy_within(from..from + count * PAGE_SIZE, summary * PAGE_SIZE);
        }
        let entries = self.staged.iter().map(|staged| staged.entry);
        let len = summary::encode(head, entries, hasher, &mut self.buffer);
        len + count * PAGE_SIZE
    }
}

/// Memory for one batch.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    buffer: AlignedBuffer,
    staged: Vec<Staged>,
}

/// The bounded supply of [`StagingBuffer`]s.
#[derive(Debug)]
pub(crate) struct Staging {
    segment_bytes: usize,
    made: usize,
    idle: Vec<StagingBuffer>,
}

impl Staging {
    pub(crate) fn new(segment_pages: u32) -> Self {
        Self { segment_bytes: segment_pages as usize * PAGE_SIZE, made: 0, idle: Vec::new() }
    }

    pub(crate) fn take(&mut self) -> Option<StagingBuffer> {
        if let Some(staging) = self.idle.pop() {
            return Some(staging);
        }
        (self.made < STAGING_BUFFERS).then(|| {
            self.made += 1;
            StagingBuffer { buffer: AlignedBuffer::zeroed(self.segment_bytes), staged: Vec::new() }
        })
    }

    pub(crate) fn put_back(&mut self, staging: StagingBuffer) {
        self.idle.push(staging);
    }

    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer, mut staged: Vec<Staged>) {
        staged.clear();
        self.idle.push(StagingBuffer { buffer, staged });
    }
}
