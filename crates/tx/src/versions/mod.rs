//! Objects that keep their last persistent version while the next one is written: no log, no copy.
//!
//! An object has two or three versions. A write goes to one that nobody needs; a word per object names the
//! newest, with the epoch that wrote it; and one word for all, the persistent epoch, commits every object
//! of an epoch at once. After a crash each object is what it was at the end of the persistent epoch.
//!
//! # The promise
//!
//! - An [`Operation`] is whole or was never there, however many objects it writes. One that is dropped
//!   without [`Operation::commit`] changes nothing.
//! - With [`Persistence::Each`] it is persistent when its commit returns.
//! - Decoupled, commit returns at once, and a crash loses the operations since the last persistent epoch:
//!   the newest ones, in their order, at most `behind_max` of them ([`Pace`]). Never a mix: what is left is
//!   the state after some operation. [`VersionedObjects::sync`] waits until nothing can be lost.
//! - In a heap they are [`Versioned`], and written by its transactions. A transaction that changes anything
//!   else, too, is durable as a whole when it has committed, and with it all operations before it.
//! - Process death alone (battery domain: power loss, too) is the same as a crash: DRAM knows which
//!   version is newest, and the words know the persistent ones.
//!
//! From Liu, Qing Yi, Zhao, "Using Memory-Style Storage to Support Fault Tolerance in Data Centers":
//! interleaved persistent updates, and decoupled operation and persistence. Their commit bit per version is
//! the epoch here, so that an operation may span objects.
//!
//! In the order of a write:

mod objects; // the door
mod versioned; // the door for transactions

pub(crate) mod enlisted; // an operation that ends with its transaction
mod writer; // the open epoch: operations, and how to undo one

mod persister; // who makes a sealed epoch persistent
mod round; // how
mod thread; // beside the operations

mod area; // every store, flush and fence
mod error; // why not
mod layout; // where everything lies, and the words

pub(crate) use enlisted::Enlisted;
pub use error::VersionsError;
pub use layout::{Shape, Versions};
pub use objects::VersionedObjects;
pub use round::{Pace, Persistence};
pub use versioned::{ROOT_TAG, Versioned};
pub use writer::Operation;
