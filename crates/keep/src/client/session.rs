//! One open store, as the client holds it: the keeper, the sockets, the control block.
//!
//! A service thread listens for the keeper's notices. When the keeper ends without being asked to,
//! that thread closes grants for ever: writers stall, they never write untracked.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use wattkeep_sys::mutant::planted;
use wattkeep_sys::signal::{self, FaultSignal};
use wattkeep_sys::socket;

use super::probe::{self, ChosenMode};
use super::protect::Shared;
use super::spawn::{Keeper, KeeperPlace};
use super::{fault, region};
use crate::control::block::{Control, Freeze};
use crate::limits::MESSAGE_MAX;
use crate::protocol::{Notice, PROTOCOL, RegionRequest, Reply, Request, SaveReport, SessionOptions, Status};
use crate::types::{FaultMode, PolicyName};

/// Brings the program to a point it likes, before a freeze.
pub type Quiesce = Box<dyn FnMut() + Send>;

/// How a store is opened.
pub struct OpenOptions {
    /// Make it if it is missing.
    pub create_if_missing: bool,
    /// Dirty budget: pages, bytes with a unit, or a percentage of the regions; `None` for the one the
    /// store remembers.
    pub budget: Option<String>,
    /// Which page is cleaned next.
    pub policy: PolicyName,
    /// Milliseconds between automatic checkpoints; 0 for none.
    pub checkpoint_interval_ms: u64,
    /// Called before a freeze, with at most `quiesce_ms` to run.
    pub quiesce: Option<Quiesce>,
    /// Milliseconds that the callback may take.
    pub quiesce_ms: u64,
    /// How first stores reach us; `None` to choose.
    pub fault_mode: Option<FaultMode>,
    /// Where the keeper runs.
    pub keeper: KeeperPlace,
    /// Fill regions from the store before handing them out, instead of at first touch.
    pub fill_ahead: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            create_if_missing: false,
            budget: None,
            policy: PolicyName::default(),
            checkpoint_interval_ms: 60_000,
            quiesce: None,
            quiesce_ms: 100,
            fault_mode: None,
            keeper: KeeperPlace::Process,
            fill_ahead: false,
        }
    }
}

/// Why a request to the keeper failed.
#[derive(Debug)]
pub enum SessionError {
    /// The keeper said no; the message names the cause and the next command.
    Refused(String),
    /// Something else is mapped where a region belongs; the message names both.
    Occupied(String),
    /// The keeper does not answer any more.
    KeeperGone,
    /// The system said no.
    System(io::Error),
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SessionError::Refused(message) | SessionError::Occupied(message) => f.write_str(message),
            SessionError::KeeperGone => f.write_str(
                "the keeper ended unexpectedly: end this program, then run 'wattkeep check' on the store",
            ),
            SessionError::System(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SessionError::System(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for SessionError {
    fn from(e: io::Error) -> Self {
        SessionError::System(e)
    }
}

impl From<rustix::io::Errno> for SessionError {
    fn from(e: rustix::io::Errno) -> Self {
        SessionError::System(e.into())
    }
}

/// An open store with its keeper.
pub struct Session {
    socket: Mutex<OwnedFd>,
    keeper: Mutex<Keeper>,
    keeper_pid: u32,
    shared: Arc<Shared>,
    mode: ChosenMode,
    closing: Arc<AtomicBool>,
    service: Mutex<Option<JoinHandle<()>>>,
    recovered: Option<String>,
    owner_pid: u32,
    /// Regions mapped now.
    pub(super) regions_open: AtomicUsize,
}

impl Session {
    /// Starts a keeper for the store in `directory` and greets it.
    pub fn open(directory: &Path, options: OpenOptions) -> Result<Arc<Self>, SessionError> {
        let mode = probe::choose(options.fault_mode)?;
        Self::prepare_signals(mode.mode)?;
        let (keeper, socket) = Keeper::start(options.keeper)?;
        let (notices, theirs) = socket::pair()?;
        let hello = Request::Hello {
            protocol: PROTOCOL,
            store: as_text(&std::path::absolute(directory)?)?,
            options: SessionOptions {
                create_if_missing: options.create_if_missing,
                budget: options.budget,
                policy: options.policy,
                checkpoint_interval_ms: options.checkpoint_interval_ms,
                quiesce_ms: if options.quiesce.is_some() { options.quiesce_ms } else { 0 },
                fault_mode: mode.mode,
                fault_mode_reason: mode.reason.clone(),
                fill_ahead: options.fill_ahead,
            },
        };
        let (reply, fds) = ask(socket.as_fd(), &hello, &[theirs.as_fd()])?;
        drop(theirs);
        let Reply::Welcome { recovered, .. } = reply else { return Err(unexpected(&reply)) };
        let [control, bell] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| SessionError::KeeperGone)?;
        let shared = Arc::new(Shared::new(Control::map(&control)?, bell));
        let closing = Arc::new(AtomicBool::new(false));
        let service = serve(notices, shared.clone(), closing.clone(), options.quiesce)?;
        let keeper_pid = keeper.pid();
        Ok(Arc::new(Self {
            socket: Mutex::new(socket),
            keeper: Mutex::new(keeper),
            keeper_pid,
            shared,
            mode,
            closing,
            service: Mutex::new(Some(service)),
            recovered,
            owner_pid: std::process::id(),
            regions_open: AtomicUsize::new(0),
        }))
    }

    fn prepare_signals(mode: FaultMode) -> Result<(), SessionError> {
        let Some(signal) = fault_signal(mode) else { return Ok(()) };
        if signal::is_blocked(signal) {
            return Err(SessionError::Refused(format!(
                "this thread blocks {signal:?}, by which first stores reach us: unblock it, or open with fault \
                 mode 'monitor'"
            )));
        }
        Ok(fault::install(signal)?)
    }

    /// Opens or creates a region and maps it at its recorded address.
    pub fn open_region(self: &Arc<Self>, request: &RegionRequest) -> Result<region::Region, SessionError> {
        region::Region::open(self.clone(), request)
    }

    /// Commits a consistent image of all regions.
    pub fn checkpoint(&self) -> Result<SaveReport, SessionError> {
        self.report(Request::Checkpoint)
    }

    /// Saves as if the power went. Writers stall until [`Self::resume`].
    pub fn save(&self) -> Result<SaveReport, SessionError> {
        self.report(Request::Save)
    }

    /// Lets writers go on after a save.
    pub fn resume(&self) -> Result<(), SessionError> {
        self.done(Request::Resume)
    }

    /// Changes the dirty budget while writers run.
    pub fn set_budget(&self, budget: &str) -> Result<(), SessionError> {
        self.done(Request::SetBudget { budget: budget.to_owned() })
    }

    /// What the keeper says of itself.
    pub fn status(&self) -> Result<Status, SessionError> {
        match self.ask(&Request::Status, &[])?.0 {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// How first stores reach us.
    pub fn mode(&self) -> &ChosenMode {
        &self.mode
    }

    /// What recovery found when the store was opened; `None` for a new store.
    pub fn recovered(&self) -> Option<&str> {
        self.recovered.as_deref()
    }

    /// The control block, for drills and audits.
    pub fn control(&self) -> &Control {
        &self.shared.control
    }

    /// Process id of the keeper.
    pub fn keeper_pid(&self) -> u32 {
        self.keeper_pid
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn done(&self, request: Request) -> Result<(), SessionError> {
        match self.ask(&request, &[])?.0 {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn report(&self, request: Request) -> Result<SaveReport, SessionError> {
        match self.ask(&request, &[])?.0 {
            Reply::Saved(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Refuses whoever is a forked child of the process that opened the store.
    pub(super) fn refuse_child(&self) -> Result<(), SessionError> {
        if std::process::id() == self.owner_pid {
            return Ok(());
        }
        Err(SessionError::Refused(format!(
            "the store was opened by process {}: a forked child opens a store of its own",
            self.owner_pid
        )))
    }

    pub(super) fn ask(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), SessionError> {
        self.refuse_child()?;
        let socket = self.socket.lock().map_err(|_| SessionError::KeeperGone)?;
        ask(socket.as_fd(), request, fds)
    }

    /// Writes everything to the SSD, commits, and ends the keeper. Refused while regions are open:
    /// stores to them would go on, untracked. A forked child leaves its parent's session alone.
    pub fn close(&self) -> Result<(), SessionError> {
        if std::process::id() != self.owner_pid {
            return Ok(());
        }
        let open = self.regions_open.load(Ordering::SeqCst);
        if open > 0 {
            return Err(SessionError::Refused(format!(
                "{open} regions of the store are open: close them first"
            )));
        }
        if self.closing.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let result = self.done(Request::Close);
        self.shared.control.set_freeze(Freeze::Closed);
        if let Ok(mut keeper) = self.keeper.lock() {
            keeper.wait();
        }
        if let Ok(mut service) = self.service.lock() {
            let _ = service.take().map(JoinHandle::join);
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            say(&format!("wattkeep: closing the store failed: {e}"));
        }
    }
}

/// One question and its answer over a packet socket.
pub fn ask(
    socket: BorrowedFd<'_>,
    request: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<(Reply, Vec<OwnedFd>), SessionError> {
    let bytes = serde_json::to_vec(request).map_err(|e| SessionError::System(io::Error::other(e)))?;
    if bytes.len() > MESSAGE_MAX {
        let len = bytes.len();
        let message =
            format!("a request of {len} bytes is too long ({MESSAGE_MAX} at most): use shorter names");
        return Err(SessionError::Refused(message));
    }
    socket::send(socket, &bytes, fds).map_err(|_| SessionError::KeeperGone)?;
    let mut answer = vec![0; MESSAGE_MAX];
    let Ok(Some((len, fds))) = socket::receive(socket, &mut answer) else {
        return Err(SessionError::KeeperGone);
    };
    match serde_json::from_slice(&answer[..len]).map_err(|e| SessionError::System(io::Error::other(e)))? {
        Reply::Failed { message } => Err(SessionError::Refused(message)),
        reply => Ok((reply, fds)),
    }
}

/// A path as messages carry it. A keeper given a path that merely looks alike would serve another store.
fn as_text(path: &Path) -> Result<String, SessionError> {
    let text = path.to_str().ok_or_else(|| {
        let path = path.display();
        SessionError::Refused(format!("the path {path} is not UTF-8: name or link the directory otherwise"))
    })?;
    Ok(text.to_owned())
}

/// The signal by which first stores reach us.
pub(super) fn fault_signal(mode: FaultMode) -> Option<FaultSignal> {
    match mode {
        FaultMode::Signal => Some(FaultSignal::Bus),
        FaultMode::Mprotect => Some(FaultSignal::Segv),
        FaultMode::Monitor => None,
    }
}

pub(super) fn unexpected(reply: &Reply) -> SessionError {
    SessionError::Refused(format!("the keeper gave an answer that does not fit the question: {reply:?}"))
}

fn serve(
    notices: OwnedFd,
    shared: Arc<Shared>,
    closing: Arc<AtomicBool>,
    mut quiesce: Option<Quiesce>,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("wattkeep-notices".into()).spawn(move || {
        let mut bytes = vec![0; MESSAGE_MAX];
        while let Ok(Some((len, _))) = socket::receive(&notices, &mut bytes) {
            let answer = match serde_json::from_slice(&bytes[..len]) {
                Ok(Notice::Quiesce { question }) => {
                    if let Some(quiesce) = &mut quiesce {
                        quiesce();
                    }
                    Notice::Quiesced { question }
                }
                Ok(Notice::Protect { question }) => {
                    shared.protect_everything();
                    Notice::Protected { question }
                }
                Ok(Notice::Victims) => {
                    shared.protect_offered();
                    continue;
                }
                _ => continue,
            };
            let answer = serde_json::to_vec(&answer).expect("a notice is plain data");
            let _ = socket::send(&notices, &answer, &[]);
        }
        if !closing.load(Ordering::SeqCst) {
            if planted("fail-open") {
                shared.control.ledger.0.set_limit(u32::MAX);
            } else {
                shared.control.set_freeze(Freeze::Closed);
            }
            say(
                "wattkeep: the keeper ended unexpectedly: stores to clean pages wait for ever, nothing is written \
                 untracked; end this program, then run 'wattkeep check' on the store",
            );
        }
    })
}

/// Says a line on standard error, if anybody listens: `eprintln!` would panic where nobody does.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
