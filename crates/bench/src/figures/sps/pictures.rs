//! The paper's figures 4 to 7, as pictures of what was measured here.

use std::io;
use std::path::Path;

use super::simulated::Simulated;
use super::threshold::Sweep;
use super::{BenchError, Measured, middle};
use crate::chart::{Bars, Compared, Curves, comparison};
use crate::energy::Accesses;

/// In the order of the paper's pictures: the baseline, with fault tolerance, and without flushes.
const SHOWN: [&str; 9] = ["L", "LCM", "LCS", "ICM", "ICS", "TCM", "TCS", "IS", "TS"];

const SIMULATED: &str = "simulated: 32 KiB 8-way L1 of two cores, 8 MiB 16-way shared cache, row buffers";

/// Draws `sps-figure-4.svg` to `sps-figure-7.svg` into `directory`.
pub(super) fn draw(
    directory: &Path,
    throughput: &[Measured],
    counted: &[Simulated],
    sweeps: &[Sweep],
) -> Result<(), BenchError> {
    std::fs::create_dir_all(directory)
        .map_err(BenchError::while_(format!("making {} for the pictures", directory.display())))?;
    let figure_4 = [
        relative("swaps / s, of L's", &|size, name| {
            middle(&throughput[size], name) / middle(&throughput[size], "L")
        }),
        relative("L1 misses, of L's", &|size, name| share(&counted[size], name, miss_rate)),
        relative("memory lines, of L's", &|size, name| {
            share(&counted[size], name, |counted| counted.memory() as f64)
        }),
    ];
    let title = "SPS: throughput, L1 misses, memory accesses (the paper's figure 4)";
    write(directory, 4, title, &format!("100 K and 1 M swaps; misses and accesses {SIMULATED}"), &figure_4)?;

    let last = counted.len() - 1;
    let all = |name| counted[last].each(name, Accesses::picojoules);
    let energy = SHOWN.map(|name| {
        let parts = [Accesses::read_picojoules, Accesses::write_picojoules];
        (name.to_owned(), parts.map(|part| counted[last].each(name, part) / all("L")).to_vec())
    });
    let figure_5 = Bars {
        label: "energy, of L's".into(),
        series: vec!["memory reads".into(), "memory writes".into()],
        schemes: energy.to_vec(),
        stacked: true,
    };
    let title = "SPS: dynamic energy of the memory (the paper's figure 5)";
    write(directory, 5, title, &format!("1 M swaps; {SIMULATED}"), &[Compared::Bars(figure_5)])?;

    for (number, sweep) in (6..).zip(sweeps) {
        let [swaps, energy] = sweep.curves();
        let curves = vec![("swaps / s".to_owned(), swaps), ("memory energy, simulated".to_owned(), energy)];
        let panel =
            Curves { label: "of that at 0.2".into(), setting: "persistence threshold".into(), curves };
        let title = format!("SPS: TCS by persistence threshold, {} swaps (figure {number})", sweep.size());
        write(
            directory,
            number,
            &title,
            "rounds of persistence begun for each swap, at most",
            &[Compared::Curves(panel)],
        )?;
    }
    Ok(())
}

fn miss_rate(counted: &Accesses) -> f64 {
    counted.l1_misses as f64 / counted.words as f64
}

fn share(counted: &Simulated, name: &str, what: impl Fn(&Accesses) -> f64) -> f64 {
    counted.each(name, &what) / counted.each("L", &what)
}

/// A panel of all schemes, both sizes side by side.
fn relative(label: &str, value: &dyn Fn(usize, &str) -> f64) -> Compared {
    let schemes = SHOWN.map(|name| (name.to_owned(), vec![value(0, name), value(1, name)]));
    Compared::Bars(Bars {
        label: label.into(),
        series: vec!["100 K swaps".into(), "1 M swaps".into()],
        schemes: schemes.to_vec(),
        stacked: false,
    })
}

fn write(
    directory: &Path,
    number: u32,
    title: &str,
    summary: &str,
    panels: &[Compared],
) -> Result<(), BenchError> {
    let path = directory.join(format!("sps-figure-{number}.svg"));
    let doing = format!("drawing {}", path.display());
    let svg = comparison(title, summary, panels).map_err(io::Error::other);
    svg.and_then(|svg| std::fs::write(&path, svg)).map_err(BenchError::while_(doing))
}
