//! How a manager logs: the choices, and their defaults.

use std::fs;

/// Which values the log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logging {
    /// The new ones: stores wait in DRAM until the commit, and are applied behind it. One fence a
    /// transaction, and a lane is held for the commit alone.
    #[default]
    Redo,
    /// The old ones: stores go to their place at once, behind a fence for each range that is new to the
    /// transaction. Reads cost nothing, and a lane is held from the first store to the end.
    Undo,
}

/// What a store tells the log about its size (figure 17 of the paper).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Whole words: counters, pointers.
    Word,
    /// Anything else.
    #[default]
    Object,
}

/// Which records may be made. All but [`Granularity::Hybrid`] are there to be measured against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// As the hints say.
    #[default]
    Hybrid,
    /// A word record for each word that is stored to.
    WordOnly,
    /// No word records; and a store to a field logs the whole object.
    ObjectOnly,
}

/// How to open a manager.
#[derive(Clone, Debug)]
pub struct Options {
    /// Undo or redo.
    pub logging: Logging,
    /// Which records.
    pub granularity: Granularity,
    /// A lane's log is truncated when it holds so many bytes, or is full: so it stays in the cache.
    pub truncate_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            logging: Logging::default(),
            granularity: Granularity::default(),
            truncate_bytes: last_level_cache_bytes().unwrap_or(PAPERS_CACHE_BYTES),
        }
    }
}

/// The last-level cache of the paper's machine, for a system that does not tell.
const PAPERS_CACHE_BYTES: usize = 1 << 20;

/// Size of the largest cache of the first processor, as the kernel tells it.
pub fn last_level_cache_bytes() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    caches.filter_map(|cache| kib(&fs::read_to_string(cache.ok()?.path().join("size")).ok()?)).max()
}

/// The bytes of "32768K".
fn kib(text: &str) -> Option<usize> {
    text.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_size_is_read_as_the_kernel_writes_it() {
        assert_eq!(kib("32768K\n"), Some(32 << 20));
        assert_eq!(kib("12M"), None);
        assert_eq!(kib(""), None);
    }
}
