//! The page log on the SSD: format, segments, index, commits, recovery.
//!
//! The modules, in the order data flows through them:
//!
//! - `types`: the words
//! - `limits`: every bound
//! - `bytes`: fields at offsets
//! - `hash`: checksums of pages, summaries, images
//! - `layout`: slots and segments
//! - `disk`: what the store asks of a device
//! - `files`: the device on a real file
//! - `host`: time, boot id, random bytes
//! - `region`: records of the catalogue
//! - `superblock`: format: identity, catalogue, commit
//! - `digest`: format: the index of a commit, for openings that need not scan
//! - `summary`: format: what a batch holds
//! - `segments`: who may reuse which segment
//! - `index`: where every page is stored
//! - `batch`: pages on their way into the log
//! - `flight`: batches in flight, acknowledged in order
//! - `store`: the open store: begin, submit, poll
//! - `device`: completions, and requests that are waited for
//! - `clean`: making room
//! - `commit`: checkpoints, saves, changes of the catalogue
//! - `shortcut`: the digest, written and taken
//! - `scan`: which batches the log holds
//! - `torn`: copies that a power cut tore
//! - `loss`: which pages a damaged log lost
//! - `recover`: opening
//! - `read`: restoring
//! - `check`: verifying everything
//! - `error`: what can go wrong, in words

mod batch;
mod bytes;
mod check;
mod clean;
mod commit;
mod device;
mod digest;
pub mod disk;
mod error;
pub mod files;
mod flight;
pub mod hash;
mod host;
mod index;
pub mod layout;
pub mod limits;
mod loss;
mod read;
mod recover;
mod region;
mod scan;
mod segments;
mod shortcut;
mod store;
pub mod summary;
pub mod superblock;
mod torn;
pub mod types;

pub use batch::{Batch, Begin, Placed, Purpose, StagingBuffer};
pub use check::{CheckReport, DamagedPage};
pub use clean::CleaningAdvice;
pub use commit::CreateOptions;
pub use error::{CreateError, OpenError, ReadError, StoreError};
pub use files::{FileError, UringDisk, store_file};
pub use loss::{LostPages, PageRanges};
pub use read::SlotRun;
pub use recover::Recovery;
pub use region::{NewRegion, RegionMode, RegionRecord};
pub use store::{Event, Store, StoreStatus};
pub use superblock::{Commit, CommitKind, HealthRecord, StoreState};
