//! What the store promises, kept beside it: the bytes that were stored, and the image of every commit.
//!
//! Knows nothing of permits, logs or page states: only what a program stored, when a cut was made, and
//! when a commit was reported.

use std::collections::BTreeMap;

use wattkeep_keep::limits::PAGE_SIZE;

use crate::script::{PLACES, Page};

/// Where in a page each place lies: the first bytes, the last, and across the middle.
pub const OFFSETS: [usize; PLACES] = [0, 1032, 2552, PAGE_SIZE - 8];

/// The values of one page.
pub type Values = [u64; PLACES];

/// A page never written.
pub const PLACES_ZERO: Values = [0; PLACES];

/// All pages of all regions, by their place in the session.
pub type Image = Vec<Vec<Values>>;

/// The bytes of a page with these values.
pub fn content(values: &Values) -> Box<[u8; PAGE_SIZE]> {
    let mut bytes = Box::new([0; PAGE_SIZE]);
    for (value, offset) in values.iter().zip(OFFSETS) {
        bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Whether a page holds these values and nothing else.
pub fn holds(bytes: &[u8; PAGE_SIZE], values: &Values) -> bool {
    *bytes == *content(values)
}

/// What a store may show.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// What threads stored, region by region.
    pub memory: Image,
    /// The image of each commit that may still be found, by epoch.
    images: BTreeMap<u64, Image>,
    /// The last commit that was reported.
    pub committed: u64,
    /// Everything that was stored is in the last commit.
    pub complete: bool,
}

impl Oracle {
    /// Of a store that shows `image` at `epoch`.
    pub fn new(image: Image, epoch: u64) -> Self {
        let images = BTreeMap::from([(epoch, image.clone())]);
        Self { memory: image, images, committed: epoch, complete: true }
    }

    /// A thread stored a value.
    pub fn store(&mut self, page: Page, place: u8, value: u64) {
        self.memory[usize::from(page.region)][usize::from(page.page)][usize::from(place)] = value;
        self.complete = false;
    }

    /// What was stored at a page.
    pub fn values(&self, page: Page) -> &Values {
        &self.memory[usize::from(page.region)][usize::from(page.page)]
    }

    /// The next commit, if it comes, holds what is stored now.
    pub fn cut(&mut self) {
        self.images.insert(self.committed + 1, self.memory.clone());
    }

    /// The cut was given up.
    pub fn give_up(&mut self) {
        self.images.remove(&(self.committed + 1));
    }

    /// A commit was reported. False when no cut was made for it.
    #[must_use]
    pub fn commit(&mut self, epoch: u64, complete: bool) -> bool {
        let known = epoch == self.committed + 1 && self.images.contains_key(&epoch);
        self.committed = epoch;
        self.complete = complete;
        known
    }

    /// Commits before the last cannot be found any more.
    pub fn forget_older(&mut self) {
        self.images.retain(|epoch, _| *epoch >= self.committed);
    }

    /// The image of a commit: the last, or the one that was under way.
    pub fn image(&self, epoch: u64) -> Option<&Image> {
        self.images.get(&epoch)
    }
}
