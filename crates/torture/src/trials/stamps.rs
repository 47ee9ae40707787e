//! Stamps: stores whose order can be read back from any image.
//!
//! Thread `t` stores 1, 2, 3 ... to slots of eight bytes that a hash of seed, thread and number names.
//! An image is *exact* for a thread when it is what some prefix of its stores left: the highest stamp
//! found is K, and every slot holds the last stamp up to K that went there. A lost page, an old page
//! beside a new one, and a torn page all break that.
//!
//! # Safety
//!
//! 1. Slots lie inside the region, asserted; stores and loads are volatile, and no reference covers
//!    region memory.
#![allow(unsafe_code)]

use wattkeep::{PAGE_SIZE, Region};

pub(crate) const SLOTS_PER_PAGE: u64 = (PAGE_SIZE / 8) as u64;

/// The walk of all threads over one region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    pub(crate) seed: u64,
    pub(crate) pages: u64,
    pub(crate) threads: u64,
}

impl Stamps {
    /// The slot that a thread's `number`th store goes to. Threads share pages, not slots.
    pub(crate) fn slot(&self, thread: u64, number: u64) -> u64 {
        let mut mixed = self.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ thread << 32;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // Three of four stores go to a quarter of the pages, as real ones do.
        let pages = if mixed >> 62 == 0 { self.pages } else { self.pages.div_ceil(4) };
        let page = (mixed & 0xFFFF_FFFF) % pages;
        let own = SLOTS_PER_PAGE / self.threads;
        page * SLOTS_PER_PAGE + ((mixed >> 32) & 0xFFFF) % own * self.threads + thread
    }

    /// Stores a stamp. The region was told of it where it must be.
    pub(crate) fn store(&self, region: &Region, thread: u64, number: u64) {
        put(region, self.slot(thread, number), number << 8 | thread);
    }

    /// The highest stamp of each thread, whatever else is in the image.
    pub(crate) fn highest(&self, load: impl Fn(u64) -> u64) -> Vec<u64> {
        (0..self.threads).map(|thread| self.highest_of(thread, &load)).collect()
    }

    /// The highest stamp of each thread, when the image is exact for all.
    pub(crate) fn verify(&self, load: impl Fn(u64) -> u64) -> Result<Vec<u64>, String> {
        (0..self.threads).map(|thread| self.verify_thread(thread, &load)).collect()
    }

    fn verify_thread(&self, thread: u64, load: &impl Fn(u64) -> u64) -> Result<u64, String> {
        let highest = self.highest_of(thread, load);
        let mut expected = vec![0u64; (self.pages * SLOTS_PER_PAGE / self.threads) as usize + 1];
        for number in 1..=highest {
            expected[(self.slot(thread, number) / self.threads) as usize] = number << 8 | thread;
        }
        for slot in self.slots_of(thread) {
            let (found, wanted) = (load(slot), expected[(slot / self.threads) as usize]);
            if found != wanted {
                let page = slot / SLOTS_PER_PAGE;
                return Err(format!(
                    "page {page}, slot {slot}: stamp {} where {} belongs, after {highest} stores of thread {thread}",
                    found >> 8,
                    wanted >> 8
                ));
            }
        }
        Ok(highest)
    }

    fn highest_of(&self, thread: u64, load: &impl Fn(u64) -> u64) -> u64 {
        self.slots_of(thread).map(|slot| load(slot) >> 8).max().unwrap_or(0)
    }

    fn slots_of(&self, thread: u64) -> impl Iterator<Item = u64> {
        (thread..self.pages * SLOTS_PER_PAGE).step_by(self.threads as usize)
    }
}

/// Stores to a slot of a mapped region.
pub(crate) fn put(region: &Region, slot: u64, value: u64) {
    assert!((slot as usize + 1) * 8 <= region.len());
    // SAFETY: 1: asserted.
    unsafe { region.as_ptr().cast::<u64>().add(slot as usize).write_volatile(value) }
}

/// Loads a slot of a mapped region.
pub(crate) fn load(region: &Region, slot: u64) -> u64 {
    assert!((slot as usize + 1) * 8 <= region.len());
    // SAFETY: 1: asserted.
    unsafe { region.as_ptr().cast::<u64>().add(slot as usize).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checker itself is checked: one old slot in an otherwise exact image is named.
    #[test]
    fn an_image_that_no_prefix_left_is_refused() {
        let stamps = Stamps { seed: 7, pages: 8, threads: 2 };
        let mut image = vec![0u64; 8 * SLOTS_PER_PAGE as usize];
        for number in 1..=500 {
            for thread in 0..2 {
                image[stamps.slot(thread, number) as usize] = number << 8 | thread;
            }
        }
        assert_eq!(stamps.verify(|slot| image[slot as usize]), Ok(vec![500, 500]));
        let newest = stamps.slot(0, 499) as usize;
        image[newest] = 0;
        assert!(stamps.verify(|slot| image[slot as usize]).is_err());
    }
}
