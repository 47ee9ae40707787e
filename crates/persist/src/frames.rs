//! Where in memory the pages of a space lie, and how often neighbours do not lie side by side.
//!
//! Two pages of one space that follow each other have a *contiguity miss* where their frames are not
//! neighbours, in either order: frames that the kernel hands out downwards are as good for a cache.
//! Only a process with CAP_SYS_ADMIN is told frame numbers; others cannot measure.

use std::fs::File;
use std::os::fd::AsFd;

use wattkeep_sys::pagemap::frame_numbers;

use crate::{PAGE, Space};

/// Bytes of memory that are free, as far as the kernel tells.
pub fn available_bytes() -> Option<u64> {
    wattkeep_sys::huge::available_bytes()
}

/// The kernel's answers on where pages lie.
#[derive(Debug)]
pub struct Frames(File);

/// How many neighbouring pages were looked at, and how many are no neighbours in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Pairs of neighbouring pages that are both in memory.
    pub pairs: usize,
    /// Those whose frames are not neighbours.
    pub misses: usize,
}

impl Frames {
    /// None where the kernel keeps frame numbers from this process.
    pub fn open() -> Option<Self> {
        if cfg!(miri) {
            return None;
        }
        let frames = Self(File::open("/proc/self/pagemap").ok()?);
        let here = 0u64;
        let mut told = [0];
        frame_numbers(frames.0.as_fd(), (&raw const here) as usize, &mut told).ok()?;
        (told[0] != 0).then_some(frames)
    }

    /// Frame numbers of the `pages` pages at offset `at` of the space; 0 for one that is not in memory.
    pub fn of(&self, space: &Space, at: usize, pages: usize) -> Vec<u64> {
        let mut frames = vec![0; pages];
        let told = frame_numbers(self.0.as_fd(), space.address(at), &mut frames).unwrap_or(0);
        frames[told..].fill(0);
        frames
    }

    /// Contiguity misses among the `pages` pages at offset `at` of the space.
    pub fn misses(&self, space: &Space, at: usize, pages: usize) -> Misses {
        Misses::among(&self.of(space, at, pages))
    }

    /// Whether all pages in `len` bytes at `at` are in memory, each beside the one before.
    pub fn are_contiguous(&self, space: &Space, at: usize, len: usize) -> bool {
        let pages = len / PAGE;
        self.misses(space, at, pages) == Misses { pairs: pages.saturating_sub(1), misses: 0 }
    }
}

impl Misses {
    /// Among frames of pages that follow each other.
    pub fn among(frames: &[u64]) -> Self {
        let pairs = frames.windows(2).filter(|pair| pair[0] != 0 && pair[1] != 0);
        let misses = pairs.clone().filter(|pair| pair[0].abs_diff(pair[1]) != 1).count();
        Self { pairs: pairs.count(), misses }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Anonymous, Domain, DomainKind, MappedFile};

    #[test]
    fn neighbours_in_either_order_are_no_miss_and_absent_pages_no_pair() {
        assert_eq!(Misses::among(&[7, 8, 9, 8, 7]), Misses { pairs: 4, misses: 0 });
        assert_eq!(Misses::among(&[7, 9, 9, 4]), Misses { pairs: 3, misses: 3 });
        assert_eq!(Misses::among(&[7, 0, 8, 9]), Misses { pairs: 1, misses: 0 });
        assert_eq!(Misses::among(&[]), Misses::default());
    }

    #[test]
    fn populated_pages_are_zero_and_in_memory_and_others_are_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = MappedFile::open(&directory.path().join("space"), 64 * PAGE).expect("a mapped file");
        let spaces = [
            Space::new(Arc::new(Anonymous::new(64 * PAGE)), Domain::Battery),
            Space::new(Arc::new(file), DomainKind::File.domain()),
        ];
        for space in spaces {
            // Not whole pages: those inside count.
            assert_eq!(space.populate(16 * PAGE - 8, 16 * PAGE + 16), Ok(true));
            assert_eq!(space.populate(8, PAGE), Ok(false), "no whole page");
            assert!(space.populate(63 * PAGE, 2 * PAGE).is_err());
            let mut bytes = vec![1; 16 * PAGE];
            space.read_bytes(16 * PAGE, &mut bytes).expect("inside");
            assert!(bytes.iter().all(|byte| *byte == 0));
            if let Some(frames) = Frames::open() {
                let present: Vec<usize> =
                    (0..64).filter(|page| frames.of(&space, page * PAGE, 1) != [0]).collect();
                assert_eq!(present, Vec::from_iter(16..32), "{space:?}");
                assert_eq!(frames.misses(&space, 0, 64).pairs, 15);
            }
        }
    }
}
