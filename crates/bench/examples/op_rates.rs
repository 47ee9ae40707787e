//! Prints what each workload's operations cost on plain memory, with nothing kept.
//!
//! Every other figure is read against these: the cost of keeping is what a keeper adds to them.
//!
//!     cargo run --release -p wattkeep-bench --example op_rates [MiB] [trace:FILE]

use std::time::Instant;

use wattkeep_bench::workload::Counts;
use wattkeep_bench::{AnyWorkload, Workload, WorkloadSpec};

const WARM_UP_STEPS: u64 = 500_000;
const STEPS: u64 = 2_000_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut mebibytes = 1024;
    let mut names: Vec<String> =
        ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-f", "uniform", "sequential"].map(String::from).into();
    for argument in std::env::args().skip(1) {
        match argument.parse::<usize>() {
            Ok(size) => mebibytes = size,
            Err(_) => names.push(argument),
        }
    }
    let mut memory = vec![0_u8; mebibytes << 20];
    println!("{mebibytes} MiB of plain memory, {ROUNDS} rounds of {STEPS} operations, medians");
    println!("{:<12} {:>8} {:>8} {:>8} {:>10}", "workload", "load s", "Mop/s", "ns/op", "written/op");
    for name in names {
        let spec: WorkloadSpec = name.parse()?;
        let mut workload = AnyWorkload::new(&spec, 1, memory.len() as u64)?;
        let started = Instant::now();
        workload.load(&mut memory, &mut |_| ());
        let load_s = started.elapsed().as_secs_f64();
        workload.run(&mut memory, WARM_UP_STEPS);
        let mut rates: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let started = Instant::now();
                workload.run(&mut memory, STEPS);
                STEPS as f64 / started.elapsed().as_secs_f64() / 1e6
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        let rate = rates[ROUNDS / 2];
        let Counts { bytes_written, .. } = workload.counts();
        println!(
            "{name:<12} {load_s:>8.2} {rate:>8.2} {:>8.0} {:>10.0}",
            1e3 / rate,
            bytes_written as f64 / workload.steps() as f64
        );
    }
    Ok(())
}
