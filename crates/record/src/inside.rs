//! What runs inside the recorded program: once before `main`, once at its exit.
//!
//! Every failure here is silent and leaves the program as it is: the recorder notices that nobody
//! came. No descriptor stays open, so the program's own are numbered as without us.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::disable_transparent_huge_pages;
use wattkeep_sys::{socket, uffd};

/// Names the directory of the recorder's socket.
pub const DOOR_VARIABLE: &str = "WATTKEEP_RECORD_DOOR";

/// The socket in it.
pub const SOCKET_NAME: &str = "recorder.socket";

/// "My memory, before I begin": with the userfaultfd, or without when the kernel refused it.
pub const BEGIN: u8 = b'b';
/// "Look once more, I am about to exit."
pub const END: u8 = b'e';
/// The recorder's only answer: "go on".
pub const GO_ON: u8 = b'g';

/// Longest wait for the recorder: a look at a very large memory. Then the program goes on regardless.
const PATIENCE: Duration = Duration::from_secs(10);

/// Before `main`: hands our memory over, and waits for the first look.
pub fn begin() {
    if let Some(door) = std::env::var_os(DOOR_VARIABLE) {
        // Whole huge pages would count as written for one byte in them.
        let _ = disable_transparent_huge_pages(true);
        let memory = uffd::open(uffd::FEATURE_WP_ASYNC, false).ok();
        let fds: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
        let _ = say(&door, BEGIN, &fds);
    }
}

/// At exit: waits for the last look.
pub fn end() {
    if let Some(door) = std::env::var_os(DOOR_VARIABLE) {
        let _ = say(&door, END, &[]);
    }
}

fn say(door: &OsStr, what: u8, fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
    let directory = File::open(Path::new(door))?;
    let line = socket::connect_to(directory.as_fd(), Path::new(SOCKET_NAME))?;
    socket::send(&line, &[what], fds)?;
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    poll(&mut [PollFd::new(&line, PollFlags::IN)], Some(&patience))?;
    Ok(())
}
