//! Opens a store: superblock, digest or scan, the committed image, the lost tail.
//!
//! Rule: the image of commit E is, for each page, the entry with the highest (epoch up to E, then
//! sequence). Its page count and hash must equal those that the commit recorded; otherwise the open
//! is refused, and nothing is changed. Batches of later epochs are the lost tail: their summaries
//! are erased before anything else is written, so that a later commit cannot adopt them.
//!
//! Every step can be cut off and repeated. Never repairs silently.

use std::io;

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::commit::sum_commit;
use crate::disk::{Disk, Wait};
use crate::error::{OpenError, StoreError};
use crate::hash::Hasher;
use crate::host;
use crate::index::Index;
use crate::limits::{SCAN_READS, SEQUENCE_BITS, SESSIONS_MAX, SUPERBLOCK_COPIES};
use crate::loss::{Evidence, LostPages};
use crate::scan::{FoundBatch, Scan, Scanner, find_overlooked};
use crate::segments::Segments;
use crate::shortcut::open_by_digest;
use crate::store::Store;
use crate::summary::VOID_REGION;
use crate::superblock::{
    Commit, CommitKind, SUPERBLOCK_BYTES, StoreState, Superblock, SuperblockFault, UntrustedSuperblock,
    copy_offset,
};
use crate::torn::take_torn_copies;
use crate::types::{PAGE_SIZE, RegionId};

/// What was found while opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Why the image was committed.
    pub kind: CommitKind,
    /// The commit that the store holds.
    pub commit: Commit,
    /// The last writer ended with a commit of everything. Otherwise what came after the commit is
    /// lost.
    pub clean: bool,
    /// Whole superblock copies, of four.
    pub superblock_copies_valid: u32,
    /// Batches written after the commit, and dropped.
    pub lost_tail_batches: usize,
    /// The index came from the digest that the last writer left: the log was not scanned.
    pub by_digest: bool,
    /// Segments scanned.
    pub segments_scanned: u32,
    /// Batches found, the lost tail included.
    pub batches_found: usize,
    /// Times that a writer ended without a commit of everything, this one included.
    pub unsafe_shutdowns: u64,
    /// Regions that do not add up. Empty, except with `open_incomplete`.
    pub lost: Vec<LostPages>,
    /// Slots of summaries that are damaged, or that hold a lost version and cannot be reached behind a
    /// damaged one. Looked for only when pages are lost.
    pub damaged_batches: Vec<u32>,
}

impl Recovery {
    /// What the superblock alone says.
    fn of(superblock: &Superblock) -> Self {
        Self {
            kind: superblock.commit.kind,
            commit: superblock.commit,
            clean: superblock.state != StoreState::Running,
            superblock_copies_valid: 0,
            lost_tail_batches: 0,
            by_digest: false,
            segments_scanned: 0,
            batches_found: 0,
            unsafe_shutdowns: superblock.unsafe_shutdowns,
            lost: Vec::new(),
            damaged_batches: Vec::new(),
        }
    }

    /// Part of a sentence about what is lost: each region up to `regions_max` with at most `ranges_max`
    /// ranges of pages in a list, and how many damaged summaries hid them.
    pub fn loss(&self, regions_max: usize, ranges_max: usize) -> String {
        let mut parts: Vec<_> =
            self.lost.iter().take(regions_max).map(|lost| lost.named(ranges_max)).collect();
        if self.lost.len() > regions_max {
            parts.push(format!("{} more regions", self.lost.len() - regions_max));
        }
        parts.push(self.damage());
        parts.join("; ")
    }

    /// How many summaries are damaged or cut off by a damaged one, as a clause.
    pub fn damage(&self) -> String {
        match self.damaged_batches[..] {
            [] => "no damaged summary is left to see".to_owned(),
            [slot] => format!("the summary at slot {slot} is damaged"),
            [first, ..] => {
                let count = self.damaged_batches.len();
                format!("{count} summaries are damaged or cut off, the first at slot {first}")
            }
        }
    }
}

/// What opening may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Write,
    /// Never writes.
    ReadOnly,
    /// Never writes, and looks at every summary.
    Scan,
    /// Writes, and accepts an image that does not add up.
    Incomplete,
}

impl Mode {
    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Incomplete)
    }

    fn takes_digest(self) -> bool {
        matches!(self, Self::Write | Self::ReadOnly)
    }
}

impl<D: Disk> Store<D> {
    /// Opens for writing: drops the lost tail and marks the store running, durably.
    pub fn open(disk: D) -> Result<(Self, Recovery), OpenError> {
        open(disk, Mode::Write)
    }

    /// Opens for looking: writes nothing.
    pub fn open_read_only(disk: D) -> Result<(Self, Recovery), OpenError> {
        open(disk, Mode::ReadOnly)
    }

    /// Opens for looking, and scans the log also when a digest would spare it: for a check.
    pub fn open_scanned(disk: D) -> Result<(Self, Recovery), OpenError> {
        open(disk, Mode::Scan)
    }

    /// Opens for writing although pages of the commit are lost, and names them. The
    /// image found becomes the committed one.
    pub fn open_incomplete(disk: D) -> Result<(Self, Recovery), OpenError> {
        open(disk, Mode::Incomplete)
    }
}

fn open<D: Disk>(mut disk: D, mode: Mode) -> Result<(Store<D>, Recovery), OpenError> {
    let place = disk.place();
    let (mut superblock, copies) = read_superblock(&mut disk, mode)?;
    check_superblock(&disk, &superblock, mode)?;
    let by_digest = mode.takes_digest().then(|| open_by_digest(&mut disk, &superblock)).flatten();
    let mut found = match by_digest {
        Some((index, segments)) => Found::by_digest(index, segments, &superblock),
        None => open_by_scan(&mut disk, &mut superblock, mode)?,
    };
    found.recovery.superblock_copies_valid = copies;
    let Found { index, segments, tail, mut recovery } = found;
    let mut store = Store::assemble(disk, superblock, index, segments, mode.writes());
    if mode.writes() {
        recovery.unsafe_shutdowns += u64::from(!recovery.clean);
        store.make_ready(&tail, recovery.unsafe_shutdowns).map_err(|error| OpenError::Write {
            place,
            source: io::Error::other(match error {
                StoreError::Poisoned { cause, .. } => cause.to_string(),
                other => other.to_string(),
            }),
        })?;
    }
    Ok((store, recovery))
}

/// What an opening goes on with.
struct Found {
    index: Index,
    segments: Segments,
    tail: Vec<FoundBatch>,
    recovery: Recovery,
}

impl Found {
    /// Nothing was written after a commit that still has its digest: there is no tail.
    fn by_digest(index: Index, segments: Segments, superblock: &Superblock) -> Self {
        let recovery = Recovery { by_digest: true, ..Recovery::of(superblock) };
        Self { index, segments, tail: Vec::new(), recovery }
    }
}

fn open_by_scan<D: Disk>(disk: &mut D, superblock: &mut Superblock, mode: Mode) -> Result<Found, OpenError> {
    let place = disk.place();
    let read_error = |source| OpenError::Read { place: place.clone(), source };
    let hasher = Hasher::new(superblock.seed);
    let (geometry, uuid_low) = (superblock.geometry, superblock.uuid_low());
    let mut scan = Scanner::new(disk, geometry, hasher, uuid_low).run().map_err(read_error)?;
    let batches_found = scan.batches.len();
    let mut tail =
        lost_tail(superblock, &scan).ok_or_else(|| OpenError::SuperblockOutdated { place: place.clone() })?;
    let torn = take_torn_copies(disk, geometry, &hasher, superblock.commit, &mut scan).map_err(read_error)?;
    tail.extend(torn);
    let (mut index, unused_cuts) = replay(superblock, &scan, hasher);
    let mut recovery = Recovery {
        lost_tail_batches: tail.len(),
        segments_scanned: geometry.segments(),
        batches_found,
        ..Recovery::of(superblock)
    };
    recovery.lost = compare(superblock, &mut index);
    if !recovery.lost.is_empty() {
        name_loss(disk, superblock, &index, scan, &mut recovery).map_err(read_error)?;
        if mode != Mode::Incomplete {
            return Err(OpenError::Incomplete { place, recovery: Box::new(recovery) });
        }
        accept_found(superblock, &index);
    }
    let segments = adopt(superblock, &mut index, unused_cuts, recovery.lost.is_empty());
    Ok(Found { index, segments, tail, recovery })
}

/// Reads all copies; takes the valid one with the highest sequence.
fn read_superblock<D: Disk>(disk: &mut D, mode: Mode) -> Result<(Superblock, u32), OpenError> {
    let place = disk.place();
    let needed = copy_offset(SUPERBLOCK_COPIES);
    if disk.size() < needed {
        return Err(OpenError::TooShort { place, bytes: disk.size(), needed });
    }
    let (mut best, mut valid, mut faults) = (None::<Superblock>, 0, Vec::new());
    let mut unreadable = Vec::new();
    let mut buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
    for copy in 0..SUPERBLOCK_COPIES {
        let read = read_now(disk, copy_offset(copy), buffer);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
                faults.push(SuperblockFault::Damaged);
                unreadable.push((copy, error));
                continue;
            }
        };
        let mut checked = UntrustedSuperblock::new(&bytes).validate(copy);
        if mutant::planted("superblock-newest-without-checksum") {
            checked = UntrustedSuperblock::new(&bytes).decode(copy).map_err(SuperblockFault::Malformed);
        }
        match checked {
            Ok(superblock) => {
                valid += 1;
                if best.as_ref().is_none_or(|best| best.sequence < superblock.sequence) {
                    best = Some(superblock);
                }
            }
            Err(fault) => faults.push(fault),
        }
        buffer = bytes;
    }
    // A copy of a newer program forbids the older copies beside it.
    for &fault in &faults {
        match fault {
            SuperblockFault::Newer(version) => return Err(OpenError::Newer { place, version }),
            SuperblockFault::UnknownFeatures(flags) => {
                return Err(OpenError::UnknownFeatures { place, flags });
            }
            SuperblockFault::Malformed(field) if best.is_none() => {
                return Err(OpenError::Malformed { place, field });
            }
            _ => {}
        }
    }
    if let Some(superblock) = best {
        // An update writes this copy first. One that cannot be read may be the only copy of a newer state,
        // and whole; the others are copies of this state or of older ones.
        let next = (superblock.sequence + 1) % SUPERBLOCK_COPIES;
        let doubtful = unreadable.into_iter().find(|&(copy, _)| copy == next && mode != Mode::Incomplete);
        if let Some((copy, error)) = doubtful {
            let text = format!("superblock copy {copy}, which may be the newest: {error}");
            return Err(OpenError::Read { place, source: io::Error::new(error.kind(), text) });
        }
        return Ok((superblock, valid));
    }
    let all = |kind: &[SuperblockFault]| faults.iter().all(|fault| kind.contains(fault));
    Err(if all(&[SuperblockFault::Blank]) {
        OpenError::NeverCreated { place }
    } else if all(&[SuperblockFault::Blank, SuperblockFault::Foreign]) {
        OpenError::Foreign { place }
    } else {
        OpenError::SuperblockDamaged { place }
    })
}

fn check_superblock<D: Disk>(disk: &D, found: &Superblock, mode: Mode) -> Result<(), OpenError> {
    let place = disk.place();
    let needed = found.geometry.size();
    if disk.size() < needed {
        return Err(OpenError::TooShort { place, bytes: disk.size(), needed });
    }
    if mode.writes() && !found.writable() {
        return Err(OpenError::ReadOnlyFeatures { place, flags: found.ro_compat });
    }
    if mode.writes() && found.session == SESSIONS_MAX {
        return Err(OpenError::WornOut { place });
    }
    Ok(())
}

/// The batches after the commit. `None` when the log is newer than the superblock allows: a batch
/// carries at most the next epoch, and the session that the superblock names.
fn lost_tail(superblock: &Superblock, scan: &Scan) -> Option<Vec<FoundBatch>> {
    let committed = superblock.commit.epoch.0;
    let mut tail = Vec::new();
    for batch in &scan.batches {
        let session = batch.head.sequence.0 >> SEQUENCE_BITS;
        if session > u64::from(superblock.session) || batch.head.epoch.0 > committed + 1 {
            return None;
        }
        if batch.head.epoch.0 > committed {
            tail.push(batch.clone());
        }
    }
    Some(tail)
}

/// For each region, which of its cuts void no entry: they can go.
type UnusedCuts = Vec<(RegionId, Vec<bool>)>;

/// Enters the batches of the image in order: later ones win. Cuts made after the commit do not
/// count yet, because the commit's hash knows nothing of them.
fn replay(superblock: &Superblock, scan: &Scan, hasher: Hasher) -> (Index, UnusedCuts) {
    let mut index = Index::new(hasher);
    let mut unused: UnusedCuts = Vec::new();
    for region in &superblock.regions {
        index.add_region(region.id, region.pages);
        unused.push((region.id, vec![true; region.cuts.list().len()]));
    }
    let commit = superblock.commit;
    let mut image: Vec<&FoundBatch> =
        scan.batches.iter().filter(|batch| batch.head.epoch <= commit.epoch).collect();
    image.sort_unstable_by_key(|batch| (batch.head.epoch, batch.head.sequence));
    for batch in image {
        let sequence = batch.head.sequence.0;
        for (slot, entry) in scan.placed_entries(batch) {
            let page = entry.page;
            if page.region == VOID_REGION {
                continue;
            }
            let found = superblock.regions.binary_search_by_key(&page.region, |region| region.id);
            let Ok(at) = found else { continue };
            let region = &superblock.regions[at];
            let (mut void, mut void_later) = (false, false);
            for cut in region.cuts.voiding(page.page, sequence) {
                unused[at].1[cut] = false;
                void |= region.cuts.list()[cut].sequence <= commit.last_sequence.0;
                void_later = true;
            }
            // An entry outside its region that no cut explains: no writer of ours does this, and
            // the count will not match.
            if void || (!void_later && page.page >= region.pages) {
                continue;
            }
            index.replay(page, slot, entry.checksum);
        }
    }
    (index, unused)
}

/// Compares what was found with what was committed.
fn compare(superblock: &Superblock, index: &mut Index) -> Vec<LostPages> {
    let mut lost = Vec::new();
    for region in &superblock.regions {
        let (committed, found) = (region.committed, index.replayed_part(region.id));
        if found != committed {
            lost.push(LostPages::unnamed(region.id, &region.name, committed.pages, found.pages));
        }
    }
    lost
}

/// Looks for what the chains did not reach, and names the loss with it.
fn name_loss<D: Disk>(
    disk: &mut D,
    superblock: &Superblock,
    found: &Index,
    mut scan: Scan,
    recovery: &mut Recovery,
) -> io::Result<()> {
    let hasher = Hasher::new(superblock.seed);
    let (geometry, uuid_low) = (superblock.geometry, superblock.uuid_low());
    let mut overlooked = find_overlooked(disk, geometry, &hasher, uuid_low, &scan)?;
    // A page number from a damaged summary must not size an index.
    for entry in &mut overlooked.entries {
        let region = superblock.regions.iter().find(|region| region.id == entry.page.region);
        if region.is_none_or(|region| entry.page.page >= region.pages) {
            entry.page.region = VOID_REGION;
        }
    }
    let (batches, entries) = (scan.batches.len(), scan.entries.len());
    scan.append(&overlooked);
    let (mut fuller, _) = replay(superblock, &scan, hasher);
    for region in &superblock.regions {
        fuller.replayed_part(region.id);
    }
    scan.batches.truncate(batches);
    scan.entries.truncate(entries);
    let evidence = Evidence { superblock, found, fuller: &fuller, reached: &scan, overlooked: &overlooked };
    recovery.damaged_batches = evidence.name(&mut recovery.lost);
    Ok(())
}

/// A loss is accepted: what was found becomes the commit.
fn accept_found(superblock: &mut Superblock, index: &Index) {
    for region in &mut superblock.regions {
        region.committed = index.part(region.id);
    }
    sum_commit(superblock);
}

/// Counts the image's slots, applies the cuts made since the commit, and drops the cuts that void
/// nothing any more.
fn adopt(superblock: &mut Superblock, index: &mut Index, unused_cuts: UnusedCuts, whole: bool) -> Segments {
    let mut segments = Segments::new(superblock.geometry);
    index.adopt_replay(&mut segments);
    let committed = superblock.commit.last_sequence;
    for (region, (_, unused)) in superblock.regions.iter_mut().zip(unused_cuts) {
        if let Some(lowest) = region.cuts.lowest_after(committed) {
            index.cut(region.id, lowest, &mut segments);
        }
        let mut unused = unused.into_iter();
        region.cuts.retain(|cut| {
            let unused = unused.next().unwrap_or(false);
            !(whole && unused && cut.sequence <= committed.0)
        });
    }
    segments.seal_found();
    segments
}

impl<D: Disk> Store<D> {
    /// Erases the lost tail, then starts a new session.
    fn make_ready(&mut self, tail: &[FoundBatch], unsafe_shutdowns: u64) -> Result<(), StoreError> {
        if !mutant::planted("tail-kept") {
            self.erase(tail)?;
        }
        // Also without a tail: the image must be durable before the log moves on.
        self.flush_blocking()?;
        let mut next = self.superblock.clone();
        next.session += 1;
        next.state = StoreState::Running;
        next.unsafe_shutdowns = unsafe_shutdowns;
        next.boot_id = host::boot_id();
        self.replace_superblock(next)?;
        self.next_sequence = crate::store::first_sequence(self.superblock.session);
        Ok(())
    }

    /// Overwrites the first page of each summary with zeros, many at a time.
    fn erase(&mut self, tail: &[FoundBatch]) -> Result<(), StoreError> {
        let (mut next, mut done, mut idle) = (0, Vec::new(), Vec::new());
        while next < tail.len() || self.disk.in_flight() > 0 {
            while next < tail.len() && self.disk.in_flight() < SCAN_READS {
                let buffer = idle.pop().unwrap_or_else(|| AlignedBuffer::zeroed(PAGE_SIZE));
                let slot = tail[next].head.position;
                let offset = self.superblock.geometry.offset_of(slot);
                self.disk.write(next as u64, offset, buffer, PAGE_SIZE);
                next += 1;
            }
            if let Err(error) = self.disk.reap(Wait::One, &mut done) {
                self.poison_with(format!("the device does not answer: {error}"));
            }
            for completion in done.drain(..) {
                match completion.result {
                    Ok(PAGE_SIZE) => idle.extend(completion.buffer),
                    Ok(bytes) => self.poison_with(format!("short write: {bytes} bytes")),
                    Err(error) => self.poison_with(format!("write: {error}")),
                }
            }
            self.check_poison()?;
        }
        Ok(())
    }
}

fn read_now<D: Disk>(disk: &mut D, offset: u64, buffer: AlignedBuffer) -> io::Result<AlignedBuffer> {
    let (len, mut done) = (buffer.len(), Vec::new());
    disk.read(0, offset, buffer, len);
    while done.is_empty() {
        disk.reap(Wait::One, &mut done)?;
    }
    let completion = done.pop().expect("one read was started");
    match completion.result? {
        bytes if bytes == len => Ok(completion.buffer.expect("a read returns its buffer")),
        bytes => Err(crate::device::short_read(bytes, len)),
    }
}
