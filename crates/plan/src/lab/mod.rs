//! The policy lab: victim policies driven by traces, beside the best that could be done.
//!
//! The engine's own policies run here through the trait that the engine uses, on page numbers instead
//! of memory. Some rivals keep an exact order that no engine could pay for: recency, the paper's history, and
//! the future.
//!
//! The modules, in the order of a run: [`writes`] keeps what a policy meets of a trace, [`contender`]
//! names who competes, [`world`] is the dirty set that they work on, [`policies`] are the contenders
//! that the engine does not have, [`exact`] the orders without a price, [`table`] compares them.

pub mod contender;
pub mod policies;
pub mod table;
pub mod writes;

mod exact;
mod stale;
mod world;

pub use world::run;
