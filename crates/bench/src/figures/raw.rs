//! The floor of saves and restores: one file, sequential requests of 1 MiB past the page cache, four
//! in flight. From memory as programs have it, or from huge pages: then the device gets each request in one
//! piece, and no page of it is pinned for itself.
//!
//! The file is written in full before anything is measured, as a store's file is, so that no write
//! allocates blocks.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::uring::RingFile;

use crate::workload::pattern;

const REQUEST_BYTES: usize = 1 << 20;
const IN_FLIGHT: usize = 4;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Write,
    Read,
}

/// What the buffers lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// As allocators give them, and `fio` uses them.
    Small,
    /// As a store has them.
    Huge,
}

impl Pages {
    /// What a figure's id ends with.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Small => "",
            Self::Huge => ".huge",
        }
    }

    /// What a rival is called that does this to them.
    pub(super) fn rival(self, does: &str) -> String {
        let on = match self {
            Self::Small => "",
            Self::Huge => ", huge pages",
        };
        format!("raw O_DIRECT {does}, 1 MiB, {IN_FLIGHT} in flight{on}")
    }

    /// Buffers of bytes that no device can compress.
    fn buffers(self) -> Vec<AlignedBuffer> {
        let mut buffers = match self {
            Self::Small => (0..IN_FLIGHT).map(|_| AlignedBuffer::zeroed(REQUEST_BYTES)).collect(),
            Self::Huge => AlignedBuffer::several(IN_FLIGHT, REQUEST_BYTES),
        };
        (1..).zip(&mut buffers).for_each(|(seed, buffer)| pattern::fill(seed, buffer));
        buffers
    }
}

/// A file that was written in full.
pub(super) struct RawFile {
    ring: RingFile,
    small: Vec<AlignedBuffer>,
    huge: Vec<AlignedBuffer>,
    bytes: u64,
}

impl RawFile {
    /// Writes a file of `bytes`, whole requests.
    pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::DIRECT | OFlags::CLOEXEC;
        let file: OwnedFd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let (small, huge) = (Pages::Small.buffers(), Pages::Huge.buffers());
        let bytes = bytes.next_multiple_of(REQUEST_BYTES as u64);
        let mut file = Self { ring: RingFile::new(file, IN_FLIGHT as u32)?, small, huge, bytes };
        file.write(Pages::Huge)?;
        file.flush()?;
        Ok(file)
    }

    /// Writes the whole file; answers with bytes per second.
    pub(super) fn write(&mut self, pages: Pages) -> io::Result<f64> {
        self.stream(Direction::Write, pages)
    }

    /// Reads the whole file; answers with bytes per second.
    pub(super) fn read(&mut self, pages: Pages) -> io::Result<f64> {
        self.stream(Direction::Read, pages)
    }

    /// Makes what was written durable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(self.ring.file())?)
    }

    fn stream(&mut self, direction: Direction, pages: Pages) -> io::Result<f64> {
        let idle = match pages {
            Pages::Small => &mut self.small,
            Pages::Huge => &mut self.huge,
        };
        let began = Instant::now();
        let mut done = Vec::new();
        let (mut next, mut ended) = (0, 0);
        while ended < self.bytes {
            while next < self.bytes {
                let Some(buffer) = idle.pop() else { break };
                match direction {
                    Direction::Write => self.ring.write(next, next, buffer, REQUEST_BYTES, REQUEST_BYTES),
                    Direction::Read => self.ring.read(next, next, buffer, REQUEST_BYTES, REQUEST_BYTES),
                }
                next += REQUEST_BYTES as u64;
            }
            self.ring.reap(Some(None), &mut done)?;
            for completed in done.drain(..) {
                idle.extend(completed.buffer);
                match completed.result? {
                    REQUEST_BYTES => ended += REQUEST_BYTES as u64,
                    bytes => return Err(io::Error::other(format!("a request moved {bytes} bytes"))),
                }
            }
        }
        Ok(self.bytes as f64 / began.elapsed().as_secs_f64())
    }
}
