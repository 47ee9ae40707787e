//! The trace as a file: the CSV that `wattkeep drill --workload trace:FILE` and `wattkeep plan` read.
//!
//! Whole epochs are written at once, so that a killed recorder leaves whole lines of whole epochs.
//! Does not know programs or page tables.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use wattkeep_sys::pagemap::PageRun;

/// The first line.
const HEADER: &str = "time,operation,offset,length";

/// Longest run on one line, in bytes: readers of the format take lengths below 2 GiB.
const LENGTH_MAX: u64 = 1 << 30;

const PAGE_BYTES: u64 = 4096;

/// A trace being written.
#[derive(Debug)]
pub struct TraceFile {
    out: BufWriter<File>,
    pages: u64,
}

impl TraceFile {
    /// Begins a trace in an empty file.
    pub fn begin(file: File) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        writeln!(out, "{HEADER}")?;
        Ok(Self { out, pages: 0 })
    }

    /// Adds a run of pages that were written before `time`, counted from the program's begin.
    pub fn add(&mut self, time: Duration, run: PageRun) -> io::Result<()> {
        let mut start = run.start;
        while start < run.end {
            let length = (run.end - start).min(LENGTH_MAX);
            writeln!(self.out, "{}.{:06},write,{start},{length}", time.as_secs(), time.subsec_micros())?;
            start += length;
        }
        self.pages += (run.end - run.start) / PAGE_BYTES;
        Ok(())
    }

    /// The epoch is over: what was added goes to the file.
    pub fn end_epoch(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Pages so far: one written in two epochs counts twice.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn runs_longer_than_readers_take_are_split() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let mut trace = TraceFile::begin(file.try_clone().expect("its clone")).expect("begun");
        let run = PageRun { start: 4096, end: 4096 + (5 << 29), ..PageRun::default() };
        trace.add(Duration::from_micros(2_000_010), run).expect("added");
        trace.end_epoch().expect("written");
        let mut text = String::new();
        file.rewind().expect("to its begin");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(
            text,
            "time,operation,offset,length\n2.000010,write,4096,1073741824\n\
             2.000010,write,1073745920,1073741824\n2.000010,write,2147487744,536870912\n"
        );
        assert_eq!(trace.pages(), 5 << 17);
    }
}
