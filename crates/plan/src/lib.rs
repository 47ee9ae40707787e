//! What battery a workload needs: traces in, budgets, batteries and wear out.
//!
//! The modules, in the order a trace flows through them:

#![deny(unsafe_code)]

/// One request of a trace, and the pages it touches.
pub mod request;

/// Trace files of all formats as a stream of requests.
pub mod read;

/// One pass over a trace: skew, intervals, kinds of volumes.
pub mod analyse;

/// What every budget costs, and which to take.
pub mod curve;

/// Which victim policy copies least: the engine's own and others, driven by traces.
pub mod lab;

/// What of a battery can be used, and which one to buy.
pub mod battery;

/// How long memory and SSD live under writes.
pub mod lifetime;

/// One trace from file to findings.
pub mod study;

/// Several traces that share one battery.
pub mod tenants;

/// What a person, or a program, gets to see.
pub mod report;

pub use request::{Access, Request};
