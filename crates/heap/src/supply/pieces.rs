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

    /// All rows.
    pub(super) fn into_rows(self) -> impl Iterator<Item = Range<u64>> {
        self.rows.into_iter().map(|(first, pages)| first..first + pages)
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

    /// Takes `pages` whose first is a multiple of `align` from the first row that has them.
    pub(super) fn carve(&mut self, pages: u64, align: u64) -> Option<u64> {
        let found = self.rows.iter().take(LOOKED_AT).find_map(|row| fit(row, pages, align));
        let first = found.or_else(|| self.newest(pages, align))?;
        Some(self.cut(first, pages))
    }

    /// Takes such pages from the last row, if it has them.
    pub(super) fn carve_newest(&mut self, pages: u64, align: u64) -> Option<u64> {
        let first = self.newest(pages, align)?;
        Some(self.cut(first, pages))
    }

    fn newest(&self, pages: u64, align: u64) -> Option<u64> {
        fit(self.rows.last_key_value()?, pages, align)
    }

    fn cut(&mut self, first: u64, pages: u64) -> u64 {
        let (start, row) = self.rows.range(..=first).next_back().expect("the row that has them");
        let (start, end) = (*start, *start + *row);
        self.rows.remove(&start);
        for rest in [start..first, first + pages..end] {
            if !rest.is_empty() {
                self.rows.insert(rest.start, rest.end - rest.start);
            }
        }
        self.pages -= pages;
        first
    }
}

/// Where in the row `pages` pages begin at a multiple of `align`.
fn fit((start, row): (&u64, &u64), pages: u64, align: u64) -> Option<u64> {
    let first = start.checked_next_multiple_of(align)?;
    (first.checked_add(pages)? <= start + row).then_some(first)
}
