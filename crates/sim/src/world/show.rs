//! A machine's state in words, for golden scripts and for failures.

use std::fmt::Write;

use super::machine::World;
use crate::page_table::Entry;
use crate::script::THREADS;

impl World {
    /// Permits, commits, waiting threads, and every page that is not as it was born.
    pub fn show(&self) -> String {
        let permits = self.session.shared.control.ledger.0.permits();
        let mut text = format!(
            "permits {} of {}, commit {}, grants {:?}{}\n",
            permits.held,
            permits.limit,
            self.oracle.committed,
            self.session.shared.control.freeze(),
            if self.saved { ", saved" } else { "" },
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
                let values = self.oracle.memory[number][page as usize];
                if format!("{:?}", word.state()) == "Fresh" && values == [0; 4] && table == "not mapped" {
                    continue;
                }
                let pins = if word.pins() > 0 { format!(", {} pins", word.pins()) } else { String::new() };
                let _ = writeln!(text, "  r{number}p{page}: {:?}, {table}{pins}, {values:?}", word.state());
            }
        }
        text
    }
}
