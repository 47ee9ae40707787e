//! What the store asks of the machine besides the disk: time of day, boot id, random bytes.
//!
//! Nothing here decides anything: times and the boot id are recorded for people to read.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970; 0 when the clock says that it is earlier.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The kernel's id of this boot; zeros when it cannot be read.
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// Bytes that nobody can guess.
pub(crate) fn random() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    assert!(got == bytes.len(), "the kernel returns short requests whole");
    Ok(bytes)
}
