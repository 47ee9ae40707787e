//! Where the recorded program reports: a socket in a directory of its own, open to this user only.
//!
//! Only the program itself is listened to. Its children inherit the library, and are sent away.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use tempfile::TempDir;
use wattkeep_sys::socket;

use crate::inside::{BEGIN, END, GO_ON, SOCKET_NAME};

/// A listening socket. Dropping it removes its directory.
#[derive(Debug)]
pub struct Door {
    directory: TempDir,
    listener: OwnedFd,
}

/// What a visitor wants.
#[derive(Debug)]
pub enum Wish {
    /// To be recorded from now on; without a userfaultfd when the kernel refused it.
    Begin(Option<OwnedFd>),
    /// A last look.
    End,
}

/// The program, waiting until it is told to go on, or until this is dropped.
#[derive(Debug)]
pub struct Visitor(OwnedFd);

impl Visitor {
    /// Lets the program go on. That it died meanwhile shows elsewhere.
    pub fn go_on(self) {
        let _ = socket::send_at_once(&self.0, &[GO_ON]);
    }
}

impl Door {
    /// Listens in a new directory.
    pub fn open() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("wattkeep-record-").tempdir()?;
        let opened = std::fs::File::open(directory.path())?;
        let listener = socket::listen_at(opened.as_fd(), Path::new(SOCKET_NAME))?;
        Ok(Self { directory, listener })
    }

    /// For the program's environment.
    pub fn place(&self) -> &Path {
        self.directory.path()
    }

    /// Readable when somebody waits.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next visitor that is process `pid`; `None` when none waits. All others are sent away.
    ///
    /// The message is there when the connection is: the library sends at once, and a program that is
    /// stopped in between holds the recorder up as it holds up itself.
    pub fn next_visit(&self, pid: u32) -> io::Result<Option<(Visitor, Wish)>> {
        while let Some(line) = socket::accept_from(self.listener())? {
            if socket::peer_pid(&line)? != pid {
                continue;
            }
            let mut message = [0];
            match socket::receive(&line, &mut message)? {
                Some((_, mut fds)) if message == [BEGIN] => {
                    return Ok(Some((Visitor(line), Wish::Begin(fds.pop()))));
                }
                Some(_) if message == [END] => return Ok(Some((Visitor(line), Wish::End))),
                _ => {}
            }
        }
        Ok(None)
    }
}
