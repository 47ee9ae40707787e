//! The known ways around the protection, each tried by a process of its own: what happens is in a table.
//!
//! *Tracked* means that a permit was taken; *unseen* that the store went through without one: these are
//! the limits of the design, and the documents list them. Whatever a case does, what was stored before
//! it is in the store after it.

mod cases;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use wattkeep::FaultMode;

use self::cases::{Ground, signal_name};
use super::lab::{LIMIT, adopt_orphans, reap_orphans, within};
use super::raw;
use super::subject::{fault_mode, say};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

const MODES: [FaultMode; 3] = [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor];

/// One way around, and what it comes to in each fault mode, in the order of [`MODES`].
struct Case {
    way: &'static str,
    run: fn(&Ground) -> String,
    expected: [&'static str; 3],
}

const fn case(way: &'static str, run: fn(&Ground) -> String, expected: [&'static str; 3]) -> Case {
    Case { way, run, expected }
}

/// The same in every fault mode.
const fn always(way: &'static str, run: fn(&Ground) -> String, expected: &'static str) -> Case {
    case(way, run, [expected; 3])
}

/// What happens on Linux 6.18.
const CASES: &[Case] = &[
    always("pwrite to its memory", cases::pwrite_the_memory, "EPERM"),
    always("second mapping of its memory", cases::map_the_memory, "EPERM"),
    always("child stores to an open page", cases::forked_child_stores_to_open, "the child dies of SIGSEGV"),
    always(
        "child stores to a closed page",
        cases::forked_child_stores_to_closed,
        "the child dies of SIGSEGV",
    ),
    always("truncate its memory", cases::truncate_the_memory, "EPERM"),
    always("lengthen its memory", cases::grow_the_memory, "EPERM"),
    always("punch a hole into its memory", cases::punch_the_memory, "EPERM"),
    always("madvise(MADV_REMOVE)", cases::advise_remove, "EPERM"),
    always("madvise(MADV_DONTNEED), then a store", cases::advise_dontneed, "tracked"),
    case("read(2) into a closed page", cases::read_into_closed, ["EFAULT", "EFAULT", "all, tracked"]),
    case(
        "read(2) into an open page and two closed ones",
        cases::read_across,
        ["short, 1 of 3 pages", "short, 1 of 3 pages", "all, tracked"],
    ),
    always("the same, announced", cases::read_announced, "all, tracked"),
    case("read(2) into a page never touched", cases::read_into_fresh, ["EFAULT", "EFAULT", "all, tracked"]),
    case("getrandom(2) into a closed page", cases::random_into_closed, ["EFAULT", "EFAULT", "all, tracked"]),
    case(
        "read(2) with O_DIRECT into a closed page",
        cases::direct_read_into_closed,
        ["EFAULT", "EFAULT", "all, tracked"],
    ),
    case(
        "io_uring read into a closed page",
        cases::ring_read_into_closed,
        ["EFAULT", "EFAULT", "all, tracked"],
    ),
    case("io_uring registers a closed page", cases::register_closed, ["EFAULT", "EFAULT", "all, tracked"]),
    always("io_uring reads into a registered page that was closed later", cases::fixed_buffer, "all, unseen"),
    case(
        "process_vm_writev(2) to a closed page",
        cases::written_from_outside,
        ["EFAULT", "EFAULT", "all, tracked"],
    ),
    always("a write through /proc/self/mem", cases::through_proc_mem, "EIO"),
    always("child asks its parent's keeper", cases::forked_child_asks, "refused; the parent goes on"),
    always(
        "child ends its parent's announcement, and makes one",
        cases::forked_child_announces,
        "refused; the parent goes on",
    ),
    case(
        "madvise(MADV_DOFORK), then a child stores to a closed page",
        cases::advise_dofork,
        ["the child's store is unseen", "the child dies of SIGSEGV", "the child's store is unseen"],
    ),
    case("mremap(2) of a closed page, then a store", cases::mremap, ["unseen", "dies of SIGSEGV", "unseen"]),
    always("MAP_FIXED over a closed page, then a store", cases::map_fixed, "unseen"),
    case("mprotect(2) of a closed page, then a store", cases::mprotect, ["tracked", "unseen", "tracked"]),
    case(
        "handler of the fault signal reset, then a store",
        cases::handler_reset,
        ["dies of SIGBUS", "dies of SIGSEGV", "tracked"],
    ),
    case(
        "fault signal blocked before the open",
        cases::signal_blocked_at_open,
        ["refused", "refused", "opens"],
    ),
    case(
        "fault signal blocked later, then a store",
        cases::signal_blocked_later,
        ["dies of SIGBUS", "dies of SIGSEGV", "tracked"],
    ),
    always("a store in a signal handler on an alternate stack", cases::store_in_a_handler, "tracked"),
    always(
        "a foreign SIGBUS, with a handler installed before",
        cases::foreign_fault,
        "reads 0, repaired 1 times",
    ),
    always("a foreign SIGBUS, without a handler", cases::foreign_fault, "dies of SIGBUS"),
    always("a store to address 16", cases::null_store, "dies of SIGSEGV"),
    case(
        "a store behind the end of the region",
        cases::store_behind_the_region,
        ["dies of SIGBUS", "dies of SIGSEGV", "dies of SIGABRT"],
    ),
    always("a program that is not dumpable", cases::not_dumpable, "tracked"),
    always("eight descriptors at most", cases::few_descriptors, "refused"),
    always("1 GiB of address space", cases::little_address_space, "refused"),
    always("no locked memory", cases::no_locked_memory, "tracked"),
    case(
        "all descriptors closed, then a store to a closed page",
        cases::descriptors_closed,
        ["stores, unseen", "stalls", "stores, unseen"],
    ),
    always("exit without a close", cases::exit_without_close, "ends"),
    always("exec of another program", cases::exec, "becomes another program"),
];

/// A case in a fault mode is a row.
pub(crate) const ROWS: u64 = (CASES.len() * MODES.len()) as u64;

/// The case whose handler must be there before ours.
const WITH_A_HANDLER: &str = "a foreign SIGBUS, with a handler installed before";

/// Which case a process plays.
#[derive(Clone, Debug, Args)]
pub(crate) struct CaseOptions {
    /// Its place in the table.
    number: usize,
    /// The fault mode.
    #[arg(value_parser = fault_mode)]
    mode: FaultMode,
    /// Directory of the store.
    directory: PathBuf,
}

/// Plays one case and says what it saw.
pub(crate) fn run_case(options: &CaseOptions) -> Result<bool, String> {
    let case = CASES.get(options.number).ok_or("no such case")?;
    if case.way == WITH_A_HANDLER {
        raw::repair_bus_faults();
    }
    let ground = Ground::lay(&options.directory, options.mode)?;
    say(format_args!("{}", (case.run)(&ground)));
    // What a case did to itself makes no orderly end: the keeper takes it for a killed program.
    raw::leave()
}

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    adopt_orphans();
    let mut unseen = 0;
    while outcome.tried < count {
        let row = (outcome.tried % ROWS) as usize;
        let (number, mode) = (row / MODES.len(), row % MODES.len());
        let case = &CASES[number];
        let story = format!("{}, fault mode {}", case.way, MODES[mode]);
        let scratch = tempfile::tempdir().expect("a directory");
        match play(number, MODES[mode], scratch.path()) {
            Err(cause) => outcome.hang(format!("{story}: {cause}")),
            Ok(seen) if seen != case.expected[mode] => {
                outcome.violate(format!("{story}: '{seen}' instead of '{}'", case.expected[mode]));
            }
            Ok(seen) => unseen += u64::from(seen.contains("unseen")),
        }
        if let Err(cause) = cases::canary_lives(scratch.path()) {
            outcome.lose(1, format!("{story}: what was stored before is lost: {cause}"));
        }
        reap_orphans();
        outcome.tried += 1;
    }
    outcome.note = format!("{unseen} ways are limits of the design, as documented");
}

/// What the process of a case said, or of what it died.
fn play(number: usize, mode: FaultMode, directory: &Path) -> Result<String, String> {
    use std::io::{Read as _, Seek as _};
    use std::os::unix::process::ExitStatusExt as _;
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    // No pipe: its keeper has the other end, too, and may outlive it.
    let mut complaints = tempfile::tempfile().map_err(|e| e.to_string())?;
    let why = complaints.try_clone().map_err(|e| e.to_string())?;
    let mut child = Command::new(program)
        .args(["escape-case", &number.to_string(), &mode.to_string()])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(why)
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut stdout = child.stdout.take().ok_or("no standard output")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text.trim().to_owned()
    });
    let mut status = None;
    if !within(LIMIT, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    }) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("no end after {} s", LIMIT.as_secs()));
    }
    let said = reader.join().map_err(|_| "the reader panicked")?;
    match status.and_then(|status| status.signal()) {
        Some(signal) => Ok(format!("dies of {}", signal_name(signal))),
        None if said.is_empty() => {
            // It did not come to its case.
            let mut why = String::new();
            let read = complaints.rewind().and_then(|()| complaints.read_to_string(&mut why));
            Ok(read.map_or_else(|e| e.to_string(), |_| why.trim().to_owned()))
        }
        None => Ok(said),
    }
}
