//! Campaigns: many seeded histories of a whole machine, each asked one question.
//!
//! Each takes a count and a seed, tells its progress, and returns a [`Tally`]. The same count and seed
//! give the same histories on every machine. A history is always taken to its end: count 1 and the seed of a
//! failure show it again.

pub mod corners; // golden scripts that chance hardly meets

pub mod histories; // whole histories, cuts in them included; replay and shrinking

pub mod crash; // cut at every write

pub mod recrash; // cut again while it recovers

pub mod enumerate; // all short histories

pub mod auditor; // the bound, sampled

pub mod power; // outages, and the energy that is left

use crate::tally::Tally;

pub use auditor::auditor;
pub use crash::crash;
pub use enumerate::enumerate;
pub use histories::{histories, replay};
pub use power::power;
pub use recrash::recrash;

/// Told the tally so far, now and then.
pub type Progress<'a> = &'a mut dyn FnMut(&Tally);
