//! Workloads, honest measurement beside a rival, and the picture of a drill.
//!
//! In the order data flows through them:
//!
//! - [`spec`]: the name a person types becomes a workload's specification;
//! - [`workload`]: seeded streams of reads and writes over any memory;
//! - [`sps`]: swaps of strings, by every scheme of fault tolerance;
//! - [`energy`]: a simulated cache and memory, and what accesses to it cost;
//! - [`measure`]: alternating rounds, ratios with their spread, the JSON record of a figure;
//! - `rival`: other people's heaps and tables, set up for speed;
//! - [`figures`]: the figures we hold ourselves to, each beside its rival on this machine;
//! - [`neighbour`]: a program that allocates beside a measurement;
//! - [`chart`]: a drill's timeline as an SVG picture.
//!
//! Only [`figures`] knows stores, keepers and page faults: elsewhere a caller passes a
//! [`workload::Memory`] in.

pub mod chart;
pub mod energy;
pub mod figures;
pub mod measure;
pub mod neighbour;
mod rival;
pub mod spec;
pub mod sps;
pub mod workload;

pub use spec::{WorkloadSpec, YcsbMix};
pub use workload::{AnyWorkload, Memory, Workload};
