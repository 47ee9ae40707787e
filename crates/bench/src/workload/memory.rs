//! Memories a workload can run on without a keeper: plain bytes, a recorder, nothing at all.
//!
//! Invariant: each behaves as [`Memory`] says, so that a stream replayed here explains the bytes
//! of the same stream elsewhere.
//!
//! Does not know workloads.

use super::Memory;

impl Memory for [u8] {
    #[inline]
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) {
        let start = index(offset);
        into.copy_from_slice(&self[start..start + into.len()]);
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = index(offset);
        self[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Memory for Vec<u8> {
    #[inline]
    fn len(&self) -> u64 {
        Memory::len(self.as_slice())
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.as_slice().read(offset, into);
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.as_mut_slice().write(offset, bytes);
    }
}

/// An offset inside a slice is an index: an offset that is not would be outside it.
#[inline]
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset inside a slice fits an index")
}

/// One write, as a workload asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where it starts.
    pub offset: u64,
    /// What it writes.
    pub bytes: Vec<u8>,
}

/// Passes everything on to another memory, and remembers the writes in order.
///
/// A step cut short has done a prefix of its writes, the last of them perhaps in part: with this
/// record, every byte it may have left can be told from damage.
pub struct Recording<'a, M: Memory + ?Sized> {
    memory: &'a mut M,
    writes: Vec<Write>,
}

impl<'a, M: Memory + ?Sized> Recording<'a, M> {
    /// Records the writes that go to `memory`.
    pub fn new(memory: &'a mut M) -> Self {
        Self { memory, writes: Vec::new() }
    }

    /// The writes so far, oldest first.
    pub fn into_writes(self) -> Vec<Write> {
        self.writes
    }
}

impl<M: Memory + ?Sized> Memory for Recording<'_, M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.memory.read(offset, into);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.writes.push(Write { offset, bytes: bytes.to_vec() });
        self.memory.write(offset, bytes);
    }
}

/// A memory that keeps nothing: reads give zeros. Moves a workload to a later step, because what
/// a step does next never depends on what it read.
#[derive(Clone, Copy, Debug)]
pub struct Blank {
    bytes: u64,
}

impl Blank {
    /// A blank memory of this size.
    pub fn new(bytes: u64) -> Self {
        Self { bytes }
    }
}

impl Memory for Blank {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        assert!(offset + into.len() as u64 <= self.bytes);
        into.fill(0);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.bytes);
    }
}
