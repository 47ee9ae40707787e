//! Which pieces of memory larger than a page the machine gives to a program that asks with MADV_HUGEPAGE,
//! and how much memory is free.
//!
//! The words are those of the kernel's "Transparent Hugepage Support": `enabled` holds for private memory,
//! `shmem_enabled` for shared, one value per size, of which `inherit` means the value for all. Reads `/sys`
//! and `/proc`; changes nothing.

use std::fs;
use std::path::Path;

const SETTINGS: &str = "/sys/kernel/mm/transparent_hugepage";

/// Sizes in bytes, ascending, that private memory comes in where [`crate::map::Mapping::take_large_pieces`]
/// asked for it. None of a kernel without them.
pub fn sizes_on_request() -> Vec<usize> {
    sizes_in(Path::new(SETTINGS), "enabled", &["always", "madvise"])
}

/// The same of shared memory.
pub fn shared_sizes_on_request() -> Vec<usize> {
    sizes_in(Path::new(SETTINGS), "shmem_enabled", &["always", "within_size", "advise", "force"])
}

fn sizes_in(settings: &Path, name: &str, allowing: &[&str]) -> Vec<usize> {
    let for_all = chosen(&settings.join(name));
    let Ok(entries) = fs::read_dir(settings) else { return Vec::new() };
    let mut sizes: Vec<usize> = entries
        .filter_map(|entry| {
            let size = entry.ok()?.file_name();
            let kib: usize = size.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let here = chosen(&settings.join(&size).join(name))?;
            let valid = if here == "inherit" { for_all.as_deref()? } else { &here };
            allowing.contains(&valid).then_some(kib << 10)
        })
        .collect();
    sizes.sort_unstable();
    sizes
}

/// The word in brackets.
fn chosen(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Bytes that programs can still have without swapping: MemAvailable of `/proc/meminfo`.
pub fn available_bytes() -> Option<u64> {
    available_in(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_had_when_its_own_word_or_the_inherited_one_says_so() {
        let settings = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = settings.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("enabled", "always [madvise] never\n");
        write("hugepages-2048kB/enabled", "always [inherit] madvise never\n");
        write("hugepages-64kB/enabled", "always inherit [madvise] never\n");
        write("hugepages-32kB/enabled", "always inherit madvise [never]\n");
        write("hugepages-16kB/enabled", "[always] inherit madvise never\n");
        write("hugepages-8kB/shmem_enabled", "always inherit within_size advise [never]\n");
        write("khugepaged/defrag", "1\n");
        let private = || sizes_in(settings.path(), "enabled", &["always", "madvise"]);
        assert_eq!(private(), [16 << 10, 64 << 10, 2 << 20]);
        write("enabled", "always madvise [never]\n");
        assert_eq!(private(), [16 << 10, 64 << 10]);
        let shared = || sizes_in(settings.path(), "shmem_enabled", &["always", "advise"]);
        assert_eq!(shared(), []);
        write("hugepages-8kB/shmem_enabled", "always inherit within_size [advise] never\n");
        assert_eq!(shared(), [8 << 10]);
        assert_eq!(sizes_in(&settings.path().join("nowhere"), "enabled", &["always"]), []);
    }

    #[test]
    fn available_memory_is_found_or_unknown() {
        assert_eq!(available_in("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 << 10));
        assert_eq!(available_in("MemTotal: 9 kB\n"), None);
        assert_eq!(available_in("MemAvailable: many kB\n"), None);
    }
}
