//! An open transaction, and how a thread finds the one it has.
//!
//! Invariant: a thread has at most one open transaction a manager. What it holds in DRAM is kept for the
//! thread's next one, so that a small transaction allocates nothing.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::freed::Freed;
use crate::fresh::Fresh;
use crate::lane::Lane;
use crate::lines::{Lines, Run};
use crate::versions::Enlisted;

/// A thread keeps no more memory than this of a transaction that was large.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Somebody who takes part in transactions: the lock of a data structure.
pub trait Partner {
    /// The transaction has committed, and its first store in place comes next. Only with redo: with undo
    /// stores are in place at once. It must not use transactions.
    fn before_apply(&self);

    /// The transaction has ended: committed and applied, or rolled back.
    fn ended(&self);
}

/// Dropped when the transaction has ended.
type Guards = Vec<Box<dyn Any>>;

/// Told of it.
type Partners = Vec<Arc<dyn Partner>>;

/// An open transaction.
#[derive(Default)]
pub(crate) struct Work {
    /// Unique in the process.
    pub(crate) id: u64,
    /// How many times it was begun and has not ended.
    pub(crate) depth: u32,
    /// It cannot commit any more.
    pub(crate) doomed: bool,
    pub(crate) lines: Lines,
    pub(crate) fresh: Fresh,
    pub(crate) freed: Freed,
    /// Versioned objects that it touched. None when it has ended.
    pub(crate) versions: Enlisted,
    /// Undo: its lane, from the first store on.
    pub(crate) open: Option<Open>,
    partners: Partners,
    /// Dropped when it has ended.
    held: Guards,
    pub(crate) scratch: Scratch,
}

/// Memory that calls borrow from the transaction.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) runs: Vec<Run>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) allocated: Vec<u64>,
}

/// The lane of an undo transaction.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) lane: Box<Lane>,
    pub(crate) tid: u64,
}

impl Work {
    pub(crate) fn hold(&mut self, guard: Box<dyn Any>) {
        self.held.push(guard);
    }

    #[inline]
    pub(crate) fn tell(&mut self, partner: Arc<dyn Partner>) {
        self.partners.push(partner);
    }

    /// The first store in place comes next.
    #[inline]
    pub(crate) fn before_apply(&self) {
        self.partners.iter().for_each(|partner| partner.before_apply());
    }

    /// Objects of its list.
    #[inline]
    pub(crate) fn listed(&self) -> usize {
        self.fresh.len() + self.freed.len()
    }

    /// Lists what it allocated, for the log and the heap.
    #[inline]
    pub(crate) fn list_allocated(&mut self) {
        self.scratch.allocated.clear();
        self.scratch.allocated.extend(self.fresh.objects());
    }

    /// Nothing was changed.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.lines.is_empty() && self.fresh.is_empty() && self.freed.is_empty()
    }

    /// Forgets everything but the memory; what it held, and who took part, is the caller's to let go.
    #[inline]
    fn end(&mut self) -> (Guards, Partners) {
        self.lines.clear();
        if self.lines.capacity_bytes() + self.scratch.bytes.capacity() > KEPT_BYTES_MAX {
            (self.lines, self.scratch) = Default::default();
        }
        self.fresh.clear();
        self.freed.clear();
        (self.depth, self.doomed) = (0, false);
        (std::mem::take(&mut self.held), std::mem::take(&mut self.partners))
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({}, {} deep)", self.id, self.depth)
    }
}

/// A transaction in the hands of its thread.
pub(crate) type Shared = Rc<RefCell<Work>>;

/// A transaction of this thread, open or ended.
struct Kept {
    /// Of the manager that it is of, or was of last.
    manager: u64,
    work: Shared,
}

#[derive(Default)]
struct Mine {
    /// The open ones; ended ones are kept for their memory, and as the next ones of their managers.
    all: Vec<Kept>,
    /// Numbers that this thread may still give to transactions.
    ids: std::ops::Range<u64>,
}

thread_local! {
    static MINE: RefCell<Mine> = RefCell::default();
}

/// Numbers are given to threads in blocks, so that beginning a transaction touches nothing shared.
const IDS_AT_ONCE: u64 = 1 << 16;

impl Mine {
    #[inline]
    fn next_id(&mut self) -> u64 {
        if self.ids.is_empty() {
            self.more_ids();
        }
        self.ids.next().expect("just filled")
    }

    #[cold]
    fn more_ids(&mut self) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let first = NEXT.fetch_add(IDS_AT_ONCE, Ordering::Relaxed);
        self.ids = first..first + IDS_AT_ONCE;
    }

    /// The manager's transaction, open or ended; or else any ended one, or a new one.
    #[inline]
    fn of(&mut self, manager: u64) -> &Shared {
        let place = self.all.iter().position(|kept| kept.manager == manager);
        let place = place.unwrap_or_else(|| self.make(manager));
        &self.all[place].work
    }

    #[cold]
    fn make(&mut self, manager: u64) -> usize {
        if let Some(place) =
            self.all.iter().position(|kept| kept.work.try_borrow().is_ok_and(|work| work.depth == 0))
        {
            self.all[place].manager = manager;
            return place;
        }
        self.all.push(Kept { manager, work: Shared::default() });
        self.all.len() - 1
    }
}

/// The thread's open transaction of `manager`, begun once more; or a new one. Its number, and how deep it is now.
#[inline]
pub(crate) fn begin(manager: u64) -> (Shared, u64, u32) {
    MINE.with_borrow_mut(|mine| {
        let shared = Rc::clone(mine.of(manager));
        let (id, depth) = {
            let mut work = shared.borrow_mut();
            work.depth += 1;
            if work.depth == 1 {
                work.id = mine.next_id();
            }
            (work.id, work.depth)
        };
        (shared, id, depth)
    })
}

/// Partners of a transaction that has ended: they are told, even if a guard panics when it is dropped.
struct ToTell(Partners);

impl ToTell {
    #[inline]
    fn tell(&mut self) {
        while let Some(partner) = self.0.pop() {
            partner.ended();
        }
    }
}

impl Drop for ToTell {
    fn drop(&mut self) {
        self.tell();
    }
}

/// The transaction has ended: what it held is dropped, the last first, and its partners are told.
#[inline]
pub(crate) fn end(shared: &Shared) {
    let (held, partners) = shared.borrow_mut().end();
    let mut partners = ToTell(partners);
    if !held.is_empty() {
        held.into_iter().rev().for_each(drop);
    }
    partners.tell();
    let mut work = shared.borrow_mut();
    // Unless those who were told have begun a transaction with it.
    if work.depth == 0 {
        work.partners = std::mem::take(&mut partners.0);
    }
}
