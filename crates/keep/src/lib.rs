//! The client and the keeper: everything between a store instruction and the page log.
//!
//! The modules, in the order a first store flows through them:

pub mod types;

pub mod limits;

pub mod protocol;

pub mod clock;

pub mod page_table;

pub mod control;

#[cfg(not(loom))]
pub mod client;

pub mod victim;

#[cfg(not(loom))]
pub mod keeper;

#[cfg(all(test, any(loom, shuttle)))]
mod models;
