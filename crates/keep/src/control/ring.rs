//! A bounded queue of 64-bit values between threads of two processes.
//!
//! Dmitry Vyukov's bounded multi-producer multi-consumer queue: each cell carries the turn in which
//! it may be used next. Nobody waits in it: a full or empty queue says so. A participant killed
//! between claiming and publishing a cell blocks that cell: the queue carries hints, never truth,
//! and whoever outlives the other side reads the page words instead.

use std::array;

use wattkeep_sys::mutant::planted;

use super::primitives::{AtomicU32, AtomicU64, Ordering};

/// Tries to claim a cell before the queue is called full, or empty. Others claim at most a few between
/// two looks; only damaged turns come up more often than this, and whoever meets them must not wait.
const TRIES_MAX: usize = 1024;

#[repr(C)]
#[derive(Default)]
struct Cell {
    turn: AtomicU32,
    reserved: AtomicU32,
    value: AtomicU64,
}

/// A queue of `N` cells, `N` a power of two. All zero is not yet a queue: see [`Ring::initialise`].
#[repr(C, align(64))]
pub struct Ring<const N: usize> {
    tail: AtomicU32,
    pad_tail: [AtomicU32; 15],
    head: AtomicU32,
    pad_head: [AtomicU32; 15],
    cells: [Cell; N],
}

impl<const N: usize> Ring<N> {
    const MASK: u32 = {
        assert!(N.is_power_of_two() && N <= 1 << 30);
        N as u32 - 1
    };

    /// An empty queue.
    pub fn new() -> Self {
        let ring = Self {
            tail: AtomicU32::new(0),
            pad_tail: array::from_fn(|_| AtomicU32::new(0)),
            head: AtomicU32::new(0),
            pad_head: array::from_fn(|_| AtomicU32::new(0)),
            cells: array::from_fn(|_| Cell::default()),
        };
        ring.initialise();
        ring
    }

    /// Makes an empty queue of zeroed memory that nobody else uses yet.
    pub fn initialise(&self) {
        for (turn, cell) in self.cells.iter().enumerate() {
            cell.turn.store(turn as u32, Ordering::Relaxed);
        }
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::SeqCst);
    }

    /// Appends a value; false when the queue is full.
    #[inline]
    pub fn push(&self, value: u64) -> bool {
        let mut tail = self.tail.load(Ordering::Relaxed);
        for _ in 0..TRIES_MAX {
            let cell = &self.cells[(tail & Self::MASK) as usize];
            let ahead = cell.turn.load(Ordering::Acquire).wrapping_sub(tail) as i32;
            if ahead < 0 {
                return false;
            }
            if ahead > 0 {
                tail = self.tail.load(Ordering::Relaxed);
                continue;
            }
            let next = tail.wrapping_add(1);
            match self.tail.compare_exchange_weak(tail, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    cell.value.store(value, Ordering::Relaxed);
                    let published =
                        if planted("ring-unordered") { Ordering::Relaxed } else { Ordering::Release };
                    cell.turn.store(next, published);
                    return true;
                }
                Err(seen) => tail = seen,
            }
        }
        false
    }

    /// Takes the oldest value; `None` when the queue is empty.
    #[inline]
    pub fn pop(&self) -> Option<u64> {
        let mut head = self.head.load(Ordering::Relaxed);
        for _ in 0..TRIES_MAX {
            let cell = &self.cells[(head & Self::MASK) as usize];
            let ahead = cell.turn.load(Ordering::Acquire).wrapping_sub(head.wrapping_add(1)) as i32;
            if ahead < 0 {
                return None;
            }
            if ahead > 0 {
                head = self.head.load(Ordering::Relaxed);
                continue;
            }
            let next = head.wrapping_add(1);
            match self.head.compare_exchange_weak(head, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let value = cell.value.load(Ordering::Relaxed);
                    cell.turn.store(head.wrapping_add(Self::MASK + 1), Ordering::Release);
                    return Some(value);
                }
                Err(seen) => head = seen,
            }
        }
        None
    }

    /// Values in the queue, roughly: others push and pop meanwhile.
    #[inline]
    pub fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Relaxed);
        (tail.wrapping_sub(self.head.load(Ordering::Relaxed)) as usize).min(N)
    }

    /// No values, roughly.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64 as Sum;

    #[test]
    fn values_come_out_once_and_in_order() {
        let ring = Ring::<64>::new();
        for round in 0..1000u64 {
            assert!((0..64).all(|i| ring.push(round * 64 + i)));
            assert!(!ring.push(0), "a full queue says so");
            assert!((0..64).all(|i| ring.pop() == Some(round * 64 + i)));
            assert_eq!(ring.pop(), None);
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_between_racing_threads() {
        let (ring, sum) = (Ring::<64>::new(), Sum::new(0));
        let each = 50_000u64;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for value in 1..=each {
                        while !ring.push(value) {
                            std::thread::yield_now();
                        }
                    }
                });
                scope.spawn(|| {
                    for _ in 0..each {
                        loop {
                            let Some(value) = ring.pop() else {
                                std::thread::yield_now();
                                continue;
                            };
                            sum.fetch_add(value, Ordering::Relaxed);
                            break;
                        }
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), each * (each + 1));
    }
}
