//! An instant of a history: what is durable, what is pending, and every image that a cut may leave.

use std::collections::BTreeMap;

use super::{Event, Step, Store};
use crate::random::Random;
use wattkeep_persist::{DomainKind, LINE};

/// Bytes that one `msync` makes durable.
const PAGE: usize = 4096;

/// A store that may be lost, and its place in the history.
#[derive(Clone, Copy, Debug)]
struct Pending {
    step: usize,
    store: Store,
}

/// A line that a thread asked to be written back, as it was at a step.
#[derive(Clone, Copy, Debug)]
struct Asked {
    thread: usize,
    line: usize,
    step: usize,
}

/// One choice of what a cut leaves: how many pending stores of each line that has some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image(Vec<(usize, usize)>);

/// What a power cut would find after so many steps of a history.
#[derive(Clone, Debug)]
pub struct Moment {
    domain: DomainKind,
    durable: Vec<u8>,
    pending: BTreeMap<usize, Vec<Pending>>,
    asked: Vec<Asked>,
    steps: usize,
    /// Lines whose durable bytes changed since [`Self::take_settled`].
    settled: Vec<usize>,
}

impl Moment {
    /// `durable` bytes, and nothing on its way.
    pub fn new(domain: DomainKind, durable: Vec<u8>) -> Self {
        let (pending, asked, settled) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { domain, durable, pending, asked, steps: 0, settled }
    }

    /// How many steps were taken.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The bytes that every image holds, but where something is pending.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Stores that a cut may lose.
    pub fn pending(&self) -> usize {
        self.pending.values().map(Vec::len).sum()
    }

    /// Takes the steps of `history` up to `step`.
    pub fn advance(&mut self, history: &[Step], step: usize) {
        for taken in &history[self.steps..step] {
            self.take(taken);
        }
    }

    fn take(&mut self, step: &Step) {
        self.steps += 1;
        match (step.event, self.domain) {
            (Event::Store(store), DomainKind::Battery | DomainKind::Eadr) => self.settle(&store),
            (Event::Store(store), _) => {
                let line = self.pending.entry(store.line()).or_default();
                line.push(Pending { step: self.steps, store });
            }
            (Event::Flush(line), DomainKind::Adr) => {
                if self.pending.contains_key(&line) {
                    self.asked.push(Asked { thread: step.thread, line, step: self.steps });
                }
            }
            (Event::Flush(line), DomainKind::File) => {
                let page = line / PAGE * PAGE;
                let lines: Vec<_> = self.pending.range(page..page + PAGE).map(|(line, _)| *line).collect();
                lines.into_iter().for_each(|line| self.settle_line(line, self.steps));
            }
            (Event::Fence, DomainKind::Adr) => {
                let fenced = self.asked.extract_if(.., |asked| asked.thread == step.thread);
                let fenced: Vec<_> = fenced.collect();
                fenced.into_iter().for_each(|asked| self.settle_line(asked.line, asked.step));
            }
            (Event::Flush(_) | Event::Fence, _) => {}
        }
    }

    fn settle(&mut self, store: &Store) {
        self.durable[store.at..][..store.len].copy_from_slice(store.bytes());
        self.settled.push(store.line());
    }

    /// What was stored to the line up to a step is durable.
    fn settle_line(&mut self, line: usize, step: usize) {
        let Some(mut waiting) = self.pending.remove(&line) else { return };
        let durable = waiting.partition_point(|pending| pending.step <= step);
        let left = waiting.split_off(durable);
        waiting.iter().for_each(|pending| self.settle(&pending.store));
        if !left.is_empty() {
            self.pending.insert(line, left);
        }
    }

    pub(super) fn take_settled(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.settled)
    }

    /// How many images there are; at most `u64::MAX`.
    pub fn images(&self) -> u64 {
        let choices = self.pending.values().map(|line| line.len() as u64 + 1);
        choices.fold(1, u64::saturating_mul)
    }

    /// Image number `number` of all [`Self::images`].
    pub fn image(&self, mut number: u64) -> Image {
        let kept = |(line, stores): (&usize, &Vec<Pending>)| {
            let choices = stores.len() as u64 + 1;
            let kept = number % choices;
            number /= choices;
            (*line, kept as usize)
        };
        Image(self.pending.iter().map(kept).collect())
    }

    /// An image by chance: all kept, all lost, one line behind or ahead of all others, or any mixture.
    pub fn sample(&self, random: &mut Random) -> Image {
        let lines = self.pending.len() as u64;
        let kind = random.below(7);
        let odd = random.below(lines.max(1));
        let choose = |number: u64, stores: usize, random: &mut Random| match kind {
            0 => stores,
            1 => 0,
            2 if number == odd => random.below(stores as u64) as usize,
            2 => stores,
            3 if number == odd => 1 + random.below(stores as u64) as usize,
            3 => 0,
            4 => [0, stores][random.below(2) as usize],
            _ => random.below(stores as u64 + 1) as usize,
        };
        let lines = self.pending.iter().enumerate();
        Image(
            lines
                .map(|(number, (line, stores))| (*line, choose(number as u64, stores.len(), random)))
                .collect(),
        )
    }

    /// What each line with pending stores holds in the image.
    pub fn lines<'a>(&'a self, image: &'a Image) -> impl Iterator<Item = (usize, [u8; LINE])> + 'a {
        image.0.iter().map(|(line, kept)| {
            let mut bytes = [0; LINE];
            bytes.copy_from_slice(&self.durable[*line..line + LINE]);
            for Pending { store, .. } in &self.pending[line][..*kept] {
                bytes[store.at - line..][..store.len].copy_from_slice(store.bytes());
            }
            (*line, bytes)
        })
    }

    /// The whole image.
    pub fn bytes(&self, image: &Image) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (line, content) in self.lines(image) {
            bytes[line..line + LINE].copy_from_slice(&content);
        }
        bytes
    }
}
