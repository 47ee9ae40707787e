//! What is wrong with a heap.
//!
//! The log is read once more, as an open would, into DRAM of its own, and compared with what the running heap
//! believes: so a check needs no second truth. Nothing is written.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::classes::{ALL, CLASSES, LARGE};
use crate::core::Core;
use crate::error::HeapError;
use crate::free::is_position;
use crate::heap::Heap;
use crate::layout::PAGE;
use crate::open;
use crate::trace::{Leaks, Problem, Reach, Tracer, Undecided};

/// Problems that are listed one by one.
const PROBLEMS_MAX: usize = 100;

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
    /// Objects that cannot; where a tracer was given, and could follow all roots.
    pub leaks: Option<Leaks>,
    /// What the tracer could not follow: why there are no leaks to tell.
    pub undecided: Vec<Undecided>,
    /// What was not looked at.
    pub notes: Vec<Problem>,
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
        if let (Some(reachable), Some(leaks)) = (self.reachable_objects, &self.leaks) {
            writeln!(
                f,
                "{reachable} objects are reachable, {} are not: {} bytes",
                leaks.objects, leaks.bytes
            )?;
            for leak in &leaks.first {
                writeln!(f, "leak at {:#x}: {} bytes that nothing points to", leak.at, leak.bytes)?;
            }
            if leaks.objects > leaks.first.len() as u64 {
                writeln!(f, "and {} more", leaks.objects - leaks.first.len() as u64)?;
            }
        }
        for Undecided { root, why } in &self.undecided {
            writeln!(f, "leaks cannot be told: root '{root}': {why}")?;
        }
        for note in &self.notes {
            writeln!(f, "offset {:#x}: {}", note.at, note.what)?;
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
        for at in open::lost_copies(&core.space)? {
            report
                .problem(at, "a copy of the superblock is lost: only the other one says that this is a heap");
        }
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

    fn check_reachable(&self, tracer: &dyn Tracer, report: &mut Report) -> Result<(), HeapError> {
        let reach = match Reach::of(self, tracer) {
            Ok(reach) => reach,
            // The check of the roots has said so.
            Err(HeapError::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (reachable, leaks) = reach.leaks();
        report.reachable_objects = Some(reachable);
        report.leaks = reach.undecided.is_empty().then_some(leaks);
        report.problems_count += reach.faults_count;
        report.problems.extend(reach.faults);
        report.problems.truncate(PROBLEMS_MAX);
        (report.notes, report.undecided) = (reach.notes, reach.undecided);
        Ok(())
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
