//! The open store: its parts, and the way of a batch through them.
//!
//! Flow: `begin` gives a batch with its place in the log; the caller fills it; `submit` numbers it,
//! writes its summary and hands it to the device; `poll` acknowledges it in order and enters it
//! into the index.
//!
//! Invariants: one batch per head is being filled; a batch's epoch is the last committed one plus
//! one, or, when it copies committed versions, the last committed one. After a failed or short
//! write or a failed flush the store is poisoned: nothing is acknowledged or committed any more.
//! Does not know which pages are dirty or where they lie in memory.

use std::sync::Arc;

use wattkeep_sys::buffer::AlignedBuffer;

use crate::batch::{Batch, Begin, Head, Placed, Purpose, Staging, StagingBuffer};
use crate::disk::{Completion, Disk, Wait};
use crate::error::StoreError;
use crate::flight::{Flight, FlyingBatch};
use crate::hash::Hasher;
use crate::index::Index;
use crate::layout::{entries_max, summary_pages, writeback_floor};
use crate::limits::SEQUENCE_BITS;
use crate::read::Reads;
use crate::region::RegionRecord;
use crate::segments::{FlushNumber, Segments};
use crate::summary::{SummaryHead, VOID_REGION};
use crate::superblock::{Commit, HealthRecord, StoreState, Superblock};
use crate::types::{Checksum, Epoch, PAGE_SIZE, PageId, RegionId, Sequence};

/// What the device has done since the last poll.
#[derive(Debug)]
pub enum Event {
    /// A batch is written: its pages are in the log. Batches come in the order of their sequences.
    Written {
        /// The batch.
        sequence: Sequence,
        /// Its pages with the marks given to [`Batch::push`].
        pages: Vec<(PageId, u32)>,
        /// Bytes written, summary included.
        bytes: usize,
    },
    /// A read of [`Store::start_read`] ended. Give the buffer back with [`Store::recycle`].
    Read {
        /// The mark given to `start_read`.
        token: u32,
        /// The bytes, when `result` is good. Not verified.
        buffer: AlignedBuffer,
        /// The slot of the first page.
        first_slot: u32,
        /// Pages asked for, all read, or why not.
        result: Result<u32, std::io::Error>,
    },
}

/// Numbers for people and for the keeper's policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// Segments in the store.
    pub segments: u32,
    /// Segments free.
    pub free: u32,
    /// Segments that the next flush frees.
    pub waiting_for_flush: u32,
    /// Segments that a save may need.
    pub save_reserve_segments: u32,
    /// Slots that hold some page's latest version.
    pub live_pages: u64,
    /// Slots that hold a committed version that is not the latest.
    pub pinned_pages: u64,
    /// Bytes of batches written since the store was opened.
    pub bytes_written: u64,
    /// The part of them written by cleaning.
    pub bytes_written_cleaning: u64,
    /// Why the store failed, if it did.
    pub poisoned: Option<String>,
    /// What the superblock says.
    pub state: StoreState,
    /// Times that a writer ended without a commit of everything.
    pub unsafe_shutdowns: u64,
    /// The last commit.
    pub last_commit: Commit,
}

/// The open segment of a head.
#[derive(Clone, Copy, Debug)]
struct OpenSegment {
    segment: u32,
    /// Pages used, from the start.
    used: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadState {
    open: Option<OpenSegment>,
    /// A batch was begun and not submitted.
    pub(crate) filling: bool,
}

/// Page log on a disk. One thread at a time uses it.
#[derive(Debug)]
pub struct Store<D: Disk> {
    pub(crate) disk: D,
    pub(crate) superblock: Superblock,
    pub(crate) hasher: Hasher,
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) heads: [HeadState; Head::COUNT],
    pub(crate) staging: Staging,
    pub(crate) flight: Flight,
    pub(crate) reads: Reads,
    pub(crate) next_sequence: u64,
    pub(crate) poison: Option<Arc<str>>,
    pub(crate) writable: bool,
    /// What the digest of the last commit takes.
    pub(crate) digest_segments: std::ops::Range<u32>,
    /// Why the digest behind the last close could not be written.
    pub(crate) digest_failure: Option<String>,
    /// Events that were met while waiting for something else.
    pub(crate) ready: Vec<Event>,
    pub(crate) done: Vec<Completion>,
    /// The flush that frees emptied segments, while it runs.
    pub(crate) freeing_flush: Option<FlushNumber>,
    /// The end of the request that a blocking call waits for.
    pub(crate) awaited: Option<Completion>,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_written_cleaning: u64,
}

impl<D: Disk> Store<D> {
    pub(crate) fn assemble(
        disk: D,
        superblock: Superblock,
        index: Index,
        segments: Segments,
        writable: bool,
    ) -> Self {
        Self {
            hasher: Hasher::new(superblock.seed),
            staging: Staging::new(superblock.geometry.segment_pages()),
            next_sequence: first_sequence(superblock.session),
            disk,
            superblock,
            index,
            segments,
            heads: [HeadState::default(); Head::COUNT],
            flight: Flight::default(),
            reads: Reads::default(),
            poison: None,
            writable,
            digest_segments: 0..0,
            digest_failure: None,
            ready: Vec::new(),
            done: Vec::new(),
            freeing_flush: None,
            awaited: None,
            bytes_written: 0,
            bytes_written_cleaning: 0,
        }
    }

    /// The catalogue, sorted by id.
    pub fn regions(&self) -> &[RegionRecord] {
        &self.superblock.regions
    }

    /// One region.
    pub fn region(&self, id: RegionId) -> Option<&RegionRecord> {
        self.regions().iter().find(|region| region.id == id)
    }

    /// One region, by its name.
    pub fn region_by_name(&self, name: &str) -> Option<&RegionRecord> {
        self.regions().iter().find(|region| region.name == name)
    }

    /// The id that the next new region gets.
    pub fn next_region_id(&self) -> RegionId {
        RegionId(self.superblock.next_region)
    }

    /// Memory that the index takes, in bytes: 16 per page.
    pub fn index_bytes(&self) -> u64 {
        self.index.bytes()
    }

    /// The disk below.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The store's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// The dirty budget that the save reserve is made for.
    pub fn budget_pages(&self) -> u32 {
        self.superblock.budget_pages
    }

    /// How saves went so far.
    pub fn health(&self) -> &HealthRecord {
        &self.superblock.health
    }

    /// Notes how saves went. Durable with the next commit or change of a region.
    pub fn set_health(&mut self, health: HealthRecord) {
        self.superblock.health = health;
    }

    /// The checksum of a page's bytes, as stored in this store.
    pub fn hash(&self, bytes: &[u8]) -> Checksum {
        self.hasher.page(bytes)
    }

    /// A copy of the hash function, for a thread that does not hold the store.
    pub fn hasher(&self) -> Hasher {
        self.hasher
    }

    /// Checksum of the latest acknowledged version of a page. A newer one may be in flight.
    pub fn stored_checksum(&self, page: PageId) -> Option<Checksum> {
        self.index.latest(page).map(|(_, checksum)| checksum)
    }

    /// Slot of the latest acknowledged version of a page.
    pub fn slot_of(&self, page: PageId) -> Option<u32> {
        self.index.latest(page).map(|(slot, _)| slot)
    }

    /// Whether a version of the page is stored.
    pub fn is_stored(&self, page: PageId) -> bool {
        self.index.latest(page).is_some()
    }

    /// Whether the latest version is the committed one.
    pub fn is_committed(&self, page: PageId) -> bool {
        self.index.is_committed(page)
    }

    /// Why the digest behind the last close could not be written. The close is durable all the same; the
    /// store takes nothing more, and the next opening scans.
    pub fn digest_failure(&self) -> Option<&str> {
        self.digest_failure.as_deref()
    }

    /// The last commit.
    pub fn last_commit(&self) -> Commit {
        self.superblock.commit
    }

    /// Where the store stands.
    pub fn status(&self) -> StoreStatus {
        StoreStatus {
            segments: self.superblock.geometry.segments(),
            free: self.segments.free(),
            waiting_for_flush: self.segments.waiting_for_flush(),
            save_reserve_segments: self.superblock.save_reserve_segments,
            live_pages: self.segments.latest(),
            pinned_pages: self.segments.pinned(),
            bytes_written: self.bytes_written,
            bytes_written_cleaning: self.bytes_written_cleaning,
            poisoned: self.poison.as_deref().map(str::to_owned),
            state: self.superblock.state,
            unsafe_shutdowns: self.superblock.unsafe_shutdowns,
            last_commit: self.superblock.commit,
        }
    }

    /// Opens a batch for up to `pages_wanted` pages. [`Purpose::Cleaning`] here means versions
    /// written since the last commit; see [`Store::begin_cleaning`].
    ///
    /// A save asks for all pages that remain: it then fills whole segments, and its reserve holds.
    pub fn begin(&mut self, purpose: Purpose, pages_wanted: usize) -> Result<Begin, StoreError> {
        let cleaning = matches!(purpose, Purpose::Cleaning | Purpose::Refill);
        let head = if cleaning { Head::ColdCurrent } else { Head::Hot };
        self.begin_at(head, purpose, pages_wanted)
    }

    pub(crate) fn begin_at(
        &mut self,
        head: Head,
        purpose: Purpose,
        pages_wanted: usize,
    ) -> Result<Begin, StoreError> {
        self.check_writable()?;
        self.mark_running()?;
        if self.heads[head.number()].filling {
            return Ok(Begin::Busy);
        }
        let wanted = (pages_wanted as u64).clamp(1, self.segment_entries().into()) as u32;
        let Some(staging) = self.staging.take() else { return Ok(Begin::Busy) };
        let Some((position, room)) = self.find_place(head, purpose, wanted) else {
            self.staging.put_back(staging);
            return Ok(Begin::NoSpace);
        };
        Ok(Begin::Batch(Batch::new(head, position, room, staging)))
    }

    /// A buffer to fill with up to a segment's pages before they get their place in the log; `None`
    /// when all are in use: poll first. Give it back with [`Store::place`] or [`Store::put_back`].
    pub fn take_staging(&mut self) -> Option<StagingBuffer> {
        self.staging.take()
    }

    /// Gives an unused buffer back, whatever is in it.
    pub fn put_back(&mut self, staging: StagingBuffer) {
        self.staging.put_back(staging);
    }

    /// Gives the staged pages of a save, at least one, their place in the log. No batch is being filled
    /// meanwhile.
    ///
    /// All but the last buffer of a save were filled from a segment's worth of pages: so it takes no
    /// more segments than its reserve has.
    pub fn place(&mut self, staging: StagingBuffer) -> Result<Placed, StoreError> {
        self.check_writable()?;
        self.mark_running()?;
        assert!(!staging.is_empty() && !self.heads[Head::Hot.number()].filling, "pages, and a head for them");
        let pages = staging.len() as u32;
        Ok(match self.find_place(Head::Hot, Purpose::Save, pages) {
            Some((position, room)) => Placed::Batch(Batch::new(Head::Hot, position, room, staging)),
            None => Placed::NoSpace(staging),
        })
    }

    /// Position and room of the head's next batch, which is being filled from now on.
    fn find_place(&mut self, head: Head, purpose: Purpose, wanted: u32) -> Option<(u32, u32)> {
        let open = self.open_segment(head, purpose, wanted)?;
        let geometry = self.superblock.geometry;
        let room = entries_max(geometry.segment_pages() - open.used).min(wanted);
        self.heads[head.number()].filling = true;
        Some((geometry.first_slot(open.segment) + open.used, room))
    }

    /// The head's open segment if it has room, or a free one if the purpose may take it.
    fn open_segment(&mut self, head: Head, purpose: Purpose, wanted: u32) -> Option<OpenSegment> {
        let segment_pages = self.superblock.geometry.segment_pages();
        // A save does not spread over the rests of segments: that costs summaries, and the reserve
        // counts whole segments.
        let wanted = if purpose == Purpose::Save { wanted } else { 1 };
        let open = self.heads[head.number()].open;
        if let Some(open) = open.filter(|open| entries_max(segment_pages - open.used) >= wanted) {
            return Some(open);
        }
        let reserve = self.superblock.save_reserve_segments;
        let floor = match purpose {
            Purpose::Save | Purpose::Refill => 0,
            Purpose::Cleaning => reserve,
            Purpose::Writeback | Purpose::Checkpoint => writeback_floor(reserve),
        };
        let segment = self.segments.take(floor)?;
        self.seal_head(head);
        let open = OpenSegment { segment, used: 0 };
        self.heads[head.number()].open = Some(open);
        Some(open)
    }

    fn seal_head(&mut self, head: Head) {
        if let Some(open) = self.heads[head.number()].open.take() {
            self.segments.seal(open.segment);
        }
    }

    /// Numbers a batch and hands it to the device. An empty one gives its space back.
    ///
    /// A cleaning page whose stored version is no longer the one that was copied is left out of the
    /// batch: it has been written again since.
    pub fn submit(&mut self, mut batch: Batch) -> Sequence {
        let head = batch.head;
        self.heads[head.number()].filling = false;
        let live = head == Head::Hot || self.void_outdated(&mut batch);
        if !live || batch.is_empty() || self.poison.is_some() {
            self.staging.put_back(batch.staging);
            return Sequence(self.next_sequence - 1);
        }
        let geometry = self.superblock.geometry;
        let (segment, pages) = (geometry.segment_of(batch.position), batch.pages());
        let sequence = self.take_sequence();
        let current = Epoch(self.superblock.commit.epoch.0 + 1);
        let committed_copy = head == Head::ColdCommitted;
        let summary = SummaryHead {
            uuid_low: self.superblock.uuid_low(),
            sequence,
            epoch: if committed_copy { self.superblock.commit.epoch } else { current },
            position: batch.position,
        };
        let bytes = batch.finish(&summary, &self.hasher);
        let first_slot = batch.position + summary_pages(batch.len() as u32);
        let StagingBuffer { buffer, staged, .. } = batch.staging;
        self.segments.write_begun(segment);
        self.flight.add(FlyingBatch {
            sequence,
            committed_copy,
            cleaning: head != Head::Hot,
            segment,
            first_slot,
            staged,
            bytes,
            landed: None,
        });
        let offset = geometry.offset_of(batch.position);
        self.disk.write(crate::device::write_token(sequence), offset, buffer, bytes);
        self.advance_head(head, pages);
        sequence
    }

    fn advance_head(&mut self, head: Head, pages: u32) {
        let open = self.heads[head.number()].open.as_mut().expect("a begun batch has a segment");
        open.used += pages;
        let left = self.superblock.geometry.segment_pages() - open.used;
        if entries_max(left) == 0 {
            self.seal_head(head);
        }
    }

    /// Voids the cleaning pages that were written again since they were copied, or are being
    /// written: the copy would hide the newer version. Returns whether any page is left.
    fn void_outdated(&self, batch: &mut Batch) -> bool {
        let flying = self.flight.hot_pages();
        let mut live = false;
        for staged in &mut batch.staging.staged {
            let entry = &mut staged.entry;
            let same = self.stored_checksum(entry.page) == Some(entry.checksum);
            let committed = self.is_committed(entry.page);
            let in_place = committed == (batch.head == Head::ColdCommitted);
            if same && in_place && !flying.contains(&entry.page) {
                live = true;
            } else {
                entry.page = PageId { region: VOID_REGION, page: 0 };
            }
        }
        live
    }

    pub(crate) fn take_sequence(&mut self) -> Sequence {
        let sequence = self.next_sequence;
        assert!(sequence >> SEQUENCE_BITS == u64::from(self.superblock.session), "2^40 batches");
        self.next_sequence += 1;
        Sequence(sequence)
    }

    /// Takes the device's completions, waiting for one if asked to, and appends what they mean.
    ///
    /// May return without events: a batch that overtook an earlier one is held back.
    pub fn poll(&mut self, wait: Wait, events: &mut Vec<Event>) -> Result<(), StoreError> {
        let wait = if self.ready.is_empty() { wait } else { Wait::No };
        self.reap(wait);
        events.append(&mut self.ready);
        self.check_poison()
    }

    /// Enters landed batches into the index, oldest first.
    pub(crate) fn acknowledge(&mut self) {
        if self.poison.is_some() {
            return;
        }
        while let Some((batch, buffer)) = self.flight.take_landed() {
            self.bytes_written += batch.bytes as u64;
            if batch.cleaning {
                self.bytes_written_cleaning += batch.bytes as u64;
            }
            let mut pages = Vec::with_capacity(batch.staged.len());
            for (staged, slot) in batch.staged.iter().zip(batch.first_slot..) {
                let page = staged.entry.page;
                if page.region == VOID_REGION {
                    continue;
                }
                pages.push((page, staged.cookie));
                if batch.committed_copy {
                    self.index.apply_committed_copy(page, slot, &mut self.segments);
                } else {
                    let checksum = staged.entry.checksum;
                    self.index.apply_current(page, slot, checksum, &mut self.segments);
                }
            }
            self.segments.write_acknowledged(batch.segment);
            self.staging.give_back(buffer, batch.staged);
            let (sequence, bytes) = (batch.sequence, batch.bytes);
            self.ready.push(Event::Written { sequence, pages, bytes });
        }
    }

    pub(crate) fn check_poison(&self) -> Result<(), StoreError> {
        match &self.poison {
            None => Ok(()),
            Some(cause) => Err(StoreError::Poisoned { place: self.disk.place(), cause: cause.clone() }),
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        if !self.writable {
            return Err(StoreError::ReadOnly { place: self.disk.place() });
        }
        self.check_poison()
    }

    /// The sticky failed state. The first cause stays.
    pub(crate) fn poison_with(&mut self, cause: String) {
        self.poison.get_or_insert_with(|| cause.into());
    }

    /// Pages that a full segment holds.
    pub fn segment_entries(&self) -> u32 {
        self.superblock.geometry.segment_entries()
    }

    /// Bytes of a slot's page, for offsets in read buffers.
    pub(crate) fn page_at(buffer: &[u8], number: u32) -> &[u8] {
        &buffer[number as usize * PAGE_SIZE..][..PAGE_SIZE]
    }
}

impl Superblock {
    pub(crate) fn uuid_low(&self) -> u64 {
        u64::from_le_bytes(self.uuid[..8].try_into().expect("a UUID has 16 bytes"))
    }
}

/// Every opening starts its own range of sequences: what an earlier one wrote and recovery cannot
/// reach is older than everything written from now on.
pub(crate) fn first_sequence(session: u32) -> u64 {
    (u64::from(session) << SEQUENCE_BITS) + 1
}
