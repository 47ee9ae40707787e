//! `wattkeep record`: the write trace of a live program.
//!
//! Standard output is the program's own: what we have to say goes to standard error.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use wattkeep_record::{Order, RecordError, Recording, record};

use crate::answer::{Answer, Output};
use crate::args::RecordArgs;
use crate::failure::{Exit, Failure};
use crate::text;

pub(crate) fn run(args: RecordArgs, output: Output) -> Result<Answer, Failure> {
    let place = args.out;
    let trace = File::create_new(&place).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(
            Exit::Occupied,
            format!("{0} exists: name another with --out, or 'rm {0}'", place.display()),
        ),
        _ => Failure::system("make", &place, &error),
    })?;
    let epoch = Duration::from_nanos(args.epoch);
    let mut command = args.command.into_iter();
    let program = command.next().ok_or_else(|| Failure::usage("no program was given"))?;
    let name = program.to_string_lossy().into_owned();
    let order = Order { program, arguments: command.collect(), epoch, trace };
    let recording = record(order, || {
        eprintln!("wattkeep: {name} has not loaded the recording library yet: so far nothing is recorded");
    });
    match recording {
        Ok(recording) => {
            eprint!("{}", report(&place, &recording, output));
            Ok(Answer::printed().with_code(recording.exit))
        }
        Err(error) => {
            if !matches!(error, RecordError::Trace(_) | RecordError::System { .. }) {
                // Nothing was recorded: the file holds its heading, or not even that.
                let _ = std::fs::remove_file(&place);
            }
            Err(Failure::new(Exit::System, error.to_string()))
        }
    }
}

fn report(place: &Path, recording: &Recording, output: Output) -> String {
    let share = recording.looking.as_secs_f64() / recording.run.as_secs_f64().max(1e-9) * 100.0;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    if output.json {
        let report = json!({
            "trace": place,
            "exit": recording.exit,
            "run_ms": ms(recording.run),
            "epochs": recording.epochs,
            "epoch_longest_ms": ms(recording.epoch_longest),
            "looking_ms": ms(recording.looking),
            "pages": recording.pages,
            "minor_faults": recording.minor_faults,
            "minor_faults_added_max": recording.pages.min(recording.minor_faults),
            "mappings_refused": recording.mappings_refused,
        });
        return format!("{report}\n");
    }
    let millis = |time| text::millis(ms(time));
    let mut rows = vec![
        ("trace", place.display().to_string()),
        (
            "epochs",
            format!(
                "{} in {}, the longest {}",
                text::thousands(recording.epochs),
                millis(recording.run),
                millis(recording.epoch_longest)
            ),
        ),
        ("written", text::pages(recording.pages)),
        (
            "looks",
            format!(
                "{} in all, {share:.1} % of the run, in the recorder's process",
                millis(recording.looking)
            ),
        ),
        (
            "faults",
            format!(
                "{} minor ones, at most {} of them added by the recording",
                text::thousands(recording.minor_faults),
                text::thousands(recording.pages.min(recording.minor_faults))
            ),
        ),
    ];
    if recording.mappings_refused > 0 {
        let refused = text::thousands(recording.mappings_refused);
        rows.push(("missing", format!("{refused} mappings with a userfaultfd of the program's own")));
    }
    text::facts(&rows)
}
