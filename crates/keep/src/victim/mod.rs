//! Who is cleaned next: the policies, and the estimate of how much to clean ahead.
//!
//! A policy sees page names and, through the question it may ask, whether a page was written since it
//! last asked. It knows no addresses, no bytes, no clocks, and does no I/O: the same code runs in the
//! engine, in tests and in trace studies.
//!
//! The list a policy keeps may hold pages that were cleaned meanwhile: they are dropped when they
//! come up. A page that is offered stays listed, at the end, until it is seen clean.

pub mod fifo;
pub mod history;
pub mod pressure;
pub mod s3_fifo;
pub mod second_chance;

use crate::control::block::PageRef;
use crate::types::PolicyName;

/// Stands for the bytes of a page between two looks. Four bytes, as there is one for every dirty page.
pub type Fingerprint = std::num::NonZeroU32;

/// What the engine knows of a page that a policy asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It equals the store: not a victim any more.
    Clean,
    /// It is on its way to the SSD, or a thread is busy with it.
    Busy,
    /// Dirty.
    Dirty {
        /// For the next look. Changes when the page is written, up to a chance of 2^-32: a page taken for
        /// quiet by mistake costs one write, no more.
        fingerprint: Fingerprint,
        /// Written since the look that gave the fingerprint handed in, or that was never made.
        written: bool,
    },
}

/// How a policy looks at pages.
pub trait Observer {
    /// Looks whether a page was written since it had the fingerprint `seen`, at the cost of reading it.
    fn look(&mut self, page: PageRef, seen: Option<Fingerprint>) -> Sight;
    /// Whether the page is still dirty, without reading it.
    fn glance(&mut self, page: PageRef) -> Sight;
    /// The page left the list: tell the policy again when it becomes dirty.
    fn dropped(&mut self, page: PageRef);
}

/// Chooses victims among the dirty pages.
pub trait VictimPolicy: Send {
    /// For people and `wattkeep status`.
    fn name(&self) -> &'static str;

    /// A page that is not listed became dirty.
    fn dirtied(&mut self, page: PageRef);

    /// Appends up to `count` victims, best first. `urgent` says that writers wait: a worse choice now
    /// beats a better one later.
    fn choose(&mut self, count: usize, urgent: bool, observer: &mut dyn Observer, victims: &mut Vec<PageRef>);

    /// An epoch has passed.
    fn epoch(&mut self, observer: &mut dyn Observer);

    /// Pages listed.
    fn listed(&self) -> usize;

    /// Bytes that the lists take.
    fn bytes(&self) -> usize;
}

/// The policy of that name.
pub fn policy(name: PolicyName) -> Box<dyn VictimPolicy> {
    match name {
        PolicyName::Fifo => Box::new(fifo::Fifo::default()),
        PolicyName::S3Fifo => Box::new(s3_fifo::S3Fifo::default()),
        PolicyName::SecondChance => Box::new(second_chance::SecondChance::default()),
        PolicyName::LeastRecentlyUpdated => Box::new(history::LeastRecentlyUpdated::default()),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::{HashMap, HashSet};

    use super::*;

    /// Pages with fingerprints, for policies under test.
    #[derive(Default)]
    pub(crate) struct Pages {
        pub(crate) dirty: HashMap<PageRef, u32>,
        pub(crate) dropped: HashSet<PageRef>,
        pub(crate) busy: HashSet<PageRef>,
        pub(crate) looks: usize,
    }

    pub(crate) fn page(page: u32) -> PageRef {
        PageRef { region: 0, page }
    }

    impl Observer for Pages {
        fn look(&mut self, page: PageRef, seen: Option<Fingerprint>) -> Sight {
            self.looks += 1;
            if self.busy.contains(&page) {
                return Sight::Busy;
            }
            let fingerprint = self.dirty.get(&page).map(|value| Fingerprint::MIN.saturating_add(*value));
            let dirty = |fingerprint| Sight::Dirty { fingerprint, written: seen != Some(fingerprint) };
            fingerprint.map_or(Sight::Clean, dirty)
        }

        fn glance(&mut self, page: PageRef) -> Sight {
            let dirty = Sight::Dirty { fingerprint: Fingerprint::MIN, written: true };
            if self.busy.contains(&page) {
                return Sight::Busy;
            }
            if self.dirty.contains_key(&page) { dirty } else { Sight::Clean }
        }

        fn dropped(&mut self, page: PageRef) {
            self.dropped.insert(page);
        }
    }

    /// Dirties pages 0..n, rewrites the even ones between two choices, and returns the victims.
    pub(crate) fn victims_when_even_pages_stay_hot(policy: &mut dyn VictimPolicy) -> Vec<u32> {
        let mut pages = Pages::default();
        for n in 0..64 {
            pages.dirty.insert(page(n), 1);
            policy.dirtied(page(n));
        }
        let mut victims = Vec::new();
        for round in 2..8 {
            (0..64).step_by(2).for_each(|n| {
                pages.dirty.insert(page(n), round);
            });
            policy.epoch(&mut pages);
            if round >= 4 {
                policy.choose(4, false, &mut pages, &mut victims);
            }
        }
        victims.iter().map(|v| v.page).collect()
    }
}
