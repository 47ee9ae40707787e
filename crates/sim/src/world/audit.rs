//! Counts dirty pages without asking the ledger: a page is dirty if a program may store to it, or if
//! its bytes are not those that the store has.
//!
//! The count is compared with the budget, and with the permits. A budget that was lowered is a promise
//! for later: until it is reached, no permit more may be held.

use wattkeep_keep::limits::PAGE_SIZE;
use wattkeep_keep::types::{PageId, Tracking};
use wattkeep_store::Store;
use wattkeep_store::types::Checksum;

use super::machine::{Session, Trouble, World};
use crate::disk::MemoryDisk;
use crate::oracle::{Oracle, content, holds};
use crate::page_table::Entry;
use crate::script::Page;

/// What the auditor remembers between two looks.
#[derive(Debug)]
pub(super) struct Auditor {
    /// Checksums of what is stored in memory; `None` where it changed since.
    checksums: Vec<Vec<Option<Checksum>>>,
    zero: Checksum,
    /// Most pages that may be dirty now.
    allowed: u32,
    /// The page whose bytes are looked at next.
    next: u32,
    pub(super) samples: u64,
}

impl Auditor {
    pub(super) fn new(oracle: &Oracle, store: &Store<MemoryDisk>) -> Self {
        let checksums = oracle.memory.iter().map(|region| vec![None; region.len()]).collect();
        let zero = store.hash(&*content(&[0; 4]));
        Self { checksums, zero, allowed: 0, next: 0, samples: 0 }
    }

    /// A value was stored to the page.
    pub(super) fn stored(&mut self, page: Page) {
        self.checksums[usize::from(page.region)][usize::from(page.page)] = None;
    }

    /// The region grew.
    pub(super) fn resize(&mut self, region: u8, pages: u32) {
        self.checksums[usize::from(region)].resize(pages as usize, None);
    }

    fn look(&mut self, session: &Session, oracle: &Oracle) -> Result<(), Trouble> {
        self.samples += 1;
        let mut dirty = 0;
        let hazards = session.shared.control.hazards.glance();
        for (number, region) in session.regions.iter().enumerate() {
            let kept = session.keeper.region(number as u32).expect("a region of the session");
            for page in 0..region.tracked.pages() {
                let word = kept.word(page).load();
                let open = match kept.tracking {
                    Tracking::Explicit => {
                        let at = kept.address + u64::from(page) * PAGE_SIZE as u64;
                        let is_there = |hazard: &u64| (at..at + PAGE_SIZE as u64).contains(hazard);
                        word.pins() > 0 || hazards.iter().any(is_there)
                    }
                    _ => region.table.entry(page) == Entry::Writable,
                };
                let id = PageId { region: kept.id, page };
                if !open && !self.differs(session.keeper.store(), id, number, oracle) {
                    continue;
                }
                dirty += 1;
                if !word.state().holds_permit() {
                    return Err(Trouble::Violation(format!(
                        "r{number}p{page} differs from the store, or is open, without a permit: {word:?}"
                    )));
                }
            }
        }
        self.compare(session, dirty)?;
        self.look_at_bytes(session, oracle)
    }

    fn differs(&mut self, store: &Store<MemoryDisk>, id: PageId, region: usize, oracle: &Oracle) -> bool {
        let values = &oracle.memory[region][id.page as usize];
        let known = &mut self.checksums[region][id.page as usize];
        let ours = *known.get_or_insert_with(|| store.hash(&*content(values)));
        store.stored_checksum(id).unwrap_or(self.zero) != ours
    }

    fn compare(&mut self, session: &Session, dirty: u32) -> Result<(), Trouble> {
        let permits = session.shared.control.ledger.0.permits();
        self.allowed = permits.limit.max(self.allowed);
        let kept = session.keeper.store().budget_pages();
        if dirty.max(permits.held) > self.allowed {
            return Err(Trouble::Violation(format!(
                "{dirty} pages are dirty and {} permits held, {} may be",
                permits.held, self.allowed
            )));
        }
        if dirty > permits.held {
            return Err(Trouble::Violation(format!(
                "{dirty} pages are dirty, {} permits held",
                permits.held
            )));
        }
        if dirty > kept {
            return Err(Trouble::Violation(format!(
                "{dirty} pages are dirty, the log keeps room for {kept}"
            )));
        }
        self.allowed = permits.limit.max(permits.held);
        Ok(())
    }

    /// One page a look, in turn: what lies in memory is what was stored.
    fn look_at_bytes(&mut self, session: &Session, oracle: &Oracle) -> Result<(), Trouble> {
        self.next = self.next.wrapping_add(1);
        let region = self.next as usize % session.regions.len();
        let page = self.next / session.regions.len() as u32 % session.regions[region].tracked.pages();
        let bytes = session.regions[region].table.load(page);
        if bytes.is_some_and(|bytes| !holds(&bytes, &oracle.memory[region][page as usize])) {
            return Err(Trouble::Lost(format!("r{region}p{page} in memory is not what was stored")));
        }
        Ok(())
    }
}

impl World {
    /// An independent count of dirty pages, compared with the bound.
    pub(super) fn audit(&mut self) -> Result<(), Trouble> {
        if self.settings.audit { self.auditor.look(&self.session, &self.oracle) } else { Ok(()) }
    }

    /// No page of a region tracked by faults was filled behind its page table.
    pub(super) fn audit_memory(&self) -> Result<(), Trouble> {
        for (number, region) in self.session.regions.iter().enumerate() {
            let behind = region.table.filled_behind().map_err(Trouble::stopped)?;
            if region.tracked.tracking().protects() && behind > 0 {
                return Err(Trouble::Violation(format!(
                    "{behind} pages of r{number} were filled behind the page table"
                )));
            }
        }
        Ok(())
    }
}
