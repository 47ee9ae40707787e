//! A processor's cache before persistent memory: what a power cut leaves of stores on their way.
//!
//! [`Cache`] watches a space and records every store, flush and fence. [`Moment`] walks such a history: at
//! each step it knows what is certainly durable, and what is pending. An [`Image`] is one choice of what a
//! cut may leave. [`Dimm`] holds the bytes: it takes an image, and the real recovery boots from it.
//!
//! The rules, by [`DomainKind`]:
//!
//! - ADR: a line leaves the cache at any time, in any order, alone. So of each line any prefix of its pending
//!   stores is in the memory (x86-TSO: one line's stores become visible in order). A line that was asked to be
//!   written back is certainly durable, as far as it was stored then, at the next fence of the thread that
//!   asked.
//! - Battery, eADR: what was stored is durable.
//! - File: as ADR, but a flush is an `msync`: the lines of that page are durable when it returns.
//!
//! A word is never torn; other stores are, at every byte (see [`Witness`]).
//!
//! [`DomainKind`]: wattkeep_persist::DomainKind

mod dimm;
mod moment;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

pub use dimm::{Dimm, Rewind};
pub use moment::{Image, Moment};
use wattkeep_persist::{LINE, WORD, Witness};

/// One store instruction: an aligned word, or a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    at: usize,
    len: usize,
    bytes: [u8; WORD],
}

impl Store {
    fn line(&self) -> usize {
        self.at / LINE * LINE
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It stored.
    Store(Store),
    /// It asked for the line at this offset to be written back.
    Flush(usize),
    /// It fenced.
    Fence,
}

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which thread took it, counted from 0.
    pub thread: usize,
    /// What it was.
    pub event: Event,
}

#[derive(Debug, Default)]
struct Recording {
    steps: Vec<Step>,
    threads: Vec<ThreadId>,
    /// Lines that were ever stored to.
    touched: BTreeSet<usize>,
    /// The power is gone: nobody may store.
    cut: bool,
}

/// Records what a program does to a space. Several threads are recorded in the order in which they come here.
#[derive(Debug, Default)]
pub struct Cache(Mutex<Recording>);

impl Cache {
    /// Nothing was done yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Steps so far: the instant between the last one and the next.
    pub fn now(&self) -> usize {
        self.recording().steps.len()
    }

    /// All steps so far.
    pub fn history(&self) -> Vec<Step> {
        self.recording().steps.clone()
    }

    /// Ends the program: the lines that it stored to. It must not store any more.
    fn cut(&self) -> Vec<usize> {
        let mut recording = self.recording();
        recording.cut = true;
        recording.touched.iter().copied().collect()
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().expect("nothing panics while it records")
    }

    fn record(&self, events: impl Iterator<Item = Event>) {
        let me = std::thread::current().id();
        let mut recording = self.recording();
        if recording.cut {
            drop(recording);
            panic!("a program stores although its power was cut");
        }
        let known = recording.threads.iter().position(|thread| *thread == me);
        let thread = known.unwrap_or_else(|| {
            recording.threads.push(me);
            recording.threads.len() - 1
        });
        for event in events {
            if let Event::Store(store) = event {
                recording.touched.insert(store.line());
            }
            recording.steps.push(Step { thread, event });
        }
    }
}

/// The store instructions of a copy.
fn instructions(at: usize, bytes: &[u8]) -> impl Iterator<Item = Store> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let left = &bytes[done..];
        let at = at + done;
        let len = match left.len() {
            0 => return None,
            WORD.. if at.is_multiple_of(WORD) => WORD,
            _ => 1,
        };
        let mut stored = [0; WORD];
        stored[..len].copy_from_slice(&left[..len]);
        done += len;
        Some(Store { at, len, bytes: stored })
    })
}

impl Witness for Cache {
    fn stored(&self, at: usize, bytes: &[u8]) {
        self.record(instructions(at, bytes).map(Event::Store));
    }

    fn flushed(&self, line: usize) {
        self.record(std::iter::once(Event::Flush(line)));
    }

    fn fenced(&self) {
        self.record(std::iter::once(Event::Fence));
    }
}
