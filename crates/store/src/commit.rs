//! Changes of the superblock: creation, commits, the catalogue of regions, the budget.
//!
//! Order of a commit: batches written, flush, one superblock copy, flush (the commit point), the
//! next copy. A crash at any point leaves the old superblock or the new one whole, and the data of
//! whichever it is durable. `docs/format.md` argues it.
//!
//! Knows the catalogue; does not know pages in memory.

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::disk::{Disk, Wait};
use crate::error::{CreateError, StoreError};
use crate::hash::Hasher;
use crate::host;
use crate::index::Index;
use crate::layout::Geometry;
use crate::limits::{NAME_BYTES_MAX, REGIONS_MAX, SEGMENT_PAGES, SUPERBLOCK_COPIES};
use crate::region::{Cut, Cuts, ImagePart, NewRegion, RegionRecord};
use crate::segments::Segments;
use crate::store::{Store, first_sequence};
use crate::superblock::{
    Commit, CommitKind, HealthRecord, SUPERBLOCK_BYTES, StoreState, Superblock, copy_offset,
};
use crate::types::{Epoch, RegionId, Sequence};

/// What a new store needs to know.
#[derive(Default)]
pub struct CreateOptions {
    /// The store's identity; random when `None`.
    pub uuid: Option<[u8; 16]>,
    /// The secret of the store's hashes; random when `None`. For tests.
    pub seed: Option<u64>,
    /// Pages that a save may have to write: how much space is kept for it.
    pub budget_pages: u32,
    /// Pages in a segment, a power of two from 8 to 1024; 1024 when `None`. For tests.
    pub segment_pages: Option<u32>,
    /// Told the bytes reserved and the bytes to reserve.
    pub progress: Option<Box<dyn FnMut(u64, u64)>>,
}

impl<D: Disk> Store<D> {
    /// Makes a new, empty store. Whatever the disk held is lost.
    pub fn create(mut disk: D, options: &mut CreateOptions) -> Result<Self, CreateError> {
        let superblock = new_superblock(options)?;
        let bytes = superblock.geometry.size();
        let mut nobody = |_, _| {};
        let progress = match &mut options.progress {
            Some(progress) => &mut **progress as &mut dyn FnMut(u64, u64),
            None => &mut nobody,
        };
        disk.grow(0, bytes, progress).map_err(|source| CreateError::Grow {
            place: disk.place(),
            bytes,
            source,
        })?;
        let index = Index::new(Hasher::new(superblock.seed));
        let segments = Segments::new(superblock.geometry);
        let mut store = Self::assemble(disk, superblock, index, segments, true);
        let written = (0..SUPERBLOCK_COPIES)
            .try_for_each(|copy| store.write_superblock(&store.superblock.clone(), copy))
            .and_then(|()| store.flush_blocking());
        match written {
            Ok(()) => Ok(store),
            Err(error) => Err(CreateError::Write {
                place: store.disk.place(),
                source: std::io::Error::other(error.to_string()),
            }),
        }
    }

    /// Makes what is in the log the durable image. Waits for the batches in flight first; their
    /// events come with the next poll. A batch that is being filled belongs to the next commit.
    ///
    /// The caller has written every dirty page that belongs to the image.
    pub fn commit(&mut self, kind: CommitKind) -> Result<Commit, StoreError> {
        self.check_writable()?;
        self.settle()?;
        if self.index.forgotten() > 0 {
            return Err(StoreError::PagesForgotten { pages: self.index.forgotten() });
        }
        if !mutant::planted("commit-before-data") {
            self.flush_blocking()?;
        }
        let mut next = self.superblock.clone();
        let mut whole = ImagePart64::default();
        for region in &mut next.regions {
            region.committed = self.index.part(region.id);
            region.cuts.committed();
            whole.add(region.committed);
        }
        next.commit = Commit {
            epoch: Epoch(next.commit.epoch.0 + 1),
            last_sequence: Sequence(self.next_sequence - 1),
            pages: whole.pages,
            hash: whole.hash,
            unix_s: host::unix_s(),
            kind,
        };
        next.state = match kind {
            CommitKind::Created | CommitKind::Checkpoint => StoreState::Running,
            CommitKind::Save => StoreState::Saved,
            CommitKind::Close => StoreState::Closed,
        };
        self.replace_superblock(next)?;
        self.index.commit(&mut self.segments);
        if kind != CommitKind::Checkpoint {
            // The second copy too: nobody may write here for years.
            self.flush_blocking()?;
        }
        if kind == CommitKind::Close {
            // The commit is durable: a digest that fails takes nothing of it back.
            self.digest_failure = self.write_digest().err().map(|error| error.to_string());
        }
        Ok(self.superblock.commit)
    }

    /// Says durably that the store changes again, after a save or a close. `begin` does it by
    /// itself; a program that resumes after a save calls it before it changes memory.
    pub fn mark_running(&mut self) -> Result<(), StoreError> {
        self.check_writable()?;
        if self.superblock.state == StoreState::Running {
            return Ok(());
        }
        let mut next = self.superblock.clone();
        next.state = StoreState::Running;
        self.replace_superblock(next)
    }

    /// Adds a region, durable on return. Grows the store as needed, which can take seconds.
    pub fn create_region(&mut self, new: NewRegion) -> Result<RegionId, StoreError> {
        self.check_writable()?;
        self.check_name(&new.name)?;
        if self.superblock.regions.len() == REGIONS_MAX {
            return Err(StoreError::TooManyRegions);
        }
        let id = RegionId(self.superblock.next_region);
        let mut next = self.superblock.clone();
        next.next_region += 1;
        next.regions.push(RegionRecord {
            id,
            name: new.name,
            mode: new.mode,
            pages: new.pages,
            reserve_pages: new.reserve_pages.max(new.pages),
            address: new.address,
            created_unix_s: host::unix_s(),
            committed: ImagePart::default(),
            cuts: Cuts::default(),
        });
        self.grow_for(&mut next)?;
        self.replace_superblock(next)?;
        self.index.add_region(id, new.pages);
        Ok(id)
    }

    /// Renames a region, durable on return.
    pub fn rename_region(&mut self, id: RegionId, name: &str) -> Result<(), StoreError> {
        self.check_writable()?;
        self.check_name(name)?;
        let mut next = self.superblock.clone();
        record_mut(&mut next, id)?.name = name.to_owned();
        self.replace_superblock(next)
    }

    /// Records where a region is mapped, durable on return.
    pub fn set_address(&mut self, id: RegionId, address: u64) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut next = self.superblock.clone();
        record_mut(&mut next, id)?.address = address;
        self.replace_superblock(next)
    }

    /// Removes a region and its pages, durable on return. There is no way back.
    pub fn remove_region(&mut self, id: RegionId) -> Result<(), StoreError> {
        self.check_writable()?;
        self.settle()?;
        let mut next = self.superblock.clone();
        let removed = record_mut(&mut next, id)?.committed;
        next.regions.retain(|region| region.id != id);
        next.commit.pages -= u64::from(removed.pages);
        next.commit.hash = next.commit.hash.wrapping_sub(removed.hash);
        self.replace_superblock(next)?;
        self.index.remove_region(id, &mut self.segments);
        Ok(())
    }

    /// Changes a region's size, durable on return. Cut-off pages are gone at once, also when the
    /// region grows again: they then read as never written.
    pub fn resize_region(&mut self, id: RegionId, pages: u32) -> Result<(), StoreError> {
        self.check_writable()?;
        self.settle()?;
        let mut next = self.superblock.clone();
        let last_commit = next.commit.last_sequence;
        let record = record_mut(&mut next, id)?;
        let shrinks = pages < record.pages;
        record.pages = pages;
        record.reserve_pages = record.reserve_pages.max(pages);
        if shrinks {
            let sequence = self.take_sequence().0;
            if !record.cuts.add(Cut { page: pages, sequence }, last_commit) {
                return Err(StoreError::TooManyShrinks { id });
            }
        }
        self.grow_for(&mut next)?;
        self.replace_superblock(next)?;
        self.index.resize_region(id, pages, &mut self.segments);
        Ok(())
    }

    /// Keeps space for saves of up to `budget_pages`, durable on return. Grows the store as needed.
    pub fn set_budget(&mut self, budget_pages: u32) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut next = self.superblock.clone();
        next.budget_pages = budget_pages;
        next.save_reserve_segments = next.geometry.save_reserve_segments(budget_pages);
        self.grow_for(&mut next)?;
        self.replace_superblock(next)
    }

    fn check_name(&self, name: &str) -> Result<(), StoreError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(StoreError::BadName { name: name.to_owned() });
        }
        if self.region_by_name(name).is_some() {
            return Err(StoreError::RegionExists { name: name.to_owned() });
        }
        Ok(())
    }

    /// Makes the space as large as the regions and the budget of `next` need. The space first, the
    /// superblock that counts on it later.
    fn grow_for(&mut self, next: &mut Superblock) -> Result<(), StoreError> {
        let too_large = || StoreError::TooLarge { place: self.disk.place() };
        let pages = next.regions.iter().map(|region| u64::from(region.pages)).sum();
        let needed = next.geometry.segments_needed(pages, next.save_reserve_segments);
        let needed = u32::try_from(needed).map_err(|_| too_large())?;
        let old = self.superblock.geometry;
        if needed <= old.segments() {
            return Ok(());
        }
        let new = old.with_segments(needed).ok_or_else(too_large)?;
        self.drain_device()?;
        self.disk.grow(old.size(), new.size(), &mut |_, _| {}).map_err(|error| {
            let cause = error.to_string().into();
            StoreError::NoSpace { place: self.disk.place(), needed: new.size() - old.size(), cause }
        })?;
        next.geometry = new;
        Ok(())
    }

    /// Waits until the device has nothing of ours in flight: growing is a blocking use of it.
    fn drain_device(&mut self) -> Result<(), StoreError> {
        while self.disk.in_flight() > 0 {
            self.check_poison()?;
            self.reap(Wait::One);
        }
        self.check_poison()
    }

    /// Makes `next` the superblock: durable when this returns. A second copy is written and becomes
    /// durable with the next flush. A digest of the superblock before is void from here on.
    pub(crate) fn replace_superblock(&mut self, mut next: Superblock) -> Result<(), StoreError> {
        let kept = mutant::planted("digest-of-older-commit-believed");
        if let Some(outdated) = self.superblock.digest.filter(|_| !kept) {
            next.digest = None;
            self.void_digest(&outdated)?;
        }
        next.sequence = self.superblock.sequence + 1;
        self.write_superblock(&next, next.sequence % SUPERBLOCK_COPIES)?;
        self.flush_blocking()?;
        self.write_superblock(&next, (next.sequence + 1) % SUPERBLOCK_COPIES)?;
        if next.geometry != self.superblock.geometry {
            self.segments.extend(next.geometry);
        }
        if next.digest.is_none() {
            self.release_digest();
        }
        self.superblock = next;
        Ok(())
    }

    fn write_superblock(&mut self, superblock: &Superblock, copy: u64) -> Result<(), StoreError> {
        let mut buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES);
        superblock.encode(copy, &mut buffer);
        self.write_blocking(copy_offset(copy), buffer)
    }
}

/// The parts of all regions together.
#[derive(Default)]
struct ImagePart64 {
    pages: u64,
    hash: u128,
}

impl ImagePart64 {
    fn add(&mut self, part: ImagePart) {
        self.pages += u64::from(part.pages);
        self.hash = self.hash.wrapping_add(part.hash);
    }
}

/// Makes the commit record the sum of the regions' parts: for a store opened with losses.
pub(crate) fn sum_commit(superblock: &mut Superblock) {
    let mut whole = ImagePart64::default();
    for region in &superblock.regions {
        whole.add(region.committed);
    }
    superblock.commit.pages = whole.pages;
    superblock.commit.hash = whole.hash;
}

fn record_mut(superblock: &mut Superblock, id: RegionId) -> Result<&mut RegionRecord, StoreError> {
    let found = superblock.regions.iter_mut().find(|region| region.id == id);
    found.ok_or(StoreError::NoSuchRegion { id })
}

fn new_superblock(options: &CreateOptions) -> Result<Superblock, CreateError> {
    let budget_pages = options.budget_pages;
    let too_large = CreateError::TooLarge { budget_pages };
    let segment_pages = options.segment_pages.unwrap_or(SEGMENT_PAGES);
    let smallest = Geometry::new(segment_pages, 1).expect("the segment size is a power of two");
    let save_reserve_segments = smallest.save_reserve_segments(budget_pages);
    let needed = smallest.segments_needed(0, save_reserve_segments);
    let geometry = u32::try_from(needed).ok().and_then(|segments| smallest.with_segments(segments));
    let random = match (options.uuid, options.seed) {
        (Some(_), Some(_)) => [0; 16],
        _ => host::random().map_err(CreateError::Random)?,
    };
    let seed = u64::from_le_bytes(random[8..].try_into().expect("sixteen random bytes"));
    let session = 1;
    Ok(Superblock {
        ro_compat: 0,
        sequence: 1,
        uuid: match options.uuid {
            Some(uuid) => uuid,
            None => host::random().map_err(CreateError::Random)?,
        },
        seed: options.seed.unwrap_or(seed),
        boot_id: host::boot_id(),
        state: StoreState::Running,
        session,
        unsafe_shutdowns: 0,
        created_unix_s: host::unix_s(),
        geometry: geometry.ok_or(too_large)?,
        save_reserve_segments,
        budget_pages,
        next_region: 1,
        commit: Commit {
            epoch: Epoch(0),
            last_sequence: Sequence(first_sequence(session) - 1),
            pages: 0,
            hash: 0,
            unix_s: host::unix_s(),
            kind: CommitKind::Created,
        },
        health: HealthRecord::default(),
        digest: None,
        regions: Vec::new(),
    })
}
