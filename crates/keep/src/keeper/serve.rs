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
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use wattkeep_power::spec;
use wattkeep_store::UringDisk;
use wattkeep_store::disk::Disk;
use wattkeep_sys::mutant::planted;
use wattkeep_sys::socket;

use super::budget::DEFAULT_BUDGET;
use super::complain::complain;
use super::engine::{Keeper, KeeperError, Phase};
use super::notices::ClientLine;
use super::opening::open_store;
use crate::clock::Clock;
use crate::control::block::Control;
use crate::limits::{FILLER_NAP, KEEPER_NAP, MESSAGE_MAX, STORE_NAP};
use crate::page_table::PageTable;
use crate::protocol::{PROTOCOL, RegionRequest, Reply, Request, SOCKET_NAME, SessionOptions};

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
        complain(&e.to_string());
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
    let line = ClientLine { notices: fds.pop(), pid: peer_pid(socket), ..ClientLine::default() };
    let (mut server, control_fd, recovered) = match Server::open(Path::new(&store), options, line) {
        Ok(opened) => opened,
        Err(message) => return Ok(reply(socket.as_fd(), &Reply::Failed { message }, &[])?),
    };
    let budget_pages = server.keeper.budget_pages;
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
        let mut keeper = Keeper::new(store, control, line, options, budget, Clock::Monotonic);
        keeper.arm()?;
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
        let mut looked = self.keeper.now();
        let mut worked = looked;
        loop {
            if self.keeper.failure().is_none() {
                match self.keeper.turn() {
                    Ok(true) => worked = self.keeper.now(),
                    Ok(false) => std::hint::spin_loop(),
                    Err(e) => self.keeper.fail(&e),
                }
            }
            self.send_reports(client);
            let now = self.keeper.now();
            let sleepy = self.keeper.failure().is_some() || now - worked >= RESTLESS;
            if sleepy || now - looked >= SOCKETS_EVERY {
                looked = now;
                if self.look_at_sockets(client, sleepy) == Next::End {
                    // The end of the session is an answer, too.
                    self.send_reports(client);
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
        let nap = match sleepy && self.fall_asleep() {
            true if self.keeper.awaits_stores() => STORE_NAP,
            true if self.keeper.filling.awaits_filler() => FILLER_NAP,
            true => KEEPER_NAP,
            false => Duration::ZERO,
        };
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
                keeper
                    .attach(index as usize, fds.pop().map(PageTable::Userfault))
                    .map_err(|e| e.to_string())?;
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
        if asker.is_none() && planted("drain-forgets-a-dead-program") {
            return Next::End;
        }
        let answer = match self.keeper.failure().map(str::to_owned) {
            Some(cause) => Reply::Failed { message: cause },
            None => match self.keeper.close() {
                Ok(_) => Reply::Done,
                Err(e) => Reply::Failed { message: e.to_string() },
            },
        };
        if let (Reply::Failed { message }, None) = (&answer, asker) {
            complain(&format!("{}: {message}", self.directory.display()));
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

impl<D: Disk> Keeper<D> {
    /// A turn, unless the keeper failed.
    fn turn_if_running(&mut self) -> Result<bool, KeeperError> {
        if self.failure().is_some() { Ok(false) } else { self.turn() }
    }
}
