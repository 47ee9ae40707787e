//! What trials of processes need of the system: our command, orphans that come home, signals, a keeper's ear.
//!
//! A killed program's keeper outlives it. This process adopts such orphans and reaps the one that it
//! knows, so that none piles up where process 1 does not.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use wattkeep_keep::client::session;
use wattkeep_keep::protocol::{Reply, Request, SOCKET_NAME};

/// How long a keeper may write out what a program left, or answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The `wattkeep` command beside this program.
pub(crate) fn wattkeep_program() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = here.with_file_name("wattkeep");
    let missing = || format!("{} is missing: build it with 'cargo build -p wattkeep-cli'", program.display());
    if program.is_file() { Ok(program) } else { Err(missing()) }
}

/// Makes this process the parent of what its children leave behind.
pub(crate) fn adopt_orphans() {
    set_child_subreaper(Some(getpid())).expect("Linux 3.4 and newer have subreapers");
}

/// Sends a signal to a process that a trial started.
pub(crate) fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// Waits for the end of an adopted process and reaps it. False when it lives on.
pub(crate) fn ends(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    within(LIMIT, || match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(None) | Err(Errno::INTR) => false,
        Ok(Some(_)) => true,
        // Not ours yet, or reaped already.
        Err(_) => !Path::new(&format!("/proc/{pid}")).exists(),
    })
}

/// Reaps adopted processes that have ended, when no child is waited for elsewhere.
pub(crate) fn reap_orphans() {
    while let Ok(Some(_)) = waitpid(None, WaitOptions::NOHANG) {}
}

/// Waits until every thread of our child has stopped.
pub(crate) fn wait_for_stop(pid: i32) -> Result<(), String> {
    let child = Pid::from_raw(pid).ok_or("process 0")?;
    match waitpid(Some(child), WaitOptions::UNTRACED) {
        Ok(Some((_, status))) if status.stopped() => Ok(()),
        other => Err(format!("process {pid} did not stop: {other:?}")),
    }
}

/// Waits until every thread of a process, which need not be our child, has stopped.
pub(crate) fn wait_until_stopped(pid: i32) -> Result<(), String> {
    if within(LIMIT, || all_threads_stopped(pid)) {
        Ok(())
    } else {
        Err(format!("process {pid} does not stop"))
    }
}

fn all_threads_stopped(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.filter_map(Result::ok).all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The kernel's own workers for io_uring do not stop; they only write what was handed in.
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        stat.contains("(iou-") || state.starts_with('T') || stat.is_empty()
    })
}

/// Asks the keeper of a running store through its socket, as the command line does.
pub(crate) fn ask(directory: &Path, request: &Request) -> Result<Reply, String> {
    let directory = std::fs::File::open(directory).map_err(|e| e.to_string())?;
    let socket = wattkeep_sys::socket::connect_to(directory.as_fd(), Path::new(SOCKET_NAME))
        .map_err(|e| format!("no keeper listens: {e}"))?;
    session::ask(socket.as_fd(), request, &[]).map(|(reply, _)| reply).map_err(|e| e.to_string())
}

/// Looks again and again until `done`, at most `limit`. False when time is up.
pub(crate) fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}
