//! Where a thread's cache lies: it uses it without a lock, and who finds no room empties it all the same.
//!
//! A desk is a lock that is biased to its thread (see [`wattkeep_announce::biased`]); the needy one revokes that. A
//! kernel that has no barrier for it leaves the needy with what the others give back at their next calls.
//!
//! The same agreement tells the first thread at a heap when it is no longer the only one. Until a second one comes,
//! nobody else can be freeing, so the first claims what it frees without an exchange: its cache says so. Whoever
//! comes second closes that desk and waits until its thread is not in, before its own first call begins. From then
//! on all exchange, for good. A kernel without the barrier has all exchange from the beginning. A child that was
//! forked while the first thread was in waits for it in vain, as it would at a lock.
//!
//! ```text
//! the first    in; open?  alone in the cache: load, store                no: at the door, not alone any more
//! the second   closed; barrier; in?   yes: look again      no: at the door, not alone any more; go on
//! ```
//!
//! # Safety
//!
//! 1. [`LAST`] points to [`NOBODYS`], or to a desk in [`DESKS`] of the same thread, which outlives what it says:
//!    a desk is only dropped after `LAST` was changed.
//! 2. A desk's lock is its thread's, which finds it through [`LAST`] or [`DESKS`]. That of [`NOBODYS`] is never
//!    opened.
//! 3. The locks of a heap's desks are revoked by its own revoker, with a barrier that the kernel puts on all threads
//!    of the process.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use wattkeep_announce::biased::{Biased, Entered, Key};
use wattkeep_persist::barrier;

use crate::cache::Cache;
use crate::core::Core;
use crate::error::HeapError;

/// How long a second thread waits before it looks again whether the first has ended its call.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);

/// A thread's place at one heap.
pub(crate) struct Desk {
    core: Weak<Core>,
    /// Open to the instance of its heap.
    cache: Biased<Cache>,
}

/// Whoever was never at a heap sits here.
static NOBODYS: Desk = Desk { core: Weak::new(), cache: Biased::closed(Cache::new(false)) };

thread_local! {
    /// The desk used last.
    static LAST: Cell<*const Desk> = const { Cell::new(&raw const NOBODYS) };
    static DESKS: RefCell<Desks> = const { RefCell::new(Desks(Vec::new())) };
}

/// The desks of a thread.
struct Desks(Vec<Arc<Desk>>);

/// The desks of a heap.
#[derive(Default)]
pub(crate) struct Visitors {
    desks: Vec<Arc<Desk>>,
    company: Company,
}

/// Who was ever at a heap.
#[derive(Default)]
enum Company {
    #[default]
    Nobody,
    /// One thread, which is alone as long as its desk was never closed.
    One(Arc<Desk>),
    /// Each thread that comes in knows that there are others.
    Many,
}

/// Calls `f` with this thread's cache of the heap.
#[inline(always)]
pub(crate) fn with<T, E: From<HeapError>>(
    core: &Arc<Core>,
    f: impl FnOnce(&mut Cache) -> Result<T, E>,
) -> Result<T, E> {
    // SAFETY: 1; nothing that is called while the seat lives drops the desk of an open heap.
    let desk = unsafe { &*LAST.get() };
    match desk.sit_down(core.instance) {
        Some(mut cache) => f(&mut cache),
        None => with_another(core, f),
    }
}

/// The same for a thread that used another desk, or whose desk was closed.
#[cold]
#[inline(never)]
fn with_another<T, E: From<HeapError>>(
    core: &Arc<Core>,
    f: impl FnOnce(&mut Cache) -> Result<T, E>,
) -> Result<T, E> {
    while come_to_desk(core)? {
        // SAFETY: 1, as above.
        let desk = unsafe { &*LAST.get() };
        if let Some(mut cache) = desk.sit_down(core.instance) {
            return f(&mut cache);
        }
    }
    // A thread that is ending has no desks any more: it gets a cache for this call.
    core.share(barrier::on_own_threads)?;
    let mut cache = Cache::new(false);
    let answer = f(&mut cache);
    cache.give_up(core);
    answer
}

/// Makes this thread's desk at the heap the one used last, and gives back what lies there if somebody wants it.
/// `false`: the thread is ending.
fn come_to_desk(core: &Arc<Core>) -> Result<bool, HeapError> {
    match DESKS.try_with(|desks| desks.borrow_mut().at(core)) {
        Ok(desk) => LAST.set(desk?),
        Err(_) => return Ok(false),
    }
    Ok(true)
}

impl Desk {
    fn new(core: &Arc<Core>, is_alone: bool) -> Self {
        let cache = Biased::new(core.instance, Cache::new(is_alone));
        Self { core: Arc::downgrade(core), cache }
    }

    /// For its thread, if the desk is open to it at this heap.
    #[inline(always)]
    fn sit_down(&self, instance: Key) -> Option<Entered<'_, Cache>> {
        // SAFETY: 2.
        unsafe { self.cache.enter(instance) }
    }

    /// For its thread: gives back what is there, if somebody wants it.
    fn open(&self, core: &Core) {
        let told = |cache: &mut Cache| {
            cache.is_alone = false;
            cache.give_up(core);
            core.lock_visitors().company = Company::Many;
        };
        assert!(!self.cache.is_entered(), "a heap is not called from within itself");
        // SAFETY: 2.
        unsafe { self.cache.open(core.instance, told) };
    }

    /// For its thread, which will not come again.
    fn leave(&self) {
        let Some(core) = self.core.upgrade() else { return };
        core.lock_visitors().desks.retain(|desk| !std::ptr::eq(&**desk, self));
        // SAFETY: 2.
        unsafe { self.cache.leave(|cache| cache.give_up(&core)) };
    }
}

impl Desks {
    /// This thread's desk at the heap.
    fn at(&mut self, core: &Arc<Core>) -> Result<*const Desk, HeapError> {
        LAST.set(&raw const NOBODYS);
        self.0.retain(|desk| desk.core.strong_count() > 0);
        if let Some(desk) = self.0.iter().find(|desk| std::ptr::eq(desk.core.as_ptr(), Arc::as_ptr(core))) {
            desk.open(core);
            return Ok(Arc::as_ptr(desk));
        }
        let desk = core.admit(barrier::on_own_threads)?;
        self.0.push(desk.clone());
        Ok(Arc::as_ptr(&desk))
    }
}

impl Drop for Desks {
    fn drop(&mut self) {
        LAST.set(&raw const NOBODYS);
        self.0.drain(..).for_each(|desk| desk.leave());
    }
}

impl Core {
    fn lock_visitors(&self) -> MutexGuard<'_, Visitors> {
        self.visitors.lock().expect("no panic while it is held")
    }

    /// A desk for a thread that has none here. The first thread is alone, if the next one can be told when it is
    /// not in.
    fn admit<W: Display>(
        self: &Arc<Self>,
        barrier: impl Fn() -> Result<(), W>,
    ) -> Result<Arc<Desk>, HeapError> {
        let make = |is_alone| Arc::new(Desk::new(self, is_alone));
        let mut visitors = self.lock_visitors();
        if matches!(visitors.company, Company::Nobody) && barrier().is_ok() {
            let desk = make(true);
            visitors.company = Company::One(desk.clone());
            visitors.desks.push(desk.clone());
            return Ok(desk);
        }
        drop(visitors);
        self.share(barrier)?;
        let desk = make(false);
        self.lock_visitors().desks.push(desk.clone());
        Ok(desk)
    }

    /// Returns when no thread takes itself to be alone here, nor will. Not for one that is in.
    #[cold]
    fn share<W: Display>(&self, barrier: impl Fn() -> Result<(), W>) -> Result<(), HeapError> {
        loop {
            let first = match &mut self.lock_visitors().company {
                Company::One(first) => first.clone(),
                company => {
                    *company = Company::Many;
                    return Ok(());
                }
            };
            let left = self
                .visit_desks(vec![first], &barrier, |cache| cache.is_alone = false)
                .map_err(|why| HeapError::NoBarrier { why: why.to_string() })?;
            if left.is_empty() {
                self.lock_visitors().company = Company::Many;
                return Ok(());
            }
            // It is amid one call all the while: it may itself wait to claim desks there, or for a permit to store.
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Has all given back that other threads have at hand; for one that finds no room. Those that are amid one
    /// call all the while give it back at their next one.
    #[cold]
    pub(crate) fn claim_desks(&self) {
        let own = LAST.get();
        let mut others = self.lock_visitors().desks.clone();
        others.retain(|desk| !std::ptr::eq(&**desk, own));
        // Without a barrier they are closed all the same.
        let _ = self.visit_desks(others, barrier::on_own_threads, |cache| cache.give_up(self));
    }

    /// Closes desks of other threads, and calls `f` with what lies there. Those that are left are of threads that
    /// were amid one call all the while.
    fn visit_desks<W>(
        &self,
        desks: Vec<Arc<Desk>>,
        barrier: impl Fn() -> Result<(), W>,
        f: impl Fn(&mut Cache),
    ) -> Result<Vec<Arc<Desk>>, W> {
        // SAFETY: 3.
        unsafe { self.revoker.revoke(desks, |desk| &desk.cache, barrier, f) }
    }
}

#[cfg(test)]
mod tests {
    use wattkeep_persist::{Anonymous, Domain, Space};

    use super::*;
    use crate::{Heap, Options};

    const NO: Result<(), &str> = Err("not implemented");

    fn heap() -> Heap {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(2 << 20)), Domain::Battery));
        Heap::create(space, &Options { log_area_bytes: 0, ..Options::default() }).expect("room for a heap")
    }

    fn is_alone(core: &Core) -> bool {
        matches!(core.lock_visitors().company, Company::One(_))
    }

    #[test]
    fn a_heap_is_shared_from_the_beginning_where_there_is_no_barrier() {
        let heap = heap();
        heap.core.admit(|| NO).expect("all exchange");
        assert!(!is_alone(&heap.core));
        heap.core.admit(|| NO).expect("all exchange");
    }

    #[test]
    fn the_second_thread_at_a_heap_ends_that_the_first_is_alone() {
        let heap = heap();
        heap.core.admit(|| Ok::<_, &str>(())).expect("nobody is there");
        assert!(is_alone(&heap.core));
        heap.core.admit(|| Ok::<_, &str>(())).expect("the first is not in");
        assert!(!is_alone(&heap.core));
    }

    /// A filter of system calls may come later than the first thread. The second one is refused, until the first
    /// has come to the door of its closed desk.
    #[test]
    fn a_barrier_that_is_refused_later_refuses_the_second_thread() {
        let heap = heap();
        let at = heap.alloc(64).expect("room");
        if !is_alone(&heap.core) {
            return;
        }
        let refused = heap.core.share(|| NO).expect_err("the first may be in");
        assert_eq!(refused, HeapError::NoBarrier { why: "not implemented".to_owned() });
        heap.free(at).expect("an object");
        heap.core.share(|| NO).expect("the first knows");
        assert!(heap.check(None).expect("readable").is_clean());
    }
}
