//! What a subject has said of itself, line by line.

use std::collections::BTreeMap;

/// Numbers of stores, by thread.
pub(crate) type Counts = BTreeMap<u64, u64>;

/// Everything heard since the subject was started. The last word on each thread counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) keeper: Option<i32>,
    /// What it recovered, in its keeper's words.
    pub(crate) recovered: String,
    /// What each thread found in the image, and how far it was when last heard of.
    pub(crate) found: Counts,
    pub(crate) at: Counts,
    /// How far each thread was before the last checkpoint that completed.
    pub(crate) checkpoint: Counts,
    /// The report of the last save, as JSON.
    pub(crate) report: Option<String>,
    /// What each thread had stored in the image that was saved.
    pub(crate) saved: Counts,
    /// Why an image was refused, or a save failed.
    pub(crate) wrong: Option<String>,
    /// A child that it forked.
    pub(crate) forked: Option<i32>,
    /// Regions beside the first that hold their mark.
    pub(crate) regions: u64,
    /// It asked its keeper and found none.
    pub(crate) keeper_gone: bool,
    /// What it was refused: a region, or room for one to grow.
    pub(crate) refused: Option<String>,
}

impl Heard {
    /// Takes one whole line; words that say nothing of the image are passed over.
    pub(crate) fn hear(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut numbers = rest.split(' ').map(|number| number.parse::<u64>().ok());
        let pair = numbers.next().flatten().zip(numbers.next().flatten());
        match (word, pair) {
            ("found", Some((thread, number))) => drop(self.found.insert(thread, number)),
            ("at", Some((thread, number))) => drop(self.at.insert(thread, number)),
            ("checkpoint", Some((thread, number))) => drop(self.checkpoint.insert(thread, number)),
            ("saved", Some((thread, number))) => drop(self.saved.insert(thread, number)),
            ("keeper", _) => self.keeper = rest.parse().ok(),
            ("recovered", _) => self.recovered = line.to_owned(),
            ("forked", _) => self.forked = rest.parse().ok(),
            ("region", Some((regions, _))) => self.regions = regions,
            ("keeper-gone", _) => self.keeper_gone = true,
            ("no-region" | "not-grown", _) => self.refused = Some(line.to_owned()),
            ("report", _) => self.report = Some(rest.to_owned()),
            ("wrong" | "no-save", _) => self.wrong = Some(line.to_owned()),
            _ => {}
        }
    }
}
