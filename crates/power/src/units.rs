//! Turns what a person writes into exact integers, and integers into what a person reads.
//!
//! Decimals are scaled as integers, never through floating point, so `0.1s` is exactly 100,000,000
//! nanoseconds. A value between two integers is rounded to the side that the caller names: what we
//! have is rounded down, what we need is rounded up.
//!
//! A parsed number is exact; a formatted one is for reading, and keeps three or four digits.

use std::fmt;

/// Bytes in a page: the unit of tracking, checksumming and storing.
pub const PAGE_BYTES: u64 = 4096;

/// Nanoseconds in a second.
pub const NS_PER_SECOND: u64 = 1_000_000_000;

/// Digits behind the point that count; more only decide the rounding.
const FRACTION_DIGITS_MAX: usize = 18;

/// The side to which a value between two integers goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// For what we have: energy, space.
    Down,
    /// For what we need: power, delays.
    Up,
}

/// One unit of a quantity: how it is written, and how many base units it is.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Spellings, the preferred one first. Matched exactly: `mJ` is not `MJ`.
    pub names: &'static [&'static str],
    /// Base units in one of these.
    pub scale: u64,
}

impl Unit {
    /// A unit of `scale` base units, by all its spellings.
    pub const fn new(names: &'static [&'static str], scale: u64) -> Self {
        Self { names, scale }
    }
}

/// What is being parsed: its name and examples for the error message, its units, its rounding.
#[derive(Debug)]
pub struct Quantity {
    /// Names the quantity in an error message, with its article.
    pub what: &'static str,
    /// Valid examples, shown in every error message.
    pub examples: &'static str,
    /// Known units, ascending.
    pub units: &'static [Unit],
    /// Base units in a number without a unit; `None` where a unit must be written.
    pub bare_scale: Option<u64>,
    /// Where a value between two base units goes.
    pub rounding: Rounding,
}

/// Durations, in nanoseconds.
pub static DURATION: Quantity = Quantity {
    what: "a duration",
    examples: "'250ms', '2s', '1.5m'",
    units: &[
        Unit::new(&["ns"], 1),
        Unit::new(&["us", "µs"], 1_000),
        Unit::new(&["ms"], 1_000_000),
        Unit::new(&["s", "sec"], NS_PER_SECOND),
        Unit::new(&["m", "min"], 60 * NS_PER_SECOND),
        Unit::new(&["h"], 3_600 * NS_PER_SECOND),
    ],
    bare_scale: None,
    rounding: Rounding::Up,
};

/// Sizes, in bytes. `K`, `M`, `G`, `T` alone are powers of 1024, as in coreutils.
pub static SIZE: Quantity = Quantity {
    what: "a size",
    examples: "'64MiB', '64MB', '4096'",
    units: &[
        Unit::new(&["B"], 1),
        Unit::new(&["kB", "KB"], 1_000),
        Unit::new(&["KiB", "K", "k"], 1 << 10),
        Unit::new(&["MB"], 1_000_000),
        Unit::new(&["MiB", "M"], 1 << 20),
        Unit::new(&["GB"], 1_000_000_000),
        Unit::new(&["GiB", "G"], 1 << 30),
        Unit::new(&["TB"], 1_000_000_000_000),
        Unit::new(&["TiB", "T"], 1 << 40),
    ],
    bare_scale: Some(1),
    rounding: Rounding::Down,
};

/// Why a text is not the quantity that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseProblem {
    /// Nothing but white space.
    Empty,
    /// No decimal number in front: a word, `NaN`, two points.
    NotANumber,
    /// A minus sign.
    Negative,
    /// A bare number where the unit decides the meaning.
    UnitMissing,
    /// A number, then letters that are no unit of this quantity.
    UnitUnknown {
        /// What stands where the unit should.
        unit: String,
    },
    /// More than 64 bits of base units.
    TooLarge,
}

/// A text that is not the quantity that was asked for: the value, the cause, and valid examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// What was asked for.
    pub what: &'static str,
    /// The text as given.
    pub value: String,
    /// What is wrong with it.
    pub problem: ParseProblem,
    /// Valid examples.
    pub examples: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not {}: ", self.value, self.what)?;
        match &self.problem {
            ParseProblem::Empty => write!(f, "it is empty")?,
            ParseProblem::NotANumber => write!(f, "it does not start with a decimal number")?,
            ParseProblem::Negative => write!(f, "it is negative")?,
            ParseProblem::UnitMissing => write!(f, "the unit is missing")?,
            ParseProblem::UnitUnknown { unit } => write!(f, "the unit '{unit}' is unknown")?,
            ParseProblem::TooLarge => write!(f, "it is too large")?,
        }
        write!(f, " (examples: {})", self.examples)
    }
}

impl std::error::Error for ParseError {}

impl Quantity {
    /// Reads a decimal number and a unit, with or without a space between them, in base units.
    pub fn parse(&self, text: &str) -> Result<u64, ParseError> {
        self.parse_or_problem(text.trim()).map_err(|problem| ParseError {
            what: self.what,
            value: text.to_owned(),
            problem,
            examples: self.examples,
        })
    }

    fn parse_or_problem(&self, text: &str) -> Result<u64, ParseProblem> {
        if text.is_empty() {
            return Err(ParseProblem::Empty);
        }
        if text.starts_with(['-', '\u{2212}']) {
            return Err(ParseProblem::Negative);
        }
        let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(ParseProblem::NotANumber);
        }
        let scale = self.scale_of(unit.trim())?;
        scale_decimal(whole, fraction, scale, self.rounding).ok_or(ParseProblem::TooLarge)
    }

    fn scale_of(&self, unit: &str) -> Result<u64, ParseProblem> {
        if unit.is_empty() {
            return self.bare_scale.ok_or(ParseProblem::UnitMissing);
        }
        let known = self.units.iter().find(|known| known.names.contains(&unit));
        known.map(|known| known.scale).ok_or_else(|| ParseProblem::UnitUnknown { unit: unit.to_owned() })
    }
}

/// `whole.fraction x scale` as an integer; `None` if it needs more than 64 bits.
///
/// Both parts hold ASCII digits only; an empty part is zero.
fn scale_decimal(whole: &str, fraction: &str, scale: u64, rounding: Rounding) -> Option<u64> {
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (kept, rest) = fraction.split_at(fraction.len().min(FRACTION_DIGITS_MAX));
    let rest_counts = rest.bytes().any(|digit| digit != b'0');
    let kept_denominator = 10u128.pow(kept.len() as u32);
    let kept: u128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };

    // Below 2^60 x 2^64: the fraction is shorter than 19 digits.
    let scaled_fraction = kept * u128::from(scale);
    let inexact = rest_counts || !scaled_fraction.is_multiple_of(kept_denominator);
    let round_up = u128::from(inexact && rounding == Rounding::Up);
    let total = whole
        .checked_mul(u128::from(scale))?
        .checked_add(scaled_fraction / kept_denominator)?
        .checked_add(round_up)?;
    u64::try_from(total).ok()
}

/// Reads a duration in nanoseconds: `250ms`, `2s`, `1.5m`. Rounds up.
pub fn parse_duration_ns(text: &str) -> Result<u64, ParseError> {
    DURATION.parse(text)
}

/// Reads a size in bytes: `64MiB`, `64MB`, `4096`. Rounds down.
pub fn parse_size_bytes(text: &str) -> Result<u64, ParseError> {
    SIZE.parse(text)
}

/// Writes a duration to read: `250 ms`, `1.25 s`, `90.0 s`, `17.1 min`.
pub fn format_duration_ns(duration_ns: u64) -> String {
    let steps = [("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", NS_PER_SECOND)];
    if duration_ns < 120 * NS_PER_SECOND {
        return format_stepped(duration_ns, &steps);
    }
    let steps = [("min", 60 * NS_PER_SECOND), ("h", 3_600 * NS_PER_SECOND)];
    format_stepped(duration_ns, &steps)
}

/// Writes a size to read, in powers of 1024: `4096 B` is `4 KiB`, 67,108,864 bytes are `64 MiB`.
pub fn format_size(size_bytes: u64) -> String {
    format_stepped(
        size_bytes,
        &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)],
    )
}

/// Writes a bandwidth to read, in powers of 1000 as disks are sold: `350 MB/s`, `4 GB/s`.
pub fn format_bandwidth(bytes_per_s: u64) -> String {
    format_stepped(bytes_per_s, &[("B/s", 1), ("kB/s", 1_000), ("MB/s", 1_000_000), ("GB/s", 1_000_000_000)])
}

/// The largest step that fits at least once, with two decimals below ten, one below a hundred.
/// Steps ascend. For reading only: this is where floating point is allowed.
pub(crate) fn format_stepped(value: u64, steps: &[(&str, u64)]) -> String {
    let fitting = steps.iter().rev().find(|(_, scale)| value >= *scale);
    let Some((name, scale)) = fitting.or(steps.first()) else {
        return value.to_string();
    };
    if value.is_multiple_of(*scale) {
        return format!("{} {name}", value / scale);
    }
    let scaled = value as f64 / *scale as f64;
    match scaled {
        scaled if scaled < 10.0 => format!("{scaled:.2} {name}"),
        scaled if scaled < 100.0 => format!("{scaled:.1} {name}"),
        scaled => format!("{scaled:.0} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_exact() {
        for (text, duration_ns) in [
            ("250ms", 250_000_000),
            ("2s", 2_000_000_000),
            ("1.5m", 90_000_000_000),
            ("0.1 s", 100_000_000),
            (" 3 us ", 3_000),
            ("3µs", 3_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            (".5s", 500_000_000),
            ("0.1ns", 1),
            ("1.00000000000000000000001s", 1_000_000_001),
        ] {
            assert_eq!(parse_duration_ns(text), Ok(duration_ns), "{text}");
        }
    }

    #[test]
    fn sizes_are_exact_and_round_down() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("64 MB", 64_000_000),
            ("4096", 4096),
            ("4096B", 4096),
            ("1.5KiB", 1536),
            ("1.9B", 1),
            ("2T", 2 << 40),
            ("16777215.9999999999TiB", u64::MAX - 109),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn each_problem_is_told_apart_and_names_the_value() {
        let unknown = |unit: &str| ParseProblem::UnitUnknown { unit: unit.to_owned() };
        for (text, problem) in [
            ("", ParseProblem::Empty),
            ("   ", ParseProblem::Empty),
            ("soon", ParseProblem::NotANumber),
            ("NaN", ParseProblem::NotANumber),
            ("inf", ParseProblem::NotANumber),
            (".", ParseProblem::NotANumber),
            ("1.2.3s", ParseProblem::NotANumber),
            ("+1s", ParseProblem::NotANumber),
            ("-1s", ParseProblem::Negative),
            ("-0s", ParseProblem::Negative),
            ("12", ParseProblem::UnitMissing),
            ("12parsec", unknown("parsec")),
            ("1e3s", unknown("e3s")),
            ("1,5s", unknown(",5s")),
            ("6000000000000h", ParseProblem::TooLarge),
            ("99999999999999999999999999999999999999999s", ParseProblem::TooLarge),
        ] {
            let error = parse_duration_ns(text).expect_err(text);
            assert_eq!(error.problem, problem, "{text}");
            let message = error.to_string();
            assert!(message.contains(&format!("'{text}'")) && message.contains("'250ms'"), "{message}");
        }
    }

    #[test]
    fn formats_are_short() {
        assert_eq!(format_duration_ns(0), "0 ns");
        assert_eq!(format_duration_ns(1_250_000_000), "1.25 s");
        assert_eq!(format_duration_ns(1_024_000_000_000), "17.1 min");
        assert_eq!(format_size(0), "0 B");
        assert_eq!(format_size(64 << 20), "64 MiB");
        assert_eq!(format_size(118_111_600), "113 MiB");
        assert_eq!(format_bandwidth(4_000_000_000), "4 GB/s");
    }

    proptest! {
        #[test]
        fn whatever_is_formatted_is_parsed_back_within_a_percent(value: u64) {
            let size = parse_size_bytes(&format_size(value)).expect("a formatted size is a size") as f64;
            prop_assert!((size - value as f64).abs() <= value as f64 / 100.0);
            let text = format_duration_ns(value);
            let duration = parse_duration_ns(&text).expect("a formatted duration is a duration") as f64;
            prop_assert!((duration - value as f64).abs() <= value as f64 / 100.0, "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC*", number in "[-+0-9.eE]{0,60}[a-zA-Z%µ]{0,3}") {
            for text in [text, number] {
                let _ = (parse_size_bytes(&text), parse_duration_ns(&text));
            }
        }
    }
}
