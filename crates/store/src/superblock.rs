//! The superblock: identity, catalogue of regions, last commit. Format and its checks.
//!
//! Invariants: a [`Superblock`] came from bytes whose checksum, reserved fields and relations hold,
//! or was made by this program; bytes from a disk are an [`UntrustedSuperblock`] until then.
//! `docs/format.md` draws the layout. Does no I/O.

use crate::bytes::{all_zero, put_u32, put_u64, put_u128, u32_at, u64_at, u128_at};
use crate::digest::{DigestReference, REFERENCE_BYTES};
use crate::hash;
use crate::layout::Geometry;
use crate::limits::{
    CUTS_MAX, NAME_BYTES_MAX, REGIONS_MAX, SEGMENT_PAGES_MAX, SEGMENT_PAGES_MIN, SESSIONS_MAX,
    SUPERBLOCK_COPIES, SUPERBLOCK_SPACING,
};
use crate::region::{Cut, Cuts, ImagePart, RegionMode, RegionRecord};
use crate::types::{Epoch, PAGE_SIZE, RegionId, Sequence};

/// The first bytes of every copy.
pub const MAGIC: [u8; 8] = *b"WATTKEEP";
/// The format that this program writes.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes in a region record.
const RECORD_BYTES: usize = 256;
/// Bytes in one copy: a page of fields, then the catalogue.
pub const SUPERBLOCK_BYTES: usize = PAGE_SIZE + REGIONS_MAX * RECORD_BYTES;

/// Features that change nothing for a program that does not know them.
const COMPAT_KNOWN: u64 = 0;
/// Features that a program must know to write.
const RO_COMPAT_KNOWN: u64 = 0;
/// Features that a program must know to read.
const INCOMPAT_KNOWN: u64 = 0;

const _: () = assert!(SUPERBLOCK_BYTES == 20 * 1024);
const _: () = assert!(field::END - field::DIGEST == REFERENCE_BYTES);
const _: () = assert!(SUPERBLOCK_BYTES as u64 <= SUPERBLOCK_SPACING);

/// Offsets of the fields in the first page.
mod field {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const COPY: usize = 12;
    pub(super) const CHECKSUM: usize = 16;
    pub(super) const COMPAT: usize = 32;
    pub(super) const RO_COMPAT: usize = 40;
    pub(super) const INCOMPAT: usize = 48;
    pub(super) const SEQUENCE: usize = 56;
    pub(super) const UUID: usize = 64;
    pub(super) const SEED: usize = 80;
    pub(super) const BOOT_ID: usize = 88;
    pub(super) const STATE: usize = 104;
    pub(super) const SESSION: usize = 108;
    pub(super) const UNSAFE_SHUTDOWNS: usize = 112;
    pub(super) const CREATED: usize = 120;
    pub(super) const SEGMENT_PAGES: usize = 128;
    pub(super) const SEGMENTS: usize = 132;
    pub(super) const SAVE_RESERVE: usize = 136;
    pub(super) const NEXT_REGION: usize = 140;
    pub(super) const BUDGET_PAGES: usize = 144;
    pub(super) const REGIONS: usize = 148;
    pub(super) const COMMIT: usize = 152;
    pub(super) const HEALTH: usize = 208;
    pub(super) const DIGEST: usize = 256;
    pub(super) const END: usize = 288;
}

/// What the last writer left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// Open for writing, or its writer died.
    Running,
    /// Closed in an orderly way; the last commit is everything.
    Closed,
    /// A save completed; the last commit is everything.
    Saved,
}

/// Why a commit was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitKind {
    /// The empty image of a new store.
    Created,
    /// A consistent point; the program runs on.
    Checkpoint,
    /// The power failed, or a drill.
    Save,
    /// An orderly end.
    Close,
}

/// The commit record: which image the store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Batches up to this epoch belong to the image.
    pub epoch: Epoch,
    /// The last sequence used before the commit.
    pub last_sequence: Sequence,
    /// Stored pages in the image.
    pub pages: u64,
    /// Sum of the hashes of the stored pages.
    pub hash: u128,
    /// Time of the commit, in seconds since 1970.
    pub unix_s: u64,
    /// Why it was made.
    pub kind: CommitKind,
}

/// How saves went so far: kept with the store, so that it survives what it describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthRecord {
    /// Whether the last save completed; `None` before the first.
    pub last_save_ok: Option<bool>,
    /// Duration of the last save.
    pub last_save_ms: u64,
    /// Pages that the last save wrote.
    pub last_save_pages: u64,
    /// The worst write bandwidth measured, in bytes per second; 0 when never measured.
    pub worst_write_bandwidth: u64,
    /// The dirty budget that the operator set, in bytes; 0 when it is derived.
    pub budget_setting_bytes: u64,
    /// Saves that did not complete.
    pub save_failures: u32,
}

/// The trusted superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub(crate) ro_compat: u64,
    pub(crate) sequence: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) seed: u64,
    pub(crate) boot_id: [u8; 16],
    pub(crate) state: StoreState,
    /// Openings for writing: the high bits of every sequence.
    pub(crate) session: u32,
    pub(crate) unsafe_shutdowns: u64,
    pub(crate) created_unix_s: u64,
    pub(crate) geometry: Geometry,
    pub(crate) save_reserve_segments: u32,
    pub(crate) budget_pages: u32,
    pub(crate) next_region: u32,
    pub(crate) commit: Commit,
    pub(crate) health: HealthRecord,
    /// The index of the commit, written out; only while nothing has changed since.
    pub(crate) digest: Option<DigestReference>,
    pub(crate) regions: Vec<RegionRecord>,
}

/// Why bytes are not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockFault {
    /// Only zeros: never written.
    Blank,
    /// Other magic: some other program's file.
    Foreign,
    /// The checksum does not hold.
    Damaged,
    /// A format that this program does not know.
    Newer(u32),
    /// Features that this program does not know.
    UnknownFeatures(u64),
    /// The checksum holds, a field does not: a bug of a writer, or an attack.
    Malformed(&'static str),
}

/// 20 KiB from a disk.
pub struct UntrustedSuperblock<'a>(&'a [u8]);

/// Where a copy lies.
pub(crate) fn copy_offset(copy: u64) -> u64 {
    copy * SUPERBLOCK_SPACING
}

impl Superblock {
    /// Whether this program may write a store with these features.
    pub(crate) fn writable(&self) -> bool {
        self.ro_compat & !RO_COMPAT_KNOWN == 0
    }

    /// Writes copy `copy` into `out`, which is [`SUPERBLOCK_BYTES`] long.
    pub fn encode(&self, copy: u64, out: &mut [u8]) {
        assert!(out.len() == SUPERBLOCK_BYTES && copy < SUPERBLOCK_COPIES);
        out.fill(0);
        out[field::MAGIC..field::MAGIC + 8].copy_from_slice(&MAGIC);
        put_u32(out, field::VERSION, FORMAT_VERSION);
        put_u32(out, field::COPY, copy as u32);
        put_u64(out, field::COMPAT, COMPAT_KNOWN);
        put_u64(out, field::RO_COMPAT, self.ro_compat);
        put_u64(out, field::INCOMPAT, INCOMPAT_KNOWN);
        put_u64(out, field::SEQUENCE, self.sequence);
        out[field::UUID..field::UUID + 16].copy_from_slice(&self.uuid);
        put_u64(out, field::SEED, self.seed);
        out[field::BOOT_ID..field::BOOT_ID + 16].copy_from_slice(&self.boot_id);
        put_u32(out, field::STATE, state_code(self.state));
        put_u32(out, field::SESSION, self.session);
        put_u64(out, field::UNSAFE_SHUTDOWNS, self.unsafe_shutdowns);
        put_u64(out, field::CREATED, self.created_unix_s);
        put_u32(out, field::SEGMENT_PAGES, self.geometry.segment_pages());
        put_u32(out, field::SEGMENTS, self.geometry.segments());
        put_u32(out, field::SAVE_RESERVE, self.save_reserve_segments);
        put_u32(out, field::NEXT_REGION, self.next_region);
        put_u32(out, field::BUDGET_PAGES, self.budget_pages);
        put_u32(out, field::REGIONS, self.regions.len() as u32);
        encode_commit(&self.commit, &mut out[field::COMMIT..field::HEALTH]);
        encode_health(&self.health, &mut out[field::HEALTH..field::DIGEST]);
        DigestReference::encode(self.digest.as_ref(), &mut out[field::DIGEST..field::END]);
        for (record, out) in self.regions.iter().zip(out[PAGE_SIZE..].chunks_mut(RECORD_BYTES)) {
            encode_region(record, out);
        }
        let checksum = hash::superblock(out);
        put_u128(out, field::CHECKSUM, checksum);
    }
}

impl<'a> UntrustedSuperblock<'a> {
    /// Takes [`SUPERBLOCK_BYTES`] bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        assert!(bytes.len() == SUPERBLOCK_BYTES);
        Self(bytes)
    }

    /// Checks everything and returns the trusted superblock. `copy` is where it was read.
    pub fn validate(&self, copy: u64) -> Result<Superblock, SuperblockFault> {
        let bytes = self.0;
        if bytes[..8] != MAGIC {
            let blank = all_zero(&bytes[..PAGE_SIZE]);
            return Err(if blank { SuperblockFault::Blank } else { SuperblockFault::Foreign });
        }
        let mut zeroed = bytes.to_vec();
        put_u128(&mut zeroed, field::CHECKSUM, 0);
        if hash::superblock(&zeroed) != u128_at(bytes, field::CHECKSUM) {
            return Err(SuperblockFault::Damaged);
        }
        let version = u32_at(bytes, field::VERSION);
        if version != FORMAT_VERSION {
            return Err(SuperblockFault::Newer(version));
        }
        let unknown = u64_at(bytes, field::INCOMPAT) & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(SuperblockFault::UnknownFeatures(unknown));
        }
        self.decode(copy).map_err(SuperblockFault::Malformed)
    }

    pub(crate) fn decode(&self, copy: u64) -> Result<Superblock, &'static str> {
        let bytes = self.0;
        ensure(u64::from(u32_at(bytes, field::COPY)) == copy, "copy index")?;
        ensure(all_zero(&bytes[field::END..PAGE_SIZE]), "reserved bytes")?;
        let segment_pages = u32_at(bytes, field::SEGMENT_PAGES);
        let size_known = (SEGMENT_PAGES_MIN..=SEGMENT_PAGES_MAX).contains(&segment_pages);
        ensure(size_known, "segment size")?;
        let geometry =
            Geometry::new(segment_pages, u32_at(bytes, field::SEGMENTS)).ok_or("number of segments")?;
        let session = u32_at(bytes, field::SESSION);
        ensure(session <= SESSIONS_MAX, "session")?;
        let commit = decode_commit(&bytes[field::COMMIT..field::HEALTH])?;
        let next_region = u32_at(bytes, field::NEXT_REGION);
        let regions = self.decode_regions(next_region)?;
        // The log is made large enough before its regions are: more than it holds is no region's size.
        let sizes = regions.iter().map(|r| u64::from(r.pages)).sum::<u64>();
        ensure(sizes <= slots(geometry), "region sizes")?;
        let pages = regions.iter().map(|r| u64::from(r.committed.pages)).sum::<u64>();
        ensure(pages == commit.pages, "commit page count")?;
        let parts = regions.iter().fold(0u128, |sum, r| sum.wrapping_add(r.committed.hash));
        ensure(parts == commit.hash, "commit hash")?;
        Ok(Superblock {
            ro_compat: u64_at(bytes, field::RO_COMPAT),
            sequence: u64_at(bytes, field::SEQUENCE),
            uuid: array_at(bytes, field::UUID),
            seed: u64_at(bytes, field::SEED),
            boot_id: array_at(bytes, field::BOOT_ID),
            state: state_from(u32_at(bytes, field::STATE)).ok_or("state")?,
            session,
            unsafe_shutdowns: u64_at(bytes, field::UNSAFE_SHUTDOWNS),
            created_unix_s: u64_at(bytes, field::CREATED),
            geometry,
            save_reserve_segments: u32_at(bytes, field::SAVE_RESERVE),
            budget_pages: u32_at(bytes, field::BUDGET_PAGES),
            next_region,
            commit,
            health: decode_health(&bytes[field::HEALTH..field::DIGEST])?,
            digest: decode_digest(&bytes[field::DIGEST..field::END], geometry)?,
            regions,
        })
    }

    fn decode_regions(&self, next_region: u32) -> Result<Vec<RegionRecord>, &'static str> {
        let count = u32_at(self.0, field::REGIONS) as usize;
        ensure(count <= REGIONS_MAX, "number of regions")?;
        let (used, unused) = self.0[PAGE_SIZE..].split_at(count * RECORD_BYTES);
        ensure(all_zero(unused), "unused region records")?;
        let regions: Vec<_> = used.chunks(RECORD_BYTES).map(decode_region).collect::<Result<_, _>>()?;
        // Sorted and unique by id; every id was handed out; names are unique.
        ensure(regions.windows(2).all(|pair| pair[0].id < pair[1].id), "order of regions")?;
        ensure(regions.last().is_none_or(|last| last.id.0 < next_region), "next region id")?;
        for (at, region) in regions.iter().enumerate() {
            let twin = regions[..at].iter().any(|other| other.name == region.name);
            ensure(!twin, "two regions of one name")?;
        }
        Ok(regions)
    }
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

fn array_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes were sliced")
}

fn state_code(state: StoreState) -> u32 {
    match state {
        StoreState::Running => 1,
        StoreState::Closed => 2,
        StoreState::Saved => 3,
    }
}

fn state_from(code: u32) -> Option<StoreState> {
    [StoreState::Running, StoreState::Closed, StoreState::Saved]
        .into_iter()
        .find(|&state| state_code(state) == code)
}

fn kind_code(kind: CommitKind) -> u32 {
    match kind {
        CommitKind::Created => 1,
        CommitKind::Checkpoint => 2,
        CommitKind::Save => 3,
        CommitKind::Close => 4,
    }
}

fn kind_from(code: u32) -> Option<CommitKind> {
    [CommitKind::Created, CommitKind::Checkpoint, CommitKind::Save, CommitKind::Close]
        .into_iter()
        .find(|&kind| kind_code(kind) == code)
}

fn encode_commit(commit: &Commit, out: &mut [u8]) {
    put_u64(out, 0, commit.epoch.0);
    put_u64(out, 8, commit.last_sequence.0);
    put_u64(out, 16, commit.pages);
    put_u128(out, 24, commit.hash);
    put_u64(out, 40, commit.unix_s);
    put_u32(out, 48, kind_code(commit.kind));
}

fn decode_commit(bytes: &[u8]) -> Result<Commit, &'static str> {
    ensure(u32_at(bytes, 52) == 0, "reserved bytes of the commit")?;
    Ok(Commit {
        epoch: Epoch(u64_at(bytes, 0)),
        last_sequence: Sequence(u64_at(bytes, 8)),
        pages: u64_at(bytes, 16),
        hash: u128_at(bytes, 24),
        unix_s: u64_at(bytes, 40),
        kind: kind_from(u32_at(bytes, 48)).ok_or("commit kind")?,
    })
}

fn encode_health(health: &HealthRecord, out: &mut [u8]) {
    let ok = match health.last_save_ok {
        None => 0,
        Some(true) => 1,
        Some(false) => 2,
    };
    put_u32(out, 0, ok);
    put_u32(out, 4, health.save_failures);
    put_u64(out, 8, health.last_save_ms);
    put_u64(out, 16, health.last_save_pages);
    put_u64(out, 24, health.worst_write_bandwidth);
    put_u64(out, 32, health.budget_setting_bytes);
}

fn decode_health(bytes: &[u8]) -> Result<HealthRecord, &'static str> {
    ensure(all_zero(&bytes[40..]), "reserved bytes of the health record")?;
    let last_save_ok = match u32_at(bytes, 0) {
        0 => None,
        1 => Some(true),
        2 => Some(false),
        _ => return Err("result of the last save"),
    };
    Ok(HealthRecord {
        last_save_ok,
        save_failures: u32_at(bytes, 4),
        last_save_ms: u64_at(bytes, 8),
        last_save_pages: u64_at(bytes, 16),
        worst_write_bandwidth: u64_at(bytes, 24),
        budget_setting_bytes: u64_at(bytes, 32),
    })
}

fn slots(geometry: Geometry) -> u64 {
    u64::from(geometry.segments()) * u64::from(geometry.segment_pages())
}

fn decode_digest(bytes: &[u8], geometry: Geometry) -> Result<Option<DigestReference>, &'static str> {
    let digest = DigestReference::decode(bytes);
    let lies_in_the_store = |digest: &DigestReference| {
        digest.pages > 0 && u64::from(digest.first_slot) + u64::from(digest.pages) <= slots(geometry)
    };
    ensure(digest.as_ref().is_none_or(lies_in_the_store), "index digest")?;
    Ok(digest)
}

fn encode_region(record: &RegionRecord, out: &mut [u8]) {
    put_u32(out, 0, record.id.0);
    out[4] = match record.mode {
        RegionMode::Transparent => 1,
        RegionMode::Explicit => 2,
    };
    out[5] = record.name.len() as u8;
    out[6] = record.cuts.list().len() as u8;
    put_u32(out, 12, record.pages);
    put_u32(out, 16, record.reserve_pages);
    put_u64(out, 24, record.address);
    put_u64(out, 32, record.created_unix_s);
    put_u32(out, 40, record.committed.pages);
    for (at, cut) in record.cuts.list().iter().enumerate() {
        put_u32(out, 44 + 4 * at, cut.page);
        put_u64(out, 80 + 8 * at, cut.sequence);
    }
    put_u128(out, 64, record.committed.hash);
    out[128..128 + record.name.len()].copy_from_slice(record.name.as_bytes());
}

fn decode_region(bytes: &[u8]) -> Result<RegionRecord, &'static str> {
    let mode = match bytes[4] {
        1 => RegionMode::Transparent,
        2 => RegionMode::Explicit,
        _ => return Err("region mode"),
    };
    let (name_len, cuts) = (usize::from(bytes[5]), usize::from(bytes[6]));
    ensure(name_len > 0 && name_len <= NAME_BYTES_MAX, "length of a region's name")?;
    ensure(cuts <= CUTS_MAX, "number of cuts")?;
    let reserved = bytes[7] == 0
        && all_zero(&bytes[8..12])
        && all_zero(&bytes[20..24])
        && all_zero(&bytes[44 + 4 * cuts..64])
        && all_zero(&bytes[80 + 8 * cuts..128])
        && all_zero(&bytes[128 + name_len..]);
    ensure(reserved, "reserved bytes of a region")?;
    let name = std::str::from_utf8(&bytes[128..128 + name_len]).map_err(|_| "region name")?;
    let (pages, reserve_pages) = (u32_at(bytes, 12), u32_at(bytes, 16));
    ensure(pages <= reserve_pages, "region size")?;
    let cuts = (0..cuts)
        .map(|at| Cut { page: u32_at(bytes, 44 + 4 * at), sequence: u64_at(bytes, 80 + 8 * at) })
        .collect();
    Ok(RegionRecord {
        id: RegionId(u32_at(bytes, 0)),
        name: name.to_owned(),
        mode,
        pages,
        reserve_pages,
        address: u64_at(bytes, 24),
        created_unix_s: u64_at(bytes, 32),
        committed: ImagePart { pages: u32_at(bytes, 40), hash: u128_at(bytes, 64) },
        cuts: Cuts::from_list(cuts).ok_or("cuts of a region")?,
    })
}

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
