//! What the log on the SSD holds of each page, read beside a running keeper from `docs/format.md` alone.
//!
//! Only summaries are read: the newest entry of a page carries the checksum of its bytes. What is still
//! on its way may be taken for written; so a count made with this is never too high. Reads only.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use wattkeep_store::hash::Hasher;
use wattkeep_store::layout::{Geometry, summary_pages};
use wattkeep_store::store_file;
use wattkeep_store::summary::{Entry, Expected, SummaryFault, UntrustedSummary};
use wattkeep_store::superblock::{SUPERBLOCK_BYTES, UntrustedSuperblock};
use wattkeep_store::types::{Checksum, PAGE_SIZE};

const COPIES: u64 = 4;
const COPY_SPACING: u64 = 1 << 20;

/// Pages of the longest summary.
const SUMMARY_PAGES: usize = 4;

/// A store's file, open beside its keeper.
pub(crate) struct LogReader {
    file: File,
    hasher: Hasher,
    uuid_low: u64,
}

impl LogReader {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let file = File::open(store_file(directory))?;
        let superblock = newest_superblock(&file)?;
        let hasher = Hasher::new(number(&superblock, 80));
        Ok(Self { file, hasher, uuid_low: number(&superblock, 64) })
    }

    /// The checksum of a page's bytes, as the store would note it.
    pub(crate) fn checksum(&self, page: &[u8]) -> Checksum {
        self.hasher.page(page)
    }

    /// The newest checksum of each of the first `pages` pages of a region; `None` where the log has none.
    pub(crate) fn newest(&self, region: u32, pages: usize) -> io::Result<Vec<Option<Checksum>>> {
        let superblock = newest_superblock(&self.file)?;
        let word = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("four bytes"));
        let geometry = Geometry::new(word(128), word(132)).ok_or(io::ErrorKind::InvalidData)?;
        let mut newest = vec![(0, None); pages];
        for segment in 0..geometry.segments() {
            self.walk(geometry, segment, |sequence, entry| {
                let known =
                    newest.get_mut(entry.page.page as usize).filter(|_| entry.page.region.0 == region);
                if let Some(known) = known.filter(|known| sequence > known.0) {
                    *known = (sequence, Some(entry.checksum));
                }
            })?;
        }
        Ok(newest.into_iter().map(|(_, checksum)| checksum).collect())
    }

    /// The chain of batches of one segment, as long as sequences rise.
    fn walk(&self, geometry: Geometry, segment: u32, mut take: impl FnMut(u64, &Entry)) -> io::Result<()> {
        let (mut at, mut last) = (0, 0);
        let mut bytes = [0; SUMMARY_PAGES * PAGE_SIZE];
        while at + 1 < geometry.segment_pages() {
            let position = geometry.first_slot(segment) + at;
            let expected =
                Expected { uuid_low: self.uuid_low, position, pages_left: geometry.segment_pages() - at };
            let mut pages = 1;
            let mut entries = Vec::new();
            let head = loop {
                let bytes = &mut bytes[..pages * PAGE_SIZE];
                self.file.read_exact_at(bytes, geometry.offset_of(position))?;
                match UntrustedSummary(bytes).validate_into(&expected, &self.hasher, &mut entries) {
                    Err(SummaryFault::Longer(more)) if more as usize <= SUMMARY_PAGES => {
                        pages = more as usize
                    }
                    other => break other,
                }
            };
            let Ok(head) = head else { break };
            if head.sequence.0 <= last {
                break;
            }
            last = head.sequence.0;
            entries.iter().for_each(|entry| take(last, entry));
            at += summary_pages(entries.len() as u32) + entries.len() as u32;
        }
        Ok(())
    }
}

fn newest_superblock(file: &File) -> io::Result<Vec<u8>> {
    let mut newest: Option<Vec<u8>> = None;
    for copy in 0..COPIES {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut bytes, copy * COPY_SPACING)?;
        let valid = UntrustedSuperblock::new(&bytes).validate(copy).is_ok();
        if valid && newest.as_ref().is_none_or(|known| number(&bytes, 56) > number(known, 56)) {
            newest = Some(bytes);
        }
    }
    newest.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no valid superblock"))
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
