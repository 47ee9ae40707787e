//! The text formats, one function for a line each.
//!
//! | format | a line |
//! |---|---|
//! | drill | `time,operation,offset,length` below that header; seconds, `read` or `write`, bytes |
//! | msr | `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`; ticks of 100 ns, `Read` or `Write`, bytes |
//! | msr-text | `ms disk offset bytes type`; 0 writes, 1 reads |
//! | mqsim | `ns device sector sectors type`; 0 writes, 1 reads; sectors of 512 bytes |
//! | blkparse | `major,minor cpu sequence seconds pid action rwbs sector + sectors [process]` |
//! | address | `s 0xADDRESS n` stores, `l 0xADDRESS n` loads, in order, without times |
//!
//! Does not know files, or where a line stands.

use wattkeep_bench::workload::trace_file::{self, TRACE_HEADER};

use super::fields::{Fault, Said, columns, number, numbered, request, request_of_sectors, time_ns, words};
use super::format::TextFormat;

const MSR_COLUMNS: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

/// What one line says in `format`. `order` stands for the time where the format has none.
pub(super) fn parse(format: TextFormat, line: &[u8], order: u64) -> Result<Said<'_>, Fault> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(Said::Nothing);
    }
    match format {
        TextFormat::Drill => drill(line),
        TextFormat::Msr => msr(line),
        TextFormat::MsrText => msr_text(line),
        TextFormat::Mqsim => mqsim(line),
        TextFormat::Blkparse(action) => blkparse(line, action),
        TextFormat::Address => address(line, order),
    }
}

fn drill(line: &[u8]) -> Result<Said<'_>, Fault> {
    if line == TRACE_HEADER.as_bytes() {
        return Ok(Said::Nothing);
    }
    let (seconds, parsed) = trace_file::parse_line(line).map_err(Fault::Drill)?;
    let ns = (seconds * 1e9).round();
    // 2^64 exactly: the first float that does not fit.
    if ns >= 18_446_744_073_709_551_616.0 {
        return Err(Fault::field("time", line));
    }
    request(ns as u64, parsed.write, parsed.offset, parsed.length.into()).map(|r| Said::Request(b"region", r))
}

fn msr(line: &[u8]) -> Result<Said<'_>, Fault> {
    let Some([time, host, disk, kind, offset, size, _response]) = columns(line.split(|byte| *byte == b','))
    else {
        return Err(Fault::Columns(MSR_COLUMNS));
    };
    if time.eq_ignore_ascii_case(b"timestamp") {
        return Ok(Said::Nothing);
    }
    let time_ns = time_ns(time, 100).ok_or_else(|| Fault::field("Timestamp", time))?;
    let write = match kind {
        kind if kind.eq_ignore_ascii_case(b"write") => true,
        kind if kind.eq_ignore_ascii_case(b"read") => false,
        other => return Err(Fault::field("Type", other)),
    };
    // A machine's disks are apart, and so are the machines: `host,disk` stands in the line as it is.
    let volume_from = time.len() + 1;
    let volume = &line[volume_from..volume_from + host.len() + 1 + disk.len()];
    numbered("DiskNumber", disk)?;
    request(time_ns, write, numbered("Offset", offset)?, numbered("Size", size)?)
        .map(|request| Said::Request(volume, request))
}

fn msr_text(line: &[u8]) -> Result<Said<'_>, Fault> {
    let Some([time, disk, offset, size, kind]) = columns(words(line)) else {
        return Err(Fault::Columns("ms disk offset bytes type"));
    };
    let time_ns = time_ns(time, 1_000_000).ok_or_else(|| Fault::field("time in ms", time))?;
    numbered("disk", disk)?;
    request(time_ns, zero_writes(kind)?, numbered("offset", offset)?, numbered("size", size)?)
        .map(|request| Said::Request(disk, request))
}

fn mqsim(line: &[u8]) -> Result<Said<'_>, Fault> {
    let Some([time, device, first, sectors, kind]) = columns(words(line)) else {
        return Err(Fault::Columns("ns device sector sectors type"));
    };
    let time_ns = numbered("time in ns", time)?;
    numbered("device", device)?;
    request_of_sectors(
        time_ns,
        zero_writes(kind)?,
        numbered("sector", first)?,
        numbered("number of sectors", sectors)?,
    )
    .map(|request| Said::Request(device, request))
}

fn zero_writes(kind: &[u8]) -> Result<bool, Fault> {
    match kind {
        b"0" => Ok(true),
        b"1" => Ok(false),
        other => Err(Fault::field("type (0 or 1)", other)),
    }
}

/// Lines of events begin with `major,minor`; what does not is blkparse's summary at the end.
fn blkparse(line: &[u8], wanted: u8) -> Result<Said<'_>, Fault> {
    const SUMMARY: [&[u8]; 12] = [
        b"CPU",
        b"Total",
        b"Reads",
        b"Read",
        b"Writes",
        b"PC",
        b"IO",
        b"Throughput",
        b"Events",
        b"Skips:",
        b"Allocation",
        b"Input",
    ];
    const COLUMNS: &str = "major,minor cpu sequence seconds pid action rwbs sector + sectors";
    let mut parts = words(line);
    let device = parts.next().unwrap_or_default();
    if SUMMARY.iter().any(|word| device.starts_with(word)) {
        return Ok(Said::Nothing);
    }
    let is_device = device
        .iter()
        .position(|byte| *byte == b',')
        .is_some_and(|comma| number(&device[..comma]).is_some() && number(&device[comma + 1..]).is_some());
    let (Some(_cpu), Some(_sequence), Some(time), Some(_pid), Some(action)) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::Columns(COLUMNS));
    };
    if !is_device {
        return Err(Fault::field("device", device));
    }
    let time_ns = time_ns(time, 1_000_000_000).ok_or_else(|| Fault::field("time in seconds", time))?;
    if action != [wanted] {
        return Ok(Said::Nothing);
    }
    // R and W move data; D discards, F flushes, N is none of them. What has no sectors goes on with the
    // process in brackets.
    let (Some(rwbs), Some(sector)) = (parts.next(), parts.next()) else {
        return Err(Fault::Columns(COLUMNS));
    };
    let write = rwbs.contains(&b'W');
    if sector.starts_with(b"[") || rwbs.contains(&b'D') || !(write || rwbs.contains(&b'R')) {
        return Ok(Said::Nothing);
    }
    let (Some(b"+"), Some(sectors)) = (parts.next(), parts.next()) else {
        return Err(Fault::Columns(COLUMNS));
    };
    let (sector, sectors) = (numbered("sector", sector)?, numbered("number of sectors", sectors)?);
    if sectors == 0 {
        return Ok(Said::Nothing);
    }
    request_of_sectors(time_ns, write, sector, sectors).map(|request| Said::Request(device, request))
}

/// The last column counts instructions since the line before; an access is taken as one byte, as the
/// format does not tell.
fn address(line: &[u8], order: u64) -> Result<Said<'_>, Fault> {
    let Some([kind, address, count]) = columns(words(line)) else {
        return Err(Fault::Columns("s|l 0xADDRESS n"));
    };
    let write = match kind {
        b"s" => true,
        b"l" => false,
        other => return Err(Fault::field("kind (s or l)", other)),
    };
    let bad = || Fault::field("address", address);
    let digits = address.strip_prefix(b"0x").ok_or_else(bad)?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+')).ok_or_else(bad)?;
    let offset = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
    numbered("count", count)?;
    request(order, write, offset, 1).map(|request| Said::Request(b"memory", request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn said(format: TextFormat, line: &str) -> (String, Request) {
        match parse(format, line.as_bytes(), 7).expect(line) {
            Said::Request(volume, request) => (String::from_utf8_lossy(volume).into_owned(), request),
            Said::Nothing => panic!("{line} says nothing"),
        }
    }

    #[test]
    fn each_format_says_the_same_request() {
        let request = Request { time_ns: 1_500_000_000, write: true, offset: 8192, length: 4096 };
        for (format, line, volume) in [
            (TextFormat::Drill, "1.5,write,8192,4096", "region"),
            (TextFormat::Msr, "15000000,hm,1,Write,8192,4096,413", "hm,1"),
            (TextFormat::MsrText, "1500.000 3 8192 4096 0", "3"),
            (TextFormat::Mqsim, "1500000000 13 16 8 0", "13"),
            (
                TextFormat::Blkparse(b'Q'),
                "  8,0    3   1   1.500000000   697  Q  WS 16 + 8 [kjournald]",
                "8,0",
            ),
        ] {
            assert_eq!(said(format, line), (volume.to_owned(), request), "{line}");
        }
        let (volume, load) = said(TextFormat::Address, "l 0x1fffff58 6");
        assert_eq!(volume, "memory");
        assert_eq!(load, Request { time_ns: 7, write: false, offset: 0x1fff_ff58, length: 1 });
    }

    #[test]
    fn what_is_no_request_is_nothing_and_what_is_damaged_is_a_fault() {
        let queue = TextFormat::Blkparse(b'Q');
        for (format, line) in [
            (TextFormat::Msr, MSR_COLUMNS),
            (TextFormat::Drill, TRACE_HEADER),
            (queue, "  8,0    3   1   1.500000000   697  D   W 16 + 8 [kjournald]"),
            (queue, "  8,0    3   1   1.500000000   697  Q   D 16 + 8 [fstrim]"),
            (queue, "  8,0    3   1   1.500000000   697  Q  FN [kworker]"),
            (queue, "  8,0    1        0     1.000000000     0  m   N cfq697 slice expired"),
            (queue, "CPU0 (8,0):"),
            (queue, " Reads Queued:         263,    1,052KiB\t Writes Queued:       1,   16KiB"),
            (queue, "Throughput (R/W): 3,056KiB/s / 46KiB/s"),
        ] {
            assert_eq!(parse(format, line.as_bytes(), 0), Ok(Said::Nothing), "{line}");
        }
        for (format, line) in [
            (TextFormat::Msr, "15000000,hm,1,Write,8192,4096"),
            (TextFormat::Msr, "15000000,hm,one,Write,8192,4096,413"),
            (TextFormat::Msr, "15000000,hm,1,Erase,8192,4096,413"),
            (TextFormat::Msr, "184467440737095517,hm,1,Read,8192,4096,413"),
            (TextFormat::MsrText, "1500.000 3 8192 4096 2"),
            (TextFormat::MsrText, "1500.000 3 8192 4096"),
            (TextFormat::Mqsim, "1500000000 13 36028797018963968 8 0"),
            (TextFormat::Drill, "1.5,erase,8192,4096"),
            (TextFormat::Drill, "1e300,write,8192,4096"),
            (TextFormat::Address, "s 1fffff58 6"),
            (TextFormat::Address, "s 0x1ffffffffffffffff 6"),
            (TextFormat::Address, "x 0x1 6"),
            (queue, "  8,0    3   1   1.500000000   697  Q   W sixteen + 8"),
            (queue, "  8;0    3   1   1.500000000   697  Q   W 16 + 8"),
            (queue, "  8,0    3"),
        ] {
            assert!(parse(format, line.as_bytes(), 0).is_err(), "{line}");
        }
    }
}
