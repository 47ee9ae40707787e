//! The keeper's life: greets the client, answers requests, and turns the engine until the client has
//! ended and everything is on the SSD.
//!
//! The client's own connection attaches regions; connections through the socket in the store's
//! directory look and steer. The end of the client's connection is the end of the client, whatever
//! its reason: its memory is here, and is drained.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use wattkeep_power::spec;
use wattkeep_store::disk::Disk;
use wattkeep_store::{
    CommitKind, CreateOptions, FileError, NewRegion, Recovery, RegionMode, Store, UringDisk, store_file,
};
use wattkeep_sys::socket;

use super::budget::DEFAULT_BUDGET;
use super::engine::{Keeper, KeeperError, Phase};
use super::notices::ClientLine;
use super::pages::KeptRegion;
use super::place;
use crate::control::block::{Control, PageRef};
use crate::control::page_word::State;
use crate::limits::{KEEPER_NAP, MESSAGE_MAX, PAGE_SIZE, REGIONS_MAX, RESERVE_MIN_BYTES};
use crate::protocol::{PROTOCOL, RegionReply, RegionRequest, Reply, Request, SOCKET_NAME, SessionOptions};
use crate::types::{FaultMode, RegionId, Tracking};

/// How long an opening waits for a keeper that is still writing the last session out.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// How long an opening waits for a keeper that seems to serve somebody: a killed program's keeper learns
/// of the kill a moment later than whoever starts the program again.
const RESTART_PATIENCE: Duration = Duration::from_secs(1);

/// Time without work after which the keeper naps. Under load news comes every few microseconds, and a
/// client that must ring a sleeping keeper pays several of them.
const RESTLESS: Duration = Duration::from_micros(200);

/// How often a busy keeper looks at its sockets.
const SOCKETS_EVERY: Duration = Duration::from_millis(1);

/// Descriptors that the keeper always looks at; visitors come behind them.
const FIXED: usize = 5;

/// Connections beside the client's.
const VISITORS_MAX: usize = 16;

/// Serves one session on `socket`, to its end.
pub fn run(socket: OwnedFd) {
    if let Err(e) = serve(&socket) {
        eprintln!("wattkeepd: {e}");
    }
}

struct Server {
    keeper: Keeper<UringDisk>,
    directory: PathBuf,
    directory_fd: OwnedFd,
    listener: Option<OwnedFd>,
    visitors: Vec<(u64, OwnedFd)>,
    next_visitor: u64,
    client_pid: u32,
    /// Readable when the client has ended; `None` for a keeper in a thread of it.
    client_process: Option<OwnedFd>,
    bell: OwnedFd,
}

/// What an answered request means for the session.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    End,
}

const CLIENT: u64 = 0;

fn serve(socket: &OwnedFd) -> Result<(), KeeperError> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let Some((len, mut fds)) = socket::receive(socket, &mut bytes)? else { return Ok(()) };
    let hello = serde_json::from_slice(&bytes[..len]).map_err(io::Error::other)?;
    let Request::Hello { protocol, store, options } = hello else {
        return Err(io::Error::other("the first message is not a greeting").into());
    };
    if protocol != PROTOCOL {
        let message = format!(
            "this keeper speaks protocol {PROTOCOL}, the program {protocol}: install both from one release"
        );
        return Ok(reply(socket.as_fd(), &Reply::Failed { message }, &[])?);
    }
    let line = ClientLine { notices: fds.pop(), pid: peer_pid(socket), stopped: false, asked: None };
    let (mut server, control_fd, recovered) = match Server::open(Path::new(&store), options, line) {
        Ok(opened) => opened,
        Err(message) => return Ok(reply(socket.as_fd(), &Reply::Failed { message }, &[])?),
    };
    let budget_pages = server.keeper.control.ledger.0.permits().limit;
    reply(
        socket.as_fd(),
        &Reply::Welcome { recovered, budget_pages },
        &[control_fd.as_fd(), server.bell.as_fd()],
    )?;
    drop(control_fd);
    server.live(socket);
    let _ = std::fs::remove_file(server.directory.join(SOCKET_NAME));
    Ok(())
}

fn peer_pid(socket: &OwnedFd) -> u32 {
    rustix::net::sockopt::socket_peercred(socket)
        .map_or(0, |peer| peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// A descriptor that becomes readable when the process ends, unless it is ours.
fn watch(pid: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).ok().filter(|_| pid != std::process::id()).and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn reply(socket: BorrowedFd<'_>, reply: &Reply, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(reply).map_err(io::Error::other)?;
    socket::send(socket, &bytes, fds)
}

impl Server {
    fn open(
        directory: &Path,
        options: SessionOptions,
        line: ClientLine,
    ) -> Result<(Self, OwnedFd, Option<String>), String> {
        let (store, recovered) = open_store(directory, &options)?;
        let remembered = store.budget_pages();
        let budget = match &options.budget {
            Some(text) => spec::parse_budget(text).map_err(|e| e.to_string())?,
            None if remembered > 0 => spec::BudgetSpec::Pages(remembered.into()),
            None => spec::parse_budget(DEFAULT_BUDGET).map_err(|e| e.to_string())?,
        };
        let (control, control_fd) = Control::create().map_err(|e| format!("no control block: {e}"))?;
        let system = |e: io::Error| format!("cannot serve {}: {e}", directory.display());
        let bell =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| system(e.into()))?;
        let directory_fd: OwnedFd = File::open(directory).map_err(system)?.into();
        let _ = std::fs::remove_file(directory.join(SOCKET_NAME));
        let listener = socket::listen_at(directory_fd.as_fd(), Path::new(SOCKET_NAME)).map_err(system)?;
        let client_pid = line.pid;
        let mut keeper = Keeper::new(store, control, line, options, budget);
        keeper.refill_reserve().map_err(|e| e.to_string())?;
        keeper.apply_budget()?;
        let server = Self {
            keeper,
            directory: directory.to_owned(),
            directory_fd,
            listener: Some(listener),
            visitors: Vec::new(),
            next_visitor: CLIENT + 1,
            client_pid,
            client_process: watch(client_pid),
            bell,
        };
        Ok((server, control_fd, recovered))
    }

    /// Turns the engine until the session has ended, one way or the other.
    fn live(&mut self, client: &OwnedFd) {
        let mut looked = Instant::now();
        let mut worked = Instant::now();
        loop {
            if self.keeper.failure().is_none() {
                match self.keeper.turn() {
                    Ok(true) => worked = Instant::now(),
                    Ok(false) => std::hint::spin_loop(),
                    Err(e) => self.keeper.fail(&e),
                }
                self.send_reports(client);
            }
            let sleepy = self.keeper.failure().is_some() || worked.elapsed() >= RESTLESS;
            if sleepy || looked.elapsed() >= SOCKETS_EVERY {
                looked = Instant::now();
                if self.look_at_sockets(client, sleepy) == Next::End {
                    return;
                }
            }
        }
    }

    fn send_reports(&mut self, client: &OwnedFd) {
        for (asker, report) in self.keeper.take_reports() {
            let answer = match report {
                Ok(report) => Reply::Saved(report),
                Err(message) => Reply::Failed { message },
            };
            let visitor = self.visitors.iter().find(|(id, _)| *id == asker).map(|(_, socket)| socket);
            if let Some(socket) = if asker == CLIENT { Some(client) } else { visitor } {
                let _ = reply(socket.as_fd(), &answer, &[]);
            }
        }
    }

    /// Answers whoever asked; sleeps until somebody does, or news comes, if told so.
    fn look_at_sockets(&mut self, client: &OwnedFd, sleepy: bool) -> Next {
        let nap = if sleepy && self.fall_asleep() { KEEPER_NAP } else { Duration::ZERO };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(nap.subsec_nanos()) };
        let ready: Vec<bool> = {
            let disk = self.keeper.store().disk().wake_fd();
            let fixed = [
                Some(client.as_fd()),
                Some(self.bell.as_fd()),
                self.listener.as_ref().map(AsFd::as_fd),
                disk,
                self.client_process.as_ref().map(AsFd::as_fd),
            ];
            let sockets =
                fixed.into_iter().chain(self.visitors.iter().map(|(_, socket)| Some(socket.as_fd())));
            let sockets: Vec<_> = sockets.map(|fd| fd.unwrap_or(client.as_fd())).collect();
            let mut fds: Vec<_> = sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let _ = poll(&mut fds, Some(&timeout));
            fds.iter().map(|fd| !fd.revents().is_empty()).collect()
        };
        self.keeper.control.keeper_wakes();
        if ready[1] {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        if ready[0] && self.answer(client, CLIENT) == Next::End {
            return Next::End;
        }
        // Its socket may live on, in a child that it forked.
        if self.client_process.is_some() && ready[FIXED - 1] {
            return self.end(None);
        }
        for number in (0..self.visitors.len()).rev().filter(|number| ready[FIXED + number]) {
            let (id, socket) = self.visitors.swap_remove(number);
            if self.answer(&socket, id) == Next::Go {
                self.visitors.push((id, socket));
            }
        }
        if ready[2] {
            self.admit_visitor();
        }
        Next::Go
    }

    /// True when there is nothing left to do: then clients must ring.
    fn fall_asleep(&mut self) -> bool {
        self.keeper.control.keeper_falls_asleep();
        match self.keeper.turn_if_running() {
            Ok(moved) => !moved,
            Err(e) => {
                self.keeper.fail(&e);
                true
            }
        }
    }

    fn admit_visitor(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok(Some(socket)) = socket::accept_from(listener.as_fd()) {
            if self.visitors.len() < VISITORS_MAX {
                self.visitors.push((self.next_visitor, socket));
                self.next_visitor += 1;
            }
        }
    }

    fn answer(&mut self, socket: &OwnedFd, asker: u64) -> Next {
        let mut bytes = vec![0; MESSAGE_MAX];
        let (len, fds) = match socket::receive(socket, &mut bytes) {
            Ok(Some(message)) => message,
            Ok(None) | Err(_) if asker == CLIENT => return self.end(None),
            Ok(None) | Err(_) => return Next::End,
        };
        let request: Request = match serde_json::from_slice(&bytes[..len]) {
            Ok(request) => request,
            Err(e) => {
                let message = format!("the keeper does not understand this request: {e}");
                let _ = reply(socket.as_fd(), &Reply::Failed { message }, &[]);
                return Next::Go;
            }
        };
        let steers_only = matches!(
            request,
            Request::Checkpoint
                | Request::SetBudget { .. }
                | Request::Status
                | Request::Save
                | Request::Resume
        );
        let result = match request {
            _ if asker != CLIENT && !steers_only => {
                Err("only the program that opened the store can do this".to_owned())
            }
            Request::Close => return self.end(Some(socket)),
            Request::OpenRegion(request) => return self.open_region(socket, &request),
            request => self.carry_out(request, fds, asker),
        };
        let answer = match result {
            Ok(Some(answer)) => answer,
            Ok(None) => return Next::Go,
            Err(message) => Reply::Failed { message },
        };
        let _ = reply(socket.as_fd(), &answer, &[]);
        Next::Go
    }

    /// `Ok(None)`: the answer comes later.
    fn carry_out(
        &mut self,
        request: Request,
        mut fds: Vec<OwnedFd>,
        asker: u64,
    ) -> Result<Option<Reply>, String> {
        if let (Some(cause), false) = (self.keeper.failure(), request == Request::Status) {
            return Err(cause.to_owned());
        }
        let keeper = &mut self.keeper;
        Ok(Some(match request {
            Request::Attach { index } => {
                keeper.attach(index as usize, fds.pop()).map_err(|e| e.to_string())?;
                Reply::Done
            }
            Request::Detach { index } => {
                keeper.detach(index as usize)?;
                Reply::Done
            }
            Request::Grow { index, bytes } => {
                keeper.grow(index as usize, bytes)?;
                Reply::Done
            }
            Request::SetBudget { budget } => {
                keeper.set_budget_text(&budget)?;
                Reply::Done
            }
            Request::Checkpoint if keeper.phase == Phase::Saved => {
                return Err(
                    "a save holds everything already; let writers go on with 'wattkeep resume' first".into(),
                );
            }
            Request::Checkpoint => {
                keeper.begin_checkpoint(Some(asker));
                return Ok(None);
            }
            Request::Save => match keeper.save() {
                Ok(report) => Reply::Saved(report),
                Err(e) => {
                    keeper.fail(&e);
                    return Err(e.to_string());
                }
            },
            Request::Resume => {
                keeper.resume().map_err(|e| e.to_string())?;
                Reply::Done
            }
            Request::Status => Reply::Status(Box::new(keeper.status(self.client_pid))),
            Request::Hello { .. } | Request::OpenRegion(_) | Request::Close => {
                return Err("this request does not fit here".into());
            }
        }))
    }

    fn open_region(&mut self, socket: &OwnedFd, request: &RegionRequest) -> Next {
        let opened = match self.keeper.failure() {
            Some(cause) => Err(cause.to_owned()),
            None => self.keeper.open_region(request),
        };
        let _ = match opened {
            Ok(answer) => {
                let region = &self.keeper.regions[answer.index as usize];
                reply(socket.as_fd(), &Reply::Region(answer), &region.descriptors())
            }
            Err(message) => reply(socket.as_fd(), &Reply::Failed { message }, &[]),
        };
        Next::Go
    }

    /// The client let go, or died: drain, commit, end.
    fn end(&mut self, asker: Option<&OwnedFd>) -> Next {
        self.keeper.client.notices = None;
        let answer = match self.keeper.failure().map(str::to_owned) {
            Some(cause) => Reply::Failed { message: cause },
            None => match self.keeper.close() {
                Ok(_) => Reply::Done,
                Err(e) => Reply::Failed { message: e.to_string() },
            },
        };
        if let (Reply::Failed { message }, None) = (&answer, asker) {
            eprintln!("wattkeepd: {}: {message}", self.directory.display());
        }
        // The socket goes before the answer: whoever hears it may open the store again.
        self.listener = None;
        let _ = rustix::fs::unlinkat(&self.directory_fd, SOCKET_NAME, rustix::fs::AtFlags::empty());
        if let Some(socket) = asker {
            let _ = reply(socket.as_fd(), &answer, &[]);
        }
        Next::End
    }
}

fn open_store(
    directory: &Path,
    options: &SessionOptions,
) -> Result<(Store<UringDisk>, Option<String>), String> {
    if options.create_if_missing && !store_file(directory).exists() {
        let store = Store::create_in(directory, &mut CreateOptions::default()).map_err(|e| e.to_string())?;
        return Ok((store, None));
    }
    let began = Instant::now();
    let worth_waiting =
        || began.elapsed() < RESTART_PATIENCE || began.elapsed() < LOCK_PATIENCE && is_draining(directory);
    let disk = loop {
        match UringDisk::open(directory) {
            Err(FileError::InUse { .. }) if worth_waiting() => {
                std::thread::yield_now();
                let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 });
            }
            other => break other.map_err(|e| e.to_string())?,
        }
    };
    let (store, recovery) = Store::open(disk).map_err(|e| e.to_string())?;
    Ok((store, Some(describe(&recovery))))
}

/// What recovery found, in words for people.
fn describe(recovery: &Recovery) -> String {
    let image = match recovery.kind {
        CommitKind::Created => "empty store",
        CommitKind::Checkpoint => "last checkpoint",
        CommitKind::Save => "completed save",
        CommitKind::Close => "orderly close",
    };
    if recovery.clean {
        return format!("{image}, complete");
    }
    format!(
        "{image}, epoch {}: the last session ended without a save, what it wrote later is lost ({} batches dropped)",
        recovery.commit.epoch.0, recovery.lost_tail_batches
    )
}

/// A keeper without a listening socket holds the store: its client has ended, it is writing out.
fn is_draining(directory: &Path) -> bool {
    let Ok(directory) = File::open(directory) else { return false };
    socket::connect_to(directory.as_fd(), Path::new(SOCKET_NAME)).is_err()
}

impl<D: Disk> Keeper<D> {
    /// A turn, unless the keeper failed.
    fn turn_if_running(&mut self) -> Result<bool, KeeperError> {
        if self.failure().is_some() { Ok(false) } else { self.turn() }
    }

    fn take_reports(&mut self) -> Vec<super::status::Report> {
        std::mem::take(&mut self.counters.reports)
    }

    /// Opens a region of the store, or makes it. The caller hands the descriptors on.
    pub fn open_region(&mut self, request: &RegionRequest) -> Result<RegionReply, String> {
        if self.regions.len() == REGIONS_MAX {
            return Err(format!(
                "a session maps at most {REGIONS_MAX} regions: open the store a second time later"
            ));
        }
        if let Some(index) = self.regions.iter().position(|region| region.name == request.name) {
            return self.open_again(index);
        }
        let id = match self.store.region_by_name(&request.name) {
            Some(record) => record.id,
            None => self.create_region(request)?,
        };
        self.apply_budget()?;
        let record = self.store.region(id).ok_or("the region vanished while it was opened")?;
        let tracking = match (record.mode, request.tracking) {
            (RegionMode::Transparent, _) => Tracking::Transparent,
            (RegionMode::Explicit, Tracking::Checking) => Tracking::Checking,
            (RegionMode::Explicit, _) => Tracking::Explicit,
        };
        let (pages, reserve, address) =
            (record.pages, record.reserve_pages.max(record.pages), record.address);
        let region = KeptRegion::create(id, &request.name, tracking, pages, reserve, address)
            .map_err(|e| format!("no memory for region '{}': {e}", request.name))?;
        self.regions.push(region);
        let index = self.regions.len() - 1;
        self.mark_absent(index);
        if self.options.fill_ahead || self.options.fault_mode == FaultMode::Mprotect {
            let lost_before = self.counters.lost_pages;
            self.fill_now(index).map_err(|e| e.to_string())?;
            let lost = self.counters.lost_pages - lost_before;
            if lost > 0 && self.options.fault_mode == FaultMode::Mprotect {
                // Nothing faults on a page that reads as zeros.
                self.regions.truncate(index);
                return Err(format!(
                    "{lost} pages of region '{}' are damaged in the store, and with fault mode mprotect they \
                     would read as zeros: run 'wattkeep check', then open with fault mode 'signal' or 'monitor'",
                    request.name
                ));
            }
        }
        self.store.mark_running().map_err(|e| e.to_string())?;
        Ok(RegionReply { index: index as u32, pages, reserve_pages: reserve, address, tracking })
    }

    /// A region that could not be mapped may be asked for again. One that was mapped may not: its memory
    /// is sealed against a second mapping.
    fn open_again(&mut self, index: usize) -> Result<RegionReply, String> {
        let region = &self.regions[index];
        let name = &region.name;
        match (region.is_detached(), region.is_sealed()) {
            (true, false) => Ok(RegionReply {
                index: index as u32,
                pages: region.pages,
                reserve_pages: region.reserve(),
                address: region.address,
                tracking: region.tracking,
            }),
            (true, true) => Err(format!(
                "region '{name}' was closed: close the store and open it again to open the region again"
            )),
            (false, _) => Err(format!("region '{name}' is open already in this program")),
        }
    }

    /// The client has no mapping of the region any more: what is dirty there waits for its copy.
    pub fn detach(&mut self, index: usize) -> Result<(), String> {
        let Some(region) = self.regions.get_mut(index) else {
            return Err("no such region in this session".into());
        };
        region.forget_client();
        for page in 0..region.pages {
            if region.word(page).try_advance(State::Dirty, State::Queued).is_some() {
                self.queue.push_back(PageRef { region: index as u32, page });
            }
        }
        Ok(())
    }

    fn create_region(&mut self, request: &RegionRequest) -> Result<RegionId, String> {
        let Some(bytes) = request.create_bytes else {
            let known: Vec<_> = self.store.regions().iter().map(|region| region.name.as_str()).collect();
            return Err(format!("the store has no region '{}'; it has: {}", request.name, known.join(", ")));
        };
        let pages = whole_pages(bytes)?;
        let reserve = whole_pages(
            request.reserve_bytes.max(RESERVE_MIN_BYTES).max(bytes).next_multiple_of(PAGE_SIZE as u64),
        )?;
        let address = self.free_address(&request.name, u64::from(reserve) * PAGE_SIZE as u64)?;
        let mode = if request.tracking == Tracking::Transparent {
            RegionMode::Transparent
        } else {
            RegionMode::Explicit
        };
        self.store
            .create_region(NewRegion {
                name: request.name.clone(),
                mode,
                pages,
                reserve_pages: reserve,
                address,
            })
            .map_err(|e| e.to_string())
    }

    fn free_address(&self, name: &str, bytes: u64) -> Result<u64, String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.client.pid)).unwrap_or_default();
        let occupied = place::mapped_ranges(&maps);
        place::free_address_beside(&occupied, self.store.regions(), self.store.uuid(), name, bytes)
            .ok_or_else(|| format!("no address range of {bytes} bytes is left: ask for a smaller reserve"))
    }

    /// The client has mapped a region: seals its memory and takes over its userfaultfd.
    pub fn attach(&mut self, index: usize, guard: Option<OwnedFd>) -> Result<(), KeeperError> {
        let Some(region) = self.regions.get_mut(index) else {
            return Err(io::Error::other("no such region in this session").into());
        };
        let filled = self.options.fill_ahead && guard.is_some();
        region.seal(guard)?;
        if filled && region.tracking.protects() && !region.protect(0, region.pages) {
            return Err(io::Error::other("pages filled ahead cannot be protected").into());
        }
        self.begin_fill(index);
        Ok(())
    }

    /// Makes an open region larger.
    pub fn grow(&mut self, index: usize, bytes: u64) -> Result<(), String> {
        let pages = whole_pages(bytes)?;
        let Some(region) = self.regions.get_mut(index) else {
            return Err("no such region in this session".into());
        };
        if pages < region.pages {
            return Err(format!(
                "region '{}' has {} bytes and cannot shrink while it is open: close it, then use 'wattkeep resize'",
                region.name,
                u64::from(region.pages) * PAGE_SIZE as u64
            ));
        }
        if pages > region.reserve() {
            return Err(format!(
                "region '{}' reserved {} bytes of address space: it cannot grow to {bytes} bytes",
                region.name,
                u64::from(region.reserve()) * PAGE_SIZE as u64
            ));
        }
        self.store.resize_region(region.id, pages).map_err(|e| e.to_string())?;
        region.set_pages(pages);
        self.apply_budget()
    }
}

fn whole_pages(bytes: u64) -> Result<u32, String> {
    let page = PAGE_SIZE as u64;
    if bytes == 0 || !bytes.is_multiple_of(page) {
        return Err(format!("a region has a whole number of pages of {page} bytes, not {bytes} bytes"));
    }
    u32::try_from(bytes / page)
        .ok()
        .filter(|pages| *pages < u32::MAX)
        .ok_or_else(|| format!("{bytes} bytes are more than a region can have (16 TiB)"))
}
