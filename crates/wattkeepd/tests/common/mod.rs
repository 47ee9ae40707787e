//! What the integration tests share: a store with a real keeper, raw access to regions, children that
//! can be killed, and a scoreboard that outlives them.
//!
//! # Safety
//!
//! 1. Offsets handed to [`put`] and [`get`] lie inside the region, asserted, and no reference covers
//!    region memory.
//! 2. System calls get pointers and descriptors that live for the call.
#![allow(unsafe_code, missing_docs, dead_code, unreachable_pub)]

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wattkeep::{Region, Store, StoreOptions};

pub const PAGE: usize = 4096;

/// Names the part that a re-executed test plays.
const ROLE: &str = "WATTKEEP_TEST_ROLE";
const DIRECTORY: &str = "WATTKEEP_TEST_DIRECTORY";

/// A store with a keeper process of this build, made if missing, without automatic checkpoints.
pub fn options() -> StoreOptions {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: 2: every test thread passes here before it reads the environment.
        unsafe { std::env::set_var("WATTKEEP_KEEPER", env!("CARGO_BIN_EXE_wattkeepd")) }
    });
    Store::options().create_if_missing(true).checkpoint_interval_ms(0)
}

pub fn pages(region: &Region) -> usize {
    region.len() / PAGE
}

/// Stores a word at `slot` (8 bytes each) of a page.
pub fn put(region: &Region, page: usize, slot: usize, value: u64) {
    assert!(page < pages(region) && slot < PAGE / 8);
    // SAFETY: 1: asserted.
    unsafe { region.as_ptr().add(page * PAGE + slot * 8).cast::<u64>().write_volatile(value) }
}

/// Loads what [`put`] stored.
pub fn get(region: &Region, page: usize, slot: usize) -> u64 {
    assert!(page < pages(region) && slot < PAGE / 8);
    // SAFETY: 1: asserted.
    unsafe { region.as_ptr().add(page * PAGE + slot * 8).cast::<u64>().read_volatile() }
}

/// Stores with the announcement that explicit regions need.
pub fn put_announced(region: &Region, page: usize, slot: usize, value: u64) {
    let _announced = region.will_write(page * PAGE + slot * 8, 8).expect("an announcement");
    put(region, page, slot, value);
}

/// The first words of all pages.
pub fn first_words(region: &Region) -> Vec<u64> {
    (0..pages(region)).map(|page| get(region, page, 0)).collect()
}

/// All bytes of a region.
pub fn image(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0u8; region.len()];
    for (page, into) in bytes.chunks_exact_mut(PAGE).enumerate() {
        // SAFETY: 1: inside the region.
        unsafe { std::ptr::copy_nonoverlapping(region.as_ptr().add(page * PAGE), into.as_mut_ptr(), PAGE) }
    }
    bytes
}

/// Numbers that repeat with their seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Waits until `done`, at most `limit`. False when time is up.
pub fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `work` in a thread; `None` when it did not end in time. A thread that hangs is left behind.
pub fn in_time<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(done.send(work())));
    ended.recv_timeout(limit).ok()
}

/// Runs `work` in a forked child of this thread alone; whether it answered true.
pub fn in_forked_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: 2: no pointers. The child runs `work` and ends; it waits for no other thread's lock there.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(!work())),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }
}

/// In a child: the directory it was given, when it plays this role.
pub fn plays(role: &str) -> Option<PathBuf> {
    (std::env::var(ROLE).ok()? == role).then(|| PathBuf::from(std::env::var_os(DIRECTORY).expect("set")))
}

/// This test binary again, running only `test`, in another role. Its standard error is kept.
pub fn child(test: &str, role: &str, directory: &Path) -> Process {
    let exe = std::env::current_exe().expect("this program");
    let child = Command::new(exe)
        .args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"])
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts");
    Process(child)
}

/// A child that does not outlive its test.
pub struct Process(pub Child);

impl Process {
    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// What it, and its keeper, have said so far on standard error.
    pub fn said(&mut self) -> String {
        use std::io::Read;
        let Some(stderr) = &mut self.0.stderr else { return String::new() };
        let mut bytes = vec![0; 1 << 16];
        let mut fds = libc::pollfd { fd: stderr.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: 2: one descriptor of ours.
        let ready = unsafe { libc::poll(&mut fds, 1, 100) };
        let len = if ready > 0 { stderr.read(&mut bytes).unwrap_or(0) } else { 0 };
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Waits for the end: exit code or signal, and what it said on standard error.
    pub fn end(mut self, limit: Duration) -> (Option<i32>, Option<i32>, String) {
        use std::io::Read;
        use std::os::unix::process::ExitStatusExt;
        let pid = self.pid();
        let mut stderr = self.0.stderr.take().expect("piped");
        let reader = std::thread::spawn(move || {
            let mut said = Vec::new();
            let _ = stderr.read_to_end(&mut said);
            String::from_utf8_lossy(&said).into_owned()
        });
        let mut status = None;
        let ended = within(limit, || {
            status = self.0.try_wait().expect("a child of ours");
            status.is_some()
        });
        if !ended {
            send(pid, libc::SIGKILL);
            let _ = self.0.wait();
            panic!("child {pid} did not end within {limit:?}: {}", reader.join().expect("a reader"));
        }
        let status = status.expect("ended");
        (status.code(), status.signal(), reader.join().expect("a reader"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process that the test started.
pub fn send(pid: i32, signal: i32) {
    assert!(pid > 1);
    // SAFETY: 2: no pointers.
    unsafe { libc::kill(pid, signal) };
}

/// Words in a shared file: what a child publishes here survives it, like a ledger outside.
pub struct Scoreboard {
    words: *const AtomicU64,
    count: usize,
}

// SAFETY: 2: only atomics behind the pointer, mapped until the process ends.
unsafe impl Send for Scoreboard {}
// SAFETY: 2: as above.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    /// Maps the scoreboard of `directory`, made of zeros if missing.
    pub fn open(directory: &Path, count: usize) -> Self {
        let path = directory.join("scoreboard");
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("a scoreboard");
        file.set_len((count * 8) as u64).expect("a length");
        // SAFETY: 2: a fresh shared mapping of a file of that length.
        let words = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert!(words != libc::MAP_FAILED);
        Self { words: words.cast(), count }
    }

    pub fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count);
        // SAFETY: 2: inside the mapping, asserted; an atomic.
        unsafe { &*self.words.add(index) }
    }

    pub fn set(&self, index: usize, value: u64) {
        self.at(index).store(value, Ordering::SeqCst);
    }

    pub fn get(&self, index: usize) -> u64 {
        self.at(index).load(Ordering::SeqCst)
    }
}

impl Drop for Scoreboard {
    fn drop(&mut self) {
        // SAFETY: 2: our own mapping.
        unsafe { libc::munmap(self.words.cast_mut().cast(), self.count * 8) };
    }
}

/// A raw store, for threads that may hang and are left behind.
pub fn poke(address: usize, value: u64) {
    // SAFETY: 1: the caller's region outlives the test.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(value) }
}

/// A raw load.
pub fn peek(address: usize) -> u64 {
    // SAFETY: 1: as above.
    unsafe { std::ptr::with_exposed_provenance::<u64>(address).read_volatile() }
}

/// Asks the keeper of a running store through its socket, as the command line does.
pub fn ask_keeper(
    directory: &Path,
    request: &wattkeep_keep::protocol::Request,
) -> wattkeep_keep::protocol::Reply {
    try_to_ask_keeper(directory, request).expect("an answer")
}

/// The same; `Err`: why it does not do it, or that it is gone.
pub fn try_to_ask_keeper(
    directory: &Path,
    request: &wattkeep_keep::protocol::Request,
) -> Result<wattkeep_keep::protocol::Reply, String> {
    use std::os::fd::AsFd;
    let directory = std::fs::File::open(directory).expect("a directory");
    let name = Path::new(wattkeep_keep::protocol::SOCKET_NAME);
    let socket = wattkeep_sys::socket::connect_to(directory.as_fd(), name).expect("a keeper listens");
    let answer = wattkeep_keep::client::session::ask(socket.as_fd(), request, &[]);
    answer.map(|(reply, _)| reply).map_err(|error| error.to_string())
}

/// read(2) of `len` zeros to an address.
pub fn read_zeros_into(address: usize, len: usize) -> std::io::Result<usize> {
    let zeros = std::fs::File::open("/dev/zero")?;
    let target = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: 1, 2: a range of the caller's region; the kernel answers EFAULT where it may not store.
    let read = unsafe { libc::read(zeros.as_raw_fd(), target, len) };
    if read < 0 { Err(std::io::Error::last_os_error()) } else { Ok(read as usize) }
}

/// write(2) of `len` bytes from an address into a new temporary file; how many were taken.
pub fn write_from(address: usize, len: usize) -> std::io::Result<usize> {
    let file = tempfile::tempfile()?;
    let source = std::ptr::with_exposed_provenance(address);
    // SAFETY: 1, 2: as above.
    let written = unsafe { libc::write(file.as_raw_fd(), source, len) };
    if written < 0 { Err(std::io::Error::last_os_error()) } else { Ok(written as usize) }
}

/// A copy between regions.
pub fn copy(from: usize, to: usize, len: usize) {
    // SAFETY: 1: ranges of the caller's regions, which do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::with_exposed_provenance::<u8>(from),
            std::ptr::with_exposed_provenance_mut(to),
            len,
        )
    }
}

/// A mapping that sits on an address until it is dropped.
pub struct Squatter(usize);

/// Maps a page at `address`.
pub fn occupy(address: usize) -> Squatter {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let target = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: 2: replaces nothing.
    let mapped = unsafe { libc::mmap(target, PAGE, libc::PROT_READ, flags, -1, 0) };
    assert_eq!(mapped as usize, address);
    Squatter(address)
}

impl Drop for Squatter {
    fn drop(&mut self) {
        // SAFETY: 2: our own mapping.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.0), PAGE) };
    }
}

/// Names the keeper's program.
pub fn set_keeper(path: &str) {
    // SAFETY: 2: called in a child with one test.
    unsafe { std::env::set_var("WATTKEEP_KEEPER", path) }
}

/// Makes standard error a pipe that nobody reads.
pub fn break_stderr() {
    let mut ends = [0; 2];
    // SAFETY: 2: fresh descriptors; the second replaces standard error.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        libc::close(ends[0]);
        libc::dup2(ends[1], 2);
    }
}
