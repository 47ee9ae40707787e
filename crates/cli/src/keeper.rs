//! The line to a running keeper: the socket in the store's directory.
//!
//! Through it a person looks and steers. A keeper that ends while it is asked is an error, never a
//! hang: answers are waited for only so long.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use wattkeep_keep::client::session::{SessionError, ask};
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
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).ok()?;
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
        Ok(ask(self.0.as_fd(), request, &[])?.0)
    }
}

fn unexpected(reply: &Reply) -> SessionError {
    SessionError::Refused(format!("the keeper gave an answer that does not fit the question: {reply:?}"))
}
