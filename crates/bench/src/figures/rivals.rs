//! The kernel's way beside ours: YCSB-A on a mapped file whose dirty pages `vm.dirty_bytes` bounds at the
//! same budget. `rivals.mmap.speed`, `rivals.mmap.bytes`.
//!
//! Bytes are those that the kernel charges to the process that writes: the keeper with us, this one
//! with the mapped file. Writers of other programs are bounded, too, while the rival runs, so the bound
//! is lowered for its turns only.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::time::Duration;

use wattkeep::Tracking;
use wattkeep_sys::map::{Access, Mapping};

use super::dirty_limit::DirtyLimit;
use super::kept::{Kept, mapped};
use super::memory::MappedMemory;
use super::process::written_bytes;
use super::{BUDGET, BUDGET_PERCENT, Bench, BenchError, ycsb};
use crate::measure::{Figure, Reach, Rounds};
use crate::spec::YcsbMix;
use crate::workload::Workload;
use crate::workload::ycsb::Ycsb;

/// Operations of the rival between two looks at the clock: the kernel makes it wait for long.
const STEPS_AT_ONCE: u64 = 16;

const RIVAL: &str = "mmap of a file, vm.dirty_bytes";

/// Operations and bytes of each side's turns.
#[derive(Default)]
struct Written {
    operations: u64,
    bytes: u64,
}

impl Written {
    fn each(&self) -> f64 {
        self.bytes as f64 / self.operations as f64
    }
}

/// Measures both.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let budget_bytes = bench.region_bytes * BUDGET_PERCENT as u64 / 100;
    if bench.quick {
        return Ok(not_measured("a quick run does not change vm.dirty_bytes"));
    }
    if let Err(error) = DirtyLimit::lower_to(budget_bytes) {
        return Ok(not_measured(&format!("vm.dirty_bytes cannot be set: {error}")));
    }
    let file = bench.scratch.path().join("mapped");
    let (mapping, file) =
        map_file(&file, bench.region_bytes).map_err(BenchError::while_("mapping the rival's file"))?;
    let memory = mapped(&mapping);
    let mut theirs_stream = ycsb::stream(YcsbMix::A, bench.region_bytes);
    ycsb::stream(YcsbMix::C, bench.region_bytes).load(&mut { memory }, &mut |_| ());
    file.sync_all().map_err(BenchError::while_("writing the rival's table"))?;
    let kept = Kept::open(bench, "rival", BUDGET, Tracking::Transparent, bench.region_bytes)?;
    ycsb::load(&kept)?;
    let mut ours_stream = theirs_stream.clone();
    ycsb::run_for(&kept, &mut ours_stream, bench.warm_up)?;
    let slice = 4 * bench.slice;
    under_limit(memory, &mut theirs_stream, bench.warm_up, budget_bytes)?;

    let (mine, other) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let keeper = kept.store.keeper_pid();
    let ours = |_| {
        let counted = Count::begin(keeper, &ours_stream);
        let rate = ycsb::run_for(&kept, &mut ours_stream, slice)?;
        mine.borrow_mut().push(counted.end(&ours_stream).each());
        Ok(rate)
    };
    let theirs = |_| {
        let counted = Count::begin(std::process::id(), &theirs_stream);
        let rate = under_limit(memory, &mut theirs_stream, slice, budget_bytes)?;
        other.borrow_mut().push(counted.end(&theirs_stream).each());
        Ok(rate)
    };
    let measured = bench.alternate(bench.rounds, &[keeper], ours, theirs)?;
    kept.close(bench)?;
    let mut bytes = Rounds::default();
    mine.borrow().iter().zip(other.borrow().iter()).for_each(|(mine, other)| bytes.push(*mine, *other));
    Ok(vec![
        Figure::beside("rivals.mmap.speed", RIVAL, "Mop/s", &measured.rounds, &Reach::AtLeast(20.0))
            .with_note(measured.others),
        Figure::beside("rivals.mmap.bytes", RIVAL, "B/op", &bytes, &Reach::AtMost(0.2)),
    ])
}

/// Both figures, with why they are not measured.
fn not_measured(why: &str) -> Vec<Figure> {
    let none = |id, unit, reach: &Reach| Figure::missing(id, RIVAL, unit, reach, why);
    vec![
        none("rivals.mmap.speed", "Mop/s", &Reach::AtLeast(20.0)),
        none("rivals.mmap.bytes", "B/op", &Reach::AtMost(0.2)),
    ]
}

/// A process's bytes and a stream's operations, from one moment on.
struct Count {
    pid: u32,
    bytes: u64,
    operations: u64,
}

impl Count {
    fn begin(pid: u32, stream: &Ycsb) -> Self {
        Self { pid, bytes: written_bytes(pid), operations: stream.steps() }
    }

    fn end(self, stream: &Ycsb) -> Written {
        Written { operations: stream.steps() - self.operations, bytes: written_bytes(self.pid) - self.bytes }
    }
}

fn map_file(path: &std::path::Path, bytes: u64) -> io::Result<(Mapping, File)> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    file.set_len(bytes)?;
    let mapping = Mapping::anywhere(&file, bytes as usize, Access::ReadWrite)?;
    Ok((mapping, file))
}

fn under_limit(
    memory: MappedMemory,
    stream: &mut Ycsb,
    time: Duration,
    budget_bytes: u64,
) -> Result<f64, BenchError> {
    let limit = DirtyLimit::lower_to(budget_bytes).map_err(BenchError::while_("setting vm.dirty_bytes"))?;
    let rate = ycsb::run_mapped(memory, stream, time, STEPS_AT_ONCE);
    drop(limit);
    Ok(rate)
}
