//! Opens the golden stores of every released format, and refuses those of a future one untouched.
//!
//! For each golden store in turn: a flag that this program does not know, in one superblock copy or in
//! all, an unknown version, or a switch: the store is used, left in one way, and opened in another. There is
//! one format so far, so that a switch is between openings of the same program.

use wattkeep_sim::golden::{Contents, STORES, read};
use wattkeep_sim::random::Random;
use wattkeep_sim::rewind::RewindDisk;
use wattkeep_store::disk::Wait;
use wattkeep_store::hash;
use wattkeep_store::limits::{SUPERBLOCK_COPIES, SUPERBLOCK_SPACING};
use wattkeep_store::superblock::{FORMAT_VERSION, SUPERBLOCK_BYTES};
use wattkeep_store::types::{PAGE_SIZE, PageId};
use wattkeep_store::{Begin, CommitKind, OpenError, Purpose, Store};

use super::guard::{Bad, guarded};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

const VERSION_AT: usize = 8;
const COMPAT_AT: usize = 32;
const RO_COMPAT_AT: usize = 40;
const INCOMPAT_AT: usize = 48;

struct Golden {
    name: &'static str,
    disk: RewindDisk,
    contents: Contents,
    /// What the switches have made of it.
    used: RewindDisk,
    used_contents: Contents,
}

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut stores = Vec::new();
    for (name, text) in STORES {
        let Some(golden) = guarded(outcome, name, || Golden::new(name, text)) else { return };
        stores.push(golden);
    }
    let (mut refused, mut opened, mut switches) = (0u64, 0u64, 0u64);
    while outcome.tried < count && outcome.bad() == 0 {
        let number = stores.len() as u64;
        let golden = &mut stores[(outcome.tried % number) as usize];
        let turn = outcome.tried / number;
        let story = format!("{}, turn {turn}", golden.name);
        let bit = 1u64 << (turn / 5 % 64);
        let done = guarded(outcome, &story, || match turn % 5 {
            0 => golden.switch(&mut random).inspect(|()| switches += 1),
            1 => golden.compat(bit).inspect(|()| opened += 1),
            2 => golden.ro_compat(bit).inspect(|()| refused += 1),
            3 => golden.incompat(bit, &mut random).inspect(|()| refused += 1),
            _ => {
                golden.version(FORMAT_VERSION + 1 + (turn / 5) as u32, &mut random).inspect(|()| refused += 1)
            }
        });
        outcome.tried += u64::from(done.is_some());
    }
    outcome.note = format!(
        "{refused} refused and untouched, {opened} opened in spite of a compat flag, {switches} switches; \
         one format so far, so the switches are between openings of it"
    );
}

fn wrong<T>(cause: impl Into<String>) -> Result<T, Bad> {
    Err(Bad::Violated(cause.into()))
}

impl Golden {
    fn new(name: &'static str, text: &str) -> Result<Self, Bad> {
        let (disk, contents) = read(text).map_err(Bad::Violated)?;
        let (disk, used) = (RewindDisk::of(&disk), RewindDisk::of(&disk));
        let golden = Self { name, disk, used_contents: contents.clone(), contents, used };
        golden.must_hold(&golden.disk, &golden.contents, Store::open_read_only)?;
        golden.must_hold(&golden.disk, &golden.contents, Store::open_scanned)?;
        Ok(golden)
    }

    fn must_hold<R>(
        &self,
        disk: &RewindDisk,
        contents: &Contents,
        open: impl FnOnce(RewindDisk) -> Result<(Store<RewindDisk>, R), OpenError>,
    ) -> Result<Store<RewindDisk>, Bad> {
        let (mut store, _) = open(disk.clone()).map_err(|error| Bad::Lost(error.to_string()))?;
        let found = Contents::of(&mut store).map_err(Bad::Lost)?;
        if found != *contents {
            return Err(Bad::Lost(format!("it contains {found:?} and not {contents:?}")));
        }
        Ok(store)
    }

    /// Changes superblock copies as a newer program would write them.
    fn patch(&self, copies: impl Iterator<Item = u64>, at: usize, value: &[u8]) {
        for copy in copies {
            let start = (copy * SUPERBLOCK_SPACING) as usize;
            let mut bytes = self.disk.bytes()[start..start + SUPERBLOCK_BYTES].to_vec();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes[16..32].fill(0);
            let checksum = hash::superblock(&bytes).to_le_bytes();
            bytes[16..32].copy_from_slice(&checksum);
            self.disk.put(start, &bytes);
        }
    }

    /// All copies, or one of them.
    fn some_copies(random: &mut Random) -> std::ops::Range<u64> {
        match random.below(SUPERBLOCK_COPIES + 1) {
            SUPERBLOCK_COPIES => 0..SUPERBLOCK_COPIES,
            one => one..one + 1,
        }
    }

    /// Refused in every way of opening, and not a byte changed.
    fn must_be_refused(&self, accept: impl Fn(&OpenError) -> bool) -> Result<(), Bad> {
        let patched = self.disk.changes();
        for open in [Store::open, Store::open_read_only, Store::open_scanned, Store::open_incomplete] {
            match open(self.disk.clone()) {
                Err(error) if accept(&error) => {}
                Err(error) => return wrong(format!("refused, but as {error}")),
                Ok(_) => return wrong("a store of the future was opened"),
            }
        }
        let touched = self.disk.changes() != patched;
        self.disk.rewind();
        if touched {
            return wrong("a refused store was changed");
        }
        Ok(())
    }

    fn version(&self, version: u32, random: &mut Random) -> Result<(), Bad> {
        self.patch(Self::some_copies(random), VERSION_AT, &version.to_le_bytes());
        self.must_be_refused(
            |error| matches!(error, OpenError::Newer { version: named, .. } if *named == version),
        )
    }

    fn incompat(&self, bit: u64, random: &mut Random) -> Result<(), Bad> {
        self.patch(Self::some_copies(random), INCOMPAT_AT, &bit.to_le_bytes());
        self.must_be_refused(
            |error| matches!(error, OpenError::UnknownFeatures { flags, .. } if *flags == bit),
        )
    }

    /// Readable, not writable.
    fn ro_compat(&self, bit: u64) -> Result<(), Bad> {
        self.patch(0..SUPERBLOCK_COPIES, RO_COMPAT_AT, &bit.to_le_bytes());
        let patched = self.disk.changes();
        self.must_hold(&self.disk, &self.contents, Store::open_read_only)?;
        if !matches!(Store::open(self.disk.clone()), Err(OpenError::ReadOnlyFeatures { flags, .. }) if flags == bit)
        {
            return wrong("opened for writing with a feature that forbids it");
        }
        let touched = self.disk.changes() != patched;
        self.disk.rewind();
        if touched { wrong("a store that may only be read was changed") } else { Ok(()) }
    }

    fn compat(&self, bit: u64) -> Result<(), Bad> {
        self.patch(0..SUPERBLOCK_COPIES, COMPAT_AT, &bit.to_le_bytes());
        self.must_hold(&self.disk, &self.contents, Store::open_scanned)?;
        self.must_hold(&self.disk, &self.contents, Store::open)?;
        self.disk.rewind();
        Ok(())
    }

    /// Opens the store as the switches before left it, changes some pages, and leaves it in another way.
    fn switch(&mut self, random: &mut Random) -> Result<(), Bad> {
        self.must_hold(&self.used, &self.used_contents, Store::open_read_only)?;
        let mut store = self.must_hold(&self.used, &self.used_contents, Store::open)?;
        let text = |error: wattkeep_store::StoreError| Bad::Violated(error.to_string());
        let region = store.regions()[0].clone();
        let (mut left, mut events) = (random.below(4) + 1, Vec::new());
        while left > 0 {
            match store.begin(Purpose::Checkpoint, left as usize).map_err(text)? {
                Begin::Batch(mut batch) => {
                    let page = PageId { region: region.id, page: random.below(region.pages.into()) as u32 };
                    let bytes = [random.number() as u8; PAGE_SIZE];
                    *batch.next_page() = bytes;
                    batch.push(page, store.hash(&bytes), 0);
                    store.submit(batch);
                    left -= 1;
                }
                Begin::Busy => store.poll(Wait::One, &mut events).map_err(text)?,
                Begin::NoSpace => {
                    // Nobody cleans here: the golden store begins anew.
                    drop(store);
                    self.used.rewind();
                    self.used_contents = self.contents.clone();
                    return Ok(());
                }
            }
        }
        let kinds = [CommitKind::Checkpoint, CommitKind::Save, CommitKind::Close];
        store.commit(kinds[random.below(3) as usize]).map_err(text)?;
        self.used_contents = Contents::of(&mut store).map_err(Bad::Lost)?;
        Ok(())
    }
}
