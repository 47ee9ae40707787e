//! Another program that allocates: brings in pages at random, and gives some back, a step at a time.
//!
//! Each step takes at least one page from the kernel. What it leaves on the kernel's lists of free pages lies
//! all over memory, as on a machine that has run for a while.

use std::io::{Read, Write, stdin, stdout};

use wattkeep_sys::map::Mapping;

use crate::workload::random::Random;

const PAGE: usize = 4096;

/// Its pages: 64 MiB, of which half are in memory, and a few more.
const PAGES: usize = 16 << 10;

/// Pages that one step brings in, or gives back, at most.
const STEP_PAGES: u64 = 8;

/// A neighbour, between two steps.
pub(crate) struct Neighbour {
    memory: Mapping,
    random: Random,
    /// All of its pages; those that are in memory first.
    order: Vec<u32>,
    present: usize,
}

impl Neighbour {
    /// One whose pages differ from those of another seed, with half of them in memory.
    pub(crate) fn new(seed: u64) -> std::io::Result<Self> {
        let memory = Mapping::private(PAGES * PAGE, PAGE)?;
        let mut neighbour =
            Self { memory, random: Random::new(seed), order: (0..PAGES as u32).collect(), present: 0 };
        while neighbour.present < PAGES / 2 {
            neighbour.bring_in()?;
        }
        Ok(neighbour)
    }

    /// Brings in some pages, then gives some back: no two of them in a row.
    pub(crate) fn step(&mut self) -> std::io::Result<()> {
        for _ in 0..=self.random.below(STEP_PAGES) {
            self.bring_in()?;
        }
        for _ in 0..=self.random.below(STEP_PAGES) {
            if self.present > PAGES / 2 {
                self.give_back()?;
            }
        }
        Ok(())
    }

    fn bring_in(&mut self) -> std::io::Result<()> {
        if self.present < PAGES {
            let chosen = self.present + self.random.below((PAGES - self.present) as u64) as usize;
            self.order.swap(self.present, chosen);
            self.memory.populate(self.order[self.present] as usize * PAGE, PAGE)?;
            self.present += 1;
        }
        Ok(())
    }

    fn give_back(&mut self) -> std::io::Result<()> {
        self.present -= 1;
        let chosen = self.random.below(self.present as u64 + 1) as usize;
        self.order.swap(self.present, chosen);
        Ok(self.memory.give_back(self.order[self.present] as usize * PAGE, PAGE)?)
    }
}

/// The whole life of a neighbour process: a step for each byte of its standard input, answered by a byte.
///
/// # Errors
/// There is no memory, or nobody to answer.
pub fn process(seed: u64) -> std::io::Result<()> {
    let mut neighbour = Neighbour::new(seed)?;
    let mut asked = [0];
    while stdin().read(&mut asked)? != 0 {
        neighbour.step()?;
        stdout().write_all(&asked)?;
        stdout().flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_allocates_and_half_of_the_pages_stay() {
        let mut neighbour = Neighbour::new(1).expect("memory");
        for _ in 0..2_000 {
            neighbour.step().expect("memory");
            assert!((PAGES / 2..PAGES / 4 * 3).contains(&neighbour.present), "{}", neighbour.present);
        }
        let mut all = neighbour.order;
        all.sort_unstable();
        assert!(all.iter().enumerate().all(|(page, found)| page == *found as usize), "each page once");
    }
}
