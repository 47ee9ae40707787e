//! What is wrong with a heap, and what nobody can reach.
//!
//! The log is read once more, as an open would, into DRAM of its own, and compared with what the running heap
//! believes: so a check needs no second truth. Nothing is written.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::cache::Ready;
use crate::classes::{ALL, CLASSES, LARGE};
use crate::core::Core;
use crate::error::HeapError;
use crate::free::is_position;
use crate::heap::Heap;
use crate::layout::PAGE;
use crate::open;
use crate::roots::Root;

/// Problems that are listed one by one.
const PROBLEMS_MAX: usize = 100;

/// Knows what the program's objects point to.
pub trait Tracer {
    /// Calls `reached` for every object that can be reached from `root`, by its offset. It says whether that
    /// is news: what was reached before need not be followed again.
    ///
    /// # Errors
    /// What cannot be read.
    fn trace(&self, heap: &Heap, root: &Root, reached: &mut dyn FnMut(u64) -> bool) -> Result<(), HeapError>;
}

/// One size class of a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassUse {
    /// Bytes of a chunk; 0: runs of pages, each for one object.
    pub chunk_bytes: u64,
    /// Bytes of the blocks or runs.
    pub held_bytes: u64,
    /// Objects in them.
    pub objects: u64,
}

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    pub at: u64,
    /// What.
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Allocated objects.
    pub objects: u64,
    /// Bytes of their chunks.
    pub object_bytes: u64,
    /// Bytes of pages that nobody has.
    pub free_bytes: u64,
    /// Bytes of the longest run of those.
    pub longest_free_bytes: u64,
    /// Bytes of the log's segments.
    pub log_bytes: u64,
    /// Names of the roots.
    pub roots: Vec<String>,
    /// Classes that hold something.
    pub classes: Vec<ClassUse>,
    /// Objects that can be reached; where a tracer was given.
    pub reachable_objects: Option<u64>,
    /// Objects that cannot, and their bytes: leaks.
    pub unreachable: Option<(u64, u64)>,
    /// How much is wrong. Leaks are not counted: the program decides what is one.
    pub problems_count: u64,
    /// The first of it.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems_count == 0
    }

    fn problem(&mut self, at: u64, what: impl Into<String>) {
        self.problems_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { at, what: what.into() });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} objects in {} bytes, {} roots; {} bytes free, {} in a row; log {} bytes",
            self.objects,
            self.object_bytes,
            self.roots.len(),
            self.free_bytes,
            self.longest_free_bytes,
            self.log_bytes
        )?;
        if let (Some(reachable), Some((leaks, bytes))) = (self.reachable_objects, self.unreachable) {
            writeln!(f, "{reachable} objects are reachable, {leaks} are not: {bytes} bytes")?;
        }
        for problem in &self.problems {
            writeln!(f, "offset {:#x}: {}", problem.at, problem.what)?;
        }
        match self.problems_count {
            0 => write!(f, "nothing is wrong"),
            count => write!(f, "{count} problems"),
        }
    }
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

impl Heap {
    /// Walks the heap: its log, its classes, its guards, its roots, and what is reachable where a tracer
    /// knows. Nobody may allocate or free meanwhile.
    ///
    /// # Errors
    /// The space refuses a load. What is wrong with the heap is in the report.
    pub fn check(&self, tracer: Option<&dyn Tracer>) -> Result<Report, HeapError> {
        let core = &*self.core;
        let mut report = Report::default();
        (report.free_bytes, report.longest_free_bytes) = self.free_bytes();
        report.log_bytes = core.log.segments() * PAGE;
        core.count_objects(&mut report)?;
        compare_with_log(core, &mut report)?;
        self.check_roots(&mut report)?;
        if let Some(tracer) = tracer {
            self.check_reachable(tracer, &mut report)?;
        }
        Ok(report)
    }

    fn check_roots(&self, report: &mut Report) -> Result<(), HeapError> {
        let roots = match self.roots() {
            Ok(roots) => roots,
            Err(HeapError::Damaged { what, at }) => {
                report.problem(at, format!("{what} is damaged"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for root in &roots {
            let object = self.space().load(root.word.offset() as usize)?;
            if object != 0 && !self.is_allocated(object) {
                let what = format!("the root '{}' points to {object:#x}, which is no object", root.name);
                report.problem(root.word.offset(), what);
            }
        }
        report.roots = roots.into_iter().map(|root| root.name).collect();
        Ok(())
    }

    /// All objects that the tracer reaches, and what it reached that is none.
    fn reach(&self, tracer: &dyn Tracer) -> Result<HashSet<u64>, HeapError> {
        let mut reached = HashSet::new();
        for root in self.roots()? {
            tracer.trace(self, &root, &mut |at| reached.insert(at))?;
        }
        Ok(reached)
    }

    fn check_reachable(&self, tracer: &dyn Tracer, report: &mut Report) -> Result<(), HeapError> {
        let reached = self.reach(tracer)?;
        let mut sorted: Vec<u64> = reached.iter().copied().collect();
        sorted.sort_unstable();
        for at in sorted.into_iter().filter(|at| !self.is_allocated(*at)) {
            report.problem(at, "the program points here, and there is no object");
        }
        let (mut reachable, mut leaks) = (0, (0, 0));
        self.core.each_object(|at, bytes, _| {
            if reached.contains(&at) {
                reachable += 1;
            } else {
                leaks = (leaks.0 + 1, leaks.1 + bytes);
            }
        });
        (report.reachable_objects, report.unreachable) = (Some(reachable), Some(leaks));
        Ok(())
    }

    /// Opens a heap by what is reachable: objects that are not are freed, those whose record is damaged or
    /// lost are entered again. For programs that can enumerate their objects, after damage or leaks.
    ///
    /// # Errors
    /// As [`Self::open`], but for damaged records of objects; and an object that is reached in pages that the
    /// log does not know.
    pub fn open_tracing(
        space: std::sync::Arc<wattkeep_persist::Space>,
        tracer: &dyn Tracer,
    ) -> Result<(Self, Traced), HeapError> {
        let heap = Self { core: std::sync::Arc::new(open::open(space, open::Lost::Tolerated)?) };
        let reached = heap.reach(tracer)?;
        let mut traced = Traced::default();
        let mut unreachable = Vec::new();
        heap.core.each_object(|at, _, _| {
            if !reached.contains(&at) {
                unreachable.push(at);
            }
        });
        for at in reached {
            if heap.is_allocated(at) {
                traced.kept += 1;
            } else {
                heap.restore(at)?;
                traced.restored += 1;
            }
        }
        for at in unreachable {
            heap.free(at)?;
            traced.freed += 1;
        }
        heap.settle()?;
        Ok((heap, traced))
    }

    /// Enters an object whose record was lost.
    fn restore(&self, at: u64) -> Result<(), HeapError> {
        crate::cache::with(&self.core, |cache| {
            let place = self.core.find(at)?;
            if !self.core.take_at(place, crate::chunks::CACHED) {
                return Err(HeapError::Damaged { what: "what the program points to", at });
            }
            let ready = Ready::new(at, place);
            Ok(self.core.enter(cache, ready)?)
        })
    }
}

impl Core {
    /// Calls `f` with the offset, the bytes and the record's position of every allocated object.
    pub(crate) fn each_object(&self, mut f: impl FnMut(u64, u64, u32)) {
        self.chunks.each(|at, place| {
            let state = place.slot().load(Ordering::Acquire);
            if is_position(state) {
                f(at, place.bytes(), state);
            }
        });
    }

    fn count_objects(&self, report: &mut Report) -> Result<(), HeapError> {
        let mut classes = vec![ClassUse::default(); CLASSES + 1];
        let mut overrun = Vec::new();
        let mut failed = Ok(());
        self.chunks.each(|at, place| {
            let class = &mut classes[usize::from(place.class)];
            if place.class == LARGE {
                class.held_bytes += place.bytes();
            } else if place.index() == 0 {
                class.chunk_bytes = ALL[usize::from(place.class)].bytes.into();
                class.held_bytes += crate::layout::BLOCK;
            }
            if !is_position(place.slot().load(Ordering::Acquire)) {
                return;
            }
            class.objects += 1;
            report.objects += 1;
            report.object_bytes += place.bytes();
            if self.guard {
                match self.check_guard(at, place) {
                    Err(HeapError::Overrun { at }) => overrun.push(at),
                    checked => failed = std::mem::replace(&mut failed, Ok(())).and(checked),
                }
            }
        });
        for at in overrun {
            report.problem(at, "the guard word behind this object was overwritten");
        }
        report.classes = classes.into_iter().filter(|class| class.held_bytes > 0).collect();
        failed
    }
}

/// Reads the log again, and compares.
fn compare_with_log(core: &Core, report: &mut Report) -> Result<(), HeapError> {
    let again = match open::read(core.space.clone()) {
        Ok(again) => again,
        Err(HeapError::Damaged { what, at }) => {
            report.problem(at, format!("{what} is damaged"));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let of = |core: &Core| {
        let mut objects = Vec::new();
        core.each_object(|at, _, position| objects.push((at, position)));
        objects
    };
    let (believed, written): (HashSet<_>, HashSet<_>) =
        (of(core).into_iter().collect(), of(&again).into_iter().collect());
    let mut wrong: Vec<_> = believed.symmetric_difference(&written).copied().collect();
    wrong.sort_unstable();
    for (at, position) in wrong {
        let what = if written.contains(&(at, position)) {
            "the log has an object here, the running heap has none, or has it elsewhere in the log"
        } else {
            "the running heap has an object here, and the log says nothing of it"
        };
        report.problem(at, what);
    }
    Ok(())
}
