//! What a reopened store shows, compared with what it may show.

use wattkeep_keep::limits::PAGE_SIZE;
use wattkeep_keep::types::PageId;
use wattkeep_store::{Recovery, Store};

use super::machine::{Trouble, region_name};
use crate::disk::MemoryDisk;
use crate::oracle::{Image, PLACES_ZERO, holds};

/// The images that a store may show after a cut, and what it must say of itself.
#[derive(Clone, Debug)]
pub struct Expected {
    /// By epoch: the last commit, and the next one where it was under way.
    pub images: Vec<(u64, Image)>,
    /// What was stored when the power went.
    pub memory: Image,
    /// Stores went on after a save, by threads that had announced them.
    pub escaped: bool,
    /// A save had completed, and nothing was stored since: the store must say so.
    pub saved: bool,
}

impl Expected {
    /// Compares a store that was just opened, and what its recovery said.
    pub fn check(&self, store: &mut Store<MemoryDisk>, recovery: &Recovery) -> Result<(), Trouble> {
        let epoch = recovery.commit.epoch.0;
        let Some((_, image)) = self.images.iter().find(|(of, _)| *of == epoch) else {
            let may: Vec<u64> = self.images.iter().map(|(of, _)| *of).collect();
            return Err(Trouble::Lost(format!("the store shows commit {epoch}, it may show {may:?}")));
        };
        compare(store, image).map_err(|what| Trouble::Lost(format!("commit {epoch}: {what}")))?;
        if recovery.clean && !self.escaped && !same(image, &self.memory) {
            let what = format!("the store says that commit {epoch} is everything, but stores are missing");
            return Err(Trouble::Violation(what));
        }
        if self.saved && !recovery.clean {
            return Err(Trouble::Violation("a completed save is called incomplete".into()));
        }
        Ok(())
    }

    /// The image of an epoch that [`Self::check`] found.
    pub fn image(&self, epoch: u64) -> Option<&Image> {
        self.images.iter().find(|(of, _)| *of == epoch).map(|(_, image)| image)
    }
}

/// Images are the same if they differ only by pages of zeros at the end.
fn same(one: &Image, other: &Image) -> bool {
    one.iter().zip(other).all(|(one, other)| {
        let pages = one.len().max(other.len());
        (0..pages)
            .all(|page| one.get(page).unwrap_or(&PLACES_ZERO) == other.get(page).unwrap_or(&PLACES_ZERO))
    })
}

/// Every page of every region, byte by byte.
fn compare(store: &mut Store<MemoryDisk>, image: &Image) -> Result<(), String> {
    let mut bytes = Box::new([0; PAGE_SIZE]);
    for (number, pages) in image.iter().enumerate() {
        let name = region_name(number);
        let record = store.region_by_name(&name).ok_or_else(|| format!("region {name} is gone"))?;
        let (id, size) = (record.id, record.pages);
        for page in 0..size.max(pages.len() as u32) {
            let values = pages.get(page as usize).unwrap_or(&PLACES_ZERO);
            let id = PageId { region: id, page };
            let found = match store.read_page_blocking(id, &mut bytes) {
                Ok(true) => holds(&bytes, values),
                Ok(false) => *values == PLACES_ZERO,
                Err(e) => return Err(format!("{name}p{page}: {e}")),
            };
            if !found {
                let read = crate::oracle::OFFSETS
                    .map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
                return Err(format!("{name}p{page} holds {read:?}, stored were {values:?}"));
            }
        }
    }
    Ok(())
}
