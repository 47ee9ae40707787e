//! Tells of every cut, in a line, on the screen and in `log.txt` beside the guest; and of all, at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use super::plan::{Kind, Plan, StorePlan};
use crate::outcome::Outcome;
use crate::trials::heard::{Counts, Heard};

/// The log of a run.
pub(super) struct Log {
    file: File,
    kinds: BTreeMap<String, u64>,
    /// Cuts after a save that completed, its pages, its milliseconds.
    saves: Vec<(u64, f64)>,
}

/// One cut, as it went.
pub(super) struct Row<'a> {
    pub(super) plan: &'a StorePlan,
    pub(super) number: u64,
    pub(super) cut: &'a Plan,
    pub(super) heard: &'a Heard,
    pub(super) found: &'a Counts,
    pub(super) verdict: String,
}

impl Log {
    pub(super) fn begin(guest: &Path) -> Result<Self, String> {
        let path = guest.join("log.txt");
        let file = File::create(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        let mut log = Self { file, kinds: BTreeMap::new(), saves: Vec::new() };
        log.say(&format!(
            "{:>5} {:>3} {:<11} {:<11} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6} {:>8} {:>17} {:>17} {:>17} verdict",
            "store", "cut", "kind", "region", "budget", "cluster", "ckpt", "run ms", "+ ms", "pages", "save ms",
            "stored", "committed", "found"
        ))?;
        Ok(log)
    }

    /// Tells of one cut. `stored` is what was last heard, `committed` what the last commit heard of holds.
    pub(super) fn row(&mut self, row: &Row<'_>) -> Result<(), String> {
        let subject = &row.plan.subject;
        let save = row.heard.report.as_deref().and_then(save_of);
        *self.kinds.entry(row.cut.kind.to_string()).or_default() += 1;
        self.saves.extend(save);
        let then =
            if matches!(row.cut.kind, Kind::Announced | Kind::Early) { row.cut.then.as_millis() } else { 0 };
        let committed = if row.heard.saved.is_empty() { &row.heard.checkpoint } else { &row.heard.saved };
        self.say(&format!(
            "{:>5} {:>3} {:<11} {:<11} {:>6} {:>6}K {:>6} {:>6} {then:>6} {:>6} {:>8} {:>17} {:>17} {:>17} {}",
            subject.seed,
            row.number,
            row.cut.kind,
            if subject.explicit { "explicit" } else { "transparent" },
            subject.budget,
            row.plan.cluster_bytes >> 10,
            subject.checkpoint_ms,
            row.cut.run.as_millis(),
            save.map_or_else(String::new, |(pages, _)| pages.to_string()),
            save.map_or_else(String::new, |(_, ms)| format!("{ms:.1}")),
            pair(&row.heard.at),
            pair(committed),
            pair(row.found),
            row.verdict
        ))
    }

    /// Says where the evidence is.
    pub(super) fn kept(&mut self, folder: &Path) -> Result<(), String> {
        self.say(&format!("power-cut: the disk is kept in {}", folder.display()))
    }

    /// Sums up.
    pub(super) fn end(&mut self, outcome: &Outcome) -> Result<(), String> {
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let Outcome { tried, lost, violations, hangs, panics, seconds, .. } = outcome;
        self.say(&format!(
            "power-cut: {tried} cuts ({}) in {seconds:.0} s: {lost} stores lost, {violations} violations, \
             {hangs} hangs, {panics} panics",
            kinds.join(", ")
        ))?;
        self.saves.sort_by(|one, other| one.1.total_cmp(&other.1));
        if let (Some(median), Some(slowest)) = (self.saves.get(self.saves.len() / 2), self.saves.last()) {
            let pages: u64 = self.saves.iter().map(|(pages, _)| pages).sum();
            self.say(&format!(
                "power-cut: {} saves completed: {pages} pages, {:.0} ms the median, {:.0} ms the slowest",
                self.saves.len(),
                median.1,
                slowest.1
            ))?;
        }
        outcome.failure.as_ref().map_or(Ok(()), |cause| self.say(&format!("power-cut: FAILED: {cause}")))
    }

    fn say(&mut self, line: &str) -> Result<(), String> {
        println!("{line}");
        writeln!(self.file, "{line}").map_err(|e| format!("cannot write the log: {e}"))
    }
}

/// Pages and milliseconds of a save's report.
fn save_of(report: &str) -> Option<(u64, f64)> {
    let report: Value = serde_json::from_str(report).ok()?;
    let save = report.get("save")?;
    Some((save.get("pages")?.as_u64()?, save.get("total_ms")?.as_f64()?))
}

fn pair(counts: &Counts) -> String {
    counts.values().map(u64::to_string).collect::<Vec<_>>().join("/")
}
