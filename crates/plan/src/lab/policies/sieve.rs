//! SIEVE on writes (Zhang and others, NSDI 2024): one queue by age, and a hand that moves from the
//! oldest to the newest. A page that was written since the hand last came by stays where it is; one
//! that was not is the victim.

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::victim::{Fingerprint, Observer, Sight, VictimPolicy};

use super::Offered;

const NONE: u32 = u32::MAX;

struct Node {
    page: PageRef,
    seen: Option<Fingerprint>,
    newer: u32,
    older: u32,
}

/// The queue, linked by age.
pub struct Sieve {
    nodes: Vec<Node>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    hand: u32,
    offered: Offered,
}

impl Default for Sieve {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            hand: NONE,
            offered: Offered::default(),
        }
    }
}

impl Sieve {
    fn insert(&mut self, page: PageRef) {
        let node = Node { page, seen: None, newer: NONE, older: self.newest };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        match self.newest {
            NONE => self.oldest = place,
            newest => self.nodes[newest as usize].newer = place,
        }
        self.newest = place;
    }

    fn remove(&mut self, place: u32) {
        let (newer, older) = (self.nodes[place as usize].newer, self.nodes[place as usize].older);
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        if self.hand == place {
            self.hand = newer;
        }
        self.free.push(place);
    }
}

impl VictimPolicy for Sieve {
    fn name(&self) -> &'static str {
        "sieve"
    }

    fn dirtied(&mut self, page: PageRef) {
        self.insert(page);
    }

    fn choose(
        &mut self,
        count: usize,
        _urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        let mut back = Vec::new();
        self.offered.look_after(2 * count, observer, &mut back);
        back.into_iter().for_each(|page| self.insert(page));
        let enough = victims.len() + count;
        for _ in 0..2 * (self.nodes.len() - self.free.len()) {
            if victims.len() == enough {
                return;
            }
            let place = if self.hand == NONE { self.oldest } else { self.hand };
            if place == NONE {
                return;
            }
            let node = &mut self.nodes[place as usize];
            let page = node.page;
            match observer.look(page, node.seen) {
                Sight::Clean => {
                    observer.dropped(page);
                    self.remove(place);
                }
                Sight::Busy => self.hand = node.newer,
                Sight::Dirty { fingerprint, written: true } => {
                    node.seen = Some(fingerprint);
                    self.hand = node.newer;
                }
                Sight::Dirty { .. } => {
                    self.hand = node.newer;
                    self.remove(place);
                    self.offered.offer(page);
                    victims.push(page);
                }
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.nodes.len() - self.free.len() + self.offered.len()
    }

    fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}
