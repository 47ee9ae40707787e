//! What every page of a heap must hold after a cut: a second memory, outside of the machine, that every store
//! goes to as well.
//!
//! A heap that makes the same transactions again need not have the same bytes, so they cannot be replayed as
//! [`super::oracle`] does. The mirror lies behind the board, in memory that the parent shares; it outlives the
//! child and its keeper.
//!
//! A store goes to the mirror while it is announced to the region: a save waits for both. So every page is
//! exactly the mirror's. The exception are pages that the save counted as unsettled: their thread lost its
//! processor in the middle of a store, and was not waited for.
//!
//! Never sees the store.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use wattkeep::persist::{Domain, MappedFile, Space};

use super::oracle::{Comparison, Image};
use crate::memory::BOARD_BYTES;
use crate::text::PAGE;

const PAGE_BYTES: usize = PAGE as usize;

/// The second memory.
pub(crate) struct Mirror(Space);

impl Mirror {
    /// The mirror of a region of `bytes`, in the memory that the board is in.
    pub(crate) fn open(memory: BorrowedFd<'_>, bytes: u64) -> std::io::Result<Self> {
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let file = MappedFile::open(Path::new(&path), BOARD_BYTES + bytes as usize)?;
        Ok(Self(Space::new(Arc::new(file), Domain::Battery)))
    }

    /// Compares every page. Up to `unsettled` pages may differ.
    pub(crate) fn compare(
        &self,
        image: &impl Image,
        unsettled: u32,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Comparison {
        let pages = ((self.0.len() - BOARD_BYTES) / PAGE_BYTES) as u32;
        let (mut found, mut expected) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        let mut lost = Vec::new();
        for page in 0..pages {
            self.0
                .read_bytes(BOARD_BYTES + page as usize * PAGE_BYTES, &mut expected)
                .expect("a page of the mirror");
            if !image.page(page, &mut found) || found != expected {
                lost.push(page);
            }
            if page.is_multiple_of(4096) {
                progress(page.into(), pages.into());
            }
        }
        let half_done = !lost.is_empty() && lost.len() <= unsettled as usize;
        if half_done {
            lost.clear();
        }
        Comparison { pages_verified: pages, lost, half_done }
    }
}

impl wattkeep::persist::Witness for Mirror {
    fn stored(&self, at: usize, bytes: &[u8]) {
        self.0.write_bytes(BOARD_BYTES + at, bytes).expect("as long as the region");
    }

    fn flushed(&self, _line: usize) {}

    fn fenced(&self) {}
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use wattkeep::persist::Witness;

    use super::*;
    use crate::memory::Board;

    struct Plain(Vec<u8>);

    impl Image for Plain {
        fn page(&self, page: u32, into: &mut [u8]) -> bool {
            into.copy_from_slice(&self.0[page as usize * PAGE_BYTES..][..PAGE_BYTES]);
            page != 3
        }
    }

    #[test]
    fn a_page_that_differs_is_lost_unless_it_was_not_settled() {
        let (_board, memory) = Board::create(8 * PAGE).expect("shared memory");
        // The child's side, which dies; and the parent's.
        Mirror::open(memory.as_fd(), 8 * PAGE).expect("a mirror").stored(5 * PAGE_BYTES + 1, &[7]);
        let mirror = Mirror::open(memory.as_fd(), 8 * PAGE).expect("a mirror");
        let mut image = Plain(vec![0; 8 * PAGE_BYTES]);
        let compare = |image: &Plain, unsettled| mirror.compare(image, unsettled, &mut |_, _| ());
        let lost = |lost: &[u32]| Comparison { pages_verified: 8, lost: lost.to_vec(), half_done: false };
        assert_eq!(compare(&image, 0), lost(&[3, 5]));
        assert_eq!(compare(&image, 1), lost(&[3, 5]));
        assert_eq!(compare(&image, 2), Comparison { half_done: true, ..lost(&[]) });
        image.0[5 * PAGE_BYTES + 1] = 7;
        assert_eq!(compare(&image, 0), lost(&[3]));
    }
}
