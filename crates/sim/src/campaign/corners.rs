//! Corners that chance meets once in thousands of histories: golden scripts that are tried first.

use super::histories::run;
use crate::script::Script;
use crate::tally::{Bad, Tally};
use crate::world::Settings;

/// Names and texts. Only the steps are read; `tests/golden.rs` compares the answers.
const CORNERS: [(&str, &str); 1] =
    [("old copy in flight", include_str!("../../tests/golden/9_old_copy_in_flight.txt"))];

/// The machine of the golden scripts: two pages may be dirty.
pub fn machine() -> Settings {
    Settings { pages: [6, 3], reserve: 12, budget: 2, ..Settings::default() }
}

/// Tries every corner; a failure is counted with its script.
pub(super) fn corners(tally: &mut Tally) {
    for (name, text) in CORNERS {
        let steps = text.lines().filter_map(|line| line.strip_prefix("> ")).filter(|step| *step != "show");
        let script: Script = steps.collect::<Vec<_>>().join("\n").parse().expect("a golden script");
        let script = Script { seed: 1, ..script };
        tally.note("corners", 1);
        if let Err(bad) = run(&machine(), &script) {
            let named = match bad {
                Bad::Panic(message) => Bad::Panic(format!("{name}: {message}")),
                trouble => trouble,
            };
            tally.count(named, script.seed, || Some(script.clone()));
        }
    }
}
