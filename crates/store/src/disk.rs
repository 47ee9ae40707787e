//! What the store asks of the device below it: asynchronous reads, writes and flushes.
//!
//! A write that completed is *written*: the device has it, but may still lose it with its power.
//! It is *durable* only once a flush that was submitted after its completion has completed.
//! Buffers move into the device and come back with the completion, so no caller can touch bytes
//! that are in flight.
//!
//! Knows neither segments nor pages. Never retries: a short count or an error is the caller's news.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use wattkeep_sys::buffer::AlignedBuffer;

/// Chosen by the caller, returned with the completion.
pub type Token = u64;

/// The end of one request.
#[derive(Debug)]
pub struct Completion {
    /// The token that the request was submitted with.
    pub token: Token,
    /// The buffer that the request was submitted with; `None` for a flush.
    pub buffer: Option<AlignedBuffer>,
    /// Bytes moved (0 for a flush). Fewer than asked is possible and means failure to the store.
    pub result: io::Result<usize>,
}

/// How long [`Disk::reap`] may wait for a first completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Take what is there.
    No,
    /// Until one completion arrives. Returns at once when nothing is in flight.
    One,
    /// Until one completion arrives or the time has passed.
    AtMost(Duration),
}

/// A device with a volatile write cache. Offsets and lengths are multiples of 4096 bytes.
pub trait Disk {
    /// Size in bytes of the addressable space.
    fn size(&self) -> u64;

    /// Where the space is, for messages: the directory of the store.
    fn place(&self) -> String;

    /// Makes the space at least `size` bytes long and really writes zeros from `from` to `size`, so
    /// that a later write cannot meet a full file system. Durable when it returns; on an error the
    /// space is as long as before. `progress` is told the bytes done and the bytes to do.
    fn grow(&mut self, from: u64, size: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()>;

    /// Starts writing the first `len` bytes of `buffer` at `offset`.
    fn write(&mut self, token: Token, offset: u64, buffer: AlignedBuffer, len: usize);

    /// Starts reading `len` bytes at `offset` into the front of `buffer`.
    fn read(&mut self, token: Token, offset: u64, buffer: AlignedBuffer, len: usize);

    /// Starts a flush: everything whose completion was reaped before this call becomes durable.
    fn flush(&mut self, token: Token);

    /// Appends completions to `done`, in any order.
    fn reap(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Requests submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Readable when completions wait, for an event loop. `None` where there is nothing to poll.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;
}
