//! A machine's state in words, for golden scripts and for failures.

use std::fmt::Write;

use wattkeep_keep::control::page_word::State;

use super::machine::World;
use crate::page_table::Entry;
use crate::script::THREADS;

impl World {
    /// Permits, commits, waiting threads, and every page that is not as it was born.
    pub fn show(&self) -> String {
        let permits = self.session.shared.control.ledger.0.permits();
        let mut text = format!(
            "{} of {} permits held, commit {}{}{}\n",
            permits.held,
            permits.limit,
            self.oracle.committed,
            match self.restarted {
                None => "",
                Some(true) => ", restarted: complete",
                Some(false) => ", restarted: incomplete",
            },
            if self.saved { ", everything is saved, and stores wait" } else { "" },
        );
        for thread in (0..THREADS).filter(|thread| self.is_blocked(*thread)) {
            let _ = writeln!(text, "  t{thread} waits");
        }
        for (number, region) in self.session.regions.iter().enumerate() {
            let kept = self.session.keeper.region(number as u32).expect("a region of the session");
            for page in 0..region.tracked.pages() {
                let word = kept.word(page).load();
                let table = match region.table.entry(page) {
                    Entry::Missing { .. } => "not mapped",
                    Entry::Protected => "protected",
                    Entry::Writable => "writable",
                };
                if word.state() == State::Fresh {
                    continue;
                }
                let pins = if word.pins() > 0 { ", announced" } else { "" };
                let values = self.oracle.memory[number][page as usize].map(|value| value.to_string());
                let values = values.join(" ");
                let _ =
                    writeln!(text, "  r{number}p{page}: {:?}, {table}{pins}, holds {values}", word.state());
            }
        }
        text
    }
}
