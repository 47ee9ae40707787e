//! Copies to and from bytes that other threads may write meanwhile.
//!
//! Word by word with relaxed atomics: what is read may mix old and new words, but never tears a word, and
//! the compiler makes no assumption of it. Whoever needs more orders it with a lock or a sequence.
//!
//! # Safety
//!
//! 1. The caller's range lies in live memory, readable, and writable for stores, and nothing in it is
//!    covered by a Rust reference.
//! 2. Words are eight bytes at addresses that eight divides.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::{LINE, WORD};

/// Bytes of half a word.
const HALF: usize = WORD / 2;

/// Loads the word at `at`: what was stored before it by whoever stored it is visible afterwards.
///
/// # Safety
/// 1, 2.
#[inline]
pub unsafe fn load(at: *const u8) -> u64 {
    // SAFETY: 1, 2 by the caller.
    unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }.load(Ordering::Acquire)
}

/// Stores the word at `at`, after everything that this thread stored before.
///
/// # Safety
/// 1, 2.
#[inline]
pub unsafe fn store(at: *mut u8, word: u64) {
    // SAFETY: 1, 2 by the caller.
    unsafe { AtomicU64::from_ptr(at.cast()) }.store(word, Ordering::Release);
}

/// Exchanges the word at `at` if it is `now`; otherwise says what it is.
///
/// # Safety
/// 1, 2.
#[inline]
pub unsafe fn exchange(at: *mut u8, now: u64, next: u64) -> Result<(), u64> {
    // SAFETY: 1, 2 by the caller.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
}

/// Copies the bytes at `from` into `to`.
///
/// # Safety
/// 1, for `to.len()` bytes at `from`.
#[inline]
pub unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    let (words, []) = to.as_chunks_mut::<WORD>() else {
        // SAFETY: 1 by the caller.
        return unsafe { copy_out_any(from, to) };
    };
    if !from.addr().is_multiple_of(WORD) {
        // SAFETY: 1 by the caller.
        return unsafe { copy_out_any(from, to) };
    }
    let mut at = from.cast_mut();
    // Whole words, as nearly always: of a known number, this is a load each.
    for word in words {
        // SAFETY: 1 by the caller: `at` moves over `to.len()` bytes; 2: aligned, as just seen.
        unsafe {
            *word = AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes();
            at = at.add(WORD);
        }
    }
}

/// Whether the bytes at `at` are `bytes`. Compared as they are loaded: a copy that was stored by words, and is then
/// loaded in larger pieces, is waited for.
///
/// # Safety
/// 1, for `bytes.len()` bytes at `at`.
#[inline]
pub unsafe fn same(at: *const u8, bytes: &[u8]) -> bool {
    let (words, []) = bytes.as_chunks::<WORD>() else {
        // SAFETY: 1 by the caller.
        return unsafe { same_any(at, bytes) };
    };
    if !at.addr().is_multiple_of(WORD) {
        // SAFETY: 1 by the caller.
        return unsafe { same_any(at, bytes) };
    }
    let mut at = at.cast_mut();
    let mut differ = 0;
    for word in words {
        // SAFETY: 1 by the caller: `at` moves over `bytes.len()` bytes; 2: aligned, as just seen.
        unsafe {
            differ |= AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed) ^ u64::from_ne_bytes(*word);
            at = at.add(WORD);
        }
    }
    differ == 0
}

/// Whether any bytes at `at` are `bytes`.
///
/// # Safety
/// 1, for `bytes.len()` bytes at `at`.
#[inline(never)]
unsafe fn same_any(mut at: *const u8, bytes: &[u8]) -> bool {
    let mut copy = [0; LINE];
    bytes.chunks(LINE).all(|piece| {
        let copy = &mut copy[..piece.len()];
        // SAFETY: 1 by the caller: `at` moves over `bytes.len()` bytes.
        unsafe {
            copy_out_any(at, copy);
            at = at.add(piece.len());
        }
        copy == piece
    })
}

/// Copies any bytes at `from` into `to`.
///
/// # Safety
/// 1, for `to.len()` bytes at `from`.
#[inline(never)]
unsafe fn copy_out_any(from: *const u8, to: &mut [u8]) {
    let head = from.align_offset(WORD).min(to.len());
    let (first, rest) = to.split_at_mut(head);
    let (words, last) = rest.as_chunks_mut::<WORD>();
    let mut at = from.cast_mut();
    // SAFETY: 1 by the caller: `at` moves over `to.len()` bytes; 2: behind the head it is aligned.
    unsafe {
        for byte in first {
            *byte = AtomicU8::from_ptr(at).load(Ordering::Relaxed);
            at = at.add(1);
        }
        for word in words {
            *word = AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed).to_ne_bytes();
            at = at.add(WORD);
        }
        for byte in last {
            *byte = AtomicU8::from_ptr(at).load(Ordering::Relaxed);
            at = at.add(1);
        }
    }
}

/// Copies `from` to the bytes at `to`.
///
/// # Safety
/// 1, for `from.len()` bytes at `to`.
#[inline]
pub unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    let (words, []) = from.as_chunks::<WORD>() else {
        // SAFETY: 1 by the caller.
        return unsafe { copy_in_any(to, from) };
    };
    if !to.addr().is_multiple_of(WORD) {
        // SAFETY: 1 by the caller.
        return unsafe { copy_in_any(to, from) };
    }
    let mut at = to;
    // The compiler does not unroll loops of atomics: a line at once.
    let (lines, words) = words.as_chunks::<{ LINE / WORD }>();
    for line in lines {
        for word in line {
            // SAFETY: 1 by the caller: `at` moves over `from.len()` bytes; 2: aligned, as just seen.
            unsafe {
                AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
                at = at.add(WORD);
            }
        }
    }
    for word in words {
        // SAFETY: 1, 2: as above.
        unsafe {
            AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at = at.add(WORD);
        }
    }
}

/// Copies `from` to any bytes at `to`.
///
/// # Safety
/// 1, for `from.len()` bytes at `to`.
#[inline(never)]
unsafe fn copy_in_any(to: *mut u8, from: &[u8]) {
    let head = (to.addr().wrapping_neg() % WORD).min(from.len());
    let (first, rest) = from.split_at(head);
    let (words, last) = rest.as_chunks::<WORD>();
    let mut at = to;
    // SAFETY: 1 by the caller: `at` moves over `from.len()` bytes; 2: behind the head it is aligned.
    unsafe {
        copy_in_part(at, first);
        at = at.add(head);
        for word in words {
            AtomicU64::from_ptr(at.cast()).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at = at.add(WORD);
        }
        copy_in_part(at, last);
    }
}

/// Copies less than a word; half of one, where it lies so, by one store.
///
/// # Safety
/// 1, for `from.len()` bytes at `to`.
#[inline]
unsafe fn copy_in_part(to: *mut u8, from: &[u8]) {
    if let Some((half, [])) = from.split_first_chunk::<HALF>()
        && to.addr().is_multiple_of(HALF)
    {
        // SAFETY: 1 by the caller; aligned, as just seen.
        return unsafe { AtomicU32::from_ptr(to.cast()).store(u32::from_ne_bytes(*half), Ordering::Relaxed) };
    }
    for (offset, byte) in from.iter().enumerate() {
        // SAFETY: 1 by the caller.
        unsafe { AtomicU8::from_ptr(to.add(offset)).store(*byte, Ordering::Relaxed) };
    }
}
