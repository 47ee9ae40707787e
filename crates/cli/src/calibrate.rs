//! Measures what a save costs here: sequential direct writes and flushes, beside the store.
//!
//! Writes through the same ring, in the same pieces and with as many in flight as a save does, to a
//! scratch file of the same file system. The file is written once before: a save meets space that
//! was written before, too. The bytes are random: an SSD that compresses must not flatter.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use indicatif::ProgressBar;
use rustix::fs::{Mode, OFlags};
use wattkeep_power::budget::SaveCost;
use wattkeep_power::calibration::{Calibration, Sample};
use wattkeep_power::window::Overheads;
use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::uring::RingFile;

use crate::failure::{Exit, Failure};
use crate::progress;

/// Where a store keeps its calibration.
pub(crate) const FILE: &str = "calibration.json";

const SCRATCH: &str = "wattkeep.calibration.scratch";

/// Pieces as the store writes them, and so many in flight: two batches of a save.
const PIECE: usize = 1 << 20;
const IN_FLIGHT: usize = 8;

/// Samples at least, so that the worst is the worst of several.
const SAMPLES_MIN: usize = 6;
/// Bytes of one sample: enough for a bandwidth, few enough for many samples.
const SAMPLE_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=128 << 20;

/// Until the keeper hears of the cut and runs: both of two processors may be busy, and a time slice of
/// the scheduler is 4 ms; and it looks at its socket every millisecond.
const DETECTION_NS: u64 = 10_000_000;
/// Longest wait for a thread that is in the middle of a grant.
const SETTLE_NS: u64 = 5_000_000;
/// Protecting, copying and checksumming one page that is in no cache.
const PAGE_NS: u64 = 1_500;
/// Least time that a wait for the device is given. An SSD cleans itself up, and a shared one serves
/// others: both were seen to hold a request back for tens of milliseconds, and a measurement of a second
/// rarely meets it.
const STALL_MIN_NS: u64 = 30_000_000;
/// Waits for the device in a save, each of which can meet a stall as long as the worst flush: the writes
/// that were in flight, the last pages, and three flushes of the commit.
const STALLS: u64 = 5;
/// The two superblock copies, and waking up after each of the commit's five requests.
const COMMIT_NS: u64 = 10_000_000;

/// Measures for about `seconds`, in the directory `place`, with samples of about `save_bytes`.
pub(crate) fn measure(
    place: &Path,
    seconds: f64,
    save_bytes: u64,
    bar: &ProgressBar,
) -> Result<Calibration, Failure> {
    let failed = |error: std::io::Error| Failure::system("measure the SSD in", place, &error);
    let sample_bytes =
        save_bytes.clamp(*SAMPLE_BYTES.start(), *SAMPLE_BYTES.end()).next_multiple_of(PIECE as u64);
    let mut file = RingFile::new(scratch(place)?, 64).map_err(failed)?;
    let mut buffers: Vec<_> = (0..IN_FLIGHT as u64).map(noise).collect();
    write(&mut file, sample_bytes, &mut buffers).map_err(failed)?;
    let began = Instant::now();
    let limit = Duration::from_secs_f64(seconds);
    let mut samples = Vec::new();
    while samples.len() < SAMPLES_MIN || began.elapsed() < limit {
        samples.push(write(&mut file, sample_bytes, &mut buffers).map_err(failed)?);
        progress::set(bar, began.elapsed().as_millis() as u64, limit.as_millis() as u64);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Calibration::from_samples(&samples, now)
        .map_err(|error| Failure::new(Exit::System, format!("{error}; see 'dmesg'")))
}

/// A file without a name: it is gone with its descriptor, whatever happens.
fn scratch(place: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let path = place.join(SCRATCH);
    rustix::fs::open(place, flags | OFlags::TMPFILE, mode)
        .or_else(|_| {
            let file = rustix::fs::open(&path, flags | OFlags::CREATE, mode)?;
            rustix::fs::unlink(&path)?;
            Ok(file)
        })
        .map_err(|errno: rustix::io::Errno| Failure::system("write in", place, &errno.into()))
}

/// One sample: `bytes` sequentially, then a flush.
fn write(file: &mut RingFile, bytes: u64, idle: &mut Vec<AlignedBuffer>) -> std::io::Result<Sample> {
    let (mut next, mut done, mut failed) = (0, Vec::new(), None);
    let began = Instant::now();
    while (next < bytes && failed.is_none()) || file.in_flight() > 0 {
        while let Some(buffer) = idle.pop_if(|_| next < bytes && failed.is_none()) {
            file.write(1, next, buffer, PIECE, PIECE);
            next += PIECE as u64;
        }
        file.reap(Some(None), &mut done)?;
        for completed in done.drain(..) {
            idle.extend(completed.buffer);
            match completed.result {
                Ok(PIECE) => {}
                Ok(_) => failed = Some(std::io::ErrorKind::StorageFull.into()),
                Err(error) => failed = Some(error),
            }
        }
    }
    let written = began.elapsed();
    if let Some(error) = failed {
        return Err(error);
    }
    rustix::fs::fdatasync(file.file().as_fd())?;
    let flushed = began.elapsed() - written;
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(Sample { written_bytes: bytes, write_ns: ns(written), flush_ns: ns(flushed), ..Sample::default() })
}

/// A piece of bytes that do not compress.
fn noise(seed: u64) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(PIECE);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buffer.chunks_exact_mut(8) {
        // xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buffer
}

/// What saving `budget_pages` costs on a store so calibrated.
pub(crate) fn save_cost(calibration: &Calibration, budget_pages: u64) -> SaveCost {
    let stall_ns = calibration.flush_worst_ns.max(STALL_MIN_NS);
    let page_ns = calibration.freeze_worst_ns_per_page.max(PAGE_NS);
    SaveCost {
        bandwidth_bytes_per_s: calibration.write_worst_bytes_per_s,
        overheads: Overheads {
            detection_ns: DETECTION_NS,
            freeze_ns: SETTLE_NS.saturating_add(page_ns.saturating_mul(budget_pages)),
            commit_ns: COMMIT_NS.saturating_add(stall_ns.saturating_mul(STALLS)),
        },
        in_flight_reserve_pages: 0,
    }
}

/// The calibration that the store in `place` has; `None` when it was never measured.
pub(crate) fn load(place: &Path) -> Result<Option<Calibration>, Failure> {
    let path = place.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::system("read", &path, &error)),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let place = place.display();
        let cause = format!("{} is damaged ({error}); run 'wattkeep calibrate {place}'", path.display());
        Failure::new(Exit::Store, cause)
    })
}

/// Puts a calibration beside its store, whole or not at all.
pub(crate) fn store(place: &Path, calibration: &Calibration) -> Result<(), Failure> {
    let path = place.join(FILE);
    let unfinished = place.join(format!("{FILE}.unfinished"));
    let text = serde_json::to_string(calibration).expect("numbers only");
    std::fs::write(&unfinished, text + "\n")
        .and_then(|()| std::fs::rename(&unfinished, &path))
        .map_err(|error| Failure::system("write", &path, &error))
}
