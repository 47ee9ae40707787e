//! Cuts the power of a program on persistent memory, at many steps of its history, and again inside recovery.
//!
//! The memory is a twin ([`wattkeep_sim::cache`]); what recovers is the real code. A recovery that is cut
//! must come to the same end when it runs again, and a second one after a whole one must change nothing.

use std::sync::Arc;

use wattkeep_persist::Space;
use wattkeep_sim::cache::{Dimm, Rewind, Step};
use wattkeep_sim::random::Random;

use crate::trials::guard::Bad;

/// Images of one moment.
const IMAGES_PER_MOMENT: u64 = 4;
/// One of so many recoveries is cut itself, and that one's, and that one's.
const RECUT: u64 = 3;
const RECUTS_DEEP_MAX: u32 = 3;
/// One of so many recoveries is followed by another.
const TWICE: u64 = 8;
/// One of so many images is what the program goes on with.
const GONE_ON: u64 = 5;

/// Recovers what a space holds after a cut at a step, and says which of the promised states it is.
pub(super) type Examine<'a> = dyn Fn(Arc<Space>, usize) -> Result<u64, Bad> + 'a;

/// Lets a program go on in a space that holds a state, and verifies what it did.
pub(super) type GoOn<'a> = dyn Fn(Arc<Space>, u64) -> Result<(), Bad> + 'a;

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    /// Images that were recovered from.
    pub(super) images: u64,
    /// Those of them that were left by a cut inside a recovery.
    pub(super) inside_recovery: u64,
    /// Steps of all histories: stores, flushes, fences.
    pub(super) steps: u64,
    /// The most stores that one cut could lose.
    pub(super) pending_most: u64,
}

impl std::ops::AddAssign for Tried {
    fn add_assign(&mut self, more: Self) {
        self.images += more.images;
        self.inside_recovery += more.inside_recovery;
        self.steps += more.steps;
        self.pending_most = self.pending_most.max(more.pending_most);
    }
}

/// A program's history on a module of memory, to be cut.
pub(super) struct Cuts<'a> {
    pub(super) dimm: &'a Dimm,
    pub(super) rewind: Rewind,
    pub(super) history: Vec<Step>,
    /// No step before this one is cut.
    pub(super) from: usize,
    pub(super) examine: &'a Examine<'a>,
    pub(super) go_on: &'a GoOn<'a>,
}

impl Cuts<'_> {
    /// Examines about `images` images, at moments by chance, in the order of the history.
    pub(super) fn run(mut self, images: u64, random: &mut Random) -> Result<Tried, Bad> {
        let mut tried = Tried { steps: self.history.len() as u64, ..Tried::default() };
        let choices = (self.history.len() - self.from + 1) as u64;
        let mut steps: Vec<_> = (0..images.div_ceil(IMAGES_PER_MOMENT))
            .map(|_| self.from + random.below(choices) as usize)
            .collect();
        steps.sort_unstable();
        for step in steps {
            self.rewind.moment.advance(&self.history, step);
            tried.pending_most = tried.pending_most.max(self.rewind.moment.pending() as u64);
            let all = self.rewind.moment.images();
            for number in 0..IMAGES_PER_MOMENT.min(all) {
                let few = all <= IMAGES_PER_MOMENT;
                let image =
                    if few { self.rewind.moment.image(number) } else { self.rewind.moment.sample(random) };
                self.dimm.load(&mut self.rewind, &image);
                let story = |bad| bad_with(bad, &format!("cut at step {step} of {}", self.history.len()));
                let found = self.recover(step, 0, random, &mut tried).map_err(story)?;
                if random.chance(1, GONE_ON) {
                    (self.go_on)(self.dimm.boot().0, found).map_err(story)?;
                }
            }
        }
        Ok(tried)
    }

    /// Recovers; sometimes again from a cut inside that recovery, and once more when all is done.
    fn recover(&self, step: usize, deep: u32, random: &mut Random, tried: &mut Tried) -> Result<u64, Bad> {
        tried.images += 1;
        let recut = deep < RECUTS_DEEP_MAX && random.chance(1, RECUT);
        let before = recut.then(|| self.dimm.before());
        let (space, cache) = self.dimm.boot();
        let found = (self.examine)(space, step)?;
        let history = cache.history();
        if let Some(mut rewind) = before.filter(|_| !history.is_empty()) {
            let cut = random.below(history.len() as u64) as usize;
            rewind.moment.advance(&history, cut);
            let image = rewind.moment.sample(random);
            self.dimm.load(&mut rewind, &image);
            tried.inside_recovery += 1;
            let story = format!("recovery cut at step {cut} of {}", history.len());
            let again = self.recover(step, deep + 1, random, tried).map_err(|bad| bad_with(bad, &story))?;
            same(found, again, &story)?;
        } else if random.chance(1, TWICE) {
            let (space, _) = self.dimm.boot();
            let again = (self.examine)(space, step).map_err(|bad| bad_with(bad, "recovered twice"))?;
            same(found, again, "recovered twice")?;
        }
        Ok(found)
    }
}

fn same(found: u64, again: u64, story: &str) -> Result<(), Bad> {
    if found == again {
        return Ok(());
    }
    Err(Bad::Violated(format!("{story}: state {again}, where the first recovery found state {found}")))
}

fn bad_with(bad: Bad, story: &str) -> Bad {
    match bad {
        Bad::Lost(cause) => Bad::Lost(format!("{story}: {cause}")),
        Bad::Violated(cause) => Bad::Violated(format!("{story}: {cause}")),
    }
}
