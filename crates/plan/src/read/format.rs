//! The formats, and how one is recognised: by what stands in the file, never by its name.
//!
//! Each format's own parser tries the first lines; the one that understands most of them is it. Two
//! formats have five columns of numbers: a point in the times, or sizes that are all whole sectors,
//! tell them apart.

use std::fmt;
use std::str::FromStr;

use super::fields::{Said, words};
use super::text;
use super::vscsi::{self, Version};

/// Bytes from the beginning of a file that decide its format.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// Lines of them that are tried.
const LINES_TRIED: usize = 200;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines.
    Text(TextFormat),
    /// CloudPhysics' binary records.
    Vscsi(Version),
}

/// A format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// The drill's CSV.
    Drill,
    /// CSV as of the MSR Cambridge traces.
    Msr,
    /// The same requests as five numbers.
    MsrText,
    /// MQSim's five numbers.
    Mqsim,
    /// What `blkparse` prints; one event of each request counts: `Q`ueued, `D`ispatched or `C`ompleted.
    Blkparse(u8),
    /// Stores and loads of memory, in order.
    Address,
}

/// What a person may ask for: a format, its variant to be recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatName {
    /// `drill`
    Drill,
    /// `msr`
    Msr,
    /// `msr-text`
    MsrText,
    /// `mqsim`
    Mqsim,
    /// `blkparse`
    Blkparse,
    /// `address`
    Address,
    /// `vscsi`
    Vscsi,
}

/// Names as they are typed, in the order in which they are offered.
pub const NAMES: [(&str, FormatName); 7] = [
    ("drill", FormatName::Drill),
    ("msr", FormatName::Msr),
    ("msr-text", FormatName::MsrText),
    ("mqsim", FormatName::Mqsim),
    ("blkparse", FormatName::Blkparse),
    ("vscsi", FormatName::Vscsi),
    ("address", FormatName::Address),
];

impl FromStr for FormatName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("'{text}' is no format of traces: {}", names.join(", "))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(TextFormat::Drill) => "drill",
            Self::Text(TextFormat::Msr) => "msr",
            Self::Text(TextFormat::MsrText) => "msr-text",
            Self::Text(TextFormat::Mqsim) => "mqsim",
            Self::Text(TextFormat::Blkparse(_)) => "blkparse",
            Self::Text(TextFormat::Address) => "address",
            Self::Vscsi(Version::One) => "vscsi, version 1",
            Self::Vscsi(Version::Two) => "vscsi, version 2",
        })
    }
}

impl Format {
    /// Whether its requests have times; otherwise they have only an order.
    pub fn has_times(self) -> bool {
        self != Self::Text(TextFormat::Address)
    }

    /// The format of that name, its variant chosen by `head`.
    pub(super) fn named(name: FormatName, head: &[u8]) -> Self {
        Self::Text(match name {
            FormatName::Drill => TextFormat::Drill,
            FormatName::Msr => TextFormat::Msr,
            FormatName::MsrText => TextFormat::MsrText,
            FormatName::Mqsim => TextFormat::Mqsim,
            FormatName::Blkparse => TextFormat::Blkparse(blkparse_action(head)),
            FormatName::Address => TextFormat::Address,
            FormatName::Vscsi => return Self::Vscsi(vscsi::recognise(head).unwrap_or(Version::One)),
        })
    }

    /// The format of which `head` is the beginning, if of any.
    pub(super) fn recognise(head: &[u8]) -> Option<Self> {
        if let Some(version) = vscsi::recognise(head) {
            return Some(Self::Vscsi(version));
        }
        let five_numbers = if times_in_ms(head) { TextFormat::MsrText } else { TextFormat::Mqsim };
        let candidates = [
            TextFormat::Drill,
            TextFormat::Msr,
            five_numbers,
            TextFormat::Blkparse(blkparse_action(head)),
            TextFormat::Address,
        ];
        let understood = |format: TextFormat| {
            let (mut good, mut bad) = (0_usize, 0_usize);
            for line in lines(head) {
                match text::parse(format, line, 0) {
                    Ok(Said::Request(..)) => good += 1,
                    Ok(Said::Nothing) => {}
                    Err(_) => bad += 1,
                }
            }
            (good > bad).then_some(good)
        };
        candidates
            .into_iter()
            .filter_map(|format| Some((understood(format)?, format)))
            .max_by_key(|(good, _)| *good)
            .map(|(_, format)| Self::Text(format))
    }
}

/// The whole lines of `head`; a last one that is cut off is left out, unless it is the only one.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = match head.iter().rposition(|byte| *byte == b'\n') {
        Some(end) if head.len() >= HEAD_BYTES => &head[..end],
        _ => head,
    };
    whole.split(|byte| *byte == b'\n').take(LINES_TRIED)
}

/// Whether five columns are `ms disk offset bytes type` and not `ns device sector sectors type`.
fn times_in_ms(head: &[u8]) -> bool {
    let mut whole_sectors = true;
    for line in lines(head) {
        let columns: Vec<_> = words(line).collect();
        let [time, _, offset, length, _] = columns[..] else { continue };
        if time.contains(&b'.') {
            return true;
        }
        let whole = |text: &[u8]| super::fields::number(text).is_some_and(|bytes| bytes % 512 == 0);
        whole_sectors &= whole(offset) && whole(length);
    }
    whole_sectors
}

/// The event that stands for a request: queued where there are such, else dispatched, else completed.
fn blkparse_action(head: &[u8]) -> u8 {
    let seen = |action: u8| lines(head).any(|line| words(line).nth(5) == Some(&[action]));
    [b'Q', b'D', b'C'].into_iter().find(|action| seen(*action)).unwrap_or(b'Q')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_their_lines() {
        let text = |format| Some(Format::Text(format));
        for (head, format) in [
            ("time,operation,offset,length\n0,write,0,10\n", text(TextFormat::Drill)),
            ("128166372003061629,hm,1,Read,383496192,32768,413\n", text(TextFormat::Msr)),
            ("0.000 0 200626176 4096 0\n", text(TextFormat::MsrText)),
            ("0 0 200626176 4096 0\n5 0 8192 512 1\n", text(TextFormat::MsrText)),
            ("938513000 4 264719034 16 0\n", text(TextFormat::Mqsim)),
            ("s 0x1fffff50 1\nl 0x1fffff58 1", text(TextFormat::Address)),
            (
                "8,0 3 1 0.0 697 Q W 16 + 8 [x]\n8,0 3 1 0.0 697 D W 16 + 8 [x]",
                text(TextFormat::Blkparse(b'Q')),
            ),
            (
                "8,0 3 1 0.0 697 C W 16 + 8 [0]\n8,0 3 1 0.0 697 D R 1 + 8 [x]",
                text(TextFormat::Blkparse(b'D')),
            ),
            ("one damaged line\n0.000 0 200626176 4096 0\n1.0 0 0 4096 1\n", text(TextFormat::MsrText)),
            ("", None),
            ("\n\n", None),
            ("time,operation,offset,length\n", None),
            ("Lorem ipsum dolor sit amet\n", None),
            ("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", None),
        ] {
            assert_eq!(Format::recognise(head.as_bytes()), format, "{head}");
        }
    }

    #[test]
    fn a_name_that_is_none_gets_the_list() {
        assert_eq!("vscsi".parse(), Ok(FormatName::Vscsi));
        let error = "VSCSI".parse::<FormatName>().expect_err("no such name");
        assert!(error.contains("drill, msr, msr-text"), "{error}");
    }
}
