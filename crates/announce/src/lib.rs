//! How a thread says what it is amid of, and how whoever waits for it sees that: agreements whose dear half is on
//! the other side.
//!
//! A program says that it stores to a page of an explicit region, and its keeper sees it: the page's word says
//! whether it may be stored to. A store to a page that is dirty already, most often the case, is announced by a
//! hazard pointer of the thread: two plain stores. All others pin the page, or wait for a permit, through the word
//! (see the client of `wattkeep-keep`).
//!
//! ```text
//! page_word   what a page is: one word, which client and keeper exchange
//! hazard      what each thread is amid of: one line a thread, which the keeper reads behind a barrier
//! announcer   both, for stores to one region
//! biased      inside of one process: what a thread uses without a locked instruction, until another needs it
//! primitives  what they stand on, or a model checker's twins of it
//! ```
//!
//! Does not know permits, addresses of regions, or who waits.

pub mod announcer;
pub mod biased;
pub mod hazard;
pub mod page_word;
pub mod primitives;
