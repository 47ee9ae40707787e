//! Transactions on a persistent heap: all of their stores survive, or none.
//!
//! The log is hybrid, after Kannan and others, "Reducing the Cost of Persistence for Nonvolatile Heaps in End
//! User Devices": words and objects have records of their own, and records lie apart from their data.
//!
//! The modules, in the order of a transaction:

pub mod error; // why not
pub mod options; // undo or redo, and how large

mod layout; // where everything lies in the log area
mod record; // what lies there

mod manager; // one a heap: opens, recovers, begins
pub mod tx;
mod work; // an open transaction, and its thread // what a program does in it

mod freed; // and what it gives back
mod fresh; // memory it allocated: not logged
mod lines; // bytes it changes

mod lane; // the log of one transaction at a time
mod open_log; // all of the log, and emptying it
mod pool; // who has which lane
mod redo; // commits with new values in the log
mod undo; // commits with old values in the log

pub mod logged; // what the log took
mod recover; // after a cut

pub mod versions; // objects in two or three versions, with no log or with this one

pub use error::TxError;
pub use logged::Logged;
pub use manager::Manager;
pub use options::{Granularity, Hint, Logging, Options};
pub use pool::this_thread;
pub use recover::Recovered;
pub use tx::Tx;
pub use work::Partner;
