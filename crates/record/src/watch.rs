//! The memory of the recorded program: which of its mappings are watched, and which pages were written.
//!
//! Nothing is remembered between two looks: the kernel knows which ranges are registered and which pages
//! are protected. Registering again what is registered changes nothing, so that a mapping unmapped and
//! made anew at the same place is picked up like any other new one. Pages written before their mapping is
//! picked up are not protected, so they count as written at that look.
//!
//! Invariants: memory use does not depend on the size of the program; only private writable mappings are
//! registered, and only their own copies of pages are reported, never a file's nor the shared zero page.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use wattkeep_sys::pagemap::{PageRun, take_written};
use wattkeep_sys::uffd;

/// Runs that one system call may return: 96 KiB of them.
const RUNS_MAX: usize = 4096;

/// The watched memory of one program image: an exec makes a new one.
#[derive(Debug)]
pub struct Watch {
    memory: OwnedFd,
    maps: BufReader<File>,
    pagemap: File,
    line: String,
    runs: Vec<PageRun>,
}

/// What one look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Mappings that belong to a userfaultfd of the program's own, and are not watched.
    pub refused: u64,
}

impl Watch {
    /// Watches process `pid`, whose userfaultfd with asynchronous write protection is `memory`.
    pub fn new(pid: u32, memory: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            memory,
            maps: BufReader::with_capacity(1 << 16, File::open(format!("/proc/{pid}/maps"))?),
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            line: String::new(),
            runs: vec![PageRun::default(); RUNS_MAX],
        })
    }

    /// Picks up new mappings, then gives `found` every run of pages that was written since the last look,
    /// in the order of addresses, and protects them again.
    pub fn look(&mut self, mut found: impl FnMut(PageRun) -> io::Result<()>) -> io::Result<Look> {
        let (bounds, look) = self.pick_up()?;
        let Some((mut start, end)) = bounds else { return Ok(look) };
        while start < end {
            let scanned = match take_written(self.pagemap.as_fd(), start, end, &mut self.runs) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            self.runs[..scanned.runs].iter().copied().try_for_each(&mut found)?;
            if scanned.next <= start {
                return Err(io::Error::other("PAGEMAP_SCAN does not advance"));
            }
            start = scanned.next;
        }
        Ok(look)
    }

    /// Registers every private writable mapping; returns where the first begins and the last ends.
    fn pick_up(&mut self) -> io::Result<(Option<(u64, u64)>, Look)> {
        let (mut bounds, mut look) = (None, Look::default());
        self.maps.rewind()?;
        loop {
            self.line.clear();
            match self.maps.read_line(&mut self.line) {
                Ok(0) => return Ok((bounds, look)),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                    return Ok((None, look));
                }
                Err(error) => return Err(error),
            }
            let Some((start, end)) = private_writable(&self.line) else { continue };
            match uffd::remember_writes(self.memory.as_fd(), start, end - start) {
                Err(Errno::BUSY) => look.refused += 1,
                // The mapping vanished since its line was read, or the program did.
                Ok(()) | Err(Errno::INVAL | Errno::NOMEM | Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
            bounds = Some((bounds.map_or(start, |(first, _)| first), end));
        }
    }
}

/// The range of a line of `/proc/PID/maps`, if it is one to watch.
fn private_writable(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let access = words.next()?.as_bytes();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let watched = access.get(1) == Some(&b'w') && access.get(3) == Some(&b'p');
    watched.then(|| Some((number(start)?, number(end)?))).flatten()
}

/// Whether this kernel can do all this, asked before anything is started.
///
/// # Errors
/// ENOTTY or EINVAL from a kernel before 6.7; what userfaultfd(2) says where it is refused.
pub fn probe() -> rustix::io::Result<()> {
    let _memory = uffd::open(uffd::FEATURE_WP_ASYNC, false)?;
    let pagemap = rustix::fs::open(
        "/proc/self/pagemap",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    take_written(pagemap.as_fd(), 0, 0, &mut [PageRun::default()]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_writable_mappings_are_watched_and_no_others() {
        let line = |access| format!("7f0000001000-7f0000003000 {access} 00000000 00:00 0          [heap]\n");
        let range = Some((0x7f00_0000_1000, 0x7f00_0000_3000));
        assert_eq!(private_writable(&line("rw-p")), range);
        assert_eq!(private_writable(&line("rwxp")), range);
        assert_eq!(private_writable(&line("-w-p")), range);
        for access in ["r--p", "rw-s", "---p", "r-xp"] {
            assert_eq!(private_writable(&line(access)), None, "{access}");
        }
        assert_eq!(private_writable("\n"), None);
    }
}
