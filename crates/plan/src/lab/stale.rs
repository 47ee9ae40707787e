//! Dirty bits that go stale: a page table behind a TLB that nobody flushes.
//!
//! A store through a translation that the TLB holds as dirty sets no bit in the page table. Viyojit
//! measured that the choice of victims suffers from it (section 5.2).

use std::collections::{BTreeMap, HashMap};

/// Translations that are held: the second level of the processors of the last ten years.
pub(super) const TLB_PAGES: usize = 1536;

/// The translations held, by age.
#[derive(Default)]
pub(super) struct Tlb {
    used: HashMap<u32, u64>,
    by_age: BTreeMap<u64, u32>,
    time: u64,
}

impl Tlb {
    /// A store to a page: whether it goes through the page table, and sets the dirty bit there.
    pub(super) fn store(&mut self, page: u32) -> bool {
        self.time += 1;
        let before = self.used.insert(page, self.time);
        if let Some(before) = before {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.time, page);
        if self.used.len() > TLB_PAGES
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_none()
    }

    /// The page was protected and opened again: its translation is gone.
    pub(super) fn forget(&mut self, page: u32) {
        if let Some(used) = self.used.remove(&page) {
            self.by_age.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_through_a_known_translation_sets_no_bit() {
        let mut tlb = Tlb::default();
        assert!(tlb.store(1) && !tlb.store(1));
        (2..=1 + TLB_PAGES as u32).for_each(|page| assert!(tlb.store(page)));
        assert!(tlb.store(1), "its translation was dropped, and is read again");
        tlb.forget(1);
        assert!(tlb.store(1));
    }
}
