//! Rows of free pages: what is left of batches that were begun.
//!
//! Rows that touch are one row. Looks at so many rows for one request, oldest addresses first, so that a
//! long list costs no more than a short one.

use std::collections::BTreeMap;
use std::ops::Range;

/// Rows looked at for one request.
const LOOKED_AT: usize = 64;

/// Rows by their first page.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// First page, and how many.
    rows: BTreeMap<u64, u64>,
    pages: u64,
}

impl Pieces {
    /// Pages in all rows.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Adds a row, which touches none of its pages yet.
    pub(super) fn add(&mut self, row: Range<u64>) {
        if row.is_empty() {
            return;
        }
        self.pages += row.end - row.start;
        let (mut first, mut end) = (row.start, row.end);
        let before = self.rows.range(..first).next_back().map(|(first, pages)| (*first, *pages));
        if let Some((start, pages)) = before
            && start + pages == first
        {
            self.rows.remove(&start);
            first = start;
        }
        if let Some(pages) = self.rows.remove(&end) {
            end += pages;
        }
        self.rows.insert(first, end - first);
    }

    /// Takes `pages` from the front of the first row that has as many.
    pub(super) fn carve(&mut self, pages: u64) -> Option<u64> {
        let first = self.rows.iter().take(LOOKED_AT).find(|(_, row)| **row >= pages).map(|(first, _)| *first);
        first.or_else(|| self.newest(pages)).map(|first| self.cut(first, pages))
    }

    /// Takes `pages` from the front of the last row, if it has as many.
    pub(super) fn carve_newest(&mut self, pages: u64) -> Option<u64> {
        self.newest(pages).map(|first| self.cut(first, pages))
    }

    fn newest(&self, pages: u64) -> Option<u64> {
        let (first, row) = self.rows.last_key_value()?;
        (*row >= pages).then_some(*first)
    }

    fn cut(&mut self, first: u64, pages: u64) -> u64 {
        let row = self.rows.remove(&first).expect("a row that was just found");
        self.pages -= pages;
        if row > pages {
            self.rows.insert(first + pages, row - pages);
        }
        first
    }
}
