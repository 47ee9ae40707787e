//! CloudPhysics' vSCSI traces: little-endian records of 32 bytes (version 1) or 40 (version 2).
//!
//! ```text
//! version 1   sn u32 | len u32 | nSG u32 | cmd u16 | ver u16 | lbn u64 | ts u64
//! version 2   cmd u16 | ver u16 | sn u32 | len u32 | nSG u32 | lbn u64 | ts u64 | rt u64
//! ```
//!
//! `len` is bytes, `lbn` sectors of 512 bytes, `ts` microseconds, `cmd` a SCSI operation code; the high
//! byte of `ver` is the version. Layout: libCacheSim's `vscsi.h`.
//!
//! Does not know files.

use super::fields::{Fault, Said, request};

/// Which of both layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Records of 32 bytes.
    One,
    /// Records of 40 bytes.
    Two,
}

impl Version {
    /// Bytes of a record.
    pub fn record_bytes(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// Most bytes of a record of any version.
pub(super) const RECORD_BYTES_MAX: usize = 40;

/// SCSI operation codes that carry data to the disk: WRITE of 6, 10, 12, 16 bytes, WRITE AND VERIFY,
/// WRITE SAME, COMPARE AND WRITE.
const WRITES: [u16; 9] = [0x0a, 0x2a, 0xaa, 0x8a, 0x2e, 0x8e, 0x41, 0x93, 0x89];
/// READ of 6, 10, 12, 16 bytes.
const READS: [u16; 4] = [0x08, 0x28, 0xa8, 0x88];

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from(u16_at(record, at)) | u32::from(u16_at(record, at + 2)) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

/// What one record says. `record` has the version's bytes.
pub(super) fn parse(version: Version, record: &[u8]) -> Result<Said<'static>, Fault> {
    assert_eq!(record.len(), version.record_bytes(), "the reader cuts records");
    // cmd, ver, len, lbn, ts
    let [command_at, version_at, length_at, first_at, time_at] = match version {
        Version::One => [12, 14, 4, 16, 24],
        Version::Two => [0, 2, 8, 16, 24],
    };
    let found = u16_at(record, version_at);
    if found >> 8 != version.number() {
        return Err(Fault::Field { column: "version of a record", text: format!("{found:#06x}") });
    }
    let command = u16_at(record, command_at);
    let write = WRITES.contains(&command);
    let length = u64::from(u32_at(record, length_at));
    if !(write || READS.contains(&command)) || length == 0 {
        return Ok(Said::Nothing);
    }
    let (first, micros) = (u64_at(record, first_at), u64_at(record, time_at));
    let offset = first.checked_mul(512).ok_or(Fault::Extent { offset: first, length })?;
    let time_ns = micros
        .checked_mul(1_000)
        .ok_or_else(|| Fault::Field { column: "time in µs", text: micros.to_string() })?;
    request(time_ns, write, offset, length).map(|request| Said::Request(b"disk", request))
}

/// The version of which `head`, the beginning of a file, is, if of any.
pub(super) fn recognise(head: &[u8]) -> Option<Version> {
    const LOOKED_AT: usize = 64;
    [Version::Two, Version::One].into_iter().find(|version| {
        let mut records = head.chunks_exact(version.record_bytes()).take(LOOKED_AT).peekable();
        // Mostly right is right: one damaged record at the front must not hide the format.
        let (mut right, mut wrong) = (0, 0);
        let some = records.peek().is_some();
        for record in records {
            match parse(*version, record) {
                Ok(Said::Request(..)) => right += 1,
                Ok(Said::Nothing) => {}
                Err(_) => wrong += 1,
            }
        }
        some && right > 3 * wrong
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    /// The first record of a trace that CloudPhysics published.
    const FIRST: [u8; 32] = [
        0xf4, 0, 0, 0x80, 0, 2, 0, 0, 1, 0, 0, 0, 0x2a, 0, 0, 1, 9, 0x1a, 0x8f, 2, 0, 0, 0, 0, 0x22, 0xcf,
        0x82, 0xbe, 0x1f, 5, 0, 0,
    ];

    fn version_two() -> [u8; 40] {
        let mut record = [0; 40];
        record[..4].copy_from_slice(&FIRST[12..16]);
        record[3] = 2;
        record[4..16].copy_from_slice(&FIRST[..12]);
        record[16..32].copy_from_slice(&FIRST[16..]);
        record
    }

    #[test]
    fn both_layouts_say_the_same() {
        let request =
            Request { time_ns: 5_633_898_368_802_000, write: true, offset: 0x28f_1a09 * 512, length: 512 };
        assert_eq!(parse(Version::One, &FIRST), Ok(Said::Request(b"disk", request)));
        assert_eq!(parse(Version::Two, &version_two()), Ok(Said::Request(b"disk", request)));
    }

    #[test]
    fn versions_are_told_apart_and_from_noise() {
        assert_eq!(recognise(&FIRST.repeat(3)), Some(Version::One));
        assert_eq!(recognise(&version_two().repeat(3)), Some(Version::Two));
        assert_eq!(recognise(&[0; 4096]), None);
        assert_eq!(recognise(&FIRST[..31]), None);
        assert_eq!(
            recognise(b"time,operation,offset,length\n0,write,0,10\n1,read,0,10\n0,write,0,10\n"),
            None
        );
    }

    #[test]
    fn damage_is_a_fault_and_other_commands_are_nothing() {
        let mut other = FIRST;
        other[12] = 0x35;
        assert_eq!(parse(Version::One, &other), Ok(Said::Nothing));
        let mut wrong = FIRST;
        wrong[15] = 9;
        assert!(parse(Version::One, &wrong).is_err());
        let mut far = FIRST;
        far[23] = 0xff;
        assert!(matches!(parse(Version::One, &far), Err(Fault::Extent { .. })));
        let mut late = FIRST;
        late[31] = 0xff;
        assert!(parse(Version::One, &late).is_err());
    }
}
