//! The control block and the page words on the heap: the twin of `mapped`, for model checkers, whose
//! atomics are larger than a word and cannot be made of zeroed memory.
//!
//! A descriptor of nothing stands for the shared memory: whoever maps it gets what was made with it.
//! A model runs on one thread of the system, whatever it takes for threads of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use super::block::ControlBlock;
use super::page_word::PageWord;

/// What was made with each descriptor. One that was closed, or made anew, upgrades to nothing.
type Made<T> = RefCell<BTreeMap<RawFd, Weak<T>>>;

std::thread_local! {
    static BLOCKS: Made<ControlBlock> = const { RefCell::new(BTreeMap::new()) };
    static WORDS: Made<[PageWord]> = const { RefCell::new(BTreeMap::new()) };
}

fn publish<T: ?Sized>(made: &Made<T>, shared: &Arc<T>) -> io::Result<OwnedFd> {
    let memory = OwnedFd::from(File::open("/dev/null")?);
    made.borrow_mut().insert(memory.as_raw_fd(), Arc::downgrade(shared));
    Ok(memory)
}

fn find<T: ?Sized>(made: &Made<T>, memory: impl AsFd) -> io::Result<Arc<T>> {
    let shared = made.borrow().get(&memory.as_fd().as_raw_fd()).and_then(Weak::upgrade);
    shared.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A control block that threads of one model share.
#[derive(Clone)]
pub struct Control(Arc<ControlBlock>);

impl Control {
    /// Makes a control block.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let control = Self(Arc::default());
        control.initialise();
        let memory = BLOCKS.with(|blocks| publish(blocks, &control.0))?;
        Ok((control, memory))
    }

    /// The block that the other side made.
    pub fn map(memory: impl AsFd) -> io::Result<Self> {
        BLOCKS.with(|blocks| find(blocks, memory)).map(Self)
    }

    /// Models do not fork.
    pub fn part_from_parent(&self) {}
}

impl std::ops::Deref for Control {
    type Target = ControlBlock;

    fn deref(&self) -> &ControlBlock {
        &self.0
    }
}

/// The page words of one region.
#[derive(Clone)]
pub struct Words(Arc<[PageWord]>);

impl Words {
    /// Makes the words of `pages` pages, all fresh.
    pub fn create(pages: u32) -> io::Result<(Self, OwnedFd)> {
        let words = Self((0..pages).map(|_| PageWord::fresh()).collect());
        let memory = WORDS.with(|made| publish(made, &words.0))?;
        Ok((words, memory))
    }

    /// The words of a region that the other side made.
    pub fn map(memory: impl AsFd, _pages: u32) -> io::Result<Self> {
        WORDS.with(|made| find(made, memory)).map(Self)
    }

    /// Models do not fork.
    pub fn part_from_parent(&self) {}

    /// All of them.
    pub fn all(&self) -> &[PageWord] {
        &self.0
    }

    /// The word of a page of the reserve.
    pub fn of(&self, page: u32) -> &PageWord {
        &self.0[page as usize]
    }

    /// Pages that have a word.
    pub fn pages(&self) -> u32 {
        self.0.len() as u32
    }
}
