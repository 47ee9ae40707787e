//! Hazard pointers (Michael 2004): where each thread is about to store, for a keeper in another process.
//!
//! The dear half of the agreement is the keeper's. A thread says where it stores, and then looks whether the page
//! still may be stored to, and nothing is frozen; between the two there is no fence. The keeper takes the right
//! away in the page's word, or freezes all, has the kernel put a fence there, on every thread that takes part,
//! and only then looks who is where:
//!
//! ```text
//! thread   slot = address;  word is dirty, slots open?     no: slot = none; it asks for the page
//!          store;  slot = none
//! keeper   word: dirty -> copying;  barrier;  slot is that page's?   yes: the word is dirty again
//!                                                                    no: the page is the keeper's
//! a cut    slots closed;  barrier;  waits until all slots are none
//! ```
//!
//! So either the keeper sees the slot, or the thread sees what the keeper did. A thread is amid one announced
//! store at a time; one inside of another finds its slot taken, and pins its page.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64 as Bits;

use wattkeep_sys::barrier;
use wattkeep_sys::mutant::planted;

use crate::primitives::{AtomicU32, AtomicU64, Ordering, light_barrier};

/// Threads of a process that can announce by a hazard pointer at once. Others pin.
#[cfg(not(any(loom, shuttle)))]
pub const SLOTS: usize = 256;
/// A checker looks at each.
#[cfg(any(loom, shuttle))]
pub const SLOTS: usize = 2;

/// No address.
const NONE: u64 = 0;

/// Where one thread is about to store: on a line of its own.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Slot(AtomicU64);

/// All threads' slots: zeroed memory is a table in which nobody stores anything.
#[repr(C, align(64))]
pub struct Slots {
    /// The keeper can put a barrier on other processes' threads.
    usable: AtomicU32,
    /// Grants are frozen: no store begins.
    closed: AtomicU32,
    slots: [Slot; SLOTS],
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            usable: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }
}

/// A store that is announced until this is dropped.
#[must_use = "the announcement ends when this is dropped: keep it until the store is done"]
pub struct Hazard<'a>(&'a Slot);

impl Drop for Hazard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Behind the store.
        self.0.0.store(NONE, Ordering::Release);
    }
}

impl Slot {
    /// The thread is about to store at `address`, unless it is amid another store.
    #[inline(always)]
    pub(crate) fn take(&self, address: usize) -> Option<Hazard<'_>> {
        if self.0.load(Ordering::Relaxed) != NONE {
            return None;
        }
        self.0.store(address as u64, Ordering::Relaxed);
        light_barrier();
        Some(Hazard(self))
    }
}

/// The keeper's half. `Err`: no thread may have passed a barrier.
fn heavy_barrier() -> io::Result<()> {
    #[cfg(not(any(loom, shuttle)))]
    barrier::on_all_that_take_part()?;
    #[cfg(any(loom, shuttle))]
    crate::primitives::fence(Ordering::SeqCst);
    Ok(())
}

impl Slots {
    /// The slot of the thread with this number.
    #[inline(always)]
    pub(crate) fn of(&self, number: usize) -> Option<&Slot> {
        self.slots.get(number)
    }

    /// For the keeper, before any client: says whether it can look at the slots. A kernel before 4.16, or a
    /// filter, may refuse: then all stores are announced through the pages' words.
    pub fn offer(&self) {
        let usable = heavy_barrier().is_ok() && !cfg!(miri);
        self.usable.store(u32::from(usable), Ordering::SeqCst);
    }

    /// For the client, once a process: its threads take part in the keeper's barriers from now on. `false`:
    /// they announce through the pages' words.
    pub fn take_part(&self) -> bool {
        self.usable.load(Ordering::SeqCst) != 0 && (cfg!(any(loom, shuttle)) || barrier::take_part().is_ok())
    }

    /// Ends the store of the thread with this number, whose [`Hazard`] was forgotten.
    pub fn end(&self, number: usize) {
        if let Some(slot) = self.of(number) {
            drop(Hazard(slot));
        }
    }

    /// For the client, when these addresses are not mapped any more: nobody is amid a store there, whatever
    /// [`Hazard`]s were forgotten.
    pub fn end_all(&self, addresses: Range<u64>) {
        for Slot(slot) in &self.slots {
            let address = slot.load(Ordering::Relaxed);
            if addresses.contains(&address) {
                // Unless it is another one by now.
                let _ = slot.compare_exchange(address, NONE, Ordering::Release, Ordering::Relaxed);
            }
        }
    }

    /// For the keeper, before it looks: no store begins while they are closed.
    pub fn close(&self, closed: bool) {
        self.closed.store(u32::from(closed), Ordering::SeqCst);
    }

    #[inline(always)]
    pub(crate) fn are_open(&self) -> bool {
        self.closed.load(Ordering::Relaxed) == 0
    }

    /// For the keeper, behind a change of pages' words, or behind [`Self::close`]: where threads are about to
    /// store all the same. Threads that are not found there see the change. `None`: there was no barrier, and any
    /// thread may be anywhere.
    pub fn look(&self) -> Option<Vec<u64>> {
        if self.usable.load(Ordering::Relaxed) == 0 {
            return Some(Vec::new());
        }
        if !planted("hazards-without-barrier") {
            heavy_barrier().ok()?;
        }
        Some(self.glance())
    }

    /// The same without a barrier: a hint.
    pub fn glance(&self) -> Vec<u64> {
        let addresses = self.slots.iter().map(|slot| slot.0.load(Ordering::Acquire));
        addresses.filter(|address| *address != NONE).collect()
    }
}

/// No thread's number.
const NOBODY: usize = usize::MAX;

/// A bit for each number that a thread has.
static TAKEN: [Bits; SLOTS.div_ceil(64)] = [const { Bits::new(0) }; SLOTS.div_ceil(64)];

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NOBODY) };
    static LEASE: Lease = Lease::take();
}

/// A number, until the thread ends.
struct Lease(usize);

impl Lease {
    fn take() -> Self {
        let taken = TAKEN.iter().enumerate().find_map(|(index, bits)| {
            let free = |bits: u64| (bits != u64::MAX).then(|| bits | (bits + 1));
            let before = bits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, free).ok()?;
            Some(index * 64 + before.trailing_ones() as usize)
        });
        Self(taken.filter(|number| *number < SLOTS).unwrap_or(NOBODY))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        NUMBER.set(NOBODY);
        if self.0 != NOBODY {
            TAKEN[self.0 / 64].fetch_and(!(1 << (self.0 % 64)), Ordering::SeqCst);
        }
    }
}

/// This thread's number in its process; no slot's if it has none yet.
#[inline(always)]
pub(crate) fn number() -> usize {
    NUMBER.get()
}

/// Gives this thread a number, if it has none and there is one. A thread that is ending gets none.
#[cold]
pub fn enrol() {
    if NUMBER.get() == NOBODY {
        NUMBER.set(LEASE.try_with(|lease| lease.0).unwrap_or(NOBODY));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn threads_that_live_have_numbers_of_their_own_and_leave_them_to_others() {
        let (hold, done) = (std::sync::Barrier::new(9), AtomicBool::new(false));
        let mut numbers: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        enrol();
                        hold.wait();
                        number()
                    })
                })
                .collect();
            hold.wait();
            done.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
        for _ in 0..2 * SLOTS {
            let number = std::thread::spawn(|| {
                enrol();
                number()
            });
            assert_ne!(number.join().expect("it ends"), NOBODY);
        }
    }

    #[test]
    fn one_store_at_a_time_is_announced_by_a_slot() {
        let slots = Slots::default();
        slots.offer();
        let slot = slots.of(3).expect("a slot");
        let outer = slot.take(0x5008).expect("nothing is announced");
        assert!(slot.take(0x6000).is_none());
        assert_eq!(slots.glance(), [0x5008]);
        drop(outer);
        assert!(slots.glance().is_empty());
        drop(slot.take(0x6000).expect("nothing is announced any more"));
    }

    #[test]
    fn what_was_forgotten_ends_with_its_addresses_and_nothing_else_does() {
        let slots = Slots::default();
        for (number, address) in [0x5000, 0x5fff, 0x6000].into_iter().enumerate() {
            std::mem::forget(slots.of(number).expect("a slot").take(address));
        }
        slots.end_all(0x5000..0x6000);
        assert_eq!(slots.glance(), [0x6000]);
    }
}
