//! What battery a workload needs: traces in, budgets, batteries and wear out.
//!
//! The modules, in the order a trace flows through them:

#![deny(unsafe_code)]

/// One request of a trace, and the pages it touches.
pub mod request;

/// Which victim policy copies least: the engine's own and others, driven by traces.
pub mod lab;

/// What of a battery can be used, and which one to buy.
pub mod battery;

/// How long memory and SSD live under writes.
pub mod lifetime;

pub use request::{Access, Request};
