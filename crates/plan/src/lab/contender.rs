//! Who competes: a policy, how it learns that a page was written, and how long its epochs are.

use std::time::Duration;

use wattkeep_keep::types::PolicyName;
use wattkeep_keep::victim::{self, VictimPolicy};

use super::policies::clock::Clock;
use super::policies::refault::Refault;
use super::policies::sampling::Sampling;
use super::policies::sieve::Sieve;
use super::writes::EpochRule;

/// How a policy learns that a dirty page was written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sense {
    /// Exactly, at the time of the look: a fingerprint of the content, or dirty bits after a flush of
    /// the TLB.
    #[default]
    Fresh,
    /// Dirty bits without a flush, which Viyojit measured to be worse (section 5.2): a store through a
    /// translation that the TLB holds as dirty sets no bit. The TLB is taken to hold 1,536 translations
    /// and to drop the least recently used.
    Stale,
}

/// An order that is kept exactly, which no engine could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The page whose next write is furthest away goes first: the fewest copies that are possible
    /// (Belady's MIN, applied to writes).
    NextWrite,
    /// The page whose last write is the oldest goes first.
    LastWrite,
    /// The paper's: histories of 64 epochs, of every page in every epoch (section 5.2).
    History,
}

/// One who competes.
pub struct Contender {
    /// For tables.
    pub name: &'static str,
    /// Length of an epoch; the lab's default where `None`.
    pub epoch: Option<Duration>,
    /// How it sees writes.
    pub sense: Sense,
    /// Who decides.
    pub mind: Mind,
}

/// Who decides.
pub enum Mind {
    /// Through the engine's trait.
    Policy(fn() -> Box<dyn VictimPolicy>),
    /// An order without a price.
    Exact(Order),
}

fn policy(name: &'static str, make: fn() -> Box<dyn VictimPolicy>) -> Contender {
    Contender { name, epoch: None, sense: Sense::Fresh, mind: Mind::Policy(make) }
}

fn exact(name: &'static str, order: Order, epoch_ms: Option<u64>, sense: Sense) -> Contender {
    Contender { name, epoch: epoch_ms.map(Duration::from_millis), sense, mind: Mind::Exact(order) }
}

/// Everybody, the floor first.
pub fn all() -> Vec<Contender> {
    vec![
        exact("clairvoyant", Order::NextWrite, None, Sense::Fresh),
        exact("exact recency", Order::LastWrite, None, Sense::Fresh),
        exact("history 1 ms", Order::History, Some(1), Sense::Fresh),
        exact("history 10 ms", Order::History, Some(10), Sense::Fresh),
        exact("history 100 ms", Order::History, Some(100), Sense::Fresh),
        exact("history 1 ms, stale", Order::History, Some(1), Sense::Stale),
        exact("history 100 ms, stale", Order::History, Some(100), Sense::Stale),
        policy("least-recently-updated", || victim::policy(PolicyName::LeastRecentlyUpdated)),
        policy("fifo", || victim::policy(PolicyName::Fifo)),
        policy("second-chance", || victim::policy(PolicyName::SecondChance)),
        policy("clock", || Box::new(Clock::default())),
        policy("refault", || Box::new(Refault::default())),
        policy("s3-fifo", || victim::policy(PolicyName::S3Fifo)),
        policy("sieve", || Box::new(Sieve::default())),
        policy("sampling", || Box::new(Sampling::default())),
    ]
}

impl Contender {
    /// The epochs of this contender on a trace. Where the trace has no clock, a millisecond is taken to
    /// be `writes_per_ms` page writes.
    pub(super) fn epoch_rule(&self, default: Duration, writes_per_ms: Option<u64>) -> EpochRule {
        let epoch = self.epoch.unwrap_or(default);
        match writes_per_ms {
            None => EpochRule::Time(epoch),
            Some(writes) => EpochRule::Writes(epoch.as_millis() as u64 * writes),
        }
    }
}
