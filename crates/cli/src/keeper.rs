//! The line to a running keeper: the socket in the store's directory.
//!
//! Through it a person looks and steers. A keeper that ends while it is asked is an error, never a
//! hang: answers are waited for only so long.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wattkeep_keep::client::session::SessionError;
use wattkeep_keep::limits::MESSAGE_MAX;
use wattkeep_keep::protocol::{Reply, Request, SOCKET_NAME, SaveReport, Status};
use wattkeep_sys::socket;

use crate::failure::{Exit, Failure};

/// Longest wait for an answer: a save of hundreds of gigabytes.
const PATIENCE: Duration = Duration::from_secs(300);

/// A connection to a keeper.
#[derive(Debug)]
pub(crate) struct KeeperLine(OwnedFd);

impl KeeperLine {
    /// Connects to the keeper of the store in `directory`; `None` when none listens.
    pub(crate) fn connect(directory: &Path) -> Option<Self> {
        let directory = File::open(directory).ok()?;
        let socket = socket::connect_to(directory.as_fd(), Path::new(SOCKET_NAME)).ok()?;
        Some(Self(socket))
    }

    /// As [`Self::connect`], for commands that make no sense without a keeper.
    pub(crate) fn required(directory: &Path) -> Result<Self, Failure> {
        match Self::connect(directory) {
            Some(line) => Ok(line),
            None => {
                crate::opened::read_only(directory)?;
                let cause = format!(
                    "no program has the store in {0} open: nothing is dirty; see 'wattkeep status {0}'",
                    directory.display()
                );
                Err(Failure::new(Exit::NotSo, cause))
            }
        }
    }

    /// What the keeper says of itself.
    pub(crate) fn status(&self) -> Result<Status, SessionError> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// A request that is answered with a report: a save or a checkpoint.
    pub(crate) fn report(&self, request: &Request) -> Result<SaveReport, SessionError> {
        match self.ask(request)? {
            Reply::Saved(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// A request that is answered with "done".
    pub(crate) fn done(&self, request: &Request) -> Result<(), SessionError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply, SessionError> {
        let bytes = serde_json::to_vec(request).map_err(io::Error::other)?;
        socket::send(&self.0, &bytes, &[]).map_err(|_| SessionError::KeeperGone)?;
        if !wait_until_readable(self.0.as_fd(), PATIENCE) {
            let seconds = PATIENCE.as_secs();
            return Err(SessionError::Refused(format!(
                "the keeper did not answer for {seconds} s; see 'dmesg' and 'ps -C wattkeepd'"
            )));
        }
        let mut answer = vec![0; MESSAGE_MAX];
        let received = socket::receive(&self.0, &mut answer)?;
        let (len, _) = received.ok_or(SessionError::KeeperGone)?;
        match serde_json::from_slice(&answer[..len]).map_err(io::Error::other)? {
            Reply::Failed { message } => Err(SessionError::Refused(message)),
            reply => Ok(reply),
        }
    }
}

/// Waits until there is something to read, or an end to see; `false` when `patience` runs out.
///
/// A timeout of the socket itself would not do: a ring that this thread once used interrupts it, and a
/// receive with a timeout is not begun again by the kernel.
pub(crate) fn wait_until_readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) if !left.is_zero() => {}
            Ok(ready) => return ready > 0,
            Err(_) => return false,
        }
    }
}

fn unexpected(reply: &Reply) -> SessionError {
    SessionError::Refused(format!("the keeper gave an answer that does not fit the question: {reply:?}"))
}
