//! Batches from a real space.

use std::ops::Range;
use std::sync::Arc;

use wattkeep_persist::{Frames, PAGE, Space, frames};

use super::{Populated, Source};

/// The pages of a space.
pub struct SpaceSource {
    space: Arc<Space>,
    /// None where the kernel tells no frame numbers: then every batch counts as contiguous.
    frames: Option<Frames>,
}

impl SpaceSource {
    /// Batches that turn out scattered are told apart where the kernel shows where they lie.
    pub fn new(space: Arc<Space>) -> Self {
        Self { space, frames: Frames::open() }
    }
}

impl Source for SpaceSource {
    fn piece(&self, at_least: u64) -> u64 {
        let bytes = self.space.piece(at_least as usize * PAGE);
        bytes.map_or(at_least, |bytes| (bytes / PAGE) as u64)
    }

    fn populate(&self, pages: Range<u64>) -> Populated {
        let (at, len) = (pages.start as usize * PAGE, (pages.end - pages.start) as usize * PAGE);
        // What refuses here refuses, with its reason, when the page is stored to.
        match self.space.populate(at, len) {
            Ok(true) => match &self.frames {
                Some(frames) if !frames.are_contiguous(&self.space, at, len) => Populated::Scattered,
                _ => Populated::Contiguous,
            },
            Ok(false) | Err(_) => Populated::Absent,
        }
    }

    fn expect(&self, pages: Range<u64>) {
        self.space.expect(pages.start as usize * PAGE, (pages.end - pages.start) as usize * PAGE);
    }

    fn free_bytes(&self) -> Option<u64> {
        frames::available_bytes()
    }
}
