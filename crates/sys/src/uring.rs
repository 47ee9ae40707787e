//! One file and one io_uring: reads, writes and syncs whose buffers the ring owns while they fly.
//!
//! Invariants: a buffer that was handed in is not touched, moved or freed before the kernel has
//! completed every piece of its request, also when the ring is dropped. A request may be submitted
//! in several pieces; it completes once, with the sum of the bytes or the first error. Never
//! retries; does not know what the bytes mean.
//!
//! # Safety
//!
//! 1. The memory of a submitted piece lies in an `AlignedBuffer` that `requests` holds until the
//!    piece's completion was taken from the ring. Moving the buffer moves no bytes: they are on the
//!    heap.
//! 2. The file is owned by the ring's owner and closed after the ring: every submitted descriptor
//!    is open.
//! 3. `Drop` waits for everything that was submitted; when even waiting fails, it leaks the buffers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};

use crate::buffer::AlignedBuffer;

/// A completed request.
#[derive(Debug)]
pub struct Completed {
    /// The token that the request was submitted with.
    pub token: u64,
    /// Its buffer; `None` for a sync.
    pub buffer: Option<AlignedBuffer>,
    /// Bytes moved, or the first error.
    pub result: io::Result<usize>,
}

#[derive(Debug)]
struct Request {
    token: u64,
    buffer: Option<AlignedBuffer>,
    pieces: u32,
    result: io::Result<usize>,
}

/// A file with its ring.
pub struct RingFile {
    ring: IoUring,
    /// By index: what flies. The index is the kernel's user data.
    requests: Vec<Option<Request>>,
    vacant: Vec<usize>,
    in_flight: usize,
    /// Pieces pushed to the ring and not completed.
    pieces: usize,
    // After the ring: dropped later.
    file: OwnedFd,
}

impl RingFile {
    /// A ring of `entries` submissions for `file`.
    pub fn new(file: OwnedFd, entries: u32) -> io::Result<Self> {
        let ring = IoUring::builder().setup_cqsize(entries * 4).build(entries)?;
        let requests = Vec::new();
        Ok(Self { ring, requests, vacant: Vec::new(), in_flight: 0, pieces: 0, file })
    }

    /// The file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Requests submitted and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Readable when completions wait.
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: 2: the ring's descriptor is open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Starts writing the first `len` bytes of `buffer` at `offset`, in pieces of at most `piece`
    /// bytes.
    pub fn write(&mut self, token: u64, offset: u64, buffer: AlignedBuffer, len: usize, piece: usize) {
        assert!(len <= buffer.len(), "a request lies in its buffer");
        let start = buffer.as_ptr();
        let number = self.add(token, Some(buffer));
        let fd = types::Fd(self.file.as_raw_fd());
        for at in (0..len).step_by(piece) {
            let bytes = piece.min(len - at) as u32;
            let entry = opcode::Write::new(fd, start.wrapping_add(at), bytes);
            let entry = entry.offset(offset + at as u64).build();
            self.push(number, entry);
        }
        self.submit();
    }

    /// Starts reading `len` bytes at `offset` into the front of `buffer`, in pieces of at most
    /// `piece` bytes.
    pub fn read(&mut self, token: u64, offset: u64, mut buffer: AlignedBuffer, len: usize, piece: usize) {
        assert!(len <= buffer.len(), "a request lies in its buffer");
        let start = buffer.as_mut_ptr();
        let number = self.add(token, Some(buffer));
        let fd = types::Fd(self.file.as_raw_fd());
        for at in (0..len).step_by(piece) {
            let bytes = piece.min(len - at) as u32;
            let entry = opcode::Read::new(fd, start.wrapping_add(at), bytes);
            self.push(number, entry.offset(offset + at as u64).build());
        }
        self.submit();
    }

    /// Starts an fdatasync of the file.
    pub fn sync_data(&mut self, token: u64) {
        let number = self.add(token, None);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC);
        self.push(number, entry.build());
        self.submit();
    }

    /// Appends what has completed. With `wait`, first waits until something has, or for so long;
    /// may return without any when interrupted.
    pub fn reap(&mut self, wait: Option<Option<Duration>>, done: &mut Vec<Completed>) -> io::Result<()> {
        self.take_completions(done);
        let waits = wait.filter(|_| done.is_empty() && self.in_flight > 0);
        let outcome = match waits {
            // A caller that polls pays for a system call only when there is something to submit.
            None if self.ring.submission().is_empty() => return Ok(()),
            None => self.ring.submit(),
            Some(None) => self.ring.submit_and_wait(1),
            Some(Some(time)) => {
                let timespec = types::Timespec::from(time);
                let args = types::SubmitArgs::new().timespec(&timespec);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        self.take_completions(done);
        match outcome {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time is up, a signal came, or completions must be taken first: the caller loops.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    fn add(&mut self, token: u64, buffer: Option<AlignedBuffer>) -> usize {
        let request = Some(Request { token, buffer, pieces: 0, result: Ok(0) });
        self.in_flight += 1;
        if let Some(number) = self.vacant.pop() {
            self.requests[number] = request;
            return number;
        }
        self.requests.push(request);
        self.requests.len() - 1
    }

    fn push(&mut self, number: usize, entry: squeue::Entry) {
        let entry = entry.user_data(number as u64);
        let request = self.requests[number].as_mut().expect("the request was just added");
        // SAFETY: 1: the memory is the request's buffer, held until the completion. 2.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            request.pieces += 1;
            self.pieces += 1;
            return;
        }
        // The queue is full: submitting empties it.
        let submitted = self.ring.submit();
        // SAFETY: 1, 2: as above.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            request.pieces += 1;
            self.pieces += 1;
            return;
        }
        let error = submitted.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EBUSY));
        request.result = Err(error);
    }

    /// An error stays with the queue: the next reap submits again and reports it.
    fn submit(&mut self) {
        let _ = self.ring.submit();
    }

    fn take_completions(&mut self, done: &mut Vec<Completed>) {
        for completion in self.ring.completion() {
            let number = completion.user_data() as usize;
            let request = self.requests[number].as_mut().expect("the kernel returns our numbers");
            self.pieces -= 1;
            request.pieces -= 1;
            if let Ok(sum) = &mut request.result {
                match usize::try_from(completion.result()) {
                    Ok(bytes) => *sum += bytes,
                    Err(_) => {
                        request.result = Err(io::Error::from_raw_os_error(-completion.result()));
                    }
                }
            }
            if request.pieces == 0 {
                let request = self.requests[number].take().expect("it was just looked at");
                self.vacant.push(number);
                self.in_flight -= 1;
                let Request { token, buffer, result, .. } = request;
                done.push(Completed { token, buffer, result });
            }
        }
    }
}

impl Drop for RingFile {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.pieces > 0 {
            if self.reap(Some(None), &mut done).is_err() {
                // 3: the kernel may still write into these buffers.
                std::mem::forget(std::mem::take(&mut self.requests));
                return;
            }
            done.clear();
        }
    }
}

impl std::fmt::Debug for RingFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingFile({:?}, {} in flight)", self.file, self.in_flight)
    }
}
