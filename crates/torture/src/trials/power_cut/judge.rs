//! The verdict over one cut: what the disk holds, against what the host had heard.
//!
//! The host judges, not the guest: it opens the store from the disk's image and replays the stamps itself.

use std::path::Path;

use wattkeep_store::types::{PAGE_SIZE, PageId};
use wattkeep_store::{Store, UringDisk};

use crate::trials::heard::{Counts, Heard};
use crate::trials::stamps::Stamps;

/// What the disk holds after a cut, by the host's own reading.
#[derive(Debug, PartialEq)]
pub(super) enum Image {
    /// No store: the cut came before there was one.
    None,
    /// A store without the region: the cut came between the two.
    Empty,
    /// What each thread had stored; the image is exact.
    Exact(Counts),
    /// It is not what any prefix of the stores left, or is damaged.
    Mixed(String),
    /// The store says that it cannot be opened.
    Refused(String),
}

/// What must be in the image: more is allowed, less is a loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bound {
    pub(super) at_least: Counts,
    /// A save completed: nothing else is allowed.
    pub(super) exactly: bool,
}

impl Bound {
    /// From what was in the image before, and what was heard until the cut.
    pub(super) fn after(before: &Counts, heard: &Heard, threads: u64) -> Self {
        if heard.saved.len() as u64 == threads {
            return Self { at_least: heard.saved.clone(), exactly: true };
        }
        let mut at_least = before.clone();
        raise(&mut at_least, &heard.checkpoint);
        if heard.report.is_some() {
            // The save completed, and the cut came before its counts were told.
            raise(&mut at_least, &heard.at);
        }
        Self { at_least, exactly: false }
    }

    /// The stores that are missing, or those that should not be there.
    pub(super) fn missed_by(&self, found: &Counts) -> u64 {
        let short = |(thread, number): (&u64, &u64)| {
            let found = found.get(thread).copied().unwrap_or(0);
            if self.exactly { number.abs_diff(found) } else { number.saturating_sub(found) }
        };
        self.at_least.iter().map(short).sum()
    }
}

fn raise(bound: &mut Counts, heard: &Counts) {
    for (thread, number) in heard {
        let bound = bound.entry(*thread).or_default();
        *bound = (*number).max(*bound);
    }
}

/// Opens the store, verifies every page's checksum, replays the stamps.
pub(super) fn read(folder: &Path, stamps: &Stamps) -> Result<Image, String> {
    let disk = UringDisk::open_read_only(folder).map_err(|e| e.to_string())?;
    let (mut store, _) = match Store::open_scanned(disk) {
        Ok(opened) => opened,
        Err(error) => return Ok(Image::Refused(error.to_string())),
    };
    let report = store.check(&mut |_, _| {}).map_err(|e| e.to_string())?;
    if let Some(damaged) = report.damaged.first() {
        return Ok(Image::Mixed(format!("{} damaged pages, {damaged:?}", report.damaged.len())));
    }
    if let Err(cause) = store.audit() {
        return Ok(Image::Mixed(format!("the index does not add up: {cause}")));
    }
    let Some(region) = store.region_by_name("stamps").map(|region| region.id) else {
        return Ok(Image::Empty);
    };
    let mut memory = vec![0u8; stamps.pages as usize * PAGE_SIZE];
    for (number, bytes) in memory.chunks_exact_mut(PAGE_SIZE).enumerate() {
        let bytes = bytes.try_into().expect("chunks of a page");
        // A page that is not stored was never written: zeros.
        store.read_page_blocking(PageId { region, page: number as u32 }, bytes).map_err(|e| e.to_string())?;
    }
    let load = |slot: u64| {
        let at = slot as usize * 8;
        u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
    };
    Ok(match stamps.verify(load) {
        Ok(found) => Image::Exact((0..).zip(found).collect()),
        Err(cause) => Image::Mixed(cause),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Heard {
        let mut heard = Heard::default();
        lines.iter().for_each(|line| heard.hear(line));
        heard
    }

    fn counts(first: u64, second: u64) -> Counts {
        Counts::from([(0, first), (1, second)])
    }

    #[test]
    fn a_completed_save_allows_one_image_only() {
        let heard = heard(&["at 0 9", "at 1 9", "report {}", "saved 0 10", "saved 1 12"]);
        let bound = Bound::after(&counts(1, 1), &heard, 2);
        assert_eq!(bound.missed_by(&counts(10, 12)), 0);
        assert_eq!(bound.missed_by(&counts(10, 11)), 1);
        assert_eq!(bound.missed_by(&counts(11, 12)), 1, "a store after the save is not in its image");
    }

    #[test]
    fn a_save_whose_counts_were_cut_off_holds_all_that_was_told() {
        let heard = heard(&["at 0 9", "at 1 7", "report {}", "saved 0 10"]);
        let bound = Bound::after(&counts(1, 1), &heard, 2);
        assert_eq!(bound.missed_by(&counts(10, 12)), 0);
        assert_eq!(bound.missed_by(&counts(8, 7)), 1);
    }

    #[test]
    fn an_unannounced_cut_may_lose_what_came_after_the_checkpoint() {
        let heard = heard(&["found 0 5", "found 1 5", "at 0 90", "at 1 90", "checkpoint 0 40"]);
        let bound = Bound::after(&counts(5, 5), &heard, 2);
        assert_eq!(bound.missed_by(&counts(40, 5)), 0);
        assert_eq!(bound.missed_by(&counts(39, 4)), 2);
        assert_eq!(bound.missed_by(&Counts::new()), 45, "an image without stamps lacks them all");
    }
}
