//! Traces as a stream of requests, whatever the format and the compression.
//!
//! A damaged line is counted, the first ten are kept with their place, and reading goes on. A file of
//! which more lines are damaged than not is of another format, and refused.
//!
//! Invariants: memory does not grow with the length of the trace. Times never go back: a request that
//! comes later than its time is taken at the latest time seen, and counted. A request that is more than
//! [`TIME_JUMP_MAX_NS`] from the one before is damage, as one wild time would move all that follow.
//!
//! - [`source`]: bytes, decompressed
//! - [`format`]: which format it is
//! - [`text`], [`vscsi`]: what a line or a record says
//! - [`fields`]: numbers and faults

mod fields;
pub mod format;
mod source;
mod text;
pub mod vscsi;

use std::fmt;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use wattkeep_bench::workload::lines::{BoundedLines, Line};
use wattkeep_bench::workload::trace_file::TRACE_HEADER;

pub use fields::Fault;
use fields::Said;
use format::TextFormat;
pub use format::{Format, FormatName};
pub use source::Compression;
use source::Gauge;

use crate::request::Request;

/// Damaged lines that are kept with their place.
pub const DAMAGE_LISTED: usize = 10;

/// Volumes in one trace: a rack of disks. More means that a column is not what it seems.
pub const VOLUMES_MAX: usize = 4096;

/// Longest time between two requests: 30 days.
pub const TIME_JUMP_MAX_NS: u64 = 30 * 24 * 3_600 * 1_000_000_000;

/// Bytes in the longest line: blkparse names the process at its end.
const LINE_BYTES_MAX: usize = 1024;

const TEXT_BUFFER: usize = 256 << 10;

/// A damaged line or record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it stands.
    pub place: Place,
    /// What is wrong.
    pub fault: Fault,
}

/// A place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1.
    Line(u64),
    /// A byte of the decompressed file, from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, "line {number}"),
            Self::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

/// Why a trace cannot be read to its end.
#[derive(Debug)]
pub enum ReadError {
    /// The file is not there.
    Missing(PathBuf),
    /// The system refuses to open or read it.
    System(PathBuf, io::Error),
    /// What it holds is cut off or damaged below the lines.
    Broken {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// Where reading stopped.
        place: Place,
        /// What the decompression said.
        source: io::Error,
    },
    /// Nothing we know.
    Unknown(PathBuf),
    /// More lines are damaged than not.
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What it was read as.
        format: Format,
        /// Lines that were understood.
        good: u64,
        /// Lines that were not.
        damaged: u64,
        /// The first of them.
        first: Option<Box<Damage>>,
    },
    /// No request at all.
    Empty(PathBuf),
    /// More than [`VOLUMES_MAX`] volumes.
    TooManyVolumes(PathBuf),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "there is no trace {0}; see 'ls -la {0}'", path.display()),
            Self::System(path, error) => {
                write!(f, "cannot read the trace {0}: {error}; see 'ls -la {0}'", path.display())
            }
            Self::Broken { path, compression, place, source } => {
                let path = path.display();
                let what = match source.kind() {
                    io::ErrorKind::UnexpectedEof => "ends early".to_owned(),
                    _ => format!("is damaged ({source})"),
                };
                write!(f, "the {compression} file {path} {what} at {place}: fetch it again")
            }
            Self::Unknown(path) => write!(
                f,
                "{} is in no format of traces that we know; name it with --format, see 'wattkeep plan --help'",
                path.display()
            ),
            Self::OtherFormat { path, format, good, damaged, first } => {
                let path = path.display();
                write!(f, "{path} is no trace in the format {format}: {damaged} damaged lines, {good} good")?;
                if let Some(first) = first {
                    write!(f, "; the first is {first}")?;
                }
                f.write_str("; name another with --format, see 'wattkeep plan --help'")
            }
            Self::Empty(path) => {
                write!(f, "the trace {0} is empty: it has no request; see 'head {0}'", path.display())
            }
            Self::TooManyVolumes(path) => write!(
                f,
                "the trace {} names more than {VOLUMES_MAX} volumes; split it by volume first",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ReadError {}

enum Lines {
    Text(TextFormat, BoundedLines<Bytes>),
    Records { version: vscsi::Version, bytes: Bytes, offset: u64, record: [u8; vscsi::RECORD_BYTES_MAX] },
}

type Bytes = BufReader<io::Chain<Cursor<Vec<u8>>, Box<dyn Read>>>;

/// Where something stands, and what it says.
type Next<'a> = (Place, Result<Said<'a>, Fault>);

/// Reads one trace from its beginning to its end.
pub struct TraceReader {
    path: PathBuf,
    format: Format,
    compression: Compression,
    gauge: Rc<Gauge>,
    file_bytes: u64,
    lines: Lines,
    volumes: Volumes,
    good: u64,
    damaged: u64,
    listed: Vec<Damage>,
    latest_ns: Option<u64>,
    late: u64,
}

impl TraceReader {
    /// Opens the trace at `path`; its format is recognised if none is named.
    ///
    /// # Errors
    /// The file is missing or refused, broken at its beginning, empty, or of no known format.
    pub fn open(path: &Path, named: Option<FormatName>) -> Result<Self, ReadError> {
        let source = source::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Missing(path.to_owned()),
            _ => ReadError::System(path.to_owned(), error),
        })?;
        let source::Source { mut bytes, compression, gauge, file_bytes } = source;
        let mut head = Vec::with_capacity(format::HEAD_BYTES);
        (&mut bytes)
            .take(format::HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(|error| broken(path, compression, &gauge, Place::Byte(head.len() as u64), error))?;
        let format = match named {
            Some(name) => Format::named(name, &head),
            None if head.trim_ascii().is_empty() => return Err(ReadError::Empty(path.to_owned())),
            None => match Format::recognise(&head) {
                Some(format) => format,
                None if head.trim_ascii() == TRACE_HEADER.as_bytes() => {
                    return Err(ReadError::Empty(path.to_owned()));
                }
                None => return Err(ReadError::Unknown(path.to_owned())),
            },
        };
        let bytes = BufReader::with_capacity(TEXT_BUFFER, Cursor::new(head).chain(bytes));
        let lines = match format {
            Format::Text(format) => Lines::Text(format, BoundedLines::new(bytes, LINE_BYTES_MAX)),
            Format::Vscsi(version) => {
                Lines::Records { version, bytes, offset: 0, record: [0; vscsi::RECORD_BYTES_MAX] }
            }
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            compression,
            gauge,
            file_bytes,
            lines,
            volumes: Volumes::default(),
            good: 0,
            damaged: 0,
            listed: Vec::new(),
            latest_ns: None,
            late: 0,
        })
    }

    /// The next request, and the number of its volume; `None` at the end of the trace.
    ///
    /// # Errors
    /// The file breaks off, or turns out not to be a trace in its format.
    pub fn next_request(&mut self) -> Result<Option<(u32, Request)>, ReadError> {
        loop {
            let order = self.good;
            let (place, said) = match self.lines.next(order) {
                Ok(Some(next)) => next,
                Ok(None) => return self.end().map(|()| None),
                Err((place, error)) => {
                    return Err(broken(&self.path, self.compression, &self.gauge, place, error));
                }
            };
            match said {
                Ok(Said::Nothing) => {}
                Ok(Said::Request(volume, request)) => {
                    let Some(volume) = self.volumes.number(volume) else {
                        return Err(ReadError::TooManyVolumes(self.path.clone()));
                    };
                    match in_order(&mut self.latest_ns, &mut self.late, request) {
                        Ok(request) => {
                            self.good += 1;
                            return Ok(Some((volume, request)));
                        }
                        Err(fault) => note(&mut self.damaged, &mut self.listed, place, fault),
                    }
                }
                Err(fault) => note(&mut self.damaged, &mut self.listed, place, fault),
            }
        }
    }

    /// Nothing is left: was it a trace?
    fn end(&self) -> Result<(), ReadError> {
        if self.damaged > self.good {
            return Err(ReadError::OtherFormat {
                path: self.path.clone(),
                format: self.format,
                good: self.good,
                damaged: self.damaged,
                first: self.listed.first().cloned().map(Box::new),
            });
        }
        if self.good == 0 { Err(ReadError::Empty(self.path.clone())) } else { Ok(()) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How it is compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Names of the volumes seen so far, by number.
    pub fn volumes(&self) -> &[String] {
        &self.volumes.names
    }

    /// Damaged lines so far, and the first of them.
    pub fn damage(&self) -> (u64, &[Damage]) {
        (self.damaged, &self.listed)
    }

    /// Requests that came later than their time.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Bytes of the file read so far, and bytes it has.
    pub fn progress(&self) -> (u64, u64) {
        (self.gauge.bytes(), self.file_bytes)
    }
}

fn broken(
    path: &Path,
    compression: Compression,
    gauge: &Gauge,
    place: Place,
    source: io::Error,
) -> ReadError {
    let path = path.to_owned();
    if gauge.failed() || compression == Compression::None {
        ReadError::System(path, source)
    } else {
        ReadError::Broken { path, compression, place, source }
    }
}

fn note(damaged: &mut u64, listed: &mut Vec<Damage>, place: Place, fault: Fault) {
    *damaged += 1;
    if listed.len() < DAMAGE_LISTED {
        listed.push(Damage { place, fault });
    }
}

/// The request at a time that does not go back.
fn in_order(latest: &mut Option<u64>, late: &mut u64, request: Request) -> Result<Request, Fault> {
    let time_ns = match *latest {
        Some(latest_ns) => {
            let by_ns = request.time_ns.abs_diff(latest_ns);
            if by_ns > TIME_JUMP_MAX_NS {
                return Err(Fault::TimeJump { by_ns });
            }
            *late += u64::from(request.time_ns < latest_ns);
            request.time_ns.max(latest_ns)
        }
        None => request.time_ns,
    };
    *latest = Some(time_ns);
    Ok(Request { time_ns, ..request })
}

impl Lines {
    /// What the next line or record says, and where it stands.
    fn next(&mut self, order: u64) -> Result<Option<Next<'_>>, (Place, io::Error)> {
        match self {
            Self::Text(format, lines) => {
                let place = Place::Line(lines.number() + 1);
                let said = match lines.next_line().map_err(|error| (place, error))? {
                    None => return Ok(None),
                    Some(Line::TooLong) => Err(Fault::TooLong),
                    Some(Line::Whole(line)) => text::parse(*format, line, order),
                };
                Ok(Some((place, said)))
            }
            Self::Records { version, bytes, offset, record } => {
                let place = Place::Byte(*offset);
                let record = &mut record[..version.record_bytes()];
                let read = fill(bytes, record).map_err(|error| (place, error))?;
                *offset += read as u64;
                Ok(match read {
                    0 => None,
                    read if read < record.len() => Some((place, Err(Fault::HalfRecord { bytes: read }))),
                    _ => Some((place, vscsi::parse(*version, record))),
                })
            }
        }
    }
}

/// Reads until `into` is full or nothing is left; how many bytes there were.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match from.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Volumes by the name that stands in the lines.
#[derive(Debug, Default)]
struct Volumes {
    numbers: FxHashMap<Box<[u8]>, u32>,
    names: Vec<String>,
    /// The last one: lines of one volume follow each other.
    last: Option<(Box<[u8]>, u32)>,
}

impl Volumes {
    /// The number of the volume `name`; `None` if there are too many.
    fn number(&mut self, name: &[u8]) -> Option<u32> {
        if let Some((last, number)) = &self.last
            && **last == *name
        {
            return Some(*number);
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.names.len() == VOLUMES_MAX => return None,
            None => {
                let number = self.names.len() as u32;
                self.names.push(fields::printable(name).replace(',', "."));
                self.numbers.insert(name.into(), number);
                number
            }
        };
        self.last = Some((name.into(), number));
        Some(number)
    }
}

#[cfg(test)]
mod tests;
