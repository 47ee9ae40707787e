//! A disk in memory that goes back to how it was: for trials that open one image very often.
//!
//! Every change since the start is undone by one call, at the cost of the change. No cache and no
//! faults: whatever is written is there at once, and completes in order.

use std::cell::{Ref, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use wattkeep_store::disk::{Completion, Disk, Token, Wait};
use wattkeep_sys::buffer::AlignedBuffer;

use crate::disk::MemoryDisk;

#[derive(Default)]
struct Inner {
    bytes: Vec<u8>,
    /// What was there before each change, oldest first.
    undo: Vec<(usize, Vec<u8>)>,
    done: Vec<Completion>,
}

/// The disk. A clone is another handle to it.
#[derive(Clone, Default)]
pub struct RewindDisk(Rc<RefCell<Inner>>);

impl RewindDisk {
    /// A disk that holds what a reader of `disk` finds.
    pub fn of(disk: &MemoryDisk) -> Self {
        let bytes = disk.peek(0, disk.size() as usize);
        Self(Rc::new(RefCell::new(Inner { bytes, ..Inner::default() })))
    }

    /// All bytes.
    pub fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.0.borrow(), |inner| inner.bytes.as_slice())
    }

    /// Overwrites what lies at `offset`.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        self.0.borrow_mut().put(offset, bytes);
    }

    /// Flips one bit.
    pub fn flip_bit(&self, offset: usize, bit: u32) {
        let flipped = self.bytes()[offset] ^ 1 << bit;
        self.put(offset, &[flipped]);
    }

    /// Changes that would be undone.
    pub fn changes(&self) -> usize {
        self.0.borrow().undo.len()
    }

    /// Undoes every change. Requests of a store that was dropped are forgotten.
    pub fn rewind(&self) {
        let mut inner = self.0.borrow_mut();
        let inner = &mut *inner;
        for (offset, bytes) in inner.undo.drain(..).rev() {
            inner.bytes[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        inner.done.clear();
    }
}

impl Inner {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let place = &mut self.bytes[offset..offset + bytes.len()];
        self.undo.push((offset, place.to_vec()));
        place.copy_from_slice(bytes);
    }
}

impl Disk for RewindDisk {
    fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }

    /// Never grows: a trial that needs more space makes its store larger.
    fn grow(&mut self, _from: u64, _size: u64, _progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn write(&mut self, token: Token, offset: u64, buffer: AlignedBuffer, len: usize) {
        let mut inner = self.0.borrow_mut();
        inner.put(offset as usize, &buffer[..len]);
        inner.done.push(Completion { token, buffer: Some(buffer), result: Ok(len) });
    }

    fn read(&mut self, token: Token, offset: u64, mut buffer: AlignedBuffer, len: usize) {
        let mut inner = self.0.borrow_mut();
        buffer[..len].copy_from_slice(&inner.bytes[offset as usize..][..len]);
        inner.done.push(Completion { token, buffer: Some(buffer), result: Ok(len) });
    }

    fn flush(&mut self, token: Token) {
        self.0.borrow_mut().done.push(Completion { token, buffer: None, result: Ok(0) });
    }

    fn reap(&mut self, _wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        done.append(&mut self.0.borrow_mut().done);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.0.borrow().done.len()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl std::fmt::Debug for RewindDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RewindDisk({} bytes)", self.bytes().len())
    }
}
