//! The keeper: owns the memory, the permits, the victims, the writeback, the cut, the restore.
//!
//! One thread, one loop; a save takes a second thread to copy, a restore one to fill. The modules, in the
//! order a dirty page meets them:

pub mod admit;
pub mod budget;
mod complain;
mod copier;
pub mod cut;
pub mod engine;
pub mod fill;
#[cfg(test)]
mod fill_tests;
mod filler;
mod hazards;
pub mod intake;
pub mod notices;
pub mod opening;
pub mod pages;
#[cfg(test)]
mod permit_tests;
pub mod place;
pub mod room;
pub mod save;
pub mod select;
pub mod serve;
pub mod status;
mod worker;
pub mod write;

pub use wattkeep_sys::signal::ignore_requests_to_end;
