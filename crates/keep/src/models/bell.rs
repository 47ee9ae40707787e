//! News and the bell: a keeper that falls asleep sees the news, or the client sees it asleep and rings.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use super::harness::{explore, thread};
use crate::control::block::{Control, Event, PageRef};
use crate::limits::EVENTS_RING;

fn bell() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd"))
}

fn was_rung(bell: &OwnedFd) -> bool {
    rustix::io::read(bell, &mut [0; 8]).is_ok()
}

fn news(page: u32) -> Event {
    Event::Wanted(PageRef { region: 0, page })
}

/// News whose publication still sat in the processor's store buffer when the client looked whether the
/// keeper sleeps was found by nobody until the keeper's nap ended, 5 ms later: queue and mark are
/// different words, and only a fence on both sides orders them.
#[test]
fn no_news_waits_for_a_keeper_that_fell_asleep_meanwhile() {
    explore("bell", 40_000, || {
        let (control, _memory) = Control::create().expect("a control block");
        let bell = bell();
        let client = {
            let (control, bell) = (control.clone(), Arc::clone(&bell));
            thread::spawn(move || {
                control.tell(news(1));
                control.wake_keeper(bell.as_fd());
            })
        };
        control.keeper_falls_asleep();
        let found = control.next_event();
        client.join().expect("the client does not panic");
        assert!(found == Some(news(1)) || was_rung(&bell), "asleep beside unread news");
    });
}

/// The same for news that did not fit: its mark is seen, or the bell rings.
#[test]
fn lost_news_wakes_the_keeper_too() {
    explore("bell-lost-news", 40_000, || {
        let (control, _memory) = Control::create().expect("a control block");
        (0..EVENTS_RING as u32).for_each(|page| control.tell(news(page)));
        let bell = bell();
        let client = {
            let (control, bell) = (control.clone(), Arc::clone(&bell));
            thread::spawn(move || {
                control.tell(news(9));
                control.wake_keeper(bell.as_fd());
            })
        };
        control.keeper_falls_asleep();
        let noticed = control.take_events_lost();
        client.join().expect("the client does not panic");
        assert!(noticed || was_rung(&bell), "asleep beside lost news");
    });
}
