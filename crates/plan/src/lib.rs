//! What battery a workload needs: traces in, budgets, batteries and wear out.
//!
//! The modules, in the order a trace flows through them:

#![deny(unsafe_code)]

/// One request of a trace, and the pages it touches.
pub mod request;

pub use request::{Access, Request};
