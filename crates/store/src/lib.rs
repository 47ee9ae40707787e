//! The page log on the SSD: format, segments, index, commits, recovery.
//!
//! The modules, in the order data flows through them:

pub mod types; // the words
pub mod limits; // every bound
mod bytes; // fields at offsets
pub mod hash; // checksums of pages, summaries, images
pub mod layout; // slots and segments
pub mod disk; // what the store asks of a device
pub mod files; // the device on a real file
mod host; // time, boot id, random bytes
mod region; // the catalogue's records
pub mod superblock; // format: identity, catalogue, commit
pub mod summary; // format: what a batch holds
mod segments; // who may reuse which segment
mod index; // where every page is stored
mod batch; // pages on their way into the log
mod flight; // batches in flight, acknowledged in order
mod store; // the open store; begin, submit, poll
mod device; // completions and blocking requests
mod clean; // making room
mod commit; // checkpoints, saves, changes of the catalogue
mod scan; // which batches the log holds
mod torn; // copies that a power cut tore
mod recover; // opening
mod read; // restoring
mod check; // verifying everything
mod error; // what can go wrong, in words

pub use batch::{Batch, Begin, Purpose};
pub use check::{CheckReport, DamagedPage};
pub use clean::CleaningAdvice;
pub use commit::CreateOptions;
pub use error::{CreateError, OpenError, ReadError, StoreError};
pub use files::{FileError, UringDisk, store_file};
pub use read::SlotRun;
pub use recover::{LostPages, Recovery};
pub use region::{NewRegion, RegionMode, RegionRecord};
pub use store::{Event, Store, StoreStatus};
pub use superblock::{Commit, CommitKind, HealthRecord, StoreState};
