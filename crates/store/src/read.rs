//! Reading stored pages back: one at a time, or in runs for a restore.
//!
//! Invariant: a page is handed out by `read_page_blocking` only when its bytes match the checksum
//! in the index. `start_read` is raw: its caller verifies with [`Store::verify`], and looks the
//! slot up again, because a page written meanwhile has moved.

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::disk::{Completion, Disk};
use crate::error::{ReadError, StoreError};
use crate::limits::{READ_BUFFERS, READ_PAGES_MAX};
use crate::store::{Event, Store};
use crate::types::{Checksum, PAGE_SIZE, PageId, RegionId};

#[derive(Clone, Copy, Debug)]
struct Read {
    token: u32,
    first_slot: u32,
    pages: u32,
}

/// Restore reads in flight, and the buffers for them.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    flying: Vec<Option<Read>>,
    idle: Vec<AlignedBuffer>,
    made: bool,
    page: Option<AlignedBuffer>,
}

impl Reads {
    fn buffer(&mut self) -> Option<AlignedBuffer> {
        if !self.made {
            // Together they lie on huge pages; those that no read ever takes cost nothing.
            self.idle = AlignedBuffer::several(READ_BUFFERS, READ_PAGES_MAX as usize * PAGE_SIZE);
            self.made = true;
        }
        self.idle.pop()
    }

    fn add(&mut self, read: Read) -> usize {
        if let Some(number) = self.flying.iter().position(Option::is_none) {
            self.flying[number] = Some(read);
            return number;
        }
        self.flying.push(Some(read));
        self.flying.len() - 1
    }

    pub(crate) fn ended(&mut self, number: usize, completion: Completion) -> Event {
        let read = self.flying[number].take().expect("the device returns our tokens once");
        let wanted = read.pages as usize * PAGE_SIZE;
        let result = match completion.result {
            Ok(bytes) if bytes == wanted => Ok(read.pages),
            Ok(bytes) => Err(crate::device::short_read(bytes, wanted)),
            Err(error) => Err(error),
        };
        let buffer = completion.buffer.expect("a read returns its buffer");
        Event::Read { token: read.token, buffer, first_slot: read.first_slot, result }
    }
}

/// Stored pages whose slots follow one another: one read fetches them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// The first slot.
    pub first_slot: u32,
    /// The page in each slot.
    pub pages: Vec<PageId>,
}

impl<D: Disk> Store<D> {
    /// The stored pages of a region, in the order of the region.
    pub fn stored_pages(&self, region: RegionId) -> impl Iterator<Item = PageId> + '_ {
        self.index.stored_in(region).map(|(_, page)| page)
    }

    /// Whether `bytes` are the latest acknowledged version of `page`.
    pub fn verify(&self, page: PageId, bytes: &[u8]) -> bool {
        self.stored_checksum(page) == Some(self.hash(bytes))
    }

    /// Reads one page and verifies it. `false`, and `out` untouched, when the page is not stored.
    pub fn read_page_blocking(&mut self, page: PageId, out: &mut [u8; PAGE_SIZE]) -> Result<bool, ReadError> {
        let Some((slot, checksum)) = self.index.latest(page) else { return Ok(false) };
        let buffer = self.reads.page.take().unwrap_or_else(|| AlignedBuffer::zeroed(PAGE_SIZE));
        let offset = self.superblock.geometry.offset_of(slot);
        let buffer = self.read_blocking(offset, buffer).map_err(|error| ReadError::Device {
            page,
            slot,
            cause: error.to_string().into(),
        })?;
        let holds = self.hash(&buffer) == checksum || mutant::planted("crc-skipped");
        if holds {
            out.copy_from_slice(&buffer);
        }
        self.reads.page = Some(buffer);
        if !holds {
            return Err(ReadError::Damaged { place: self.disk.place(), page, slot });
        }
        Ok(true)
    }

    /// Starts reading `pages` slots, at most 256. `false` when all read buffers are in use: poll
    /// first. The bytes come with [`Event::Read`] and are not verified.
    pub fn start_read(&mut self, first_slot: u32, pages: u32, token: u32) -> Result<bool, StoreError> {
        let geometry = self.superblock.geometry;
        let slots = geometry.segments() * geometry.segment_pages();
        assert!((1..=READ_PAGES_MAX).contains(&pages), "a read has 1 to 256 pages");
        assert!(first_slot.checked_add(pages).is_some_and(|end| end <= slots), "slots exist");
        let Some(buffer) = self.reads.buffer() else { return Ok(false) };
        let number = self.reads.add(Read { token, first_slot, pages });
        let len = pages as usize * PAGE_SIZE;
        let offset = geometry.offset_of(first_slot);
        self.disk.read(crate::device::read_token(number), offset, buffer, len);
        Ok(true)
    }

    /// Gives back the buffer of an [`Event::Read`].
    pub fn recycle(&mut self, buffer: AlignedBuffer) {
        self.reads.idle.push(buffer);
    }

    /// Every stored page, sorted by slot and grouped into runs of up to 256: the order in which
    /// the device reads fastest. A snapshot: pages written later are not in it.
    pub fn slots_in_log_order(&self) -> impl Iterator<Item = SlotRun> + use<D> {
        let mut stored: Vec<(u32, PageId)> = self.index.stored().collect();
        stored.sort_unstable_by_key(|&(slot, _)| slot);
        let mut rest = stored.into_iter().peekable();
        std::iter::from_fn(move || {
            let (first_slot, page) = rest.next()?;
            let mut pages = vec![page];
            while pages.len() < READ_PAGES_MAX as usize {
                let next = first_slot + pages.len() as u32;
                let Some((_, page)) = rest.next_if(|&(slot, _)| slot == next) else { break };
                pages.push(page);
            }
            Some(SlotRun { first_slot, pages })
        })
    }

    /// The checksum that the index holds for a page in a slot, when it is still there.
    pub(crate) fn checksum_in(&self, page: PageId, slot: u32) -> Option<Checksum> {
        let (at, checksum) = self.index.latest(page)?;
        (at == slot).then_some(checksum)
    }
}
