//! What a campaign counts, and how one history is tried: panics and hangs are counted, not suffered.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::disk::HANG;
use crate::script::Script;
use crate::world::Trouble;

/// The first failure of a campaign.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that shows it: hand it to [`crate::campaign::replay`].
    pub seed: u64,
    /// What went wrong.
    pub what: String,
    /// The shortest script found that still fails, if the failure is of a script.
    pub script: Option<Script>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        self.script.as_ref().map_or(Ok(()), |script| write!(f, "the shortest script that fails:\n{script}"))
    }
}

/// Counts of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What was asked for: images, points, crashes, outages, samples.
    pub tried: u64,
    /// Times that something promised was not there, or not whole.
    pub lost: u64,
    /// Other promises that were broken.
    pub violations: u64,
    /// Somebody waited for ever.
    pub hangs: u64,
    /// The engine panicked.
    pub panics: u64,
    /// The first of them.
    pub first: Option<Failure>,
    /// What else was counted, by name: for people, and for tests that see whether it was reached.
    pub notes: Vec<(&'static str, u64)>,
}

impl Tally {
    /// Nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.lost + self.violations + self.hangs + self.panics == 0
    }

    /// Counts something beside.
    pub fn note(&mut self, name: &'static str, count: u64) {
        match self.notes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => self.notes.push((name, count)),
        }
    }

    /// Keeps the largest of something.
    pub fn peak(&mut self, name: &'static str, value: u64) {
        let more = value.saturating_sub(self.noted(name));
        self.note(name, more);
    }

    /// What was counted under a name.
    pub fn noted(&self, name: &str) -> u64 {
        self.notes.iter().find(|(known, _)| *known == name).map_or(0, |(_, sum)| *sum)
    }

    /// Counts a failure; the first is kept, as `shorten` makes it.
    pub fn count(&mut self, bad: Bad, seed: u64, shorten: impl FnOnce() -> Option<Script>) {
        let kind = match &bad {
            Bad::Trouble(Trouble::Lost(_)) => &mut self.lost,
            Bad::Trouble(Trouble::Violation(_) | Trouble::Stopped(_)) => &mut self.violations,
            Bad::Trouble(Trouble::Hang(_)) => &mut self.hangs,
            Bad::Panic(_) => &mut self.panics,
        };
        *kind += 1;
        if self.first.is_none() {
            self.first = Some(Failure { seed, what: bad.to_string(), script: shorten() });
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { tried, lost, violations, hangs, panics, .. } = self;
        write!(f, "{tried} tried, {lost} lost, {violations} violations, {hangs} hangs, {panics} panics")?;
        self.notes.iter().try_for_each(|(name, count)| write!(f, ", {count} {name}"))?;
        self.first.as_ref().map_or(Ok(()), |first| write!(f, "\n{first}"))
    }
}

/// How a history went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The world saw it.
    Trouble(Trouble),
    /// The engine panicked.
    Panic(String),
}

impl Bad {
    /// The same kind of failure, whatever its words.
    pub fn is_like(&self, other: &Bad) -> bool {
        use std::mem::discriminant;
        match (self, other) {
            (Bad::Trouble(ours), Bad::Trouble(theirs)) => discriminant(ours) == discriminant(theirs),
            _ => discriminant(self) == discriminant(other),
        }
    }
}

impl From<Trouble> for Bad {
    fn from(trouble: Trouble) -> Self {
        Bad::Trouble(trouble)
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Trouble(trouble) => write!(f, "{trouble}"),
            Bad::Panic(message) => write!(f, "panic: {message}"),
        }
    }
}

/// Runs a part of a history; a panic in it becomes a [`Bad`].
pub fn guarded<T>(run: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Bad> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(ended) => ended.map_err(Bad::Trouble),
        Err(panic) => {
            let message = text(&*panic);
            Err(if message.starts_with(HANG) { Trouble::Hang(message).into() } else { Bad::Panic(message) })
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let formatted = || panic.downcast_ref::<String>().cloned();
    literal.or_else(formatted).unwrap_or_else(|| "without a message".to_owned())
}
