//! Writing the index digest behind a commit, making it void, and opening by it.
//!
//! Invariants: the digest is written into free segments after the commit point, and becomes durable
//! before a superblock names it; so an image never depends on it. The next change of the superblock,
//! which comes before any batch, unnames it and overwrites its header, durably: an older superblock
//! copy that comes back finds no digest and is judged by a scan. Whatever is wrong with a digest, the
//! answer is the scan.

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::digest::{DigestReference, DigestSum, decode_stretch, encode_header, encode_stretch, is_header};
use crate::disk::{Disk, Wait};
use crate::error::StoreError;
use crate::hash::Hasher;
use crate::index::Index;
use crate::limits::{CUTS_MAX, DIGEST_READS, READ_PAGES_MAX};
use crate::segments::Segments;
use crate::store::Store;
use crate::superblock::{StoreState, Superblock};
use crate::types::PAGE_SIZE;

/// Pages of one write: four pieces keep the device busy.
const WRITE_PAGES: usize = 1024;

impl<D: Disk> Store<D> {
    /// Writes the index behind a save or a close, so that the next opening need not scan the log.
    /// A close does it by itself. `false` when nothing was written: the store runs, or has no room.
    ///
    /// Does nothing for the image, which the commit has made durable.
    pub fn write_digest(&mut self) -> Result<bool, StoreError> {
        self.check_writable()?;
        // A batch that is being filled would come behind the digest, unseen by an opening.
        let quiet = self.flight.is_empty() && self.heads.iter().all(|head| !head.filling);
        if self.superblock.state == StoreState::Running || self.superblock.digest.is_some() || !quiet {
            return Ok(false);
        }
        let stretches = self.index.stretches();
        let pages = stretches.len() as u32 + 1;
        let geometry = self.superblock.geometry;
        let Some(first) = self.segments.take_adjoining(pages.div_ceil(geometry.segment_pages())) else {
            return Ok(false);
        };
        self.digest_segments = first..first + pages.div_ceil(geometry.segment_pages());
        let epoch = self.superblock.commit.epoch;
        let mut reference =
            DigestReference { first_slot: geometry.first_slot(first), pages, epoch, checksum: 0 };
        let mut sum = DigestSum::new(self.superblock.seed);
        let mut rest = stretches.into_iter();
        for at in (0..pages).step_by(WRITE_PAGES) {
            let count = (pages - at).min(WRITE_PAGES as u32) as usize;
            let mut buffer = AlignedBuffer::zeroed(count * PAGE_SIZE);
            for (number, out) in buffer.chunks_exact_mut(PAGE_SIZE).enumerate() {
                if at == 0 && number == 0 {
                    encode_header(self.superblock.uuid_low(), &reference, out);
                } else {
                    let stretch = rest.next().expect("a page for each stretch and the header");
                    encode_stretch(stretch, self.index.versions(stretch), out);
                }
            }
            sum.add(&buffer);
            self.write_blocking(geometry.offset_of(reference.first_slot + at), buffer)?;
        }
        reference.checksum = sum.finish();
        self.flush_blocking()?;
        let mut next = self.superblock.clone();
        next.digest = Some(reference);
        self.replace_superblock(next)?;
        self.flush_blocking()?;
        Ok(true)
    }

    /// Overwrites the header of the digest that the superblock names. Durable with the next flush.
    pub(crate) fn void_digest(&mut self, digest: &DigestReference) -> Result<(), StoreError> {
        let offset = self.superblock.geometry.offset_of(digest.first_slot);
        self.write_blocking(offset, AlignedBuffer::zeroed(PAGE_SIZE))
    }

    /// Nothing names the digest any more: its segments are free again.
    pub(crate) fn release_digest(&mut self) {
        for segment in std::mem::take(&mut self.digest_segments) {
            self.segments.seal(segment);
        }
    }
}

/// The index as the commit's digest holds it. `None` when there is none, or anything is wrong with
/// it.
pub(crate) fn open_by_digest<D: Disk>(disk: &mut D, superblock: &Superblock) -> Option<(Index, Segments)> {
    let believed = mutant::planted("digest-of-older-commit-believed");
    let reference = superblock.digest.filter(|digest| digest.epoch == superblock.commit.epoch || believed)?;
    // Only a scan sees which cuts void nothing any more, and makes room for others.
    let cuts = superblock.regions.iter().map(|region| region.cuts.list().len()).max().unwrap_or(0);
    if superblock.state == StoreState::Running || cuts > CUTS_MAX / 2 {
        return None;
    }
    let mut reader = Reader::new(superblock, reference);
    reader.run(disk).then_some(())?;
    let Reader { mut index, mut segments, sum, .. } = reader;
    let whole = sum.finish() == reference.checksum
        && superblock.regions.iter().all(|region| index.part(region.id) == region.committed || believed);
    segments.seal_found();
    index.end_stretches();
    whole.then_some((index, segments))
}

struct Reader<'a> {
    superblock: &'a Superblock,
    reference: DigestReference,
    index: Index,
    segments: Segments,
    sum: DigestSum,
    last: Option<crate::digest::Stretch>,
}

impl<'a> Reader<'a> {
    fn new(superblock: &'a Superblock, reference: DigestReference) -> Self {
        let mut index = Index::new(Hasher::new(superblock.seed));
        for region in &superblock.regions {
            index.add_region(region.id, region.pages);
        }
        Self {
            superblock,
            reference,
            index,
            segments: Segments::new(superblock.geometry),
            sum: DigestSum::new(superblock.seed),
            last: None,
        }
    }

    /// Reads all pages, many at a time, and takes them in their order. `false` when one cannot be read
    /// or taken.
    fn run<D: Disk>(&mut self, disk: &mut D) -> bool {
        let reads = self.reference.pages.div_ceil(READ_PAGES_MAX) as usize;
        let (mut started, mut taken, mut good) = (0, 0, true);
        let mut arrived: Vec<Option<AlignedBuffer>> = (0..reads).map(|_| None).collect();
        let (mut idle, mut done) = (Vec::new(), Vec::new());
        // What was started is always waited for: the scan uses the same tokens.
        while (good && taken < reads) || disk.in_flight() > 0 {
            while good && started < reads && started - taken < DIGEST_READS {
                // No read is longer than one before it.
                let buffer = idle.pop().unwrap_or_else(|| AlignedBuffer::zeroed(self.len(started)));
                let slot = self.reference.first_slot + started as u32 * READ_PAGES_MAX;
                disk.read(
                    started as u64,
                    self.superblock.geometry.offset_of(slot),
                    buffer,
                    self.len(started),
                );
                started += 1;
            }
            if disk.reap(Wait::One, &mut done).is_err() {
                return false;
            }
            for completion in done.drain(..) {
                let number = completion.token as usize;
                good &= number < reads && matches!(completion.result, Ok(bytes) if bytes == self.len(number));
                if let Some(place) = arrived.get_mut(number) {
                    *place = completion.buffer;
                }
            }
            while let Some(buffer) = arrived.get_mut(taken).filter(|_| good).and_then(Option::take) {
                good = self.take(taken, &buffer);
                idle.push(buffer);
                taken += 1;
            }
        }
        good
    }

    /// Bytes of a read.
    fn len(&self, number: usize) -> usize {
        let before = number as u32 * READ_PAGES_MAX;
        (self.reference.pages - before).min(READ_PAGES_MAX) as usize * PAGE_SIZE
    }

    fn take(&mut self, number: usize, buffer: &AlignedBuffer) -> bool {
        let bytes = &buffer[..self.len(number)];
        self.sum.add(bytes);
        let mut pages = bytes.chunks_exact(PAGE_SIZE);
        if number == 0 {
            let header = pages.next().unwrap_or_default();
            if !is_header(self.superblock.uuid_low(), &self.reference, header) {
                return false;
            }
        }
        pages.all(|page| self.take_stretch(page))
    }

    fn take_stretch(&mut self, page: &[u8]) -> bool {
        let Some((stretch, versions)) = decode_stretch(page) else { return false };
        let follows = self.last.is_none_or(|last| {
            last.region < stretch.region
                || last.region == stretch.region && last.first + last.pages <= stretch.first
        });
        self.last = Some(stretch);
        follows && self.index.take_stretch(stretch, versions, &mut self.segments)
    }
}
