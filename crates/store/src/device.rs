//! Between the store and the disk: tokens, completions, and requests that are waited for.
//!
//! Invariant: a completion is looked at once, by the owner that its token names. A failed or short
//! write and a failed flush poison the store here, whoever asked for them; a failed read does not.

use std::io;

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::disk::{Completion, Disk, Token, Wait};
use crate::error::StoreError;
use crate::store::Store;
use crate::types::Sequence;

/// The two top bits of a token name its owner; the others are the owner's.
const OWNER_SHIFT: u32 = 62;
const OWNER_BATCH: u64 = 0;
const OWNER_READ: u64 = 1;
const OWNER_WAITER: u64 = 2;
const OWNER_FREEING_FLUSH: u64 = 3;
const REST: u64 = (1 << OWNER_SHIFT) - 1;

pub(crate) fn write_token(sequence: Sequence) -> Token {
    sequence.0
}

pub(crate) fn read_token(number: usize) -> Token {
    OWNER_READ << OWNER_SHIFT | number as u64
}

const WAITER: Token = OWNER_WAITER << OWNER_SHIFT;
const FREEING_FLUSH: Token = OWNER_FREEING_FLUSH << OWNER_SHIFT;

impl<D: Disk> Store<D> {
    /// Takes completions from the disk and gives each to its owner.
    pub(crate) fn reap(&mut self, wait: Wait) {
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.disk.reap(wait, &mut done) {
            self.poison_with(format!("the device does not answer: {error}"));
        }
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
        self.acknowledge();
        self.flush_emptied();
    }

    fn complete(&mut self, completion: Completion) {
        let rest = completion.token & REST;
        match completion.token >> OWNER_SHIFT {
            OWNER_BATCH => self.batch_landed(Sequence(rest), completion),
            OWNER_READ => {
                let event = self.reads.ended(rest as usize, completion);
                self.ready.push(event);
            }
            OWNER_WAITER => self.awaited = Some(completion),
            _ => {
                let number = self.freeing_flush.take().expect("one freeing flush at a time");
                match completion.result {
                    Ok(_) => self.segments.flush_done(number),
                    Err(error) => self.poison_with(format!("flush: {error}")),
                }
            }
        }
    }

    fn batch_landed(&mut self, sequence: Sequence, completion: Completion) {
        let batch = self.flight.find(sequence).expect("the device returns our tokens");
        let expected = batch.bytes;
        match completion.result {
            Ok(bytes) if bytes == expected || mutant::planted("short-write-ignored") => {
                batch.landed = completion.buffer;
            }
            Ok(bytes) => self.poison_with(format!("short write: {bytes} of {expected} bytes")),
            Err(error) => self.poison_with(format!("write: {error}")),
        }
    }

    /// Segments emptied by moving committed versions wait for a flush: starts it.
    fn flush_emptied(&mut self) {
        let wanted = self.segments.waiting_for_flush() > 0;
        if wanted && self.freeing_flush.is_none() && self.poison.is_none() {
            self.freeing_flush = Some(self.segments.flush_begun());
            self.disk.flush(FREEING_FLUSH);
        }
    }

    /// Waits until no batch is in flight.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        while !self.flight.is_empty() {
            self.check_poison()?;
            self.reap(Wait::One);
        }
        self.check_poison()
    }

    /// Flushes and waits: every acknowledged batch is durable.
    pub(crate) fn flush_blocking(&mut self) -> Result<(), StoreError> {
        self.check_poison()?;
        let number = self.segments.flush_begun();
        if mutant::planted("drop-flush") {
            self.segments.flush_done(number);
            return Ok(());
        }
        let mut flushed = self.flush_and_wait();
        if mutant::planted("fsync-retry") {
            flushed = flushed.or_else(|_| self.flush_and_wait());
        }
        match flushed {
            Ok(_) => self.segments.flush_done(number),
            Err(error) => self.poison_with(format!("flush: {error}")),
        }
        self.check_poison()
    }

    fn flush_and_wait(&mut self) -> io::Result<usize> {
        self.disk.flush(WAITER);
        self.wait_for_waiter()?.result
    }

    /// Writes and waits.
    pub(crate) fn write_blocking(&mut self, offset: u64, buffer: AlignedBuffer) -> Result<(), StoreError> {
        self.check_poison()?;
        let len = buffer.len();
        self.disk.write(WAITER, offset, buffer, len);
        match self.wait_for_waiter().and_then(|completion| completion.result) {
            Ok(bytes) if bytes == len => {}
            Ok(bytes) => self.poison_with(format!("short write: {bytes} of {len} bytes")),
            Err(error) => self.poison_with(format!("write: {error}")),
        }
        self.check_poison()
    }

    /// Reads and waits. A short read is an error.
    pub(crate) fn read_blocking(&mut self, offset: u64, buffer: AlignedBuffer) -> io::Result<AlignedBuffer> {
        let len = buffer.len();
        self.disk.read(WAITER, offset, buffer, len);
        let completion = self.wait_for_waiter()?;
        match completion.result? {
            bytes if bytes == len => Ok(completion.buffer.expect("a read returns its buffer")),
            bytes => Err(short_read(bytes, len)),
        }
    }

    fn wait_for_waiter(&mut self) -> io::Result<Completion> {
        loop {
            if let Some(completion) = self.awaited.take() {
                return Ok(completion);
            }
            if self.disk.in_flight() == 0 {
                return Err(io::Error::other("the device lost a request"));
            }
            let poisoned_before = self.poison.is_some();
            self.reap(Wait::One);
            // A device that stops answering must not hang a save for ever.
            if self.poison.is_some() && !poisoned_before && self.awaited.is_none() {
                return Err(io::Error::other("the store failed meanwhile"));
            }
        }
    }
}

pub(crate) fn short_read(bytes: usize, len: usize) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("short read: {bytes} of {len} bytes"))
}
