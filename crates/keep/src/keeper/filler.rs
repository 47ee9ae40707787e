//! What the second thread of a restore does: verifies the pages of one read, and fills them.
//!
//! Fills only what matches its checksum, and never a page that is there. Whatever does not go smoothly it
//! leaves to the keeper: it stops, and says how far it came. Does not know page words or the index, and
//! decides nothing.

use std::sync::Arc;

use wattkeep_store::hash::Hasher;
use wattkeep_sys::buffer::AlignedBuffer;

use super::pages::{ClientPages, RegionMemory};
use super::worker::Worker;
use crate::control::block::PageRef;
use crate::limits::{PAGE_SIZE, READS_FILLED_AHEAD};
use crate::types::Checksum;

/// Pages that follow one another in the log and in one region.
pub(super) struct Run {
    /// The first page, and its slot.
    pub(super) first: PageRef,
    pub(super) slot: u32,
    /// What the index held for each page when the run was handed over.
    pub(super) checksums: Vec<Checksum>,
    /// Where they go.
    pub(super) client: Arc<ClientPages>,
    /// Proves on the way back that the region was not closed and opened again meanwhile.
    pub(super) memory: RegionMemory,
    /// How many of them were filled, from the first on.
    pub(super) filled: usize,
}

/// One read, whose bytes came from `first_slot` on.
pub(super) struct FillLoad {
    pub(super) runs: Vec<Run>,
    pub(super) buffer: AlignedBuffer,
    pub(super) first_slot: u32,
}

/// Starts the thread. `None` when the system has none to give.
pub(super) fn start(hasher: Hasher) -> Option<Worker<FillLoad>> {
    Worker::start("wattkeep-filler", READS_FILLED_AHEAD, move |load: &mut FillLoad| {
        let FillLoad { runs, buffer, first_slot } = load;
        for run in runs {
            let at = (run.slot - *first_slot) as usize * PAGE_SIZE;
            run.fill(&hasher, &buffer[at..at + run.checksums.len() * PAGE_SIZE]);
        }
    })
}

impl Run {
    fn fill(&mut self, hasher: &Hasher, bytes: &[u8]) {
        let pages = self.checksums.iter().zip(bytes.chunks_exact(PAGE_SIZE));
        let good = pages.take_while(|(checksum, page)| hasher.page(page) == **checksum).count();
        let (filled, _) = self.client.fill(self.first.page, &bytes[..good * PAGE_SIZE]);
        self.filled = filled / PAGE_SIZE;
    }

    /// The page in this slot continues the run.
    pub(super) fn is_followed_by(&self, slot: u32, page: PageRef) -> bool {
        let len = self.checksums.len() as u32;
        self.slot + len == slot && self.first.region == page.region && self.first.page + len == page.page
    }

    /// Its pages, each with its slot.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u32, PageRef)> + use<> {
        let (first, slot) = (self.first, self.slot);
        let pages = 0..self.checksums.len() as u32;
        pages.map(move |n| (slot + n, PageRef { region: first.region, page: first.page + n }))
    }
}
