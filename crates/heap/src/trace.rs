//! What a program can still reach, as a tracer tells it: leaks, and objects that belong to two.
//!
//! The heap knows its objects, but not what lies in them. A [`Tracer`] does: it follows the roots, and tells a
//! [`Reach`] what it meets. What it cannot follow it says, too: then nobody knows what is a leak, and nothing is
//! called one.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;
use wattkeep_persist::Space;

use crate::cache::Ready;
use crate::chunks::CACHED;
use crate::core::Core;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::GRANULE;
use crate::open;
use crate::roots::Root;

/// Faults, notes, reasons and leaks that are listed one by one.
const LISTED_MAX: usize = 100;

/// The first leaks are named.
const LEAKS_NAMED_MAX: usize = 20;

/// In the table of reached objects: no structure has it to itself.
const NOBODY: u64 = 0;

/// Knows what the program's objects point to.
pub trait Tracer {
    /// Tells `reach` every object that can be reached from `root`, and what is wrong with them.
    ///
    /// # Errors
    /// What cannot be read.
    fn trace(&self, heap: &Heap, root: &Root, reach: &mut Reach<'_>) -> Result<(), HeapError>;
}

/// Something that a tracer said of a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    pub at: u64,
    /// What.
    pub what: String,
}

/// Why nobody can tell what is a leak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undecided {
    /// The root that was followed.
    pub root: String,
    /// What could not be followed.
    pub why: String,
}

/// An object that nobody can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Leak {
    /// Where.
    pub at: u64,
    /// Bytes of its chunk.
    pub bytes: u64,
}

/// Objects that nobody can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leaks {
    /// How many.
    pub objects: u64,
    /// Bytes of their chunks.
    pub bytes: u64,
    /// The first of them.
    pub first: Vec<Leak>,
}

/// What a rebuild by tracing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traced {
    /// Objects that are reachable and were in the log.
    pub kept: u64,
    /// Objects that are reachable, and whose record was lost.
    pub restored: u64,
    /// Objects that were in the log and are not reachable: freed.
    pub freed: u64,
}

/// Collects what a tracer meets.
pub struct Reach<'a> {
    heap: &'a Heap,
    /// Records may be lost: an object may be one although it is not allocated.
    rebuilding: bool,
    root: String,
    /// Objects, and the structure that each is a part of.
    reached: FxHashMap<u64, u64>,
    pub(crate) faults_count: u64,
    pub(crate) faults: Vec<Problem>,
    pub(crate) notes: Vec<Problem>,
    pub(crate) undecided: Vec<Undecided>,
}

impl<'a> Reach<'a> {
    fn new(heap: &'a Heap, rebuilding: bool) -> Self {
        Self {
            heap,
            rebuilding,
            root: String::new(),
            reached: FxHashMap::default(),
            faults_count: 0,
            faults: Vec::new(),
            notes: Vec::new(),
            undecided: Vec::new(),
        }
    }

    /// All that the tracer reaches from the roots.
    pub(crate) fn of(heap: &'a Heap, tracer: &dyn Tracer) -> Result<Self, HeapError> {
        let mut reach = Self::new(heap, false);
        reach.follow(tracer)?;
        Ok(reach)
    }

    fn follow(&mut self, tracer: &dyn Tracer) -> Result<(), HeapError> {
        for root in self.heap.roots()? {
            self.root.clone_from(&root.name);
            tracer.trace(self.heap, &root, self)?;
        }
        Ok(())
    }

    /// The object at `at` can be reached. Whether that is news: what was reached before need not be followed
    /// again.
    pub fn object(&mut self, at: u64) -> bool {
        let news = !self.reached.contains_key(&at);
        if news {
            self.reached.insert(at, NOBODY);
            if !self.is_object(at) {
                self.fault(at, "the program points here, and there is no object");
            }
        }
        news
    }

    /// The object at `at` is a part of the structure at `of`, which uses `bytes` of it, and of nothing else.
    pub fn part(&mut self, at: u64, bytes: u64, of: u64) {
        if !self.is_object(at) {
            let what = format!("the structure at {of:#x} has a part here, and there is no object");
            return self.fault(at, what);
        }
        let usable = self.bytes_of(at);
        if usable < bytes {
            self.fault(
                at,
                format!("the structure at {of:#x} uses {bytes} bytes here, the object has {usable}"),
            );
        }
        match self.reached.insert(at, of) {
            None | Some(NOBODY) => {}
            Some(other) if other == of => {
                self.fault(at, format!("the structure at {of:#x} has this object twice"));
            }
            Some(other) => {
                self.fault(at, format!("the object is part of two structures, at {other:#x} and at {of:#x}"));
            }
        }
    }

    /// `word` is the offset of an object, or a number that looks like one: where there is such an object it
    /// counts as reached. Whether there is, and that is news.
    pub fn guess(&mut self, word: u64) -> bool {
        let may_be = word != 0 && word.is_multiple_of(GRANULE) && word < self.heap.space().len() as u64;
        let is_news = may_be && self.is_object(word) && !self.reached.contains_key(&word);
        if is_news {
            self.reached.insert(word, NOBODY);
        }
        is_news
    }

    /// Something is wrong at `at`.
    pub fn fault(&mut self, at: u64, what: impl Into<String>) {
        self.faults_count += 1;
        if self.faults.len() < LISTED_MAX {
            self.faults.push(Problem { at, what: what.into() });
        }
    }

    /// Something about `at` that a person should know, and that is nothing wrong.
    pub fn note(&mut self, at: u64, what: impl Into<String>) {
        if self.notes.len() < LISTED_MAX {
            self.notes.push(Problem { at, what: what.into() });
        }
    }

    /// What lies behind the root that is followed cannot be told: no object is called a leak.
    pub fn undecided(&mut self, why: impl Into<String>) {
        if self.undecided.len() < LISTED_MAX {
            self.undecided.push(Undecided { root: self.root.clone(), why: why.into() });
        }
    }

    /// Bytes that the object at `at` can hold; 0 if there is none.
    pub fn bytes_of(&self, at: u64) -> u64 {
        let place = self.heap.core.chunks.find(at).filter(|_| self.is_object(at));
        place.map_or(0, |place| place.bytes() - if self.heap.core.guard { 8 } else { 0 })
    }

    fn is_object(&self, at: u64) -> bool {
        if self.rebuilding { self.heap.core.chunks.find(at).is_some() } else { self.heap.is_allocated(at) }
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        self.reached.contains_key(&at)
    }

    /// How many objects are reachable, and those that are not.
    pub(crate) fn leaks(&self) -> (u64, Leaks) {
        let (mut reachable, mut leaks) = (0, Leaks::default());
        self.heap.core.each_object(|at, bytes, _| {
            if self.has(at) {
                reachable += 1;
                return;
            }
            (leaks.objects, leaks.bytes) = (leaks.objects + 1, leaks.bytes + bytes);
            if leaks.first.len() < LEAKS_NAMED_MAX {
                leaks.first.push(Leak { at, bytes });
            }
        });
        (reachable, leaks)
    }
}

impl Heap {
    /// Opens a heap by what is reachable: objects that are not are freed, those whose record is damaged or
    /// lost are entered again. For programs that can enumerate their objects, after damage or leaks.
    ///
    /// # Errors
    /// As [`Self::open`], but for damaged records of objects; an object that is reached in pages that the log
    /// does not know; and a tracer that finds a fault or cannot follow a root. Nothing is freed then.
    pub fn open_tracing(space: Arc<Space>, tracer: &dyn Tracer) -> Result<(Self, Traced), HeapError> {
        let heap = Self { core: Arc::new(open::open(space, open::Lost::Tolerated, None)?) };
        let mut reach = Reach::new(&heap, true);
        reach.follow(tracer)?;
        if let Some(Undecided { root, why }) = reach.undecided.pop() {
            return Err(HeapError::Untraced { root, why });
        }
        if let Some(Problem { at, .. }) = reach.faults.first() {
            return Err(HeapError::Damaged { what: "what the program points to", at: *at });
        }
        let mut traced = Traced::default();
        let mut unreachable = Vec::new();
        heap.core.each_object(|at, _, _| {
            if !reach.has(at) {
                unreachable.push(at);
            }
        });
        for &at in reach.reached.keys() {
            if heap.is_allocated(at) {
                traced.kept += 1;
            } else {
                heap.core.restore(&heap, at)?;
                traced.restored += 1;
            }
        }
        for at in unreachable {
            heap.free(at)?;
            traced.freed += 1;
        }
        heap.settle()?;
        heap.core.assume_log()?;
        Ok((heap, traced))
    }
}

impl Core {
    /// Enters an object whose record was lost.
    fn restore(&self, heap: &Heap, at: u64) -> Result<(), HeapError> {
        crate::desk::with(&heap.core, |cache| {
            let place = self.find(at)?;
            if !self.take_at(place, CACHED) {
                return Err(HeapError::Damaged { what: "what the program points to", at });
            }
            let ready = Ready::new(at, place);
            Ok(self.enter(cache, ready)?)
        })
    }
}
