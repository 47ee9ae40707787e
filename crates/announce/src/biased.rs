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
use std::ops::{Deref, DerefMut};

use wattkeep_sys::mutant::planted;

use crate::primitives::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, light_barrier, yield_now};

/// No key: the lock is closed.
pub const CLOSED: u64 = 0;

/// How often a revoker looks whether a thread has ended its work.
const LOOKS_MAX: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// A lock that is biased to one thread.
pub struct Biased<T> {
    /// Its thread is in. Changed by it alone.
    is_in: AtomicU32,
    /// The key that it is open to; or [`CLOSED`]: its thread has to come to the door.
    open_to: AtomicU64,
    door: Mutex<()>,
    content: UnsafeCell<T>,
}

// SAFETY: 1: the content is handed from thread to thread, and never shared.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Its thread is in: until this is dropped, by a panic, too.
pub struct Entered<'a, T>(&'a Biased<T>);

impl<T> Drop for Entered<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_in.store(0, Ordering::Release);
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: 1: this says so, and is borrowed.
        unsafe { &*self.0.content.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: 1: this says so, and is borrowed alone.
        unsafe { &mut *self.0.content.get() }
    }
}

impl<T> Biased<T> {
    /// A lock that is open to `key`.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(key: u64, content: T) -> Self {
        Self {
            is_in: AtomicU32::new(0),
            open_to: AtomicU64::new(key),
            door: Mutex::new(()),
            content: UnsafeCell::new(content),
        }
    }

    /// The same with a checker's words, which no constant can hold.
    #[cfg(any(loom, shuttle))]
    pub fn new(key: u64, content: T) -> Self {
        let (is_in, open_to) = (AtomicU32::new(0), AtomicU64::new(key));
        Self { is_in, open_to, door: Mutex::new(()), content: UnsafeCell::new(content) }
    }

    /// For its thread: what is in it, if it is open to `key`, and the thread is not in already.
    ///
    /// # Safety
    /// 1: only one thread ever enters, opens and leaves.
    #[inline(always)]
    pub unsafe fn enter(&self, key: u64) -> Option<Entered<'_, T>> {
        if self.is_in.load(Ordering::Relaxed) != 0 {
            return None;
        }
        if planted("bias-looked-at-first") && self.open_to.load(Ordering::Relaxed) != key {
            return None;
        }
        self.is_in.store(1, Ordering::Relaxed);
        let entered = Entered(self);
        light_barrier();
        let is_open = self.open_to.load(Ordering::Relaxed) == key;
        (is_open || planted("bias-looked-at-first")).then_some(entered)
    }

    fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().expect("no panic while it is held")
    }

    /// For its thread, which is not in: opens it to `key`; `told` is called at the door, if it was closed.
    ///
    /// # Panics
    /// The thread is in.
    ///
    /// # Safety
    /// 1: as [`Self::enter`].
    pub unsafe fn open(&self, key: u64, told: impl FnOnce(&mut T)) {
        assert!(self.is_in.load(Ordering::Relaxed) == 0, "what is in use is not called from within itself");
        let _door = self.door();
        if self.open_to.swap(key, Ordering::Relaxed) == CLOSED {
            // SAFETY: 1: its thread, at the door, and not in.
            told(unsafe { &mut *self.content.get() });
        }
    }

    /// For its thread, which is not in and will not come again: what is in it.
    ///
    /// # Safety
    /// 1: as [`Self::enter`].
    pub unsafe fn leave(&self, last: impl FnOnce(&mut T)) {
        let _door = self.door();
        // SAFETY: 1: its thread, at the door, and not in.
        last(unsafe { &mut *self.content.get() });
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

/// Who may revoke: one at a time, of locks that have one of these in common. Else one could take the closing of
/// another, whose barrier is yet to come, for its own.
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
    /// 1: no other `Revoker` closes these locks; `barrier` answers with success only when every thread that may
    /// enter one has passed a fence since it was called.
    pub unsafe fn revoke<T, L, W>(
        &self,
        mut left: Vec<L>,
        lock: impl Fn(&L) -> &Biased<T>,
        barrier: impl Fn() -> Result<(), W>,
        f: impl Fn(&mut T),
    ) -> Result<Vec<L>, W> {
        let _one_at_a_time = self.0.lock().expect("no panic while it is held");
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
