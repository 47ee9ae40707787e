//! A disk in memory that tells *written* from *durable*.
//!
//! A completed write is visible to reads; it survives a power cut only after a flush that was
//! submitted after its completion was reaped. A cut keeps, drops or tears (at 512 bytes) each of
//! the other writes, by seed. Completions come in a random order, or, with a [`Pace`], when the device
//! of that bandwidth and latency would give them, on a simulated clock. Faults strike the nth request,
//! once or from then on; the power may go at a set time.
//!
//! Invariant: a disk behaves as some real disk with a volatile cache could, never better.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use wattkeep_store::disk::{Completion, Disk, Token, Wait};
use wattkeep_sys::buffer::AlignedBuffer;

use crate::medium::{Medium, Moment, PAGE, Write};
use crate::pace::Pace;
use crate::random::Random;

/// Waits for a device that has nothing to do, one after the other, before they count as a hang.
const IDLE_WAITS_MAX: u32 = 10_000;

/// How the panic begins that ends a program which waits for nothing.
pub const HANG: &str = "hang:";

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The device reports an error; a write may have reached the medium in part.
    Io,
    /// No space left.
    NoSpace,
    /// Fewer bytes than asked, without an error. A flush fails with an error instead.
    Short,
    /// A signal: the request ends with EINTR, and waits end without a completion.
    Interrupted,
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
    /// When it completes, on the pace's clock.
    due: Duration,
}

#[derive(Debug)]
struct Inner {
    size: u64,
    durable: Medium,
    written: Medium,
    /// Writes since the last flush that covered them, by number.
    unflushed: BTreeMap<u64, Write>,
    next_write: u64,
    flying: Vec<Request>,
    random: Random,
    requests: u64,
    fault: Option<Fault>,
    space_left: Option<u64>,
    reads: u64,
    pace: Option<Pace>,
    /// The moments after each change, when they are recorded.
    moments: Option<Vec<Moment>>,
    /// When the power goes, and what the medium held then.
    power_off: Option<(Duration, Option<Moment>)>,
    idle_waits: u32,
    /// Flushes succeed and make nothing durable.
    lies: bool,
}

/// A disk in memory. A clone is another handle to the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Mutex<Inner>>);

impl MemoryDisk {
    /// An empty disk; `seed` orders its completions.
    pub fn new(seed: u64) -> Self {
        Self::with(Medium::default(), 0, seed)
    }

    pub(crate) fn with(medium: Medium, size: u64, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            size,
            durable: medium.clone(),
            written: medium,
            unflushed: BTreeMap::new(),
            next_write: 0,
            flying: Vec::new(),
            random: Random::new(seed),
            requests: 0,
            fault: None,
            space_left: None,
            reads: 0,
            pace: None,
            moments: None,
            power_off: None,
            idle_waits: 0,
            lies: false,
        })))
    }

    /// Gives the device a bandwidth and a latency on a simulated clock.
    pub fn set_pace(&self, pace: Option<Pace>) {
        self.inner().pace = pace;
    }

    /// Takes the power away at a time of the pace's clock: nothing completes later. `None` brings it back.
    pub fn set_power_off(&self, at: Option<Duration>) {
        self.inner().power_off = at.map(|at| (at, None));
    }

    /// What the medium held when the power went; `None` while it is there.
    pub fn powered_off(&self) -> Option<Moment> {
        self.inner().power_off.as_ref().and_then(|(_, moment)| moment.clone())
    }

    /// Starts or ends recording the moment after each change of what a cut may leave.
    pub fn set_recording(&self, on: bool) {
        self.inner().moments = on.then(Vec::new);
    }

    /// Makes flushes succeed without making anything durable, as some cheap devices do: a planted bug.
    pub fn set_lying(&self, lies: bool) {
        self.inner().lies = lies;
    }

    /// Whether moments are recorded.
    pub fn is_recording(&self) -> bool {
        self.inner().moments.is_some()
    }

    /// The bandwidth and latency that were set.
    pub fn pace(&self) -> Option<Pace> {
        self.inner().pace.clone()
    }

    /// The moments recorded since the last call.
    pub fn take_moments(&self) -> Vec<Moment> {
        self.inner().moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What a cut now would find.
    pub fn moment(&self) -> Moment {
        self.inner().moment()
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
        self.moment().after_cut(cut, seed)
    }

    /// Flips one bit of what is on the medium.
    pub fn flip_bit(&self, offset: u64, bit: u32) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        for medium in [&mut inner.written, &mut inner.durable] {
            medium.page_mut(offset / PAGE as u64)[offset as usize % PAGE] ^= 1 << bit;
        }
    }

    /// Copies of the bytes at `offset`, as a read would return them.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.inner().written.copy_out(offset, &mut bytes);
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

impl Inner {
    fn count_idle_wait(&mut self, wait: Wait) {
        let idle = wait != Wait::No && self.flying.is_empty();
        self.idle_waits = if idle { self.idle_waits + 1 } else { 0 };
        assert!(
            self.idle_waits < IDLE_WAITS_MAX,
            "{HANG} the program waits for a disk that has nothing to do"
        );
    }

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
        self.written.apply(&write, |_| true);
        self.unflushed.insert(number, write);
        self.record();
        number
    }

    fn fly(&mut self, kind: Kind, bytes: usize, completion: Completion) {
        let due = self.pace.as_mut().map_or(Duration::ZERO, |pace| pace.due(bytes));
        self.flying.push(Request { kind, completion, due });
    }

    fn moment(&self) -> Moment {
        let unflushed = self.unflushed.values().cloned().collect();
        Moment { durable: self.durable.clone(), unflushed, size: self.size }
    }

    fn record(&mut self) {
        if self.moments.is_some() {
            let moment = self.moment();
            self.moments.iter_mut().for_each(|moments| moments.push(moment.clone()));
        }
    }

    /// Whether the power has gone by now. The first time, keeps what the medium holds.
    fn is_off(&mut self) -> bool {
        let (Some((at, None)), Some(pace)) = (&self.power_off, &self.pace) else {
            return self.power_off.as_ref().is_some_and(|(_, moment)| moment.is_some());
        };
        if pace.now() < *at {
            return false;
        }
        let at = *at;
        self.power_off = Some((at, Some(self.moment())));
        true
    }

    /// Requests that may complete now, at least `least` of them if there are so many: without a pace,
    /// any number; with one, those that are due.
    fn choose_landing(&mut self, wait: Wait) -> Vec<usize> {
        let signals = self.fault.is_some_and(|fault| fault.kind == FaultKind::Interrupted);
        let interrupted = signals && self.random.chance(1, 2);
        let least = usize::from(wait != Wait::No && !interrupted).min(self.flying.len());
        let Some(pace) = &self.pace else {
            let mut left: Vec<usize> = (0..self.flying.len()).collect();
            let count = (self.random.below(left.len() as u64 + 1) as usize).max(least);
            let mut chosen = Vec::with_capacity(count);
            for _ in 0..count {
                chosen.push(left.swap_remove(self.random.below(left.len() as u64) as usize));
            }
            return chosen;
        };
        let first = self.flying.iter().map(|request| request.due).min().unwrap_or_default();
        if least > 0 && pace.now() < first {
            let off = self.power_off.as_ref().map_or(first, |(at, _)| first.min(*at));
            pace.wait_until(off);
        }
        let now = pace.now();
        (0..self.flying.len()).filter(|number| self.flying[*number].due <= now).collect()
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
                        self.durable.apply(&write, |_| true);
                    }
                }
                self.record();
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
        FaultKind::Interrupted => Err(io::Error::from_raw_os_error(4)),
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
        inner.written.clear(from, size);
        inner.durable.clear(from, size);
        inner.record();
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
        inner.fly(Kind::Write(number), len, Completion { token, buffer: Some(buffer), result });
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
        inner.written.copy_out(offset, &mut buffer[..got]);
        inner.fly(Kind::Read, len, Completion { token, buffer: Some(buffer), result });
    }

    fn flush(&mut self, token: Token) {
        let mut inner = self.inner();
        let fault = inner.strike();
        let covered = inner.unflushed.iter().filter(|(_, write)| write.reaped);
        let mut numbers: Vec<_> = covered.map(|(&at, _)| at).collect();
        if fault.is_some() {
            // A failed flush makes nothing durable, and what it forgets, the next one says nothing of.
            for number in std::mem::take(&mut numbers) {
                if inner.random.chance(1, 2) {
                    inner.unflushed.remove(&number);
                }
            }
        } else if inner.lies {
            numbers.clear();
        }
        let result = match fault {
            None => Ok(0),
            Some(FaultKind::Short) => Err(io::Error::from_raw_os_error(5)),
            Some(kind) => failure(kind, 0),
        };
        inner.fly(Kind::Flush(numbers), 0, Completion { token, buffer: None, result });
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut inner = self.inner();
        inner.count_idle_wait(wait);
        let chosen = inner.choose_landing(wait);
        let off = inner.is_off();
        let mut flying: Vec<Option<Request>> = inner.flying.drain(..).map(Some).collect();
        for number in chosen {
            if let Some(request) = flying[number].take_if(|_| !off) {
                let completion = inner.land(request);
                done.push(completion);
            }
        }
        let left = flying.into_iter().flatten();
        if off {
            // Nobody is there to hear it; the program that asked ends with the power.
            let gone = || Err(io::Error::from_raw_os_error(5));
            done.extend(left.map(|request| Completion { result: gone(), ..request.completion }));
        } else {
            inner.flying.extend(left);
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
