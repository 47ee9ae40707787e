//! The promises a drill's oracle stands on: the same stream on another memory gives the same
//! bytes, and each step's writes explain what the step changed.

use std::fmt::Write as _;
use std::path::PathBuf;

use wattkeep_bench::workload::{Blank, Recording, Write};
use wattkeep_bench::{AnyWorkload, Memory, Workload, WorkloadSpec, YcsbMix};

const BYTES: usize = (1 << 20) + 4096 + 100;
const SEED: u64 = 42;

/// A memory with nothing in common with a vector: pages apart, and every access checked.
struct Pages(Vec<Box<[u8; 4096]>>, u64);

impl Memory for Pages {
    fn len(&self) -> u64 {
        self.1
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        assert!(offset + into.len() as u64 <= self.1);
        for (place, at) in into.iter_mut().zip(offset..) {
            *place = self.0[(at / 4096) as usize][(at % 4096) as usize];
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.1);
        for (byte, at) in bytes.iter().zip(offset..) {
            self.0[(at / 4096) as usize][(at % 4096) as usize] = *byte;
        }
    }
}

fn pages() -> Pages {
    Pages((0..BYTES.div_ceil(4096)).map(|_| Box::new([0xAA; 4096])).collect(), BYTES as u64)
}

fn bytes_of(memory: &impl Memory) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    memory.read(0, &mut bytes);
    bytes
}

/// Every workload; the trace lives as long as the directory.
fn specs() -> (tempfile::TempDir, Vec<WorkloadSpec>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("trace.csv");
    let mut text = String::from("time,operation,offset,length\n");
    for i in 0..257_u64 {
        let operation = if i % 3 == 0 { "read" } else { "write" };
        let offset = i * 7_919_113;
        writeln!(text, "{}.5,{operation},{offset},{}", i, i * 61 % 20_000 + 1).expect("written");
    }
    std::fs::write(&path, text).expect("a trace");
    let mut specs: Vec<WorkloadSpec> =
        [YcsbMix::A, YcsbMix::B, YcsbMix::C, YcsbMix::D, YcsbMix::F].map(WorkloadSpec::Ycsb).into();
    specs.push(WorkloadSpec::Uniform);
    specs.push(WorkloadSpec::Sequential);
    specs.push(WorkloadSpec::Trace(path));
    (directory, specs)
}

fn workload(spec: &WorkloadSpec, seed: u64) -> AnyWorkload {
    AnyWorkload::new(spec, seed, BYTES as u64).expect("a valid workload")
}

#[test]
fn replay_on_another_memory_is_byte_identical() {
    let (_directory, specs) = specs();
    for spec in &specs {
        let mut one = vec![0; BYTES];
        let mut other = pages();
        let (mut first, mut second) = (workload(spec, SEED), workload(spec, SEED));
        first.load(&mut one, &mut |_| ());
        second.load(&mut other, &mut |_| ());
        // Once in a row, once step by step: the way of calling must not matter.
        first.run(&mut one, 20_000);
        for _ in 0..20_000 {
            second.step(&mut other);
        }
        assert!(one == bytes_of(&other), "{spec}");
        assert_eq!(first.counts(), second.counts(), "{spec}");
        assert_eq!(first.steps(), 20_000);
        assert_eq!(first.counts().operations(), 20_000, "{spec}");
    }
}

#[test]
fn another_seed_is_another_stream() {
    for spec in ["ycsb-a", "ycsb-d", "ycsb-f", "uniform"] {
        let spec: WorkloadSpec = spec.parse().expect("valid");
        let run = |seed| {
            let mut memory = vec![0; BYTES];
            let mut workload = workload(&spec, seed);
            workload.load(&mut memory, &mut |_| ());
            workload.run(&mut memory, 2_000);
            memory
        };
        assert!(run(1) != run(2), "{spec}");
    }
}

#[test]
fn the_recorded_writes_of_a_step_explain_every_byte_it_changed() {
    let (_directory, specs) = specs();
    for spec in &specs {
        let mut memory = vec![0; BYTES];
        let mut workload = workload(spec, SEED);
        workload.load(&mut memory, &mut |_| ());
        workload.run(&mut memory, 5_000);
        for _ in 0..50 {
            // The clone, on a copy, tells beforehand what the step is going to write.
            let mut copy = memory.clone();
            let mut recording = Recording::new(&mut copy);
            workload.clone().step(&mut recording);
            let foretold: Vec<Write> = recording.into_writes();

            let mut explained = memory.clone();
            workload.step(&mut memory);
            for Write { offset, bytes } in foretold {
                explained.write(offset, &bytes);
            }
            assert!(explained == memory, "{spec}, step {}", workload.steps());
        }
    }
}

#[test]
fn a_blank_memory_moves_a_workload_to_a_later_step() {
    let (_directory, specs) = specs();
    for spec in &specs {
        let mut memory = vec![0; BYTES];
        let mut whole = workload(spec, SEED);
        whole.load(&mut memory, &mut |_| ());
        whole.run(&mut memory, 3_000);

        let mut skipped = workload(spec, SEED);
        skipped.run(&mut Blank::new(BYTES as u64), 3_000);

        let mut other = memory.clone();
        whole.run(&mut memory, 1_000);
        skipped.run(&mut other, 1_000);
        assert!(memory == other, "{spec}");
    }
}

#[test]
fn a_load_leaves_no_byte_to_chance_and_reports_its_end() {
    let (_directory, specs) = specs();
    for spec in &specs {
        let loads = [0x00, 0xFF].map(|before| {
            let mut memory = vec![before; BYTES];
            let mut shares = Vec::new();
            workload(spec, SEED).load(&mut memory, &mut |share| shares.push(share));
            assert_eq!(shares.last(), Some(&1.0), "{spec}");
            assert!(shares.is_sorted(), "{spec}");
            memory
        });
        let [one, other] = &loads;
        assert!(one == other, "{spec}");
    }
}

#[test]
fn a_region_too_small_is_refused_with_the_size_needed() {
    let spec = WorkloadSpec::Uniform;
    let error = AnyWorkload::new(&spec, SEED, 65_535).expect_err("too small");
    assert!(error.to_string().contains("65536"), "{error}");
    let (_directory, specs) = specs();
    for spec in &specs {
        let mut memory = vec![0; 65_536];
        let mut smallest = AnyWorkload::new(spec, SEED, 65_536).expect("the smallest region");
        smallest.load(&mut memory, &mut |_| ());
        smallest.run(&mut memory, 10_000);
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_one_clear_error() {
    let spec = WorkloadSpec::Trace(PathBuf::from("/nowhere/trace.csv"));
    let error = AnyWorkload::new(&spec, SEED, BYTES as u64).expect_err("no such file");
    assert!(error.to_string().contains("/nowhere/trace.csv"), "{error}");
}
