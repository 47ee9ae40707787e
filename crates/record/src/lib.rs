//! Records which pages a live, unmodified program writes, epoch by epoch.
//!
//! A preloaded library hands the recorder a userfaultfd of the program's memory before `main`. From
//! then on everything is done from outside: the recorder registers the program's private writable
//! mappings for asynchronous write protection, and once an epoch asks the kernel which pages were written
//! and protects those again. So nothing of the recorder's own ever shows in the trace.
//!
//! In the order things happen:
//!
//! - [`error`]: why there is no recording
//! - [`inside`]: the few lines that run in the program
//! - [`door`]: where the program reports
//! - [`watch`]: its mappings, and one look at them
//! - [`trace`]: the file
//! - [`recorder`]: starts the program, looks at it until it ends

#![deny(unsafe_code)]

pub mod door;
pub mod error;
pub mod inside;
pub mod recorder;
pub mod trace;
pub mod watch;

pub use error::RecordError;
pub use recorder::{Order, Recording, record};
