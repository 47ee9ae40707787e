//! `wattkeep bench`: figures beside their rivals, measured in the same run.

use clap::ValueEnum;
use serde_json::{Value, json};
use wattkeep_bench::figures::{self, BenchError, Options};

use crate::answer::{Answer, Output};
use crate::args::{BenchArgs, BenchNeighbourArgs};
use crate::failure::{Exit, Failure};
use crate::progress;

pub(crate) fn run(args: &BenchArgs, _output: Output) -> Result<Answer, Failure> {
    let mut options =
        Options { policy: args.policy.into(), neighbour: std::env::current_exe().ok(), ..Options::default() };
    if let Some(rounds) = args.rounds {
        options.rounds = rounds;
    }
    options.pictures.clone_from(&args.pictures);
    if let Some(size) = args.size {
        options.region_bytes = size;
    }
    if let Some(directory) = &args.dir {
        std::fs::create_dir_all(directory)
            .map_err(|error| Failure::system("make the directory", directory, &error))?;
        options.directory.clone_from(directory);
    }
    let name = args.name.to_possible_value().map_or_else(String::new, |name| name.get_name().to_owned());
    let line = progress::line();
    line.set_message(format!("measuring {name}: {} rounds of ours and theirs", options.rounds));
    let measured = figures::run(&name, &options);
    line.finish_and_clear();
    let reports = measured.map_err(|error| match error {
        BenchError::Store(error) => Failure::from(error),
        BenchError::UnknownName { .. } => Failure::usage(format!("{error}; see 'wattkeep bench --help'")),
        error => Failure::new(Exit::System, format!("{error}; see 'df' and 'free -h'")),
    })?;
    let text: Vec<_> = reports.iter().map(ToString::to_string).collect();
    let mut records: Vec<Value> =
        reports.iter().map(|report| serde_json::to_value(report).expect("plain data")).collect();
    let json = match records.pop() {
        Some(only) if records.is_empty() => only,
        Some(last) => {
            records.push(last);
            let figures = records.iter().filter_map(|report| report["figures"].as_array()).flatten();
            json!({ "bench": "all", "figures": figures.collect::<Vec<_>>() })
        }
        None => Value::Null,
    };
    Ok(Answer::new(text.join("\n"), json))
}

/// A process that allocates beside a measurement, until its standard input ends.
pub(crate) fn neighbour(args: &BenchNeighbourArgs) -> Result<Answer, Failure> {
    wattkeep_bench::neighbour::process(args.seed)
        .map_err(|error| Failure::new(Exit::System, format!("no memory: {error}; see 'free -h'")))?;
    Ok(Answer::new(String::new(), Value::Null))
}
