//! A copy that arrives for a page that was taken back, and sent again, meanwhile.

use std::sync::Arc;

use super::harness::{explore, thread};
use crate::control::page_word::{PageWord, State};

/// An arrival counts only if the word is the one that departed: not for a later departure.
#[test]
fn an_arrival_counts_only_for_the_word_that_departed() {
    explore("arrival", 40_000, || {
        let word = Arc::new(PageWord::fresh());
        word.reset(State::InFlight);
        let departed = word.load();
        let writer = {
            let word = Arc::clone(&word);
            thread::spawn(move || {
                let now = word.load();
                let rescued = now.state() == State::InFlight && word.exchange(now, now.to(State::Granting));
                if rescued {
                    use State::*;
                    let way = [Granting, Dirty, Protecting, Queued, Copying, InFlight];
                    for step in way.windows(2) {
                        word.advance(step[0], step[1]);
                    }
                }
                rescued
            })
        };
        let arrived = word.exchange(departed, departed.to(State::Clean));
        let rescued = writer.join().expect("nobody else moves a page that was rescued");
        assert!(arrived != rescued, "arrived: {arrived}, rescued: {rescued}");
        assert_eq!(word.load().state(), if arrived { State::Clean } else { State::InFlight });
    });
}
