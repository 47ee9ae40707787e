//! Takes in the clients' news: who became dirty, who is protected, who is waited for.
//!
//! News is a hint: the page's word is the truth, and every entry is checked against it. When news was
//! lost, all words are read.

use wattkeep_store::disk::Disk;

use super::engine::Keeper;
use crate::control::block::{Event, PageRef};
use crate::control::page_word::State;
use crate::limits::EVENTS_PER_TURN;

impl<D: Disk> Keeper<D> {
    pub(super) fn take_in_news(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.control.next_event() else { break };
            moved = true;
            let (Event::Dirtied(page) | Event::Queued(page) | Event::Wanted(page) | Event::Urgent(page)) =
                event;
            if self.region_of(page).is_none() {
                continue;
            }
            match event {
                Event::Dirtied(page) => self.list(page),
                Event::Queued(page) => {
                    self.list(page);
                    self.queue.push_back(page);
                }
                Event::Wanted(page) => self.filling.want(page),
                Event::Urgent(page) => self.hurry(page),
            }
        }
        if self.control.take_events_lost() {
            self.read_all_words();
            moved = true;
        }
        moved
    }

    /// Tells the policy of a page, once.
    pub(super) fn list(&mut self, page: PageRef) {
        let region = &mut self.regions[page.region as usize];
        if !region.is_listed(page.page) {
            region.set_listed(page.page, true);
            self.policy.dirtied(page);
        }
    }

    fn read_all_words(&mut self) {
        for index in 0..self.regions.len() {
            for page in 0..self.regions[index].pages {
                let state = self.regions[index].word(page).load().state();
                let page = PageRef { region: index as u32, page };
                if state.holds_permit() {
                    self.list(page);
                }
                if state == State::Queued {
                    self.queue.push_back(page);
                }
            }
        }
    }
}
