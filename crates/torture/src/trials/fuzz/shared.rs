//! The control block as a hostile, or stray, program leaves it: any bytes at any place.
//!
//! Whoever reads it must come to an end, and take no panic: it holds hints, and page words that are
//! looked at one by one. What is given back is not fuzzed: more permits back than were held is a mistake
//! of the keeper's own.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use wattkeep_keep::control::block::{Control, Event, PageRef};
use wattkeep_sim::random::Random;

use crate::trials::guard::Bad;

/// Turns of a reader on one damaged block.
const READS: usize = 64;

/// A control block and the memory behind it.
pub(super) struct Shared {
    memory: File,
    healthy: Vec<u8>,
    control: Control,
}

impl Shared {
    pub(super) fn new() -> Result<Self, String> {
        let (control, memory): (Control, OwnedFd) = Control::create().map_err(|error| error.to_string())?;
        let memory = File::from(memory);
        let len = memory.metadata().map_err(|error| error.to_string())?.len();
        let mut healthy = vec![0; len as usize];
        memory.read_exact_at(&mut healthy, 0).map_err(|error| error.to_string())?;
        Ok(Self { memory, healthy, control })
    }

    /// One to sixteen words of any value, then reads and writes as both sides make them.
    pub(super) fn damage_and_use(&self, random: &mut Random) -> Result<(), Bad> {
        let wrong = |error: std::io::Error| Bad::Violated(error.to_string());
        let mut places = Vec::new();
        for _ in 0..=random.below(16) {
            let word = random.below(self.healthy.len() as u64 / 4) as usize * 4;
            // The first lines hold the counts that everything else goes by.
            let at = if random.chance(1, 2) { word % 1024 } else { word };
            let value = [0, 1, u32::MAX, 1 << 31, random.number() as u32][random.below(5) as usize];
            self.memory.write_all_at(&value.to_ne_bytes(), at as u64).map_err(wrong)?;
            places.push(at);
        }
        let page = PageRef { region: 0, page: random.number() as u32 };
        for _ in 0..READS {
            self.control.tell(Event::Dirtied(page));
            let _ = self.control.next_event();
            let _ = self.control.victims.push(page.pack());
            let _ = self.control.victims.pop().map(PageRef::unpack);
        }
        let _ = (self.control.freeze(), self.control.has_sleepers(), self.control.take_events_lost());
        let permits = self.control.ledger.0.permits();
        let taken = self.control.ledger.0.take(3);
        self.memory.write_all_at(&self.healthy, 0).map_err(wrong)?;
        if taken > permits.free() {
            return Err(Bad::Violated(format!("{taken} permits of {permits:?}, after damage at {places:?}")));
        }
        Ok(())
    }
}
