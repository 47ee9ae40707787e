//! Fields of a line: bytes to numbers, exactly.
//!
//! Invariant: a number that does not fit 64 bits is no number; nothing wraps, nothing is rounded but
//! digits below a nanosecond, which are cut off.

use std::fmt;

use crate::request::Request;

/// Bytes in the longest request, as in the drill's traces.
const LENGTH_MAX: u64 = (1 << 31) - 1;

/// Bytes of a damaged field that are shown.
const SHOWN_BYTES: usize = 40;

/// What is wrong with a line or a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Longer than any valid line.
    TooLong,
    /// Not the columns of the format.
    Columns(&'static str),
    /// A field is not what its column asks for.
    Field {
        /// The column.
        column: &'static str,
        /// What stands there, shortened.
        text: String,
    },
    /// The request is empty, longer than 2 GiB, or ends beyond 2^64.
    Extent {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Too far from the time of the request before it.
    TimeJump {
        /// Nanoseconds between both.
        by_ns: u64,
    },
    /// A line of the drill's format.
    Drill(wattkeep_bench::workload::trace_file::LineFault),
    /// The file ends inside a record.
    HalfRecord {
        /// Bytes that are there.
        bytes: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("longer than any line of the format"),
            Self::Columns(columns) => write!(f, "must have the columns {columns}"),
            Self::Field { column, text } => write!(f, "'{text}' is not a valid {column}"),
            Self::Extent { offset, length } => {
                write!(f, "{length} bytes at {offset}: not from 1 to {LENGTH_MAX} bytes that end below 2^64")
            }
            Self::TimeJump { by_ns } => write!(
                f,
                "its time is {} from the line before",
                wattkeep_power::units::format_duration_ns(*by_ns)
            ),
            Self::Drill(fault) => fault.fmt(f),
            Self::HalfRecord { bytes } => write!(f, "the last record has only {bytes} bytes"),
        }
    }
}

impl Fault {
    pub(super) fn field(column: &'static str, bytes: &[u8]) -> Self {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        Self::Field { column, text: printable(shown) }
    }
}

/// Bytes of a trace as text that a terminal may see.
pub(super) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { '.' } else { c }).collect()
}

/// What one line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// A request, on the volume of that name.
    Request(&'a [u8], Request),
    /// Nothing that matters here: a header, another kind of event.
    Nothing,
}

/// A decimal number.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// A number in the column `column`.
pub(super) fn numbered(column: &'static str, digits: &[u8]) -> Result<u64, Fault> {
    number(digits).ok_or_else(|| Fault::field(column, digits))
}

/// A decimal number of units of `unit_ns` nanoseconds, perhaps with a fraction, in nanoseconds.
pub(super) fn time_ns(text: &[u8], unit_ns: u64) -> Option<u64> {
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    if point.is_some() && fraction.is_empty() {
        return None;
    }
    let mut below = 0;
    let mut place_ns = unit_ns;
    for byte in fraction {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        place_ns /= 10;
        below += u64::from(digit) * place_ns;
    }
    number(whole)?.checked_mul(unit_ns)?.checked_add(below)
}

/// A request, if its extent makes sense.
pub(super) fn request(time_ns: u64, write: bool, offset: u64, length: u64) -> Result<Request, Fault> {
    let fits = (1..=LENGTH_MAX).contains(&length) && offset.checked_add(length).is_some();
    match u32::try_from(length) {
        Ok(length) if fits => Ok(Request { time_ns, write, offset, length }),
        _ => Err(Fault::Extent { offset, length }),
    }
}

/// A request in sectors of 512 bytes.
pub(super) fn request_of_sectors(
    time_ns: u64,
    write: bool,
    first: u64,
    sectors: u64,
) -> Result<Request, Fault> {
    let bytes = |sectors: u64| sectors.checked_mul(512);
    let (Some(offset), Some(length)) = (bytes(first), bytes(sectors)) else {
        return Err(Fault::Extent { offset: first, length: sectors });
    };
    request(time_ns, write, offset, length)
}

/// The columns of a line that `separates` splits, if there are exactly `N`.
pub(super) fn columns<'a, const N: usize>(
    mut parts: impl Iterator<Item = &'a [u8]>,
) -> Option<[&'a [u8]; N]> {
    let mut columns = [&b""[..]; N];
    for column in &mut columns {
        *column = parts.next()?;
    }
    parts.next().is_none().then_some(columns)
}

/// Words between white space.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_exact_or_nothing() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"-1", b"1e3", b"0x10", b" 1", b"1_0", b"\xff"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
        assert_eq!(time_ns(b"223.412", 1_000_000), Some(223_412_000));
        assert_eq!(time_ns(b"0.000000001", 1_000_000_000), Some(1));
        assert_eq!(time_ns(b"7", 100), Some(700));
        assert_eq!(time_ns(b"1.99", 1), Some(1), "cut off below a nanosecond");
        for bad in [&b"1."[..], b".", b"1.2.3", b"1.x", b"18446744073709551615.0", b"nan", b"-1.0"] {
            assert_eq!(time_ns(bad, 1000), None, "{bad:?}");
        }
    }

    #[test]
    fn extents_that_overflow_are_faults() {
        assert!(request(0, true, u64::MAX - 1, 1).is_ok());
        for (offset, length) in [(u64::MAX, 1), (0, 0), (0, 1 << 31), (0, u64::MAX)] {
            assert_eq!(request(0, true, offset, length), Err(Fault::Extent { offset, length }));
        }
        assert!(request_of_sectors(0, true, 1 << 55, 1).is_err());
        assert!(request_of_sectors(0, true, 0, 1 << 60).is_err());
    }

    #[test]
    fn a_damaged_field_is_shown_short_and_printable() {
        let long = [b"\x1b[2J".as_slice(), &[b'x'; 500]].concat();
        let text = Fault::field("offset", &long).to_string();
        assert!(text.len() < 80 && !text.contains('\x1b'), "{text}");
    }
}
