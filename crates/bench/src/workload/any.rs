//! Makes a workload of its specification, and holds any of them.
//!
//! An enum and no trait object: a step costs a few hundred nanoseconds, so the memory's reads and
//! writes must be compiled into it.
//!
//! Does not know the workloads beyond their constructors.

use std::fmt;
use std::sync::Arc;

use super::sequential::Sequential;
use super::trace::Replay;
use super::trace_file::{Trace, TraceError};
use super::uniform::Uniform;
use super::ycsb::{Ycsb, YcsbOptions};
use super::{Counts, Memory, REGION_BYTES_MIN, Workload};
use crate::spec::WorkloadSpec;

/// Any of the workloads over plain memory.
#[derive(Clone, Debug)]
pub enum AnyWorkload {
    /// A mix of the YCSB.
    Ycsb(Ycsb),
    /// Writes anywhere.
    Uniform(Uniform),
    /// Pages in order.
    Sequential(Sequential),
    /// A trace.
    Trace(Replay),
}

/// Calls the same method on whichever workload there is.
macro_rules! each {
    ($self:expr, $workload:ident => $call:expr) => {
        match $self {
            AnyWorkload::Ycsb($workload) => $call,
            AnyWorkload::Uniform($workload) => $call,
            AnyWorkload::Sequential($workload) => $call,
            AnyWorkload::Trace($workload) => $call,
        }
    };
}

impl AnyWorkload {
    /// The workload of `spec`, seeded, for a region of `region_bytes`. Reads the trace, if any.
    ///
    /// # Errors
    /// The region is too small, the trace cannot be used, or the workload is not one over plain memory.
    pub fn new(spec: &WorkloadSpec, seed: u64, region_bytes: u64) -> Result<Self, WorkloadError> {
        Self::with_options(spec, YcsbOptions::default(), seed, region_bytes)
    }

    /// As [`AnyWorkload::new`], with the choices that the YCSB leaves open.
    ///
    /// # Errors
    /// As [`AnyWorkload::new`].
    pub fn with_options(
        spec: &WorkloadSpec,
        options: YcsbOptions,
        seed: u64,
        region_bytes: u64,
    ) -> Result<Self, WorkloadError> {
        if region_bytes < REGION_BYTES_MIN {
            return Err(WorkloadError::RegionTooSmall { region_bytes, least: REGION_BYTES_MIN });
        }
        Ok(match spec {
            WorkloadSpec::Ycsb(mix) => Self::Ycsb(Ycsb::new(*mix, options, seed, region_bytes)),
            WorkloadSpec::Uniform => Self::Uniform(Uniform::new(seed, region_bytes)),
            WorkloadSpec::Sequential => Self::Sequential(Sequential::new(region_bytes)),
            WorkloadSpec::Heap => return Err(WorkloadError::NeedsHeap),
            WorkloadSpec::Trace(path) => {
                let trace = Trace::open(path).map_err(WorkloadError::Trace)?;
                Self::Trace(Replay::new(path, Arc::new(trace), region_bytes))
            }
        })
    }
}

impl Workload for AnyWorkload {
    fn name(&self) -> &str {
        each!(self, workload => workload.name())
    }

    fn load<M: Memory + ?Sized>(&mut self, memory: &mut M, progress: &mut dyn FnMut(f64)) {
        each!(self, workload => workload.load(memory, progress));
    }

    #[inline]
    fn step<M: Memory + ?Sized>(&mut self, memory: &mut M) {
        each!(self, workload => workload.step(memory));
    }

    fn run<M: Memory + ?Sized>(&mut self, memory: &mut M, steps: u64) {
        each!(self, workload => workload.run(memory, steps));
    }

    fn steps(&self) -> u64 {
        each!(self, workload => workload.steps())
    }

    fn counts(&self) -> Counts {
        each!(self, workload => workload.counts())
    }
}

/// Why a workload cannot be made.
#[derive(Debug)]
pub enum WorkloadError {
    /// No workload fits.
    RegionTooSmall {
        /// Bytes in the region offered.
        region_bytes: u64,
        /// Bytes that it needs.
        least: u64,
    },
    /// It runs on a persistent heap, as a [`super::HeapTable`].
    NeedsHeap,
    /// The trace cannot be used.
    Trace(TraceError),
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegionTooSmall { region_bytes, least } => write!(
                f,
                "a region of {region_bytes} bytes is too small for a workload: \
                 give it at least {least}"
            ),
            Self::NeedsHeap => f.write_str("the workload 'heap' runs on a heap, not on plain memory"),
            Self::Trace(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WorkloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::RegionTooSmall { .. } | Self::NeedsHeap => None,
            Self::Trace(error) => error.source(),
        }
    }
}
