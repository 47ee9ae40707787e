//! What happens when, drawn from a seed: the store, and each cut of it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use wattkeep_sim::random::Random;

use crate::trials::subject::SubjectOptions;
use crate::trials::victim::in_directory;

/// Pages of the region: 8 MiB. Small enough that the log wraps within a store's life.
const PAGES: u64 = 2048;

/// A subject and the disk below it.
pub(super) struct StorePlan {
    pub(super) subject: SubjectOptions,
    pub(super) cluster_bytes: u64,
}

/// How the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Announced, and the save completes.
    Announced,
    /// Announced, and the power does not wait for the save.
    Early,
    /// Not announced.
    Unannounced,
    /// While the guest boots, mounts, recovers or verifies: often the second cut in a row.
    Recovering,
}

/// One cut.
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// From the first store, or from the boot, to the announcement or the cut.
    pub(super) run: Duration,
    /// From the completed save, or from the announcement, to the cut.
    pub(super) then: Duration,
}

impl StorePlan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let subject = SubjectOptions {
            pages: PAGES,
            budget: ["11%", "30%", "60%"][random.below(3) as usize].to_owned(),
            explicit: random.chance(1, 2),
            checkpoint_ms: [0, 200, 1_000][random.below(3) as usize],
            tell_ms: 20,
            // The guest's script names the directory.
            ..in_directory(Path::new(""), seed)
        };
        Self { subject, cluster_bytes: [4 << 10, 64 << 10][random.below(2) as usize] }
    }

    /// The `number`th cut of this store.
    pub(super) fn cut(&self, number: u64) -> Plan {
        let mut random = Random::new(self.subject.seed ^ number << 32);
        let kind = match random.below(100) {
            0..50 => Kind::Announced,
            50..65 => Kind::Early,
            65..88 => Kind::Unannounced,
            _ => Kind::Recovering,
        };
        let run = Duration::from_millis(100 + random.below(3_000));
        // A save of this size takes tens to hundreds of milliseconds here: an early cut falls into it.
        let then_us = if kind == Kind::Early { 120_000 } else { 500_000 };
        let then = Duration::from_micros(random.below(then_us));
        Plan { kind, run, then }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Announced => "announced",
            Kind::Early => "too early",
            Kind::Unannounced => "unannounced",
            Kind::Recovering => "recovering",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_cut_is_drawn_and_about_half_are_announced() {
        let kinds: Vec<_> = (1..=100)
            .flat_map(|seed| (1..=10).map(move |number| StorePlan::draw(seed).cut(number).kind))
            .collect();
        let count = |kind| kinds.iter().filter(|drawn| **drawn == kind).count();
        assert!((450..550).contains(&count(Kind::Announced)), "{}", count(Kind::Announced));
        for kind in [Kind::Early, Kind::Unannounced, Kind::Recovering] {
            assert!(count(kind) > 80, "{kind}: {}", count(kind));
        }
    }
}
