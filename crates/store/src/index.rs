//! Where every page is stored: its latest version, the latest's checksum, its committed version.
//!
//! Invariants: a page's latest and committed version are the same slot, or two slots, each counted
//! once in [`Segments`] (`latest` and `pinned`); `hash` of a region is the sum over its latest
//! versions. 16 bytes per page. Memory only; does no I/O and knows no files.

use crate::digest::{STRETCH_PAGES, Stretch};
use crate::hash::Hasher;
use crate::region::ImagePart;
use crate::segments::Segments;
use crate::types::{Checksum, PageId, RegionId};

/// A slot or none, in 32 bits: 0 is none, the way it is kept in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

impl Place {
    const NONE: Self = Self(0);
    /// The page was dropped on purpose, its committed version stays; it must be written again
    /// before the next commit.
    const FORGOTTEN: Self = Self(u32::MAX);

    fn at(slot: u32) -> Self {
        Self(slot + 1)
    }

    fn slot(self) -> Option<u32> {
        (self != Self::NONE && self != Self::FORGOTTEN).then(|| self.0 - 1)
    }
}

/// The pages of one region. `latest` and `committed` are as long as the region was at its largest
/// since the last commit.
#[derive(Debug)]
struct RegionIndex {
    id: RegionId,
    pages: u32,
    latest: Vec<Place>,
    committed: Vec<Place>,
    checksums: Vec<Checksum>,
    part: ImagePart,
}

/// All regions.
#[derive(Debug)]
pub(crate) struct Index {
    hasher: Hasher,
    /// Sorted by id.
    regions: Vec<RegionIndex>,
    forgotten: u64,
}

impl RegionIndex {
    fn resize(&mut self, len: usize) {
        self.latest.resize(len, Place::NONE);
        self.committed.resize(len, Place::NONE);
        self.checksums.resize(len, Checksum(0));
    }

    fn add_part(&mut self, hasher: &Hasher, page: PageId) {
        let hash = hasher.image_part(page, self.checksums[page.page as usize]);
        self.part.pages += 1;
        self.part.hash = self.part.hash.wrapping_add(hash);
    }

    fn drop_part(&mut self, hasher: &Hasher, page: PageId) {
        let hash = hasher.image_part(page, self.checksums[page.page as usize]);
        self.part.pages -= 1;
        self.part.hash = self.part.hash.wrapping_sub(hash);
    }
}

impl Index {
    pub(crate) fn new(hasher: Hasher) -> Self {
        Self { hasher, regions: Vec::new(), forgotten: 0 }
    }

    /// Memory that the index takes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let page = 2 * size_of::<Place>() + size_of::<Checksum>();
        self.regions.iter().map(|region| (region.latest.capacity() * page) as u64).sum()
    }

    pub(crate) fn add_region(&mut self, id: RegionId, pages: u32) {
        assert!(self.regions.last().is_none_or(|last| last.id < id), "ids only grow");
        self.regions.push(RegionIndex {
            id,
            pages,
            latest: vec![Place::NONE; pages as usize],
            committed: vec![Place::NONE; pages as usize],
            checksums: vec![Checksum(0); pages as usize],
            part: ImagePart::default(),
        });
    }

    /// Drops a region and every version of its pages.
    pub(crate) fn remove_region(&mut self, id: RegionId, segments: &mut Segments) {
        let Ok(at) = self.regions.binary_search_by_key(&id, |region| region.id) else { return };
        let region = self.regions.remove(at);
        for (&latest, &committed) in region.latest.iter().zip(&region.committed) {
            if latest == Place::FORGOTTEN {
                self.forgotten -= 1;
            }
            if let Some(slot) = latest.slot() {
                segments.drop_latest(slot);
            }
            if let Some(slot) = committed.slot().filter(|_| committed != latest) {
                segments.drop_pinned(slot);
            }
        }
    }

    /// Changes a region's size. Cut-off pages lose their latest version.
    pub(crate) fn resize_region(&mut self, id: RegionId, pages: u32, segments: &mut Segments) {
        self.cut(id, pages, segments);
        let region = self.region_mut(id).expect("the store checked the region");
        region.pages = pages;
        if region.latest.len() < pages as usize {
            region.resize(pages as usize);
        }
    }

    /// Drops the latest version of every page from `pages` on. A committed one stays pinned until
    /// the next commit, because the last commit's hash covers it.
    pub(crate) fn cut(&mut self, id: RegionId, pages: u32, segments: &mut Segments) {
        let hasher = self.hasher;
        let mut remembered = 0;
        let region = self.region_mut(id).expect("the store checked the region");
        for page in pages..region.latest.len() as u32 {
            let at = page as usize;
            let latest = std::mem::replace(&mut region.latest[at], Place::NONE);
            remembered += u64::from(latest == Place::FORGOTTEN);
            if let Some(slot) = latest.slot() {
                region.drop_part(&hasher, PageId { region: id, page });
                if latest == region.committed[at] {
                    segments.pin(slot);
                } else {
                    segments.drop_latest(slot);
                }
            }
        }
        self.forgotten -= remembered;
    }

    /// Takes a version written in the current epoch. `false` when the page no longer exists.
    pub(crate) fn apply_current(
        &mut self,
        page: PageId,
        slot: u32,
        checksum: Checksum,
        segments: &mut Segments,
    ) -> bool {
        let hasher = self.hasher;
        let Some(region) = self.region_of(page) else { return false };
        let at = page.page as usize;
        let old = region.latest[at];
        if let Some(slot) = old.slot() {
            region.drop_part(&hasher, page);
            if old == region.committed[at] {
                segments.pin(slot);
            } else {
                segments.drop_latest(slot);
            }
        }
        region.latest[at] = Place::at(slot);
        region.checksums[at] = checksum;
        region.add_part(&hasher, page);
        segments.add_latest(slot);
        self.forgotten -= u64::from(old == Place::FORGOTTEN);
        true
    }

    /// Takes a copy of a committed version, written by cleaning. `false` when the page no longer
    /// has a committed version.
    pub(crate) fn apply_committed_copy(&mut self, page: PageId, slot: u32, segments: &mut Segments) -> bool {
        let Some(region) = self.region_of(page) else { return false };
        let at = page.page as usize;
        let old = region.committed[at];
        let Some(old_slot) = old.slot() else { return false };
        region.committed[at] = Place::at(slot);
        // Before the old slot is dropped: its segment must not become free without a flush.
        segments.moved_out(old_slot);
        if region.latest[at] == old {
            region.latest[at] = Place::at(slot);
            segments.add_latest(slot);
            segments.drop_latest(old_slot);
        } else {
            segments.add_pinned(slot);
            segments.drop_pinned(old_slot);
        }
        true
    }

    /// Drops a page's latest version when it is not the committed one: the page has changed in
    /// memory and will be written again. `false` when there is nothing to drop.
    pub(crate) fn forget_latest(&mut self, page: PageId, segments: &mut Segments) -> bool {
        let hasher = self.hasher;
        let Some(region) = self.region_of(page) else { return false };
        let at = page.page as usize;
        let latest = region.latest[at];
        let Some(slot) = latest.slot().filter(|_| latest != region.committed[at]) else {
            return false;
        };
        region.drop_part(&hasher, page);
        region.latest[at] = Place::FORGOTTEN;
        segments.drop_latest(slot);
        self.forgotten += 1;
        true
    }

    /// Makes every latest version the committed one, and lets the old ones go.
    pub(crate) fn commit(&mut self, segments: &mut Segments) {
        assert!(self.forgotten == 0, "the store checked that no page is forgotten");
        for region in &mut self.regions {
            for (latest, committed) in region.latest.iter().zip(&mut region.committed) {
                if latest != committed {
                    if let Some(slot) = committed.slot() {
                        segments.drop_pinned(slot);
                    }
                    *committed = *latest;
                }
            }
            if region.latest.len() > region.pages as usize {
                region.resize(region.pages as usize);
            }
        }
    }

    /// Sets a page's version while the log is replayed in order: later calls win.
    pub(crate) fn replay(&mut self, page: PageId, slot: u32, checksum: Checksum) {
        let Some(region) = self.region_mut(page.region) else { return };
        let at = page.page as usize;
        if at >= region.latest.len() {
            region.resize(at + 1);
        }
        region.latest[at] = Place::at(slot);
        region.checksums[at] = checksum;
    }

    /// Ends the replay of a region: computes its part of the image.
    pub(crate) fn replayed_part(&mut self, id: RegionId) -> ImagePart {
        let hasher = self.hasher;
        let Some(region) = self.region_mut(id) else { return ImagePart::default() };
        let mut part = ImagePart::default();
        for (page, (latest, &checksum)) in region.latest.iter().zip(&region.checksums).enumerate() {
            if latest.slot().is_some() {
                let page = PageId { region: id, page: page as u32 };
                part.pages += 1;
                part.hash = part.hash.wrapping_add(hasher.image_part(page, checksum));
            }
        }
        region.part = part;
        part
    }

    /// After the replay: what was found is the committed image, and is counted.
    pub(crate) fn adopt_replay(&mut self, segments: &mut Segments) {
        for region in &mut self.regions {
            region.committed.copy_from_slice(&region.latest);
            for slot in region.latest.iter().filter_map(|latest| latest.slot()) {
                segments.add_latest(slot);
            }
        }
    }

    /// All stored pages, in stretches for the digest.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        for region in &self.regions {
            let mut first = 0;
            while let Some(skipped) = region.latest[first..].iter().position(|latest| latest.slot().is_some())
            {
                first += skipped;
                let pages = (region.latest.len() - first).min(STRETCH_PAGES as usize);
                stretches.push(Stretch { region: region.id, first: first as u32, pages: pages as u32 });
                first += pages;
            }
        }
        stretches
    }

    /// Slot plus one, or 0, and checksum of each page of a stretch.
    pub(crate) fn versions(&self, stretch: Stretch) -> impl Iterator<Item = (u32, Checksum)> + '_ {
        let region = self.region(stretch.region).expect("the stretch is of this index");
        let pages = stretch.first as usize..(stretch.first + stretch.pages) as usize;
        region.latest[pages.clone()]
            .iter()
            .map(|latest| latest.0)
            .zip(region.checksums[pages].iter().copied())
    }

    /// Enters a stretch of a digest: its versions are latest and, after [`Self::end_stretches`],
    /// committed. `false` when it does not fit the regions or the segments.
    pub(crate) fn take_stretch(
        &mut self,
        stretch: Stretch,
        versions: impl Iterator<Item = (u32, Checksum)>,
        segments: &mut Segments,
    ) -> bool {
        let hasher = self.hasher;
        let slots = segments.slots();
        let Some(region) = self.region_mut(stretch.region) else { return false };
        let first = stretch.first as usize;
        let Some(latest) = region.latest.get_mut(first..first + stretch.pages as usize) else { return false };
        let both = latest.iter_mut().zip(&mut region.checksums[first..]);
        let (mut part, mut id) =
            (ImagePart::default(), PageId { region: stretch.region, page: stretch.first });
        for ((latest, checksum), (place, stored)) in both.zip(versions) {
            if place > slots {
                return false;
            }
            (*latest, *checksum) = (Place(place), stored);
            if let Some(slot) = latest.slot() {
                segments.add_latest(slot);
                part.pages += 1;
                part.hash = part.hash.wrapping_add(hasher.image_part(id, stored));
            }
            id.page += 1;
        }
        region.part.pages += part.pages;
        region.part.hash = region.part.hash.wrapping_add(part.hash);
        true
    }

    /// After the last stretch: what was taken is the committed image.
    pub(crate) fn end_stretches(&mut self) {
        for region in &mut self.regions {
            region.committed.copy_from_slice(&region.latest);
        }
    }

    /// Pages written since the last commit and dropped again: they must be written before the next.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// A region's part of the image that a commit would make now.
    pub(crate) fn part(&self, id: RegionId) -> ImagePart {
        self.region(id).map_or_else(ImagePart::default, |region| region.part)
    }

    /// Slot and checksum of a page's latest version.
    pub(crate) fn latest(&self, page: PageId) -> Option<(u32, Checksum)> {
        let region = self.region(page.region)?;
        let slot = region.latest.get(page.page as usize)?.slot()?;
        Some((slot, region.checksums[page.page as usize]))
    }

    /// Whether the latest version is the committed one.
    pub(crate) fn is_committed(&self, page: PageId) -> bool {
        let Some(region) = self.region(page.region) else { return false };
        let at = page.page as usize;
        region.latest.get(at).is_some_and(|&latest| latest.slot().is_some() && latest == region.committed[at])
    }

    /// Every stored page with the slot of its latest version, by region and page.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (u32, PageId)> + '_ {
        self.regions.iter().flat_map(|region| region.stored())
    }

    /// The stored pages of one region.
    pub(crate) fn stored_in(&self, id: RegionId) -> impl Iterator<Item = (u32, PageId)> + '_ {
        self.region(id).into_iter().flat_map(|region| region.stored())
    }

    /// Every committed version that is not the latest.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = u32> + '_ {
        self.regions.iter().flat_map(|region| {
            let both = region.latest.iter().zip(&region.committed);
            both.filter(|(latest, committed)| latest != committed)
                .filter_map(|(_, committed)| committed.slot())
        })
    }

    fn region(&self, id: RegionId) -> Option<&RegionIndex> {
        let at = self.regions.binary_search_by_key(&id, |region| region.id).ok()?;
        Some(&self.regions[at])
    }

    fn region_mut(&mut self, id: RegionId) -> Option<&mut RegionIndex> {
        let at = self.regions.binary_search_by_key(&id, |region| region.id).ok()?;
        Some(&mut self.regions[at])
    }

    /// The region of a page that lies inside it.
    fn region_of(&mut self, page: PageId) -> Option<&mut RegionIndex> {
        self.region_mut(page.region).filter(|region| page.page < region.pages)
    }
}

impl RegionIndex {
    fn stored(&self) -> impl Iterator<Item = (u32, PageId)> + '_ {
        let id = self.id;
        self.latest.iter().enumerate().filter_map(move |(page, latest)| {
            let page = PageId { region: id, page: page as u32 };
            latest.slot().map(|slot| (slot, page))
        })
    }
}
