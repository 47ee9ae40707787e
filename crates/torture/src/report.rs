//! Tells what was tried and what was lost: a line per trial, a table, a file for machines.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::mutants::Mutants;
use crate::outcome::Outcome;

/// The file for machines.
#[derive(Serialize)]
struct Report<'a> {
    tests: &'a [Outcome],
    #[serde(skip_serializing_if = "Option::is_none")]
    mutants: Option<&'a Mutants>,
}

/// Adds a later round of a trial to the ones before.
pub(crate) fn add(before: &mut Outcome, later: &Outcome) {
    before.tried += later.tried;
    before.lost += later.lost;
    before.violations += later.violations;
    before.hangs += later.hangs;
    before.panics += later.panics;
    before.seconds += later.seconds;
    if before.failure.is_none() {
        before.failure.clone_from(&later.failure);
    }
}

/// Says at once how a trial ended.
pub(crate) fn tell(outcome: &Outcome) {
    clear_line();
    let verdict = if outcome.is_clean() { "ok" } else { "FAILED" };
    let note = if outcome.note.is_empty() { String::new() } else { format!("  ({})", outcome.note) };
    println!("{:<14} {:>9} tried  {verdict}  {:.1} s{note}", outcome.name, outcome.tried, outcome.seconds);
    if let Some(cause) = &outcome.failure {
        println!("    {}", cause.replace('\n', "\n    "));
        println!("    replay: torture trial {} --seed {}", outcome.name, outcome.seed);
    }
}

/// On a terminal: which trials run now.
pub(crate) fn tell_running<'a>(running: impl Iterator<Item = (&'a str, Duration)>) {
    if std::io::stdout().is_terminal() {
        let now: Vec<_> = running.map(|(name, since)| format!("{name} {} s", since.as_secs())).collect();
        print!("\r\x1b[K{}", now.join(", "));
        let _ = std::io::stdout().flush();
    }
}

fn clear_line() {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[K");
    }
}

/// The table of all trials.
pub(crate) fn table(outcomes: &[Outcome], mutants: Option<&Mutants>, took: Duration) -> String {
    let mut text = format!(
        "\n{:<14} {:>10} {:>6} {:>10} {:>6} {:>7} {:>8}\n",
        "trial", "tried", "lost", "violations", "hangs", "panics", "seconds"
    );
    for o in outcomes {
        let _ = writeln!(
            text,
            "{:<14} {:>10} {:>6} {:>10} {:>6} {:>7} {:>8.1}",
            o.name, o.tried, o.lost, o.violations, o.hangs, o.panics, o.seconds
        );
    }
    if let Some(mutants) = mutants {
        let _ = writeln!(text, "planted bugs: {} of {} found", mutants.caught, mutants.planted);
        for survivor in &mutants.survivors {
            let _ = writeln!(text, "    NOT FOUND: {survivor}");
        }
    }
    let bad = outcomes.iter().filter(|outcome| !outcome.is_clean()).count();
    let verdict = match (bad, mutants.is_none_or(Mutants::all_caught)) {
        (0, true) => "nothing was lost".to_owned(),
        (0, false) => "nothing was lost, but a planted bug was not found".to_owned(),
        (bad, _) => format!("{bad} trials FAILED"),
    };
    let _ = writeln!(text, "torture: {verdict}, {} s", took.as_secs());
    text
}

/// Writes the outcomes for machines.
pub(crate) fn write_json(file: &Path, tests: &[Outcome], mutants: Option<&Mutants>) -> Result<(), String> {
    let failed = |e| format!("cannot write {}: {e}", file.display());
    if let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(&Report { tests, mutants }).expect("strings and numbers");
    std::fs::write(file, text + "\n").map_err(failed)
}
