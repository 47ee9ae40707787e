//! A disk in memory that tells *written* from *durable*.
//!
//! A completed write is visible to reads; it survives a power cut only after a flush that was
//! submitted after its completion was reaped. A cut keeps, drops or tears (at 512 bytes) each of
//! the other writes, by seed. Completions come in a random order. Faults strike the nth request,
//! once or from then on.
//!
//! Invariant: a disk behaves as some real disk with a volatile cache could, never better.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use wattkeep_store::disk::{Completion, Disk, Token, Wait};
use wattkeep_sys::buffer::AlignedBuffer;

use crate::random::Random;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device reports an error; a write may have reached the medium in part.
    Io,
    /// No space left.
    NoSpace,
    /// Fewer bytes than asked, without an error. A flush fails with an error instead.
    Short,
}

/// Which requests fail.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The first request that fails, counted from 0 over reads, writes and flushes.
    pub at: u64,
    /// How.
    pub kind: FaultKind,
    /// Whether every later one fails, too.
    pub for_ever: bool,
}

/// What becomes of a write that no flush covered, when the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All is kept: the process died, the disk did not.
    KeepAll,
    /// Nothing is kept.
    DropAll,
    /// Each write is kept, dropped or torn, by chance.
    Mixed,
}

type Pages = HashMap<u64, Arc<[u8; PAGE]>>;

#[derive(Clone, Debug)]
struct Write {
    offset: u64,
    bytes: Arc<[u8]>,
    /// Counts reaps: a flush covers what was reaped before it was submitted.
    reaped: bool,
}

#[derive(Debug)]
enum Kind {
    /// With its number in `unflushed`.
    Write(u64),
    Read,
    /// With the writes that it makes durable.
    Flush(Vec<u64>),
}

#[derive(Debug)]
struct Request {
    kind: Kind,
    completion: Completion,
}

#[derive(Debug)]
struct Inner {
    size: u64,
    durable: Pages,
    written: Pages,
    /// Writes since the last flush that covered them, by number.
    unflushed: std::collections::BTreeMap<u64, Write>,
    next_write: u64,
    flying: Vec<Request>,
    random: Random,
    requests: u64,
    fault: Option<Fault>,
    space_left: Option<u64>,
    reads: u64,
}

/// A disk in memory. A clone is another handle to the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Mutex<Inner>>);

impl MemoryDisk {
    /// An empty disk; `seed` orders its completions.
    pub fn new(seed: u64) -> Self {
        Self::with(Pages::new(), 0, seed)
    }

    fn with(pages: Pages, size: u64, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            size,
            durable: pages.clone(),
            written: pages,
            unflushed: std::collections::BTreeMap::new(),
            next_write: 0,
            flying: Vec::new(),
            random: Random::new(seed),
            requests: 0,
            fault: None,
            space_left: None,
            reads: 0,
        })))
    }

    /// Sets which requests fail from now on.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.inner().fault = fault;
    }

    /// Lets the disk grow by at most this many bytes.
    pub fn set_space_left(&self, bytes: u64) {
        self.inner().space_left = Some(bytes);
    }

    /// Requests made so far.
    pub fn requests(&self) -> u64 {
        self.inner().requests
    }

    /// Reads made so far.
    pub fn reads(&self) -> u64 {
        self.inner().reads
    }

    /// What a machine finds after the power was cut now: a new disk. This one is not changed.
    pub fn after_cut(&self, cut: Cut, seed: u64) -> Self {
        let inner = self.inner();
        let mut random = Random::new(seed);
        let mut pages = inner.durable.clone();
        for write in inner.unflushed.values() {
            match cut {
                Cut::KeepAll => apply(&mut pages, write, |_| true),
                Cut::DropAll => {}
                Cut::Mixed => match random.below(3) {
                    0 => apply(&mut pages, write, |_| true),
                    1 => {}
                    _ => apply(&mut pages, write, |_| random.chance(1, 2)),
                },
            }
        }
        Self::with(pages, inner.size, random.number())
    }

    /// Flips one bit of what is on the medium.
    pub fn flip_bit(&self, offset: u64, bit: u32) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        for pages in [&mut inner.written, &mut inner.durable] {
            let page = pages.entry(offset / PAGE as u64).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[offset as usize % PAGE] ^= 1 << bit;
        }
    }

    /// Copies of the bytes at `offset`, as a read would return them.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        copy_out(&self.inner().written, offset, &mut bytes);
        bytes
    }

    /// Changes the size without writing: a file that was cut off.
    pub fn set_size(&self, size: u64) {
        self.inner().size = size;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no test panics while it holds the disk")
    }
}

/// Copies the sectors of a write for which `keep` says so.
fn apply(pages: &mut Pages, write: &Write, mut keep: impl FnMut(usize) -> bool) {
    for (number, sector) in write.bytes.chunks(SECTOR).enumerate() {
        if keep(number) {
            let at = write.offset as usize + number * SECTOR;
            let page = pages.entry((at / PAGE) as u64).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[at % PAGE..][..sector.len()].copy_from_slice(sector);
        }
    }
}

fn copy_out(pages: &Pages, offset: u64, out: &mut [u8]) {
    assert!(offset.is_multiple_of(PAGE as u64), "reads are whole pages");
    for (number, out) in out.chunks_mut(PAGE).enumerate() {
        match pages.get(&(offset / PAGE as u64 + number as u64)) {
            Some(page) => out.copy_from_slice(&page[..out.len()]),
            None => out.fill(0),
        }
    }
}

impl Inner {
    /// Counts a request and says how it fails, if it does.
    fn strike(&mut self) -> Option<FaultKind> {
        let number = self.requests;
        self.requests += 1;
        let fault = self.fault?;
        (number == fault.at || fault.for_ever && number > fault.at).then_some(fault.kind)
    }

    fn take_write(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        assert!(offset.is_multiple_of(PAGE as u64), "writes are whole pages");
        assert!(offset + bytes.len() as u64 <= self.size, "writes stay inside the space");
        let number = self.next_write;
        self.next_write += 1;
        let write = Write { offset, bytes: bytes.into(), reaped: false };
        apply(&mut self.written, &write, |_| true);
        self.unflushed.insert(number, write);
        number
    }

    fn fly(&mut self, kind: Kind, completion: Completion) {
        self.flying.push(Request { kind, completion });
    }

    fn land(&mut self, request: Request) -> Completion {
        match request.kind {
            Kind::Write(number) => {
                if let Some(write) = self.unflushed.get_mut(&number) {
                    write.reaped = true;
                }
            }
            Kind::Read => {}
            Kind::Flush(numbers) => {
                for number in numbers {
                    if let Some(write) = self.unflushed.remove(&number) {
                        apply(&mut self.durable, &write, |_| true);
                    }
                }
            }
        }
        request.completion
    }
}

fn failure(kind: FaultKind, len: usize) -> io::Result<usize> {
    match kind {
        FaultKind::Io => Err(io::Error::from_raw_os_error(5)),
        FaultKind::NoSpace => Err(io::Error::from_raw_os_error(28)),
        FaultKind::Short => Ok(len / 2 / PAGE * PAGE),
    }
}

impl Disk for MemoryDisk {
    fn size(&self) -> u64 {
        self.inner().size
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn grow(&mut self, from: u64, size: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let mut inner = self.inner();
        if let Some(kind) = inner.strike() {
            return failure(kind, 0).and(Err(io::ErrorKind::WriteZero.into()));
        }
        let more = size.saturating_sub(inner.size);
        if let Some(left) = inner.space_left {
            let left = left.checked_sub(more).ok_or(io::ErrorKind::StorageFull)?;
            inner.space_left = Some(left);
        }
        inner.size = inner.size.max(size);
        // Zeros, durable on return; whatever lay there is gone.
        let pages = from / PAGE as u64..size / PAGE as u64;
        inner.written.retain(|page, _| !pages.contains(page));
        inner.durable.retain(|page, _| !pages.contains(page));
        progress(size - from, size - from);
        Ok(())
    }

    fn write(&mut self, token: Token, offset: u64, buffer: AlignedBuffer, len: usize) {
        let mut inner = self.inner();
        let fault = inner.strike();
        // A failed write may have reached the medium, or half of it.
        let reached = match fault {
            None => len,
            Some(_) => inner.random.below((len / PAGE) as u64 + 1) as usize * PAGE,
        };
        let number = inner.take_write(offset, &buffer[..reached]);
        let result = fault.map_or(Ok(len), |kind| failure(kind, len));
        inner.fly(Kind::Write(number), Completion { token, buffer: Some(buffer), result });
    }

    fn read(&mut self, token: Token, offset: u64, mut buffer: AlignedBuffer, len: usize) {
        let mut inner = self.inner();
        inner.reads += 1;
        assert!(offset + len as u64 <= inner.size, "reads stay inside the space");
        let result = match inner.strike() {
            None => Ok(len),
            Some(kind) => failure(kind, len),
        };
        let got = *result.as_ref().unwrap_or(&0);
        copy_out(&inner.written, offset, &mut buffer[..got]);
        inner.fly(Kind::Read, Completion { token, buffer: Some(buffer), result });
    }

    fn flush(&mut self, token: Token) {
        let mut inner = self.inner();
        let fault = inner.strike();
        let covered = inner.unflushed.iter().filter(|(_, write)| write.reaped);
        // A failed flush makes nothing durable.
        let numbers = if fault.is_some() { Vec::new() } else { covered.map(|(&at, _)| at).collect() };
        let result = match fault {
            None => Ok(0),
            Some(FaultKind::Short) => Err(io::Error::from_raw_os_error(5)),
            Some(kind) => failure(kind, 0),
        };
        inner.fly(Kind::Flush(numbers), Completion { token, buffer: None, result });
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut inner = self.inner();
        let flying = inner.flying.len() as u64;
        let least = u64::from(wait != Wait::No).min(flying);
        for _ in 0..inner.random.below(flying + 1).max(least) {
            let left = inner.flying.len() as u64;
            let chosen = inner.random.below(left) as usize;
            let request = inner.flying.swap_remove(chosen);
            let completion = inner.land(request);
            done.push(completion);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.inner().flying.len()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
