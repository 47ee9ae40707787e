//! Was the damage silent? Opens a damaged store and compares whatever it hands out with the image.

use wattkeep_sim::rewind::RewindDisk;
use wattkeep_store::types::PAGE_SIZE;
use wattkeep_store::{CommitKind, OpenError, Recovery, Store};

use super::sample::{Sample, append};

/// What an opening came to.
pub(crate) enum Found {
    Refused(OpenError),
    /// Opened; this many pages were refused when they were read.
    Opened {
        recovery: Box<Recovery>,
        damaged: Vec<wattkeep_store::types::PageId>,
    },
}

impl Sample {
    /// Opens by scan, or as an ordinary reader does, reads every page, and compares. The error names what
    /// was handed out and never committed.
    pub(crate) fn look(&self, scan: bool) -> Result<Found, String> {
        let opened = if scan {
            Store::open_scanned(self.disk.clone())
        } else {
            Store::open_read_only(self.disk.clone())
        };
        match opened {
            Ok((mut store, recovery)) => {
                let damaged = self.compare(&mut store, &recovery)?;
                Ok(Found::Opened { recovery: Box::new(recovery), damaged })
            }
            Err(error) => Ok(Found::Refused(error)),
        }
    }

    /// The same, for an opening that must find everything where it was. Reads no data: the places and the
    /// checksums are the image.
    pub(crate) fn must_be_whole(&self, scan: bool) -> Result<Recovery, String> {
        let opened = if scan {
            Store::open_scanned(self.disk.clone())
        } else {
            Store::open_read_only(self.disk.clone())
        };
        let (store, recovery) = opened.map_err(|error| format!("refused: {error}"))?;
        self.compare_catalogue(&store, &recovery)?;
        let found = self.sizes.iter().flat_map(|&(region, _)| store.stored_pages(region));
        if !found.map(|page| (page, store.slot_of(page).unwrap_or(u32::MAX))).eq(self.slots.iter().copied()) {
            return Err("pages are missing, or lie elsewhere".to_owned());
        }
        Ok(recovery)
    }

    fn compare_catalogue(&self, store: &Store<RewindDisk>, recovery: &Recovery) -> Result<(), String> {
        if recovery.commit != self.commit {
            return Err(format!("commit {:?} was taken for {:?}", recovery.commit, self.commit));
        }
        let sizes = store.regions().iter().map(|region| (region.id, region.pages));
        if !sizes.eq(self.sizes.iter().copied()) {
            return Err("the regions have other sizes".to_owned());
        }
        Ok(())
    }

    fn compare(
        &self,
        store: &mut Store<RewindDisk>,
        recovery: &Recovery,
    ) -> Result<Vec<wattkeep_store::types::PageId>, String> {
        self.compare_catalogue(store, recovery)?;
        let mut damaged = Vec::new();
        let (mut bytes, mut count) = ([0; PAGE_SIZE], 0);
        for &(region, _) in &self.sizes {
            let stored: Vec<_> = store.stored_pages(region).collect();
            count += stored.len();
            for page in stored {
                match store.read_page_blocking(page, &mut bytes) {
                    Ok(_) if self.pages.get(&page).is_some_and(|good| good[..] == bytes) => {}
                    Ok(_) => return Err(format!("{page} was handed out with bytes that are not its own")),
                    Err(_) => damaged.push(page),
                }
            }
        }
        if count != self.pages.len() {
            return Err(format!("{count} pages instead of {}", self.pages.len()));
        }
        Ok(damaged)
    }

    /// Goes on as a program would: opens for writing, writes some pages, commits, opens again. What was
    /// accepted must still be the image, with what was written since.
    pub(crate) fn go_on(&self, seed: u64) -> Result<(), String> {
        let Ok((mut store, _)) = Store::open(self.disk.clone()) else { return Ok(()) };
        let rewritten: Vec<_> = self.slots.iter().map(|&(page, _)| page).take(3).collect();
        append(&mut store, seed, &rewritten, 9)?;
        store.commit(CommitKind::Checkpoint).map_err(|error| error.to_string())?;
        drop(store);
        let (mut store, _) = Store::open_read_only(self.disk.clone())
            .map_err(|error| format!("what was accepted is refused after the next commit: {error}"))?;
        let mut bytes = [0; PAGE_SIZE];
        for (page, good) in self.pages.iter().filter(|(page, _)| !rewritten.contains(page)) {
            match store.read_page_blocking(*page, &mut bytes) {
                Ok(true) if good[..] != bytes => {
                    return Err(format!("{page} has other bytes after the next commit"));
                }
                Ok(false) => return Err(format!("{page} is gone after the next commit")),
                Ok(true) | Err(_) => {}
            }
        }
        Ok(())
    }
}
