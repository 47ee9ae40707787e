//! Owns the CSV form of a trace: reads it once, line by line, and keeps it small.
//!
//! ```text
//! time,operation,offset,length
//! 0.000125,write,8192,4096
//! ```
//!
//! Seconds, `read` or `write`, bytes, bytes. Lines that are not in the order of time are sorted by
//! it (equal times keep their order); beyond the order, time is not used. Empty lines are skipped.
//!
//! Invariants: every request of a [`Trace`] came from a valid line; a damaged line refuses the
//! whole file, naming the line. A request takes 12 bytes.
//!
//! Does not know regions, or replay anything.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::lines::{BoundedLines, Line};

/// The first line of a trace.
pub const TRACE_HEADER: &str = "time,operation,offset,length";

/// Bytes in the longest line: twice what the four longest numbers take. A longer one is no trace,
/// and must not fill the memory.
pub const LINE_BYTES_MAX: usize = 256;

/// Bytes in the longest request. Its top bit is ours.
const LENGTH_MAX: u64 = (1 << 31) - 1;
const WRITE_BIT: u32 = 1 << 31;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether it writes; it reads otherwise.
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub length: u32,
}

/// A trace, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    offsets: Vec<u64>,
    lengths: Vec<u32>,
}

impl Trace {
    /// Reads and checks the CSV file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, has no request, or has a damaged line.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
        Self::parse(BufReader::with_capacity(1 << 20, file), path)
    }

    /// Reads and checks CSV text; `path` names it in errors.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn parse(text: impl BufRead, path: &Path) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut times: Vec<f64> = Vec::new();
        let mut lines = BoundedLines::new(text, LINE_BYTES_MAX);
        loop {
            let number = lines.number() + 1;
            let damaged = |fault| TraceError::Line { path: path.to_owned(), number, fault };
            let line = lines.next_line().map_err(|source| TraceError::Read {
                path: path.to_owned(),
                number,
                source,
            })?;
            let line = match line {
                None if number == 1 => return Err(damaged(LineFault::Header)),
                None => break,
                Some(Line::TooLong) => return Err(damaged(LineFault::TooLong)),
                Some(Line::Whole(line)) => line.trim_ascii(),
            };
            if number == 1 && line != TRACE_HEADER.as_bytes() {
                return Err(damaged(LineFault::Header));
            }
            if number == 1 || line.is_empty() {
                continue;
            }
            let (time, request) = parse_line(line).map_err(damaged)?;
            times.push(time);
            trace.push(request);
        }
        if trace.is_empty() {
            return Err(TraceError::Empty { path: path.to_owned() });
        }
        if !times.is_sorted() {
            trace.sort_by(&times);
        }
        Ok(trace)
    }

    fn push(&mut self, request: Request) {
        self.offsets.push(request.offset);
        let bit = if request.write { WRITE_BIT } else { 0 };
        self.lengths.push(request.length | bit);
    }

    /// Puts the requests in the order of their times; equal times keep their order.
    fn sort_by(&mut self, times: &[f64]) {
        let mut order: Vec<usize> = (0..times.len()).collect();
        order.sort_by(|&a, &b| times[a].total_cmp(&times[b]));
        self.offsets = order.iter().map(|&i| self.offsets[i]).collect();
        self.lengths = order.iter().map(|&i| self.lengths[i]).collect();
    }

    /// Requests in the trace.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether it has no request; a parsed trace never is.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The request number `index`, from 0.
    #[inline]
    pub fn request(&self, index: usize) -> Request {
        let length = self.lengths[index];
        Request { write: length & WRITE_BIT != 0, offset: self.offsets[index], length: length & !WRITE_BIT }
    }
}

/// Reads one line below the header: seconds, and the request.
///
/// # Errors
/// What is wrong with the line.
pub fn parse_line(line: &[u8]) -> Result<(f64, Request), LineFault> {
    let line = std::str::from_utf8(line).map_err(|_| LineFault::NotText)?;
    let mut columns = line.split(',').map(str::trim);
    let mut next = || columns.next().ok_or(LineFault::Columns);
    let (time, operation, offset, length) = (next()?, next()?, next()?, next()?);
    if columns.next().is_some() {
        return Err(LineFault::Columns);
    }
    let seconds = f64::from_str(time).map_err(|_| LineFault::Time(time.to_owned()))?;
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(LineFault::Time(time.to_owned()));
    }
    let write = match operation {
        "write" => true,
        "read" => false,
        other => return Err(LineFault::Operation(other.to_owned())),
    };
    let offset = u64::from_str(offset).map_err(|_| LineFault::Offset(offset.to_owned()))?;
    let bytes = u64::from_str(length)
        .ok()
        .filter(|bytes| (1..=LENGTH_MAX).contains(bytes))
        .and_then(|bytes| u32::try_from(bytes).ok())
        .ok_or_else(|| LineFault::Length(length.to_owned()))?;
    if offset.checked_add(u64::from(bytes)).is_none() {
        return Err(LineFault::Offset(offset.to_string()));
    }
    let request = Request { write, offset, length: bytes };
    Ok((seconds, request))
}

/// Why a trace cannot be used.
#[derive(Debug)]
pub enum TraceError {
    /// The file does not open.
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed part way.
    Read {
        /// The file.
        path: PathBuf,
        /// The line being read, from 1.
        number: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A line is damaged.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        number: u64,
        /// What is wrong with it.
        fault: LineFault,
    },
    /// There is a header and nothing else.
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// The first line is not the header.
    Header,
    /// Not UTF-8.
    NotText,
    /// Longer than any valid line.
    TooLong,
    /// Not four columns.
    Columns,
    /// The time is no finite number of seconds from 0.
    Time(String),
    /// The operation is neither `read` nor `write`.
    Operation(String),
    /// The offset is no whole number of bytes, or the request ends beyond 2^64.
    Offset(String),
    /// The length is no whole number of bytes from 1 to 2^31 - 1.
    Length(String),
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => write!(f, "the first line must be {TRACE_HEADER}"),
            Self::NotText => f.write_str("not UTF-8 text"),
            Self::TooLong => write!(f, "longer than {LINE_BYTES_MAX} bytes"),
            Self::Columns => write!(f, "must have four columns: {TRACE_HEADER}"),
            Self::Time(text) => write!(f, "time '{text}' is not a number of seconds from 0"),
            Self::Operation(text) => write!(f, "operation '{text}' is neither read nor write"),
            Self::Offset(text) => write!(f, "offset '{text}' is not a number of bytes below 2^64"),
            Self::Length(text) => {
                write!(f, "length '{text}' is not a number of bytes from 1 to {LENGTH_MAX}")
            }
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, source } => {
                write!(f, "cannot open the trace {}: {source}", path.display())
            }
            Self::Read { path, number, source } => {
                write!(f, "{}, line {number}: cannot read: {source}", path.display())
            }
            Self::Line { path, number, fault } => write!(f, "{}, line {number}: {fault}", path.display()),
            Self::Empty { path } => {
                write!(f, "{}: a header, but no request below it", path.display())
            }
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } => Some(source),
            Self::Line { .. } | Self::Empty { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Trace, TraceError> {
        Trace::parse(text, Path::new("some.csv"))
    }

    fn line(write: bool, offset: u64, length: u32) -> Request {
        Request { write, offset, length }
    }

    fn requests(trace: &Trace) -> Vec<Request> {
        (0..trace.len()).map(|i| trace.request(i)).collect()
    }

    #[test]
    fn a_valid_trace_gives_its_requests_in_the_order_of_time() {
        let text = b"time,operation,offset,length\r\n0,write,0,1\r\n\r\n2e0,read,10,20\n\
            1.5,write,18446744073709551000,512\n2,write,5,2147483647";
        let trace = parse(text).expect("valid");
        assert_eq!(
            requests(&trace),
            [
                line(true, 0, 1),
                line(true, 18_446_744_073_709_551_000, 512),
                line(false, 10, 20),
                line(true, 5, 2_147_483_647),
            ]
        );
    }

    #[test]
    fn each_damaged_line_is_refused_with_its_number_and_what_is_wrong() {
        let long = [b'1'; 1 << 12];
        let cases: &[(&[u8], &str)] = &[
            (b"1.0,write,0", "four columns"),
            (b"1.0,write,0,1,2", "four columns"),
            (b"1.0", "four columns"),
            (b",write,0,1", "time ''"),
            (b"-1,write,0,1", "time '-1'"),
            (b"NaN,write,0,1", "time 'NaN'"),
            (b"inf,write,0,1", "time 'inf'"),
            (b"noon,write,0,1", "time 'noon'"),
            (b"1,Write,0,1", "operation 'Write'"),
            (b"1,trim,0,1", "operation 'trim'"),
            (b"1,write,-4,1", "offset '-4'"),
            (b"1,write,0x10,1", "offset '0x10'"),
            (b"1,write,18446744073709551616,1", "offset '1844"),
            (b"1,write,18446744073709551615,1", "offset '1844"),
            (b"1,write,0,0", "length '0'"),
            (b"1,write,0,2147483648", "length '2147483648'"),
            (b"1,write,0,", "length ''"),
            (b"1,wr\xff\xfeite,0,1", "UTF-8"),
            (&long, "longer than"),
        ];
        for (bad, complaint) in cases {
            let mut text = b"time,operation,offset,length\n0,read,0,1\n\n".to_vec();
            text.extend_from_slice(bad);
            text.extend_from_slice(b"\n5,read,0,1\n");
            let error = parse(&text).expect_err(complaint).to_string();
            assert!(error.starts_with("some.csv, line 4: "), "{error}");
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn a_file_without_header_or_requests_says_so() {
        for text in [&b""[..], b"0,write,0,1\n", b"time;operation;offset;length\n"] {
            let error = parse(text).expect_err("no header").to_string();
            assert!(error.starts_with("some.csv, line 1: "), "{error}");
            assert!(error.contains(TRACE_HEADER), "{error}");
        }
        let error = parse(b"time,operation,offset,length\n\n").expect_err("empty");
        assert!(matches!(error, TraceError::Empty { .. }), "{error}");
    }

    #[test]
    fn a_missing_file_or_a_directory_is_named() {
        let missing = Trace::open(Path::new("/nowhere/at/all.csv")).expect_err("missing");
        assert!(missing.to_string().contains("/nowhere/at/all.csv"));
        assert!(Trace::open(Path::new("/")).is_err());
    }
}
