//! The instructions that write a cache line back, and those that wait for it.
//!
//! # Safety
//!
//! 1. The address lies in live memory. The instructions change no byte that a program can see.
//! 2. The instruction exists on this processor.
#![allow(unsafe_code)]

use crate::domain::{Fence, LineFlush};

/// The best flush this processor has: `clwb` keeps the line in the cache, `clflushopt` need not wait for
/// other flushes, `clflush` is everywhere.
pub fn best_flush() -> LineFlush {
    let cpuid = std::arch::x86_64::__cpuid_count(7, 0);
    match cpuid.ebx {
        bits if bits & 1 << 24 != 0 => LineFlush::Clwb,
        bits if bits & 1 << 23 != 0 => LineFlush::Clflushopt,
        _ => LineFlush::Clflush,
    }
}

/// Whether this processor has the instruction.
pub fn has(flush: LineFlush) -> bool {
    let ebx = std::arch::x86_64::__cpuid_count(7, 0).ebx;
    match flush {
        LineFlush::Clwb => ebx & 1 << 24 != 0,
        LineFlush::Clflushopt => ebx & 1 << 23 != 0,
        LineFlush::Clflush => true,
    }
}

/// Begins to write the line at `address` back.
///
/// # Safety
/// 1, 2.
#[inline]
pub unsafe fn flush(how: LineFlush, address: *const u8) {
    use std::arch::asm;
    // SAFETY: 1, 2 by the caller.
    unsafe {
        match how {
            LineFlush::Clwb => asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags)),
            LineFlush::Clflushopt => {
                asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
            }
            LineFlush::Clflush => std::arch::x86_64::_mm_clflush(address),
        }
    }
}

/// Begins to bring the line at `address` into the cache, to be stored to. Changes nothing, whatever the
/// address.
#[inline]
pub fn prefetch_to_write(address: *const u8) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: 1, 2: a hint, which never faults; processors without it do nothing.
    unsafe { std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Begins to bring the line at `address` into the cache, to be read.
#[inline]
pub fn prefetch(address: *const u8) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: 1, 2: a hint, which never faults.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast()) };
}

/// Stores and flushes before it come before stores behind it.
#[inline]
pub fn fence(how: Fence) {
    // SAFETY: 2: both exist on every x86-64.
    unsafe {
        match how {
            Fence::Sfence => std::arch::x86_64::_mm_sfence(),
            Fence::Mfence => std::arch::x86_64::_mm_mfence(),
        }
    }
}
