//! `wattkeep record`: the trace of a program whose writes are known to the page.
#![allow(missing_docs)]

mod common;

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};

use common::{command, fails, run, text};
use serde_json::Value;

const PAGE: usize = 4096;
const PAGES: usize = 512;

/// Tells the recorded program where its own trace grows.
const TRACE_VARIABLE: &str = "WATTKEEP_TEST_TRACE";

/// The library beside the command: `cargo build --workspace` makes it before the tests run.
fn recorder() -> Command {
    let library = Path::new(env!("CARGO_BIN_EXE_wattkeep")).with_file_name("libwattkeep_preload.so");
    assert!(library.is_file(), "run 'cargo build --workspace' first: {} is missing", library.display());
    command()
}

/// Pages of a buffer, from its first whole page on.
struct Pages {
    bytes: Vec<u8>,
    first: usize,
}

impl Pages {
    /// Fresh memory of the kernel: too much to come from what the allocator has at hand.
    fn new() -> Self {
        let bytes = vec![0; (PAGES + 1) * PAGE];
        let first = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, first }
    }

    fn range(&self) -> Range<usize> {
        let start = self.bytes.as_ptr() as usize + self.first;
        start..start + PAGES * PAGE
    }

    fn page(&mut self, page: usize) -> &mut [u8] {
        black_box(&mut self.bytes[self.first + page * PAGE..][..PAGE])
    }

    fn write(&mut self, pages: &[usize]) {
        for &page in pages {
            let byte = &mut self.page(page)[7];
            *byte = byte.wrapping_add(1);
        }
    }

    fn read_all(&self) -> u64 {
        black_box(&self.bytes).iter().step_by(64).map(|&byte| u64::from(byte)).sum()
    }
}

/// Waits until the trace tells of `address` for the `times`th time: the epoch of that write is over.
fn await_recorded(trace: &Path, address: usize, times: usize) {
    let covers = |&(start, length): &(usize, usize)| (start..start + length).contains(&address);
    while lines(trace).iter().filter(|line| covers(line)).count() < times {
        std::thread::yield_now();
    }
}

/// Offset and length of each whole line, checked for form.
fn lines(trace: &Path) -> Vec<(usize, usize)> {
    let text = std::fs::read_to_string(trace).expect("the trace is there");
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let mut last = 0.0;
    let mut line = |line: &str| {
        let words: Vec<_> = line.split(',').collect();
        let [time, "write", offset, length] = words[..] else { panic!("{line}") };
        let time: f64 = time.parse().expect("seconds");
        assert!(time >= last, "times go forward: {line}");
        last = time;
        (offset.parse().expect("an offset"), length.parse().expect("a length"))
    };
    whole.lines().skip(1).map(&mut line).collect()
}

/// Page numbers within `range`, in the order of the trace.
fn pages_within(trace: &Path, range: &Range<usize>) -> Vec<usize> {
    let runs = lines(trace);
    let pages = runs.iter().flat_map(|&(start, length)| (start..start + length).step_by(PAGE));
    pages.filter(|page| range.contains(page)).map(|page| (page - range.start) / PAGE).collect()
}

#[test]
#[ignore = "not a test: the program that the tests below record"]
fn recorded_program() {
    let trace = std::env::var_os(TRACE_VARIABLE).expect("recorded by a test");
    let trace = Path::new(&trace);
    let (mut written, only_read, mut late) = (Pages::new(), Pages::new(), Pages::new());
    let at = |pages: &Pages, page: usize| pages.range().start + page * PAGE;

    black_box(only_read.read_all() + written.read_all());
    written.write(&[3, 4, 5, 9]);
    await_recorded(trace, at(&written, 9), 1);
    written.write(&[9, 200]);
    await_recorded(trace, at(&written, 200), 1);
    written.write(&[3]);
    await_recorded(trace, at(&written, 3), 2);
    // The kernel stores, in a system call, into a page that is protected, and into one that is not there.
    let mut zeros = File::open("/dev/zero").expect("it is there");
    zeros.read_exact(written.page(4)).expect("a system call may write");
    zeros.read_exact(written.page(300)).expect("a system call may write");
    await_recorded(trace, at(&written, 300), 1);
    let in_a_thread = std::thread::spawn(move || {
        late.write(&[8]);
        late
    });
    let mut late = in_a_thread.join().expect("joined");
    await_recorded(trace, at(&late, 8), 1);
    // Nobody waits for this one: the look at the exit must find it.
    late.write(&[1]);
    let ranges = [&written, &only_read, &late].map(|pages| pages.range());
    println!("\n{}", serde_json::to_string(&ranges.map(|range| [range.start, range.end])).expect("JSON"));
    std::process::exit(33);
}

fn record(trace: &Path, extra: &[&str], program: &[&str]) -> Output {
    let mut recorder = recorder();
    recorder.args(["record", "--out", text(trace)]).args(extra).arg("--").args(program);
    recorder.env(TRACE_VARIABLE, trace).output().expect("the command starts")
}

#[test]
fn a_trace_has_the_pages_that_were_written_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv");
    let this = std::env::current_exe().unwrap();
    let program = [text(&this), "recorded_program", "--exact", "--ignored", "--nocapture"];
    let output = record(&trace, &["--json", "--epoch", "5ms"], &program);
    let (said, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(33), "the program's own code: {told}{said}");

    let ranges = said.lines().rfind(|line| line.starts_with("[[")).expect("the program names its buffers");
    let ranges: Vec<[usize; 2]> = serde_json::from_str(ranges).unwrap();
    let pages = |which: usize| pages_within(&trace, &(ranges[which][0]..ranges[which][1]));
    assert_eq!(pages(0), [3, 4, 5, 9, 9, 200, 3, 4, 300]);
    assert_eq!(pages(1), [0; 0], "reading is no writing");
    assert_eq!(pages(2), [8, 1]);

    let report: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let total: usize = lines(&trace).iter().map(|(_, length)| length / PAGE).sum();
    assert_eq!(report["pages"], total);
    assert_eq!(report["exit"], 33);
    assert!(report["epochs"].as_u64() >= Some(5), "{report}");
    assert!(report["minor_faults"].as_u64() > Some(0), "{report}");

    // The drill reads what was recorded.
    let workload = format!("trace:{}", text(&trace));
    let place = directory.path().join("drill");
    let drilled = run(&[
        "drill",
        text(&place),
        "--workload",
        &workload,
        "--size",
        "4MiB",
        "--budget",
        "64",
        "--seconds",
        "0.5",
        "--no-unlimited",
        "--window",
        "60s",
    ]);
    assert!(drilled.status.success(), "{}", String::from_utf8_lossy(&drilled.stderr));
}

#[test]
fn a_program_that_execs_another_is_followed_and_its_children_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv");
    // No epoch ends by itself: what is recorded was found at the exit of the last program.
    let output =
        record(&trace, &["--epoch", "60s"], &["sh", "-c", "(exit 3); env false; exec env sort /dev/null"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("epochs   1 in") && !lines(&trace).is_empty(), "{told}");
}

#[test]
fn a_program_that_a_signal_ends_is_told_as_a_shell_tells_it() {
    let directory = tempfile::tempdir().unwrap();
    let output = record(&directory.path().join("trace.csv"), &[], &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", String::from_utf8_lossy(&output.stderr));
}

/// SIGTERM, for a shell's background job ignores SIGINT, and so does every shell that it starts.
#[test]
fn a_request_to_end_is_passed_on() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let trace = directory.path().join("trace.csv");
    let mut child = recorder()
        .args(["record", "--out", text(&trace), "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn what_cannot_be_recorded_is_said_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    let (trace, program) = (place("trace.csv"), place("no-program"));
    recorder();
    let error = fails(5, &["record", "--out", text(&trace), "--", text(&program)]);
    assert!(error.contains("cannot start"), "{error}");
    assert!(!trace.exists());
    fails(2, &["record", "--out", text(&trace)]);
    fails(2, &["record", "--out", text(&trace), "--epoch", "0s", "--", "true"]);
    fails(5, &["record", "--out", text(&place("no/where.csv")), "--", "true"]);
    std::fs::write(&trace, "precious").unwrap();
    fails(4, &["record", "--out", text(&trace), "--", "true"]);
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "precious");
}

/// A statically linked program, whole: an ELF header, one segment, and `exit(0)`.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_statically_linked_program_is_told_apart() {
    use std::os::unix::fs::PermissionsExt;
    let code = [0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
    let (base, headers) = (0x40_0000_u64, 64 + 56_u64);
    let length = headers + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    [base + headers, 64, 0].iter().for_each(|word| elf.extend(word.to_le_bytes()));
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    [0, base, base, length, length, 4096].iter().for_each(|word| elf.extend(word.to_le_bytes()));
    elf.extend(code);

    let directory = tempfile::tempdir().unwrap();
    let (program, trace) = (directory.path().join("static"), directory.path().join("trace.csv"));
    std::fs::write(&program, elf).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new(&program).status().unwrap().success(), "it runs");
    recorder();
    let error = fails(5, &["record", "--out", text(&trace), "--", text(&program)]);
    assert!(error.contains("statically linked"), "{error}");
    assert!(!trace.exists());
}
