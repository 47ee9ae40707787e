//! One mapped region: its address range, its guard, and the stores announced to it.
//!
//! # Safety
//!
//! 1. The `Tracked` behind a region is boxed, published after it is complete, withdrawn before it is
//!    freed, and freed after the mapping is gone.
//! 2. Callers that keep raw pointers into a region stop using them before they close it.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wattkeep_announce::announcer::Announcer;
use wattkeep_announce::hazard::Hazard;
use wattkeep_sys::map::{Access, Mapping};
use wattkeep_sys::uffd;

use super::ahead::Ahead;
use super::announce::Unpinned;
use super::grant::{Outcome, Tracked};
use super::guard::Guard;
use super::monitor::Monitor;
use super::session::{Session, SessionError, fault_signal, unexpected};
use super::{fault, probe};
use crate::control::block::Words;
use crate::limits::PAGE_SIZE;
use crate::page_table::PageTable;
use crate::protocol::{RegionReply, RegionRequest, Reply, Request};
use crate::types::{FaultMode, Tracking};

/// Another thread may map something between the keeper's look for a free place and ours: so often is looked anew.
const PLACES_TRIED_MAX: u32 = 4;

/// A mapped region. Closing or dropping it unmaps the memory; what was stored stays.
pub struct Region {
    session: Arc<Session>,
    name: String,
    index: u32,
    tracked: *mut Tracked,
    entry: usize,
    monitor: Option<Monitor>,
    mapping: Option<Mapping>,
    /// Explicit regions have one.
    ahead: Option<Ahead>,
}

// SAFETY: 1: the pointer is owned by the region, and `Tracked` is shared between threads anyway.
unsafe impl Send for Region {}
// SAFETY: 1: as above; all methods on `&self` use atomics or the session's locks.
unsafe impl Sync for Region {}

/// Stores announced to a range, which is pinned until this is dropped.
#[must_use = "the announcement ends when this is dropped: keep it until the store is done"]
pub struct Announced<'a> {
    /// Its drop ends the announcement.
    _hazard: Option<Hazard<'a>>,
    _pins: Option<Pins<'a>>,
}

/// Pages that are pinned.
struct Pins<'a> {
    tracked: &'a Tracked,
    first: u32,
    end: u32,
}

impl Drop for Pins<'_> {
    #[inline]
    fn drop(&mut self) {
        for page in self.first..self.end {
            self.tracked.unpin(page);
        }
    }
}

impl Region {
    pub(super) fn open(session: Arc<Session>, request: &RegionRequest) -> Result<Self, SessionError> {
        let mut tries = PLACES_TRIED_MAX;
        loop {
            let (reply, fds) = session.ask(&Request::OpenRegion(request.clone()), &[])?;
            let Reply::Region(reply) = reply else { return Err(unexpected(&reply)) };
            let index = reply.index;
            let opened = Self::attach(session.clone(), request, reply, fds);
            if opened.is_err() {
                let _ = session.done(Request::Detach { index });
            }
            tries -= 1;
            // A region that was made just now is gone again: the keeper finds it another place.
            match opened {
                Err(SessionError::Occupied(_)) if tries > 0 => {}
                opened => return opened,
            }
        }
    }

    fn attach(
        session: Arc<Session>,
        request: &RegionRequest,
        reply: RegionReply,
        fds: Vec<OwnedFd>,
    ) -> Result<Self, SessionError> {
        let [memory, words] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| SessionError::KeeperGone)?;
        let mode = session.mode().mode;
        if let (Tracking::Checking, Some(signal)) = (reply.tracking, fault_signal(mode)) {
            fault::prepare_reports(signal)?;
        }
        let mapping = Self::map(&reply, &memory, mode, &request.name)?;
        let ahead = match reply.tracking {
            Tracking::Explicit => Some(Ahead::of(&memory, mapping.len())?),
            _ => None,
        };
        let words = Words::map(&words, reply.reserve_pages)?;
        let guard = Self::guard(&reply, &mapping, mode)?;
        let fds: Vec<_> = guard.descriptor().into_iter().collect();
        let Reply::Done = session.ask(&Request::Attach { index: reply.index }, &fds)?.0 else {
            return Err(SessionError::KeeperGone);
        };
        let base = mapping.start() as usize;
        let tracked = Box::into_raw(Box::new(Tracked::new(
            session.shared().clone(),
            words,
            reply.index,
            base,
            reply.pages,
            reply.tracking,
            guard,
        )));
        let entry = fault::publish(base, mapping.len(), tracked).inspect_err(|_| {
            // SAFETY: 1: not published, so nobody else has it.
            drop(unsafe { Box::from_raw(tracked) });
        })?;
        session.shared().publish(tracked, reply.index);
        let monitor = match mode {
            // SAFETY: 1: the region stops the monitor before it frees `tracked`.
            FaultMode::Monitor => Some(unsafe { Monitor::start(tracked) }?),
            _ => None,
        };
        let name = request.name.clone();
        session.regions_open.fetch_add(1, Ordering::SeqCst);
        Ok(Self { session, name, index: reply.index, tracked, entry, monitor, mapping: Some(mapping), ahead })
    }

    fn map(
        reply: &RegionReply,
        memory: &OwnedFd,
        mode: FaultMode,
        name: &str,
    ) -> Result<Mapping, SessionError> {
        let len = reply.reserve_pages as usize * PAGE_SIZE;
        let mapping =
            Mapping::at(reply.address as usize, memory, len, Access::ReadWrite).map_err(|errno| {
                let place = reply.address;
                match errno {
                    rustix::io::Errno::EXIST => SessionError::Occupied(format!(
                        "region '{name}' belongs at {place:#x}, where this program has mapped something else: \
                         look into /proc/{}/maps, and open the region before whatever lies there",
                        std::process::id()
                    )),
                    other => {
                        SessionError::Refused(format!("region '{name}' cannot be mapped at {place:#x}: {other}"))
                    }
                }
            })?;
        mapping.hide_from_children()?;
        if mode == FaultMode::Mprotect && reply.tracking.protects() {
            mapping.set_access(Access::Read)?;
        }
        Ok(mapping)
    }

    fn guard(reply: &RegionReply, mapping: &Mapping, mode: FaultMode) -> Result<Guard, SessionError> {
        if mode == FaultMode::Mprotect {
            return Ok(Guard::Mprotect);
        }
        let fd = probe::open_userfault(mode)?;
        let faults = probe::register_mode(reply.tracking);
        // SAFETY: 1: the region's own mapping, not yet handed out.
        unsafe { uffd::register(fd.as_fd(), mapping.start() as usize, mapping.len(), faults)? };
        Ok(Guard::Userfault { table: PageTable::Userfault(fd), protects: reply.tracking.protects() })
    }

    #[inline]
    fn tracked(&self) -> &Tracked {
        // SAFETY: 1: alive as long as the region.
        unsafe { &*self.tracked }
    }

    /// First byte. The region keeps this address for life, so raw pointers into it may be stored in it.
    pub fn start(&self) -> *mut u8 {
        self.mapping.as_ref().map_or(std::ptr::null_mut(), Mapping::start)
    }

    /// Size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.tracked().pages() as usize * PAGE_SIZE
    }

    /// Never true: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Name in the store.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its stores are noticed.
    #[inline]
    pub fn tracking(&self) -> Tracking {
        self.tracked().tracking()
    }

    /// The session that the region belongs to.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Announces stores to `len` bytes at `offset`, and pins those pages until the answer is dropped:
    /// meanwhile they are writable, by system calls too, and are not copied.
    ///
    /// Needed before every store to an explicit region, and before a system call that writes into a
    /// region in fault modes `signal` and `mprotect` (it would get EFAULT). Waits for permits.
    ///
    /// Panics when the range leaves the region. An error when it needs more pages than the budget
    /// has, or when a page is damaged in the store.
    #[inline]
    pub fn will_write(&self, offset: usize, len: usize) -> Result<Announced<'_>, SessionError> {
        let tracked = self.tracked();
        // Beyond the end of the region no page is dirty.
        if let Some(hazard) = tracked.announcer().and_then(|announcer| announcer.announce(offset, len)) {
            return Ok(Announced { _hazard: Some(hazard), _pins: None });
        }
        Ok(Announced { _hazard: None, _pins: Some(self.pin(offset, len)?) })
    }

    /// Pins the pages of a range.
    fn pin(&self, offset: usize, len: usize) -> Result<Pins<'_>, SessionError> {
        let tracked = self.tracked();
        let (first, end) = self.pages_of(offset, len);
        let mut next = first;
        while next < end {
            match tracked.pin(next) {
                Ok(()) => next += 1,
                Err(blocked) => {
                    (first..next).for_each(|page| tracked.unpin(page));
                    self.after_blocked(blocked, end - first)?;
                    next = first;
                }
            }
        }
        Ok(Pins { tracked, first, end })
    }

    /// Announces stores to dirty pages without pins, where the system allows it.
    pub fn announcer(&self) -> Option<Announcer> {
        self.tracked().announcer().cloned()
    }

    /// [`Self::will_write`] for whoever cannot hold a guard: the pages stay pinned until
    /// [`Self::end_write`] is called with the same range, once for each call of this.
    #[inline]
    pub fn begin_write(&self, offset: usize, len: usize) -> Result<(), SessionError> {
        std::mem::forget(self.pin(offset, len)?);
        Ok(())
    }

    /// Ends stores announced with [`Self::begin_write`].
    #[inline]
    pub fn end_write(&self, offset: usize, len: usize) {
        let (first, end) = self.pages_of(offset, len);
        drop(Pins { tracked: self.tracked(), first, end });
    }

    #[cold]
    fn after_blocked(&self, blocked: Unpinned, pages: u32) -> Result<(), SessionError> {
        self.session.refuse_child()?;
        match blocked {
            Unpinned::Failed(outcome) => Err(SessionError::Refused(format!(
                "a page of region '{}' cannot be handed out ({outcome:?}): run 'wattkeep check' on the store",
                self.name
            ))),
            // A pin sleeps by itself.
            Unpinned::Sleep(_) => Ok(()),
            Unpinned::Wait => {
                let budget = self.session.control().budget();
                if pages > budget {
                    return Err(SessionError::Refused(format!(
                        "{pages} pages cannot be written at once with a dirty budget of {budget} pages: \
                         announce smaller pieces, or raise it with 'wattkeep budget'"
                    )));
                }
                self.tracked().wait_for_permit();
                Ok(())
            }
        }
    }

    /// Brings whole pages into memory together that nobody ever stored to, in large pieces where the
    /// machine allows them. Reading them finds zeros; stores are announced as ever. `false`: not these
    /// pages, or not in this region, and each comes with its first access.
    ///
    /// Panics when the range leaves the region.
    pub fn populate(&self, offset: usize, len: usize) -> bool {
        let (Some(ahead), Some(mapping)) = (&self.ahead, &self.mapping) else { return false };
        let (first, end) = self.pages_of(offset, len);
        let (at, end) = (first as usize * PAGE_SIZE, end as usize * PAGE_SIZE);
        ahead.populate(mapping, self.tracked(), at, end - at)
    }

    /// The least size of pieces, from `at_least` bytes on, in which [`Self::populate`] brings pages in.
    pub fn piece(&self, at_least: usize) -> Option<usize> {
        self.ahead.as_ref().and_then(|_| Ahead::piece(at_least))
    }

    /// Makes sure that `len` bytes at `offset` are in memory, so that a system call can read them while
    /// a restore runs in fault modes `signal` and `mprotect` (it would get EFAULT).
    pub fn will_read(&self, offset: usize, len: usize) -> Result<(), SessionError> {
        self.session.refuse_child()?;
        let (first, end) = self.pages_of(offset, len);
        for page in first..end {
            if self.tracked().resolve(page, false) != Outcome::Resolved {
                let outcome = Unpinned::Failed(Outcome::Lost);
                self.after_blocked(outcome, 1)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn pages_of(&self, offset: usize, len: usize) -> (u32, u32) {
        let end = offset.checked_add(len).expect("a range inside the address space");
        assert!(
            end <= self.len(),
            "bytes {offset}..{end} leave region '{}' of {} bytes",
            self.name,
            self.len()
        );
        ((offset / PAGE_SIZE) as u32, end.div_ceil(PAGE_SIZE) as u32)
    }

    /// Makes the region `bytes` long. Its address and contents stay; the new pages are zero.
    pub fn grow(&self, bytes: u64) -> Result<(), SessionError> {
        self.session.done(Request::Grow { index: self.index, bytes })?;
        self.tracked().set_pages((bytes / PAGE_SIZE as u64) as u32);
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.monitor = None;
        self.session.shared().withdraw(self.index);
        fault::withdraw(self.entry);
        let addresses = self.mapping.as_ref().map_or(0..0, |mapping| {
            let start = mapping.start().addr() as u64;
            start..start + mapping.len() as u64
        });
        // Before its userfaultfd: a mapping that lost its last one would be writable untracked.
        self.mapping = None;
        self.session.control().hazards.end_all(addresses);
        // SAFETY: 1: withdrawn, unmapped, owned by us. 2: the caller's threads are done with it.
        drop(unsafe { Box::from_raw(self.tracked) });
        // A keeper that is gone needs no news.
        let _ = self.session.done(Request::Detach { index: self.index });
        self.session.regions_open.fetch_sub(1, Ordering::SeqCst);
    }
}
