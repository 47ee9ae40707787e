//! The side inside the application: maps regions, takes faults, announces stores.
//!
//! The modules, in the order a first store passes them: [`fault`] finds the region, [`grant`] finds
//! the permit, [`guard`] opens the page, [`protect`] closes another.
//! Explicit regions need no fault: [`ahead`] brings their fresh pages in before it.

mod ahead;
pub mod announce;
pub mod fault;
pub mod grant;
pub mod guard;
pub mod monitor;
pub mod predict;
pub mod probe;
pub mod protect;
pub mod region;
pub mod session;
pub mod spawn;
