//! Where a thread's cache lies: it uses it without a lock, and who finds no room empties it all the same.
//!
//! The dear half of the agreement is on the side that needs room. A thread says that it is in, and then looks
//! whether its desk is open to it; between the two there is no fence. Whoever claims desks closes them, has the
//! kernel put a fence there, on every thread, and only then looks who is in. So one of the two sees the other.
//!
//! ```text
//! its thread   in = true; open to this heap?     no: in = false; wait at the door; give all back; open it
//! the needy    closed; barrier; in?              yes: it is amid a call, look again
//!                                                no: the cache is mine while I have the door
//! ```
//!
//! A kernel that has no such barrier leaves the needy with what the others give back at their next calls.
//!
//! # Safety
//!
//! 1. [`LAST`] points to [`NOBODYS`], or to a desk in [`DESKS`] of the same thread, which outlives what it says:
//!    a desk is only dropped after `LAST` was changed.
//! 2. A cache is touched by its thread, while it says that it is in, and saw behind that that the desk is open;
//!    or by whoever has the door: its thread, which is not in, or another that found it still closed there, and
//!    nobody in, behind a barrier on all threads behind the closing. Its thread alone opens it, at the door. A
//!    thread that is in is not let in again, so no two references to a cache live at once.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use wattkeep_persist::barrier;

use crate::cache::Cache;
use crate::core::Core;

/// No heap's instance.
const CLOSED: u64 = 0;

/// How often a needy thread looks whether another one has ended its call.
const LOOKS_MAX: usize = 64;

/// A thread's place at one heap.
pub(crate) struct Desk {
    core: Weak<Core>,
    /// Its thread is amid a call. Changed by it alone.
    is_in: AtomicBool,
    /// The instance of its heap; or [`CLOSED`]: its thread has to come to the door.
    open_to: AtomicU64,
    door: Mutex<()>,
    cache: UnsafeCell<Cache>,
}

// SAFETY: 2.
unsafe impl Sync for Desk {}

/// Whoever was never at a heap sits here.
static NOBODYS: Desk = Desk::new(CLOSED, Weak::new());

thread_local! {
    /// The desk used last.
    static LAST: Cell<*const Desk> = const { Cell::new(&raw const NOBODYS) };
    static DESKS: RefCell<Desks> = const { RefCell::new(Desks(Vec::new())) };
}

/// The desks of a thread.
struct Desks(Vec<Arc<Desk>>);

/// A thread is in: until this is dropped, by a panic, too.
struct Seat<'a>(&'a Desk);

impl Drop for Seat<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_in.store(false, Ordering::Release);
    }
}

/// Calls `f` with this thread's cache of the heap.
#[inline(always)]
pub(crate) fn with<R>(core: &Arc<Core>, f: impl Fn(&mut Cache) -> R) -> R {
    // SAFETY: 1; nothing that is called while the seat lives drops the desk of an open heap.
    let desk = unsafe { &*LAST.get() };
    match desk.sit_down(core.instance) {
        // SAFETY: 2: the seat says so.
        Some(_seat) => f(unsafe { &mut *desk.cache.get() }),
        None => with_another(core, f),
    }
}

/// The same for a thread that used another desk, or whose desk was closed.
#[cold]
#[inline(never)]
fn with_another<R>(core: &Arc<Core>, f: impl Fn(&mut Cache) -> R) -> R {
    while come_to_desk(core) {
        // SAFETY: 1, as above.
        let desk = unsafe { &*LAST.get() };
        if let Some(_seat) = desk.sit_down(core.instance) {
            // SAFETY: 2: the seat says so.
            return f(unsafe { &mut *desk.cache.get() });
        }
    }
    // A thread that is ending has no desks any more: it gets a cache for this call.
    let mut cache = Cache::new();
    let answer = f(&mut cache);
    cache.give_up(core);
    answer
}

/// Makes this thread's desk at the heap the one used last, and gives back what lies there if somebody wants it.
/// `false`: the thread is ending.
fn come_to_desk(core: &Arc<Core>) -> bool {
    DESKS.try_with(|desks| LAST.set(desks.borrow_mut().at(core))).is_ok()
}

impl Desk {
    const fn new(instance: u64, core: Weak<Core>) -> Self {
        Self {
            core,
            is_in: AtomicBool::new(false),
            open_to: AtomicU64::new(instance),
            door: Mutex::new(()),
            cache: UnsafeCell::new(Cache::new()),
        }
    }

    /// For its thread, if the desk is open to it at this heap.
    #[inline(always)]
    fn sit_down(&self, instance: u64) -> Option<Seat<'_>> {
        if self.is_in.load(Ordering::Relaxed) {
            return None;
        }
        self.is_in.store(true, Ordering::Relaxed);
        let seat = Seat(self);
        compiler_fence(Ordering::SeqCst);
        (self.open_to.load(Ordering::Relaxed) == instance).then_some(seat)
    }

    fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().expect("no panic while it is held")
    }

    /// For its thread: gives back what is there, if somebody wants it.
    fn open(&self, core: &Core) {
        assert!(!self.is_in.load(Ordering::Relaxed), "a heap is not called from within itself");
        let _door = self.door();
        if self.open_to.swap(core.instance, Ordering::Relaxed) == CLOSED {
            // SAFETY: 2: its thread, at the door, and not in.
            unsafe { &mut *self.cache.get() }.give_up(core);
        }
    }

    /// For its thread, which will not come again.
    fn leave(&self) {
        let Some(core) = self.core.upgrade() else { return };
        core.lock_desks().retain(|desk| !std::ptr::eq(&**desk, self));
        let _door = self.door();
        // SAFETY: 2: its thread, at the door, and not in.
        unsafe { &mut *self.cache.get() }.give_up(&core);
    }

    /// For another thread, behind its closing and a barrier: `false` if this one's is amid a call.
    fn empty(&self, core: &Core) -> bool {
        let _door = self.door();
        if self.open_to.load(Ordering::Relaxed) != CLOSED {
            // Its thread came by, and gave all back.
            return true;
        }
        if self.is_in.load(Ordering::Acquire) {
            return false;
        }
        // SAFETY: 2: at the door, closed, and its thread not in.
        unsafe { &mut *self.cache.get() }.give_up(core);
        true
    }
}

impl Desks {
    /// This thread's desk at the heap.
    fn at(&mut self, core: &Arc<Core>) -> *const Desk {
        LAST.set(&raw const NOBODYS);
        self.0.retain(|desk| desk.core.strong_count() > 0);
        if let Some(desk) = self.0.iter().find(|desk| std::ptr::eq(desk.core.as_ptr(), Arc::as_ptr(core))) {
            desk.open(core);
            return Arc::as_ptr(desk);
        }
        let desk = Arc::new(Desk::new(core.instance, Arc::downgrade(core)));
        core.lock_desks().push(desk.clone());
        self.0.push(desk.clone());
        Arc::as_ptr(&desk)
    }
}

impl Drop for Desks {
    fn drop(&mut self) {
        LAST.set(&raw const NOBODYS);
        self.0.drain(..).for_each(|desk| desk.leave());
    }
}

impl Core {
    pub(crate) fn lock_desks(&self) -> MutexGuard<'_, Vec<Arc<Desk>>> {
        self.desks.lock().expect("no panic while it is held")
    }

    /// Has all given back that other threads have at hand; for one that finds no room. Those that are amid one
    /// call all the while give it back at their next one.
    #[cold]
    pub(crate) fn claim_desks(&self) {
        let _one_at_a_time = self.claiming.lock().expect("no panic while it is held");
        let own = LAST.get();
        let mut left = self.lock_desks().clone();
        left.retain(|desk| !std::ptr::eq(&**desk, own));
        left.iter().for_each(|desk| desk.open_to.store(CLOSED, Ordering::Relaxed));
        if left.is_empty() || barrier::on_own_threads().is_err() {
            return;
        }
        for _ in 0..LOOKS_MAX {
            left.retain(|desk| !desk.empty(self));
            if left.is_empty() {
                return;
            }
            std::thread::yield_now();
        }
    }
}
