//! `wattkeep policies`: which page should be cleaned next? All policies on a trace, beside the best that
//! could be done.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wattkeep_plan::lab::table::{self, Row};
use wattkeep_plan::lab::writes::Writes;

use crate::answer::{Answer, Output};
use crate::args::PoliciesArgs;
use crate::failure::{Exit, Failure};
use crate::progress;
use crate::text::{self, thousands};

/// Length of the engine's epochs.
const EPOCH: Duration = wattkeep_keep::limits::EPOCH;

/// Names the synthetic workload.
const ZIPF: &str = "zipf:";

/// Most records of the synthetic workload: 16 GiB of them.
const RECORDS_MAX: u64 = 1 << 24;

pub(crate) fn run(args: &PoliciesArgs, _output: Output) -> Result<Answer, Failure> {
    let writes = load(args)?;
    if writes.is_empty() {
        let cause = format!("{} has no write; see 'wattkeep plan {0}'", args.trace);
        return Err(Failure::new(Exit::Store, cause));
    }
    let writes_per_ms = (!writes.timed).then_some(args.writes_per_ms);
    let bar = progress::bar(&format!("comparing policies on {}", args.trace));
    let all = (args.budgets.len() * wattkeep_plan::lab::contender::all().len()) as u64;
    let mut done = 0;
    let rows = table::compare(&writes, &args.budgets, EPOCH, writes_per_ms, |_| {
        done += 1;
        progress::set(&bar, done, all);
    });
    bar.finish_and_clear();
    let json = json!({
        "trace": args.trace,
        "page_writes": writes.len(),
        "pages_written": writes.distinct,
        "pages_touched": writes.touched,
        "rows": serde_json::to_value(&rows).unwrap_or(Value::Null),
    });
    Ok(Answer::new(described(args, &writes, &rows), json))
}

fn load(args: &PoliciesArgs) -> Result<Writes, Failure> {
    if let Some(records) = args.trace.strip_prefix(ZIPF) {
        let records = records.parse().ok().filter(|records| (16..=RECORDS_MAX).contains(records));
        return records.map(Writes::zipf).ok_or_else(|| {
            let cause = format!("'{}' is not {ZIPF}RECORDS with 16 to {RECORDS_MAX} records", args.trace);
            Failure::usage(format!("{cause}; see 'wattkeep policies --help'"))
        });
    }
    let bar = progress::bar(&format!("reading {}", args.trace));
    let read = Writes::read(Path::new(&args.trace), args.format, &mut |done, all| {
        progress::set(&bar, done, all);
    });
    bar.finish_and_clear();
    read.map_err(|error| super::plan::failure(error.into()))
}

fn described(args: &PoliciesArgs, writes: &Writes, rows: &[Row]) -> String {
    let mut out = format!(
        "{}: {} page writes to {} pages, {} touched\n\nCopies to the SSD over the fewest possible, by budget \
         in percent of the touched pages:\n\n",
        args.trace,
        thousands(writes.len() as u64),
        thousands(writes.distinct.into()),
        thousands(writes.touched),
    );
    let copies = |row: &Row| row.copies_of_optimum.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    out += &by_budget(args, rows, copies);
    out += "\nWaits in a thousand page writes, when pages are cleaned ahead of need:\n\n";
    let waits = |row: &Row| format!("{:.1}", row.forced_waits_ahead as f64 * 1000.0 / writes.len() as f64);
    out += &by_budget(args, rows, waits);
    out += "\nFaults, first writes to clean pages, in a thousand page writes:\n\n";
    out += &by_budget(args, rows, |row| format!("{:.1}", row.faults as f64 * 1000.0 / writes.len() as f64));
    out += "\nLooks at a page for each copy:\n\n";
    out += &by_budget(args, rows, |row| format!("{:.1}", row.looks_per_copy));
    out
}

/// A line for each policy, a column for each budget.
fn by_budget(args: &PoliciesArgs, rows: &[Row], cell: impl Fn(&Row) -> String) -> String {
    let mut lines = vec![
        ["policy".to_owned()].into_iter().chain(args.budgets.iter().map(|b| format!("{b} %"))).collect(),
    ];
    for first in rows.iter().take_while(|row| row.budget_percent == rows[0].budget_percent) {
        let own = rows.iter().filter(|row| row.policy == first.policy);
        lines.push([first.policy.to_owned()].into_iter().chain(own.map(&cell)).collect::<Vec<_>>());
    }
    text::table(&lines)
}
