//! The real command line, with arguments that nobody means: each ends with a documented exit code, an
//! error of few lines, and no panic text.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use wattkeep_sim::random::Random;

use crate::trials::guard::Bad;

/// Commands that end by themselves.
const COMMANDS: [&str; 13] = [
    "create",
    "info",
    "check",
    "dump",
    "rm",
    "resize",
    "rename",
    "budget",
    "status",
    "save",
    "plan",
    "policies",
    "completions",
];

/// Words that make some sense somewhere.
const WORDS: [&str; 22] = [
    "--json",
    "--help",
    "--budget",
    "11%",
    "64MiB",
    "0",
    "-1",
    "--region",
    "table=1MiB",
    "table=",
    "=",
    "",
    "--size",
    "18446744073709551616",
    "--seed",
    "zipf:64",
    "zipf:",
    "--format",
    "msr-csv",
    "--force",
    "--",
    "\u{1F4A5}",
];

/// Exit codes that `wattkeep --help` documents. 70 is a bug.
const DOCUMENTED: [i32; 6] = [0, 1, 2, 3, 4, 5];

/// A command that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(20);

/// One call.
pub(super) fn call(program: &Path, directory: &Path, random: &mut Random) -> Result<(), Bad> {
    let mut arguments = vec![COMMANDS[random.below(COMMANDS.len() as u64) as usize].to_owned()];
    for _ in 0..random.below(5) {
        arguments.push(match random.below(6) {
            0 => directory.join("store").display().to_string(),
            1 => directory.join("junk").display().to_string(),
            2 => (0..random.below(12)).map(|_| char::from(random.below(95) as u8 + 32)).collect(),
            _ => WORDS[random.below(WORDS.len() as u64) as usize].to_owned(),
        });
    }
    // Something that is no store, and no trace.
    let junk: Vec<u8> = (0..random.below(9000)).map(|_| random.number() as u8).collect();
    std::fs::write(directory.join("junk"), junk).map_err(|error| Bad::Violated(error.to_string()))?;
    run(program, &arguments, directory, Stdio::null()).map(drop)
}

/// Runs the command, and judges how it ended.
pub(super) fn run(
    program: &Path,
    arguments: &[String],
    directory: &Path,
    stdout: Stdio,
) -> Result<Output, Bad> {
    let violated = |what: String| Bad::Violated(format!("wattkeep {arguments:?}: {what}"));
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| violated(error.to_string()))?;
    while child.try_wait().map_err(|error| violated(error.to_string()))?.is_none() {
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(violated(format!("not done after {} s", LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    let output = child.wait_with_output().map_err(|error| violated(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(code) if DOCUMENTED.contains(&code) => {}
        _ => return Err(violated(format!("{}: {said}", output.status))),
    }
    if said.contains("panicked") || said.contains("RUST_BACKTRACE") {
        return Err(violated(format!("panic text: {said}")));
    }
    if !output.status.success() && said.trim().is_empty() && output.stdout.is_empty() {
        return Err(violated("it failed without a word".to_owned()));
    }
    Ok(output)
}
