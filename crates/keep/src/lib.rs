//! The client and the keeper: everything between a store instruction and the page log.
//!
//! The modules, in the order a first store flows through them:

pub mod types;

pub mod limits;

pub mod protocol;

pub mod clock;

pub mod page_table;

pub mod control;

pub mod client;

pub mod victim;

pub mod keeper;
