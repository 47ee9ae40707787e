//! Neighbours that allocate between any two pages that we take, on our core: processes where the program can
//! be one, else a part of this one.
//!
//! The kernel keeps a list of free pages for each core. Who allocates on another core takes none of ours, and
//! one who runs beside us for a whole time slice takes many in a row; so they are asked for each step.
//!
//! All of them have ended when this is dropped, and our thread may run on all cores again.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::figures::BenchError;
use crate::neighbour::Neighbour;

const COUNT: u64 = 2;

/// Steps before anything is measured: each has then brought in as many pages as it has.
const SETTLE_STEPS: u64 = 4_096;

/// Neighbours that wait to be asked.
pub(super) struct Neighbours {
    members: Vec<Member>,
    _core: Option<OneCore>,
}

enum Member {
    Process(Asked),
    Own(Neighbour),
}

/// A neighbour process. Killed when it is dropped.
struct Asked {
    child: Child,
    questions: ChildStdin,
    answers: ChildStdout,
}

impl Neighbours {
    /// Nobody.
    pub(super) fn none() -> Self {
        Self { members: Vec::new(), _core: None }
    }

    /// Starts them. `program` is one that becomes a neighbour when it is asked to: see
    /// [`crate::figures::Options::neighbour`].
    pub(super) fn start(program: Option<&Path>) -> Result<Self, BenchError> {
        // Before they start: children run where their parent may.
        let core = OneCore::stay().map_err(BenchError::while_("staying on one core"))?;
        let start = |seed: u64| match program {
            Some(program) => Asked::start(program, seed).map(Member::Process),
            None => Neighbour::new(seed).map(Member::Own),
        };
        let members = (1..=COUNT).map(start).collect::<std::io::Result<_>>();
        let members = members.map_err(BenchError::while_("starting programs that allocate beside us"))?;
        let mut started = Self { members, _core: Some(core) };
        (0..SETTLE_STEPS).try_for_each(|_| started.step())?;
        Ok(started)
    }

    /// Lets each of them bring in some pages, and give some back.
    pub(super) fn step(&mut self) -> Result<(), BenchError> {
        let step = |member: &mut Member| match member {
            Member::Process(asked) => asked.step(),
            Member::Own(neighbour) => neighbour.step(),
        };
        self.members.iter_mut().try_for_each(step).map_err(BenchError::while_("allocating beside us"))
    }

    /// Their process ids.
    pub(super) fn pids(&self) -> Vec<u32> {
        let pid = |member: &Member| match member {
            Member::Process(asked) => Some(asked.child.id()),
            Member::Own(_) => None,
        };
        self.members.iter().filter_map(pid).collect()
    }

    /// What they are, for a note.
    pub(super) fn kind(&self) -> &'static str {
        match self.members.first() {
            None => "no neighbours",
            Some(Member::Process(_)) => "neighbours are processes",
            Some(Member::Own(_)) => "neighbours are parts of this process",
        }
    }
}

impl Asked {
    fn start(program: &Path, seed: u64) -> std::io::Result<Self> {
        let mut child = Command::new(program)
            .args(["bench-neighbour", &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (questions, answers) = (child.stdin.take(), child.stdout.take());
        Ok(Self { child, questions: questions.expect("piped above"), answers: answers.expect("piped above") })
    }

    fn step(&mut self) -> std::io::Result<()> {
        self.questions.write_all(&[1])?;
        self.answers.read_exact(&mut [0])
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Our thread, and whoever it starts, stay on the core it is on until this is dropped.
struct OneCore(CpuSet);

impl OneCore {
    fn stay() -> std::io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one)?;
        Ok(Self(before))
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_answer_on_our_core_until_they_are_dropped_and_none_is_left() {
        let cores = || sched_getaffinity(None).expect("told").count();
        let before = cores();
        // A program that answers each byte, as a neighbour does.
        let script = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&script, "#!/bin/sh\nexec cat\n").expect("written");
        let path = script.into_temp_path();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).expect("executable");
        for program in [None, Some(&*path)] {
            let mut neighbours = Neighbours::start(program).expect("started");
            neighbours.step().expect("an answer");
            assert_eq!(cores(), 1);
            let pids = neighbours.pids();
            assert_eq!(pids.len(), if program.is_some() { COUNT as usize } else { 0 });
            drop(neighbours);
            assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
            assert_eq!(cores(), before);
        }
    }

    #[test]
    fn a_neighbour_that_ends_is_an_error() {
        assert!(Neighbours::start(Some(Path::new("/bin/true"))).is_err());
    }
}
