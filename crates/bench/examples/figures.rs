//! Prints the figures of one benchmark, or of all, as tables.
//!
//!     cargo run --release -p wattkeep-bench --example figures -- NAME [--rounds N] [--dir DIR] [--json]

use std::path::PathBuf;
use std::process::ExitCode;

use wattkeep_bench::figures::{NAMES, Options, run};

fn main() -> ExitCode {
    let (mut name, mut json) = ("all".to_owned(), false);
    let mut options = Options { directory: std::env::temp_dir(), ..Options::default() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--rounds" => options.rounds = value().parse().unwrap_or(options.rounds),
            "--mib" => options.region_bytes = value().parse::<u64>().map_or(1 << 30, |mib| mib << 20),
            "--dir" => options.directory = PathBuf::from(value()),
            "--quick" => options.quick = true,
            "--json" => json = true,
            _ => name = argument,
        }
    }
    let names: Vec<&str> = if name == "all" { NAMES.to_vec() } else { vec![&name] };
    for name in names {
        match run(name, &options) {
            Ok(reports) if json => reports.iter().for_each(|report| println!("{}", report.to_json())),
            Ok(reports) => {
                for report in reports {
                    println!("{report}");
                    for (figure, note) in report.figures.iter().filter_map(|f| Some((f, f.note.as_ref()?))) {
                        println!("  {}: {note}", figure.id);
                    }
                }
            }
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
