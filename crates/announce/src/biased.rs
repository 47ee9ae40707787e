//! A biased lock (Kawachiya, Koseki, Onodera 2002): its thread uses what is in it without a locked instruction;
//! whoever else needs it revokes that first.
//!
//! The dear half of the agreement is on the side of the revoker. The thread says that it is in, and then looks
//! whether the lock is open to it; between the two there is no fence. The revoker closes it, has the kernel put a
//! fence there, on every thread, and only then looks who is in. So one of the two sees the other.
//!
//! ```text
//! its thread   in = true; open to this key?      no: in = false; wait at the door; be told; open it
//! the revoker  closed; barrier; in?              yes: it is amid its work, look again
//!                                                no: the content is mine while I have the door
//! ```
//!
//! # Safety
//!
//! 1. The content is touched by its thread, while it says that it is in, and saw behind that that the lock is open;
//!    or by whoever has the door: its thread, which is not in, or a revoker that found it still closed there, and
//!    nobody in, behind a barrier on all threads behind the closing. Its thread alone opens it, at the door. One
//!    revoker at a time closes, from there to its last look: so what it finds closed was not opened behind its
//!    barrier. A thread that is in is not let in again. So no two references to the content live at once.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};

use wattkeep_sys::mutant::planted;

use crate::primitives::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, light_barrier, yield_now};

/// What a lock is open to.
pub type Key = NonZero<u64>;

/// No key: the thread has to come to the door.
const CLOSED: u64 = 0;

/// How often a revoker looks whether a thread has ended its work.
const LOOKS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// A lock that is biased to one thread.
pub struct Biased<T> {
    /// Its thread is in. Changed by it alone.
    is_in: AtomicU32,
    /// A key, or [`CLOSED`].
    open_to: AtomicU64,
    door: Mutex<()>,
    content: UnsafeCell<T>,
}

// SAFETY: 1: the content is handed from thread to thread, and never shared.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Its thread is in: until this is dropped, by a panic, too. One that is forgotten keeps the lock.
pub struct Entered<'a, T> {
    lock: &'a Biased<T>,
    /// It stays on its thread, and so does what it shows.
    _here: PhantomData<*mut T>,
}

impl<T> Drop for Entered<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.is_in.store(0, Ordering::Release);
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: 1: this says so, and is borrowed.
        unsafe { &*self.lock.content.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1: this says so, and is borrowed alone.
        unsafe { &mut *self.lock.content.get() }
    }
}

impl<T> Biased<T> {
    /// A lock that is open to `key`.
    pub fn new(key: Key, content: T) -> Self {
        let (is_in, open_to) = (AtomicU32::new(0), AtomicU64::new(key.get()));
        Self { is_in, open_to, door: Mutex::new(()), content: UnsafeCell::new(content) }
    }

    /// A lock that no key opens, until its thread does.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn closed(content: T) -> Self {
        let (is_in, open_to) = (AtomicU32::new(0), AtomicU64::new(CLOSED));
        Self { is_in, open_to, door: Mutex::new(()), content: UnsafeCell::new(content) }
    }

    /// Says that its thread is in, which it was not.
    #[inline(always)]
    fn go_in(&self) -> Entered<'_, T> {
        self.is_in.store(1, Ordering::Relaxed);
        Entered { lock: self, _here: PhantomData }
    }

    /// For its thread: what is in it, if it is open to `key`, and the thread is not in already.
    ///
    /// # Safety
    /// 1: only one thread ever calls this, [`Self::open`] and [`Self::leave`]. On a lock that nobody ever opens,
    /// every thread may call this.
    #[inline(always)]
    pub unsafe fn enter(&self, key: Key) -> Option<Entered<'_, T>> {
        if self.is_entered() {
            return None;
        }
        let is_open = || self.open_to.load(Ordering::Relaxed) == key.get();
        let looked_at_first = planted("bias-looked-at-first");
        if looked_at_first && !is_open() {
            return None;
        }
        let entered = self.go_in();
        light_barrier();
        (looked_at_first || is_open()).then_some(entered)
    }

    /// For its thread: whether it is in.
    #[inline(always)]
    pub fn is_entered(&self) -> bool {
        self.is_in.load(Ordering::Relaxed) != 0
    }

    fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().expect("no panic while it is held")
    }

    /// For its thread: opens it to `key`; `told` is called at the door, if it was closed.
    ///
    /// # Panics
    /// The thread is in.
    ///
    /// # Safety
    /// 1: as [`Self::enter`].
    pub unsafe fn open(&self, key: Key, told: impl FnOnce(&mut T)) {
        assert!(!self.is_entered(), "it is opened from outside");
        let _door = self.door();
        // Nobody enters from within `told`. Whoever revokes waits at the door.
        let mut entered = self.go_in();
        if self.open_to.swap(key.get(), Ordering::Relaxed) == CLOSED {
            told(&mut entered);
        }
    }

    /// For its thread, which will not come again: what is in it.
    ///
    /// # Panics
    /// The thread is in.
    ///
    /// # Safety
    /// 1: as [`Self::enter`].
    pub unsafe fn leave(&self, last: impl FnOnce(&mut T)) {
        assert!(!self.is_entered(), "it is left from outside");
        let _door = self.door();
        last(&mut self.go_in());
    }

    /// For a revoker, behind its closing and a barrier: calls `f`, unless its thread came by meanwhile. `false` if
    /// that one is in.
    fn visit(&self, f: impl Fn(&mut T)) -> bool {
        let _door = self.door();
        if self.open_to.load(Ordering::Relaxed) != CLOSED {
            return true;
        }
        if self.is_in.load(Ordering::Acquire) != 0 {
            return false;
        }
        // SAFETY: 1: at the door, closed, and its thread not in.
        f(unsafe { &mut *self.content.get() });
        true
    }
}

/// Who may revoke: one at a time. Else one could take the closing of another, whose barrier is yet to come, for its
/// own.
#[derive(Default)]
pub struct Revoker(Mutex<()>);

impl Revoker {
    /// Closes locks, and calls `f` with what is in them, unless their threads came to the door meanwhile, where
    /// each is told. What is left is of threads that were in all the while: they are told when they come next.
    ///
    /// # Errors
    /// That of `barrier`; the locks are closed.
    ///
    /// # Safety
    /// 1: no other `Revoker` closes these locks; `lock` names the same one each time; and `barrier` answers with
    /// success only when every thread that may enter one has passed a fence since it was called.
    pub unsafe fn revoke<T, L, W>(
        &self,
        mut left: Vec<L>,
        lock: impl Fn(&L) -> &Biased<T>,
        barrier: impl Fn() -> Result<(), W>,
        f: impl Fn(&mut T),
    ) -> Result<Vec<L>, W> {
        let one_at_a_time = self.0.lock().expect("no panic while it is held");
        if planted("bias-revoked-by-two") {
            drop(one_at_a_time);
        }
        left.iter().for_each(|each| lock(each).open_to.store(CLOSED, Ordering::Relaxed));
        if left.is_empty() {
            return Ok(left);
        }
        if !planted("bias-without-barrier") {
            barrier()?;
        }
        for _ in 0..LOOKS_MAX {
            left.retain(|each| !lock(each).visit(&f));
            if left.is_empty() {
                break;
            }
            yield_now();
        }
        Ok(left)
    }
}
