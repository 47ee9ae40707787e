//! Software persistent memory: ordinary DRAM whose unsaved bytes are bounded by what the battery can
//! still save.
//!
//! A [`Store`] is a directory on an SSD. It holds named [`Region`]s; a program maps a region and loads
//! and stores its bytes like any memory. At every instant, at most as many pages differ from the SSD
//! as the dirty budget allows, so that a power cut leaves time to save them all.
//!
//! ```no_run
//! use wattkeep::{Store, RegionOptions};
//!
//! let store = Store::options().create_if_missing(true).budget("64MiB").open("/var/lib/app/store")?;
//! let region = store.region("table", RegionOptions::transparent().create(1 << 30))?;
//! // SAFETY: inside the region, and no other thread writes there.
//! unsafe { region.as_ptr().cast::<u64>().write_volatile(42) };
//! store.checkpoint()?;
//! # Ok::<(), wattkeep::Error>(())
//! ```
//!
//! A *transparent* region notices stores by page faults. An *explicit* one is told with
//! [`Region::will_write`], and takes no faults. [`Store::heap`] opens one as a persistent heap, with
//! transactions ([`tx`]) and data structures ([`collections`]).

mod space;

use std::path::Path;
use std::sync::Arc;

pub use wattkeep_collections as collections;
pub use wattkeep_heap as heap;
use wattkeep_keep::client::region;
pub use wattkeep_keep::client::region::Announced;
pub use wattkeep_keep::client::session::SessionError as Error;
use wattkeep_keep::client::session::{self, Session};
pub use wattkeep_keep::client::spawn::KeeperPlace;
pub use wattkeep_keep::limits::PAGE_SIZE;
use wattkeep_keep::protocol::RegionRequest;
pub use wattkeep_keep::protocol::{RegionStatus, SaveReport, Status};
pub use wattkeep_keep::types::{FaultMode, PolicyName, Tracking};
pub use wattkeep_persist as persist;
pub use wattkeep_tx as tx;

/// An open store with its keeper. Dropping it writes everything to the SSD; [`Store::close`] does the
/// same and says how it went.
#[derive(Clone)]
pub struct Store(Arc<Session>);

/// How to open a store.
pub struct StoreOptions(session::OpenOptions);

impl Store {
    /// Options to open a store with: no store is created, the budget is the one that the store
    /// remembers, the keeper is a process of its own.
    pub fn options() -> StoreOptions {
        StoreOptions(session::OpenOptions::default())
    }

    /// Opens a region, or creates it where the options say so, and maps it at its recorded address.
    pub fn region(&self, name: &str, options: RegionOptions) -> Result<Region, Error> {
        let request = RegionRequest {
            name: name.to_owned(),
            create_bytes: options.create_bytes,
            tracking: options.tracking,
            reserve_bytes: options.reserve_bytes,
        };
        self.0.open_region(&request).map(Region)
    }

    /// Commits a consistent image of all regions while the program runs on. A crash without a save
    /// comes back to the last one.
    ///
    /// # Errors
    /// A thread held pages announced ([`Region::will_write`]), or was stopped in the middle of a store, at each of
    /// several tries within half a second; a save or the end of the session overtook it; or the store failed.
    pub fn checkpoint(&self) -> Result<SaveReport, Error> {
        self.0.checkpoint()
    }

    /// Saves as if the power went: freezes, writes every dirty page, commits. Writers stall until
    /// [`Store::resume`].
    pub fn save(&self) -> Result<SaveReport, Error> {
        self.0.save()
    }

    /// Lets writers go on after [`Store::save`].
    pub fn resume(&self) -> Result<(), Error> {
        self.0.resume()
    }

    /// Changes the dirty budget while writers run: pages (`4096`), bytes (`64MiB`) or a percentage of
    /// the regions (`11%`).
    pub fn set_budget(&self, budget: &str) -> Result<(), Error> {
        self.0.set_budget(budget)
    }

    /// What the keeper says of itself. The first field answers: is my data safe now?
    pub fn status(&self) -> Result<Status, Error> {
        self.0.status()
    }

    /// What recovery found; `None` for a store that was just created.
    pub fn recovered(&self) -> Option<&str> {
        self.0.recovered()
    }

    /// How first stores reach us.
    pub fn fault_mode(&self) -> FaultMode {
        self.0.mode().mode
    }

    /// Process id of the keeper.
    pub fn keeper_pid(&self) -> u32 {
        self.0.keeper_pid()
    }

    /// The session below, for drills and audits.
    pub fn session(&self) -> &Arc<Session> {
        &self.0
    }

    /// Writes everything to the SSD, commits, and ends the keeper. Close the regions before: while one is open,
    /// or a heap in it, this is refused.
    pub fn close(self) -> Result<(), Error> {
        self.0.close()
    }
}

impl StoreOptions {
    /// Makes the store if there is none.
    pub fn create_if_missing(mut self, yes: bool) -> Self {
        self.0.create_if_missing = yes;
        self
    }

    /// Sets the dirty budget: pages, bytes, or a percentage of the regions. Pages or bytes above what the
    /// regions have are capped at that, until there are more.
    pub fn budget(mut self, budget: &str) -> Self {
        self.0.budget = Some(budget.to_owned());
        self
    }

    /// Which page is cleaned next.
    pub fn policy(mut self, policy: PolicyName) -> Self {
        self.0.policy = policy;
        self
    }

    /// Milliseconds between automatic checkpoints; 0 for none. Default: one minute.
    pub fn checkpoint_interval_ms(mut self, interval: u64) -> Self {
        self.0.checkpoint_interval_ms = interval;
        self
    }

    /// Calls `callback` before a freeze, from a thread of the library, and waits for it at most
    /// `limit_ms` milliseconds.
    pub fn quiesce(mut self, limit_ms: u64, callback: impl FnMut() + Send + 'static) -> Self {
        self.0.quiesce = Some(Box::new(callback));
        self.0.quiesce_ms = limit_ms;
        self
    }

    /// How first stores reach us; chosen by a self-test otherwise.
    pub fn fault_mode(mut self, mode: FaultMode) -> Self {
        self.0.fault_mode = Some(mode);
        self
    }

    /// Where the keeper runs. A thread is for tests: it dies with the program.
    pub fn keeper(mut self, place: KeeperPlace) -> Self {
        self.0.keeper = place;
        self
    }

    /// Fills regions from the store before they are handed out, not at first touch. For programs that
    /// pass region memory to system calls right away.
    pub fn fill_ahead(mut self, yes: bool) -> Self {
        self.0.fill_ahead = yes;
        self
    }

    /// Opens the store in `directory`.
    pub fn open(self, directory: impl AsRef<Path>) -> Result<Store, Error> {
        Session::open(directory.as_ref(), self.0).map(Store)
    }
}

/// How to open a region.
#[derive(Clone, Debug)]
pub struct RegionOptions {
    create_bytes: Option<u64>,
    tracking: Tracking,
    reserve_bytes: u64,
}

impl RegionOptions {
    /// A region whose first stores fault: for code that does not know us.
    pub fn transparent() -> Self {
        Self { create_bytes: None, tracking: Tracking::Transparent, reserve_bytes: 0 }
    }

    /// A region whose stores are announced with [`Region::will_write`].
    pub fn explicit() -> Self {
        Self { tracking: Tracking::Explicit, ..Self::transparent() }
    }

    /// An explicit region in which unannounced stores are reported, with a backtrace.
    pub fn checking() -> Self {
        Self { tracking: Tracking::Checking, ..Self::transparent() }
    }

    /// Creates the region with so many bytes, whole pages, if it does not exist. An existing one keeps
    /// its size.
    pub fn create(mut self, bytes: u64) -> Self {
        self.create_bytes = Some(bytes);
        self
    }

    /// Address space to keep for growth, in bytes. Costs no memory.
    pub fn reserve(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }
}

/// A mapped region. Closing it, or dropping it, unmaps the memory; what was stored stays.
pub struct Region(region::Region);

impl Region {
    /// First byte. A region has the same address in every program that opens it, so raw pointers into
    /// it may be stored in it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.start()
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Name in the store.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// How its stores are noticed.
    pub fn tracking(&self) -> Tracking {
        self.0.tracking()
    }

    /// Announces stores to `len` bytes at `offset` and pins those pages until the answer is dropped.
    /// Needed before every store to an explicit region, and before a system call that writes into a
    /// region in fault modes `signal` and `mprotect`, where it would fail with EFAULT.
    #[inline]
    pub fn will_write(&self, offset: usize, len: usize) -> Result<Announced<'_>, Error> {
        self.0.will_write(offset, len)
    }

    /// Makes sure that `len` bytes at `offset` are in memory. Needed before a system call that reads
    /// from a region while it is being restored, in fault modes `signal` and `mprotect`.
    pub fn will_read(&self, offset: usize, len: usize) -> Result<(), Error> {
        self.0.will_read(offset, len)
    }

    /// Makes the region larger, up to its reserve; address and contents stay, new bytes are zero.
    pub fn grow(&self, bytes: u64) -> Result<(), Error> {
        self.0.grow(bytes)
    }

    /// Unmaps the region. Stop using pointers into it before. [`Store::region`] opens it again: it waits
    /// until what was stored is on the SSD, and reads it back from there.
    pub fn close(self) {}
}
