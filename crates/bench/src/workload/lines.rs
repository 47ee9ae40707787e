//! Reads text line by line within a bound: a file without line ends must not fill the memory.
//!
//! Invariant: never more than the bound and one byte is held, however long the line is; the rest of a
//! line that is too long is read past, so that the next line is the next line.

use std::io::{self, BufRead};

/// Bytes read past at once.
const SKIP_BYTES: u64 = 1 << 16;

/// The lines of a text, each with its number from 1.
#[derive(Debug)]
pub struct BoundedLines<R> {
    text: R,
    line: Vec<u8>,
    bytes_max: usize,
    number: u64,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line within the bound.
    Whole(&'a [u8]),
    /// A longer one.
    TooLong,
}

impl<R: BufRead> BoundedLines<R> {
    /// Lines of up to `bytes_max` bytes, their ends included.
    pub fn new(text: R, bytes_max: usize) -> Self {
        Self { text, line: Vec::with_capacity(bytes_max + 1), bytes_max, number: 0 }
    }

    /// Number of the line given last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line; `None` at the end of the text.
    ///
    /// # Errors
    /// What reading the text gives. The line's number has moved on to the one being read.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.number += 1;
        self.line.clear();
        let read = self.read_some(self.bytes_max as u64 + 1)?;
        if read == 0 {
            return Ok(None);
        }
        if read > self.bytes_max {
            while self.line.last() != Some(&b'\n') {
                self.line.clear();
                if self.read_some(SKIP_BYTES)? == 0 {
                    break;
                }
            }
            return Ok(Some(Line::TooLong));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))))
    }

    fn read_some(&mut self, bytes: u64) -> io::Result<usize> {
        io::Read::take(&mut self.text, bytes).read_until(b'\n', &mut self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_without_their_ends_and_long_ones_are_passed_over() {
        let mut text = b"one\r\n\ntwo\n".to_vec();
        text.extend_from_slice(&[b'x'; 200_000]);
        text.extend_from_slice(b"\nthree");
        let mut lines = BoundedLines::new(&text[..], 8);
        let mut next = || lines.next_line().expect("memory does not fail").map(|line| format!("{line:?}"));
        let whole = |text: &str| Some(format!("{:?}", Line::Whole(text.as_bytes())));
        assert_eq!(next(), whole("one"));
        assert_eq!(next(), whole(""));
        assert_eq!(next(), whole("two"));
        assert_eq!(next(), Some("TooLong".to_owned()));
        assert_eq!(next(), whole("three"));
        assert_eq!(next(), None);
        assert!(lines.line.capacity() <= SKIP_BYTES as usize * 2, "bounded");
    }
}
