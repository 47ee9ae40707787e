//! SPS: swaps of strings by every scheme, as fast as this machine makes them, and what a simulated memory
//! spends on them.
//!
//! | figure | what |
//! |---|---|
//! | `sps.tcs`, `sps.tcs.100k` | swaps a second, TCS beside LCS, 1 M and 100 K swaps |
//! | `sps.energy`, `sps.energy.100k` | swaps a µJ, TCS beside LCS: simulated, see [`crate::energy`] |
//! | `sps.swaps.*` | swaps a second of each scheme, beside L |
//! | `sps.domain.*` | swaps a second in the other domains, I and T beside L |
//! | `sps.l1.*`, `sps.memory.*`, `sps.energy.*` | simulated, of each scheme, beside L |
//! | `sps.threshold.*` | T by the persistence threshold |
//!
//! Swaps are timed until the last one is durable.

mod pictures;
mod simulated;
mod threshold;

use std::time::Instant;

use wattkeep_persist::{Domain, Fence, LineFlush};

use self::simulated::Simulated;
use super::rounds::Side;
use super::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds, median};
use crate::sps::{Mechanism, Scheme, SpsError, Strings, Swaps, THRESHOLD, paper_schemes, threaded};

/// How many strings and swaps; both sizes are the paper's.
#[derive(Clone, Copy)]
struct Sizes {
    strings: usize,
    swaps: [u64; 2],
}

const NAMES: [&str; 2] = ["100k", "1m"];

impl Sizes {
    fn of(bench: &Bench) -> Self {
        if bench.quick {
            Self { strings: 500, swaps: [500, 1_500] }
        } else {
            Self { strings: 100_000, swaps: [100_000, 1_000_000] }
        }
    }
}

impl From<SpsError> for BenchError {
    fn from(error: SpsError) -> Self {
        Self::System { doing: "swapping strings".into(), error: std::io::Error::other(error.to_string()) }
    }
}

/// A scheme at work.
struct Running {
    scheme: Scheme,
    strings: Box<dyn Strings>,
    swaps: Swaps,
}

impl Running {
    fn start(bench: &Bench, scheme: Scheme, strings: usize) -> Result<Self, BenchError> {
        let mut running = Self {
            strings: scheme.make(strings, bench.scratch.path())?,
            swaps: Swaps::new(strings, 1),
            scheme,
        };
        if scheme.domain != Domain::File {
            running.speed(strings as u64 / 2)?;
        }
        Ok(running)
    }

    /// Makes `count` swaps, durably: millions a second.
    fn speed(&mut self, count: u64) -> Result<f64, BenchError> {
        let began = Instant::now();
        self.swaps.run(&mut *self.strings, count)?;
        self.strings.settle()?;
        Ok(count as f64 / began.elapsed().as_secs_f64() / 1e6)
    }

    /// Ends it, and looks for every string where it belongs.
    fn end(self) -> Result<(), BenchError> {
        Ok(self.swaps.verify(&*self.strings)?)
    }
}

pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let sizes = Sizes::of(bench);
    let mut figures = Vec::new();
    for (&swaps, size) in sizes.swaps.iter().zip(NAMES) {
        figures.push(tcs_beside_lcs(bench, sizes.strings, swaps, size)?);
    }
    let mut throughput = Vec::new();
    for (&swaps, size) in sizes.swaps.iter().zip(NAMES) {
        let measured = schemes(bench, sizes.strings, swaps)?;
        figures.extend(beside_logging("sps.swaps", size, "Mswaps/s", &measured));
        throughput.push(measured);
    }
    figures.extend(domains(bench, sizes)?);
    let mut counted = Vec::new();
    for (&swaps, size) in sizes.swaps.iter().zip(NAMES) {
        let simulated = Simulated::paper(bench, sizes.strings, swaps)?;
        figures.extend(simulated.figures(size));
        counted.push(simulated);
    }
    let sweeps = threshold::sweep(bench, sizes)?;
    figures.extend(sweeps.iter().flat_map(threshold::Sweep::figures));
    if let Some(directory) = &bench.pictures {
        pictures::draw(directory, &throughput, &counted, &sweeps)?;
    }
    Ok(figures)
}

fn scheme(name: &str) -> Scheme {
    let found = paper_schemes().into_iter().find(|scheme| scheme.name == name);
    found.expect("the paper's schemes have these names")
}

fn tcs_beside_lcs(bench: &Bench, strings: usize, swaps: u64, size: &str) -> Result<Figure, BenchError> {
    let mut tcs = Running::start(bench, scheme("TCS"), strings)?;
    let mut lcs = Running::start(bench, scheme("LCS"), strings)?;
    let measured = bench.alternate(bench.rounds, &[], |_| tcs.speed(swaps), |_| lcs.speed(swaps))?;
    tcs.end()?;
    lcs.end()?;
    let id = if size == "1m" { "sps.tcs".to_owned() } else { format!("sps.tcs.{size}") };
    let reach = Reach::AtLeast(2.3);
    Ok(Figure::beside(&id, "LCS", "Mswaps/s", &measured.rounds, &reach).with_note(measured.others))
}

/// What each scheme measured, round by round. All of them take turns.
type Measured = Vec<(&'static str, Vec<f64>)>;

fn schemes(bench: &Bench, strings: usize, swaps: u64) -> Result<Measured, BenchError> {
    let mut running = Vec::new();
    for scheme in paper_schemes() {
        running.push(Running::start(bench, scheme, strings)?);
    }
    take_turns(bench, running, swaps)
}

/// Each makes `swaps` swaps in its turn.
fn take_turns(bench: &Bench, mut running: Vec<Running>, swaps: u64) -> Result<Measured, BenchError> {
    let sides = running
        .iter_mut()
        .map(|running| -> Side<'_, 1> { Box::new(move |_| running.speed(swaps).map(|speed| [speed])) });
    let turns = bench.take_turns(bench.rounds, &[], sides.collect())?;
    let names = running.iter().map(|running| running.scheme.name).enumerate();
    let measured = names.map(|(side, name)| (name, turns.alone(side, 0))).collect();
    running.into_iter().try_for_each(Running::end)?;
    Ok(measured)
}

fn rounds_of(ours: &[f64], theirs: &[f64]) -> Rounds {
    let mut rounds = Rounds::default();
    ours.iter().zip(theirs).for_each(|(ours, theirs)| rounds.push(*ours, *theirs));
    rounds
}

/// A figure a scheme, beside L.
fn beside_logging(figure: &str, size: &str, unit: &str, measured: &Measured) -> Vec<Figure> {
    let logging = measured.iter().find(|(name, _)| *name == "L").expect("L is one of them");
    let beside = measured.iter().map(|(name, values)| {
        let id = format!("{figure}.{}.{size}", name.to_lowercase());
        Figure::beside(&id, "L", unit, &rounds_of(values, &logging.1), &Reach::Shown)
    });
    beside.collect()
}

/// The three mechanisms in every domain but the paper's. A mapped file is slow: fewer strings and swaps.
fn domains(bench: &Bench, sizes: Sizes) -> Result<Vec<Figure>, BenchError> {
    let adr = |flush| Domain::Adr(flush, Fence::Sfence);
    let domains = [
        ("battery", Domain::Battery),
        ("eadr", Domain::Eadr),
        ("clwb", adr(LineFlush::Clwb)),
        ("clflushopt", adr(LineFlush::Clflushopt)),
        ("file", Domain::File),
    ];
    let mut figures = Vec::new();
    for (domain_name, domain) in domains {
        if let Domain::Adr(flush, _) = domain
            && !wattkeep_persist::lines::has(flush)
        {
            continue;
        }
        let is_file = domain == Domain::File;
        let strings = if is_file { sizes.strings.min(FILE_STRINGS) } else { sizes.strings };
        let swaps = if is_file { sizes.swaps[0].min(FILE_SWAPS) } else { sizes.swaps[0] };
        let mechanisms = [("L", Mechanism::Log), ("I", Mechanism::Interleaved), ("T", threaded(THRESHOLD))];
        let mut running = Vec::new();
        for (name, mechanism) in mechanisms {
            running.push(Running::start(bench, Scheme { name, mechanism, domain }, strings)?);
        }
        let measured = take_turns(bench, running, swaps)?;
        figures.extend(beside_logging("sps.domain", domain_name, "Mswaps/s", &measured));
    }
    Ok(figures)
}

/// Strings and swaps in a mapped file, where each flush is a system call that waits for the disk.
const FILE_STRINGS: usize = 500;
const FILE_SWAPS: u64 = 200;

/// The middle of what a scheme measured.
fn middle(measured: &Measured, name: &str) -> f64 {
    let values = measured.iter().find(|(scheme, _)| *scheme == name).map(|(_, values)| values);
    values.and_then(|values| median(values)).unwrap_or(f64::NAN)
}
