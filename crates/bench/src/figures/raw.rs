//! The floor of saves and restores: one file, sequential requests of 1 MiB past the page cache, four
//! in flight.
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

/// A file that was written in full.
pub(super) struct RawFile {
    ring: RingFile,
    buffers: Vec<AlignedBuffer>,
    bytes: u64,
}

impl RawFile {
    /// Writes a file of `bytes`, whole requests.
    pub(super) fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::DIRECT | OFlags::CLOEXEC;
        let file: OwnedFd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
        let buffers = noise();
        let bytes = bytes.next_multiple_of(REQUEST_BYTES as u64);
        let mut file = Self { ring: RingFile::new(file, IN_FLIGHT as u32)?, buffers, bytes };
        file.write()?;
        file.flush()?;
        Ok(file)
    }

    /// Writes the whole file; answers with bytes per second.
    pub(super) fn write(&mut self) -> io::Result<f64> {
        self.stream(Direction::Write)
    }

    /// Reads the whole file; answers with bytes per second.
    pub(super) fn read(&mut self) -> io::Result<f64> {
        self.stream(Direction::Read)
    }

    /// Makes what was written durable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(self.ring.file())?)
    }

    fn stream(&mut self, direction: Direction) -> io::Result<f64> {
        let began = Instant::now();
        let mut done = Vec::new();
        let (mut next, mut ended) = (0, 0);
        while ended < self.bytes {
            while next < self.bytes {
                let Some(buffer) = self.buffers.pop() else { break };
                match direction {
                    Direction::Write => self.ring.write(next, next, buffer, REQUEST_BYTES, REQUEST_BYTES),
                    Direction::Read => self.ring.read(next, next, buffer, REQUEST_BYTES, REQUEST_BYTES),
                }
                next += REQUEST_BYTES as u64;
            }
            self.ring.reap(Some(None), &mut done)?;
            for completed in done.drain(..) {
                self.buffers.extend(completed.buffer);
                match completed.result? {
                    REQUEST_BYTES => ended += REQUEST_BYTES as u64,
                    bytes => return Err(io::Error::other(format!("a request moved {bytes} bytes"))),
                }
            }
        }
        Ok(self.bytes as f64 / began.elapsed().as_secs_f64())
    }
}

/// Buffers of bytes that no device can compress, side by side, as a store has them.
fn noise() -> Vec<AlignedBuffer> {
    let mut buffers = AlignedBuffer::several(IN_FLIGHT, REQUEST_BYTES);
    for (seed, buffer) in (1..).zip(&mut buffers) {
        pattern::fill(seed, buffer);
    }
    buffers
}
