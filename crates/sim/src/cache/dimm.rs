//! Persistent memory that programs boot from, one after the other: what it holds goes back to any image.
//!
//! An image is put in place line by line: of a history's many images each costs what differs, not the whole
//! memory.

use std::sync::{Arc, Mutex};

use super::{Cache, Image, Moment};
use wattkeep_persist::{Anonymous, DomainKind, LINE, Space};

/// A module of persistent memory.
pub struct Dimm {
    backing: Arc<Anonymous>,
    /// Reads and writes behind the back of every cache.
    door: Space,
    domain: DomainKind,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Caches of the programs that booted since the last image.
    booted: Vec<Arc<Cache>>,
    /// Every line that may have changed, in order, again and again: moments know how far they have seen it.
    journal: Vec<usize>,
}

/// A moment of a history, and how far the memory went away from it.
pub struct Rewind {
    /// The moment.
    pub moment: Moment,
    seen: usize,
}

impl Dimm {
    /// `bytes` of zeros, in whole pages.
    pub fn new(bytes: usize, domain: DomainKind) -> Self {
        let backing = Arc::new(Anonymous::new(bytes));
        let door = Space::new(backing.clone(), wattkeep_persist::Domain::Battery);
        Self { backing, door, domain, state: Mutex::default() }
    }

    /// The space that a program finds, and the cache that watches what it does there.
    pub fn boot(&self) -> (Arc<Space>, Arc<Cache>) {
        let cache = Cache::new();
        self.state.lock().expect("nothing panics in here").booted.push(cache.clone());
        let space = Space::new(self.backing.clone(), self.domain.domain()).watched_by(cache.clone());
        (Arc::new(space), cache)
    }

    /// What it holds.
    pub fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.door.len()];
        self.door.read_bytes(0, &mut bytes).expect("its own length");
        bytes
    }

    /// The moment before the history of a program that boots now. Ends all that booted before.
    pub fn before(&self) -> Rewind {
        let mut state = self.state.lock().expect("nothing panics in here");
        state.cut_programs();
        Rewind { moment: Moment::new(self.domain, self.content()), seen: state.journal.len() }
    }

    /// Makes it hold an image of the moment. Ends all programs that booted before.
    pub fn load(&self, rewind: &mut Rewind, image: &Image) {
        let mut state = self.state.lock().expect("nothing panics in here");
        state.cut_programs();
        let mut changed = rewind.moment.take_settled();
        changed.extend_from_slice(&state.journal[rewind.seen..]);
        changed.sort_unstable();
        changed.dedup();
        for line in &changed {
            self.put(*line, &rewind.moment.durable()[*line..line + LINE]);
        }
        state.journal.extend(changed);
        rewind.seen = state.journal.len();
        for (line, bytes) in rewind.moment.lines(image) {
            self.put(line, &bytes);
            state.journal.push(line);
        }
    }

    /// Changes bytes, as decay or a stray write would.
    pub fn damage(&self, at: usize, bytes: &[u8]) {
        self.door.write_bytes(at, bytes).expect("inside");
        let lines = (at / LINE * LINE..at + bytes.len()).step_by(LINE);
        self.state.lock().expect("nothing panics in here").journal.extend(lines);
    }

    fn put(&self, line: usize, bytes: &[u8]) {
        self.door.write_bytes(line, bytes).expect("a line of its own");
    }
}

impl State {
    fn cut_programs(&mut self) {
        for cache in std::mem::take(&mut self.booted) {
            self.journal.extend(cache.cut());
        }
    }
}
