//! A small heap with a manager, which a test can close and open again, and transactions that end in every way.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use proptest::prelude::*;
use wattkeep_collections::{Error, Findings};
use wattkeep_heap::Heap;
use wattkeep_persist::{Anonymous, Domain, Space};
use wattkeep_tx::{Logging, Manager, Options, Tx};

/// Bytes of transaction logs: so small that histories fill them more than once.
const LOG_BYTES: u64 = 256 << 10;

/// Changes of a transaction that is one of many.
const FEW: usize = 50;

/// A heap in plain memory.
pub(crate) struct Pool {
    pub(crate) heap: Arc<Heap>,
    pub(crate) manager: Manager,
    logging: Logging,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Abort,
    Panic,
}

impl Pool {
    pub(crate) fn new(bytes: usize, logging: Logging) -> Self {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(bytes)), Domain::Battery));
        let options = wattkeep_heap::Options { log_area_bytes: LOG_BYTES, ..Default::default() };
        Self::start(Heap::create(space, &options).expect("room for a heap"), logging)
    }

    fn start(heap: Heap, logging: Logging) -> Self {
        let heap = Arc::new(heap);
        let options = Options { logging, ..Options::default() };
        let manager = Manager::open(Arc::clone(&heap), &options).expect("a manager");
        Self { heap, manager, logging }
    }

    /// One whose transactions undo, one whose transactions redo.
    pub(crate) fn of_both_logs(bytes: usize) -> [Self; 2] {
        [Logging::Undo, Logging::Redo].map(|logging| Self::new(bytes, logging))
    }

    /// The program ends, and another begins.
    pub(crate) fn reopen(self) -> Self {
        let Self { heap, manager, logging } = self;
        let space = Arc::clone(heap.space());
        drop((manager, heap));
        Self::start(Heap::open(space).expect("a heap"), logging)
    }

    /// Calls `change` with all `numbers`, a few in a transaction.
    pub(crate) fn for_all(
        &self,
        numbers: Range<u64>,
        mut change: impl FnMut(&mut Tx<'_>, u64) -> Result<(), Error>,
    ) {
        for first in numbers.clone().step_by(FEW) {
            let few = first..numbers.end.min(first + FEW as u64);
            self.manager.run(|tx| few.into_iter().try_for_each(|n| change(tx, n))).expect("committed");
        }
    }

    /// Runs `change` in a transaction that ends as `end` says; whether it was committed.
    pub(crate) fn end_as(&self, end: End, change: impl FnOnce(&mut Tx<'_>) -> Result<(), Error>) -> bool {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            self.manager.run(|tx| {
                change(tx)?;
                match end {
                    End::Commit => Ok(()),
                    End::Abort => Err(Error::Deadlock),
                    End::Panic => resume_unwind(Box::new("a panic that was planned")),
                }
            })
        }));
        match (end, ended) {
            (End::Commit, Ok(Ok(()))) => true,
            (End::Abort, Ok(Err(Error::Deadlock))) | (End::Panic, Err(_)) => false,
            (_, Ok(ended)) => panic!("{end:?} ended as {ended:?}"),
            (_, Err(panic)) => resume_unwind(panic),
        }
    }
}

/// Mostly commits.
pub(crate) fn ends() -> impl Strategy<Value = End> {
    prop_oneof![4 => Just(End::Commit), 2 => Just(End::Abort), 1 => Just(End::Panic)]
}

/// Nothing is wrong, and there are `items`.
pub(crate) fn assert_sound(found: Result<Findings, Error>, items: usize) {
    let found = found.expect("a structure that can be walked over");
    assert!(found.is_clean(), "{:?}", found.faults);
    assert_eq!(found.items, items as u64);
}

/// Either log.
pub(crate) fn loggings() -> impl Strategy<Value = Logging> {
    prop_oneof![Just(Logging::Undo), Just(Logging::Redo)]
}
