//! Runs the trials, each in a process of its own: a crash ends one trial, a hang ends at its limit.
//!
//! Two trials that are one thread each run side by side; the others run alone.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::args::{Size, SuiteOptions};
use crate::mutants;
use crate::outcome::Outcome;
use crate::report;
use crate::trials::{TRIALS, Trial, find};

/// Trials that run side by side.
const SIDE_BY_SIDE: usize = 2;

/// So much of what a trial writes is kept: its outcome comes last.
const LAST_WORDS_BYTES: usize = 16 << 10;

/// How often running trials are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A soak tries this many times what CI tries, each round with fresh seeds.
const SOAK_FACTOR: u64 = 10;

/// One trial, its count and its seed.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) trial: &'static Trial,
    pub(crate) count: u64,
    pub(crate) seed: u64,
    pub(crate) limit: Duration,
}

/// Prints the trials. Always true.
pub(crate) fn list() -> bool {
    for trial in TRIALS {
        println!("{:<14} {:>9}  {}", trial.name, trial.ci, trial.promise);
    }
    true
}

/// Runs the suite, prints the table, writes the JSON. True when nothing was lost and no bug survived.
pub(crate) fn run(options: &SuiteOptions) -> Result<bool, String> {
    let began = Instant::now();
    let chosen = choose(options)?;
    println!("torture: {} trials, seed {}", chosen.len(), options.seed);
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut round = 0;
    loop {
        let soak = options.hours.is_some();
        let jobs = chosen.iter().map(|trial| job(trial, options, round, soak)).collect();
        for outcome in run_jobs(jobs, &[])? {
            match outcomes.iter_mut().find(|before| before.name == outcome.name) {
                Some(before) => report::add(before, &outcome),
                None => outcomes.push(outcome),
            }
        }
        round += 1;
        let hours = options.hours.unwrap_or(0.0);
        if began.elapsed().as_secs_f64() >= hours * 3600.0 {
            break;
        }
    }
    let mutants =
        options.mutants.as_deref().map(|program| mutants::all(program, options.seed)).transpose()?;
    print!("{}", report::table(&outcomes, mutants.as_ref(), began.elapsed()));
    if let Some(file) = &options.json {
        report::write_json(file, &outcomes, mutants.as_ref())?;
    }
    Ok(outcomes.iter().all(Outcome::is_clean) && mutants.is_none_or(|mutants| mutants.all_caught()))
}

fn choose(options: &SuiteOptions) -> Result<Vec<&'static Trial>, String> {
    for name in options.only.iter().chain(&options.without) {
        find(name)?;
    }
    let named = |list: &[String], trial: &Trial| list.iter().any(|name| name == trial.name);
    let wanted = |trial: &&Trial| options.only.is_empty() || named(&options.only, trial);
    let chosen = TRIALS.iter().filter(wanted).filter(|trial| !named(&options.without, trial));
    let (chosen, left): (Vec<_>, Vec<_>) =
        chosen.partition(|trial| options.size == Size::Ci || options.hours.is_some() || trial.fast > 0);
    if !left.is_empty() {
        let names: Vec<_> = left.iter().map(|trial| trial.name).collect();
        println!("torture: not in the fast slice: {}", names.join(", "));
    }
    Ok(chosen)
}

fn job(trial: &'static Trial, options: &SuiteOptions, round: u64, soak: bool) -> Job {
    let (count, factor) = match (soak, options.size) {
        (true, _) => (trial.ci * SOAK_FACTOR, SOAK_FACTOR as u32),
        (false, Size::Fast) => (trial.fast, 1),
        (false, Size::Ci) => (trial.ci, 1),
    };
    // Far apart, so that no two rounds try the same.
    let seed = options.seed + round * 1_000_000_007;
    Job { trial, count, seed, limit: trial.limit * factor }
}

/// Runs jobs to the end. `environment` is added to each one's.
pub(crate) fn run_jobs(mut waiting: Vec<Job>, environment: &[(&str, &str)]) -> Result<Vec<Outcome>, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut running: Vec<Running> = Vec::new();
    let mut outcomes = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        while let Some(next) = waiting.first() {
            let alone = next.trial.alone || running.iter().any(|other| other.job.trial.alone);
            if running.len() >= if alone { 1 } else { SIDE_BY_SIDE } {
                break;
            }
            running.push(Running::start(&program, waiting.remove(0), environment)?);
        }
        std::thread::sleep(LOOK);
        let mut still = Vec::new();
        for mut one in running {
            match one.ended()? {
                Some(outcome) => {
                    report::tell(&outcome);
                    outcomes.push(outcome);
                }
                None => still.push(one),
            }
        }
        running = still;
        report::tell_running(running.iter().map(|one| (one.job.trial.name, one.began.elapsed())));
    }
    Ok(outcomes)
}

/// A trial in its process.
struct Running {
    job: Job,
    child: Child,
    output: JoinHandle<String>,
    complaints: JoinHandle<String>,
    began: Instant,
}

impl Running {
    fn start(program: &std::path::Path, job: Job, environment: &[(&str, &str)]) -> Result<Self, String> {
        let failed = |e| format!("cannot start trial '{}': {e}", job.trial.name);
        let mut child = Command::new(program)
            .args(["trial", job.trial.name, "--count", &job.count.to_string()])
            .args(["--seed", &job.seed.to_string()])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let output = last_words(child.stdout.take());
        let complaints = last_words(child.stderr.take());
        Ok(Self { job, child, output, complaints, began: Instant::now() })
    }

    /// The outcome, when the process has ended or its time is up.
    fn ended(&mut self) -> Result<Option<Outcome>, String> {
        let ended = self.child.try_wait().map_err(|e| format!("cannot wait for a trial: {e}"))?;
        if ended.is_none() && self.began.elapsed() < self.job.limit {
            return Ok(None);
        }
        let mut outcome = Outcome::new(self.job.trial.name, self.job.seed);
        outcome.seconds = self.began.elapsed().as_secs_f64();
        let Some(status) = ended else {
            let _ = self.child.kill();
            let _ = self.child.wait();
            outcome.tried = 1;
            outcome.hang(format!("not done after {} s", self.job.limit.as_secs()));
            return Ok(Some(outcome));
        };
        let text = heard(&mut self.output);
        match text.lines().last().and_then(|line| serde_json::from_str(line).ok()) {
            Some(told) => outcome = told,
            None => {
                outcome.tried = 1;
                let complaints = heard(&mut self.complaints);
                outcome.panic(format!("the trial ended without an outcome: {status}\n{complaints}"));
            }
        }
        Ok(Some(outcome))
    }
}

/// Reads what a process writes, to its end, and keeps the last of it.
fn last_words(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut bytes = [0; 4096];
        let mut stream = stream;
        while let Some(count @ 1..) = stream.as_mut().and_then(|stream| stream.read(&mut bytes).ok()) {
            kept.extend_from_slice(&bytes[..count]);
            kept.drain(..kept.len().saturating_sub(LAST_WORDS_BYTES));
        }
        String::from_utf8_lossy(&kept).into_owned()
    })
}

fn heard(words: &mut JoinHandle<String>) -> String {
    std::mem::replace(words, std::thread::spawn(String::new)).join().unwrap_or_default()
}
