//! Hands out fresh pages in batches of neighbouring frames, so that what is used together conflicts less
//! in caches.
//!
//! Pages that are brought in one by one, while other programs allocate too, lie all over memory. So pages
//! are brought in by the batch: what a request leaves of one serves the next ones. After "contiguity-aware
//! allocation": Kannan, Gavrilovska, Schwan, "Reducing the Cost of Persistence for Nonvolatile Heaps in End
//! User Devices", section 4.1. Two lists and two watermarks:
//!
//! | free memory | persistent data | volatile capacity |
//! |---|---|---|
//! | above the high watermark | contiguous batches | contiguous batches |
//! | below the high one | non-contiguous pages, or single ones | contiguous batches |
//! | below the low one | what is in memory already, or single ones | the same |
//!
//! A batch whose frames turn out not to be neighbours goes to the non-contiguous list; only so many are set
//! aside, and no more than one for a request; then requests take them as they come. Persistent data and
//! capacity never share a batch while memory is ample.
//!
//! Owns the frontier only: page numbers of the space that were never used. What the heap frees keeps its
//! frames, and is the heap's to hand out again. Volatile: built anew from where the used pages end.
//!
//! Pure: what touches memory is a [`Source`].

mod pieces;
mod source;

use std::ops::Range;

use pieces::Pieces;
pub use source::SpaceSource;

/// Pages that are brought in together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// Each page by itself, with its first access.
    One,
    /// Four pages: 16 KiB.
    Four,
    /// Sixteen pages: 64 KiB.
    #[default]
    Sixteen,
}

impl Batch {
    /// How many.
    pub fn pages(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Four => 4,
            Self::Sixteen => 16,
        }
    }
}

/// What pages are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Data that survives.
    Persistent,
    /// Volatile memory from the same pool.
    Capacity,
}

/// How to supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Pages that are brought in together, at least: a source that has larger pieces only gives those.
    pub batch: Batch,
    /// Bytes of free memory below which persistent data gets non-contiguous pages.
    pub high: u64,
    /// Bytes of free memory below which nothing is brought in before it is touched.
    pub low: u64,
}

/// The high watermark of spaces that are at least as large.
const HIGH_MOST: u64 = 1 << 30;

impl Options {
    /// For a space of so many bytes: batches as long as all of it would find room in the free memory, or
    /// 1 GiB of it; nothing is brought in ahead once a quarter of that is left.
    pub fn for_space(bytes: u64) -> Self {
        let high = bytes.min(HIGH_MOST);
        Self { batch: Batch::default(), high, low: high / 4 }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Populated {
    /// In memory. Its frames are neighbours, or nobody can tell.
    Contiguous,
    /// In memory, in frames that are no neighbours.
    Scattered,
    /// Not brought in: its pages come with their first access.
    Absent,
}

/// Where batches come from.
pub trait Source {
    /// The least number of pages, from `at_least` on, that come as neighbours: the batch.
    fn piece(&self, at_least: u64) -> u64;

    /// Brings in `pages`, which nobody has touched.
    fn populate(&self, pages: Range<u64>) -> Populated;

    /// `pages`, which nobody has touched, will be touched soon: they may come in larger pieces.
    fn expect(&self, pages: Range<u64>);

    /// Bytes of memory that are free; `None` where nobody can tell, which counts as plenty.
    fn free_bytes(&self) -> Option<u64>;
}

/// What was done, for status and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches brought in.
    pub batches: u64,
    /// Those of them whose frames were no neighbours.
    pub scattered: u64,
    /// Pages handed out before anything brought them in.
    pub single_pages: u64,
}

/// Free memory against the watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    Ample,
    Short,
    Critical,
}

/// Requests between two looks at the free memory: a look reads a file of the kernel's, 10 to 20 µs, and
/// batches of 64 KiB come to 4 MiB between two looks.
const LOOK_EVERY: u32 = 64;

/// Pages of non-contiguous batches that are set aside: one in so many of the space.
const ASIDE_SHARE: u64 = 64;

/// Pages of the largest request that is brought in before it is touched: 2 MiB.
const BATCHED_MOST: u64 = 512;

/// What is asked for: so many pages, beginning at a multiple of `align`.
#[derive(Clone, Copy)]
struct Row {
    pages: u64,
    align: u64,
}

/// Fresh pages, and those of batches that were begun.
#[derive(Debug)]
pub struct Supply {
    /// Pages from here to `end` were never handed out, nor brought in.
    frontier: u64,
    end: u64,
    batch: u64,
    options: Options,
    /// What is left of contiguous batches: the buckets of persistent data, and of capacity.
    contiguous: [Pieces; 2],
    /// The non-contiguous list.
    scattered: Pieces,
    pressure: Pressure,
    until_look: u32,
    counts: Counts,
}

impl Supply {
    /// Supplies the pages of `fresh`, numbered from the beginning of the space.
    pub fn new(fresh: Range<u64>, options: &Options, source: &(impl Source + ?Sized)) -> Self {
        let batch = match options.batch {
            Batch::One => 1,
            batch => source.piece(batch.pages()).max(batch.pages()),
        };
        Self {
            frontier: fresh.start,
            end: fresh.end.max(fresh.start),
            batch,
            options: *options,
            contiguous: [Pieces::default(), Pieces::default()],
            scattered: Pieces::default(),
            pressure: Pressure::Ample,
            until_look: 0,
            counts: Counts::default(),
        }
    }

    /// The space has more pages: up to `end`.
    pub fn grow(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Where its pages end.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The longest row that was not begun.
    pub fn longest(&self) -> u64 {
        self.end - self.frontier
    }

    /// Has no pages any more: here they are.
    pub fn give_up(&mut self) -> Vec<Range<u64>> {
        let fresh = std::mem::replace(&mut self.frontier, self.end)..self.end;
        let lists = self.contiguous.iter_mut().chain([&mut self.scattered]);
        let begun = lists.flat_map(|list| std::mem::take(list).into_rows());
        begun.chain([fresh]).filter(|row| !row.is_empty()).collect()
    }

    /// Pages that were not handed out yet.
    pub fn left(&self) -> u64 {
        let begun: u64 = self.contiguous.iter().map(Pieces::pages).sum();
        self.end - self.frontier + begun + self.scattered.pages()
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Hands out `pages` pages in a row, the first a multiple of `align`: its number. `None` when there is
    /// no such row.
    pub fn take(
        &mut self,
        pages: u64,
        align: u64,
        purpose: Purpose,
        source: &(impl Source + ?Sized),
    ) -> Option<u64> {
        if pages == 0 || align == 0 {
            return None;
        }
        let row = Row { pages, align };
        let supplied = match (self.look(source), purpose) {
            _ if self.batch == 1 => self.single(row),
            (Pressure::Ample, _) | (Pressure::Short, Purpose::Capacity) => self.batched(row, purpose, source),
            (Pressure::Short, Purpose::Persistent) => {
                self.scattered.carve(pages, align).or_else(|| self.single(row))
            }
            (Pressure::Critical, _) => self.begun(row).or_else(|| self.single(row)),
        };
        // The space ends: what was begun or set aside serves everybody.
        supplied.or_else(|| self.begun(row)).or_else(|| self.single(row))
    }

    fn look(&mut self, source: &(impl Source + ?Sized)) -> Pressure {
        if self.until_look == 0 {
            self.until_look = LOOK_EVERY;
            self.pressure = match source.free_bytes() {
                Some(free) if free < self.options.low => Pressure::Critical,
                Some(free) if free < self.options.high => Pressure::Short,
                _ => Pressure::Ample,
            };
        }
        self.until_look -= 1;
        self.pressure
    }

    /// Pages that are in memory already, whoever they were meant for.
    fn begun(&mut self, Row { pages, align }: Row) -> Option<u64> {
        let [persistent, capacity] = &mut self.contiguous;
        let lists = [&mut self.scattered, persistent, capacity];
        lists.into_iter().find_map(|list| list.carve(pages, align))
    }

    /// Pages that nothing brings in before their first access.
    fn single(&mut self, Row { pages, align }: Row) -> Option<u64> {
        let first = self.frontier.checked_next_multiple_of(align)?;
        let next = first.checked_add(pages).filter(|next| *next <= self.end)?;
        self.scattered.add(self.frontier..first);
        self.counts.single_pages += next - self.frontier;
        self.frontier = next;
        Some(first)
    }

    /// Pages of the purpose's own bucket, which takes new batches where it has too few.
    fn batched(&mut self, row: Row, purpose: Purpose, source: &(impl Source + ?Sized)) -> Option<u64> {
        let Row { pages, align } = row;
        let bucket = purpose as usize;
        if let Some(first) = self.contiguous[bucket].carve(pages, align) {
            return Some(first);
        }
        if pages > BATCHED_MOST {
            let first = self.single(row)?;
            source.expect(first..first + pages);
            return Some(first);
        }
        let aside = pages <= self.until_boundary() && self.scattered.pages() < self.end / ASIDE_SHARE;
        match self.bring_in(source)? {
            (batch, Populated::Scattered) if aside => self.scattered.add(batch),
            (batch, _) => self.contiguous[bucket].add(batch),
        }
        loop {
            // Neighbouring pieces are one: batches are added until the row is long enough.
            if let Some(first) = self.contiguous[bucket].carve_newest(pages, align) {
                return Some(first);
            }
            let (batch, _) = self.bring_in(source)?;
            self.contiguous[bucket].add(batch);
        }
    }

    /// Pages from the frontier to where the next batch begins.
    fn until_boundary(&self) -> u64 {
        (self.frontier / self.batch + 1) * self.batch - self.frontier
    }

    /// Brings in what is left of the batch at the frontier.
    fn bring_in(&mut self, source: &(impl Source + ?Sized)) -> Option<(Range<u64>, Populated)> {
        let batch = self.frontier..(self.frontier + self.until_boundary()).min(self.end);
        if batch.is_empty() {
            return None;
        }
        self.frontier = batch.end;
        let populated = source.populate(batch.clone());
        match populated {
            Populated::Absent => self.counts.single_pages += batch.end - batch.start,
            _ => self.counts.batches += 1,
        }
        self.counts.scattered += u64::from(populated == Populated::Scattered);
        Some((batch, populated))
    }
}

#[cfg(test)]
mod tests;
