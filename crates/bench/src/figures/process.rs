//! What the kernel says of processes: their memory, what they wrote, who else used the processors.
//!
//! Reads `/proc`; what cannot be read counts as none, since it only goes into notes or the choice of
//! quiet rounds.

use std::fs;

/// Bytes of a process's resident memory, the memory of regions left out: its mappings, by name.
pub(super) fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let (mut counts, mut kibibytes) = (true, 0);
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            counts = !line.contains("memfd:wattkeep-region");
        } else if counts && first == "Rss:" {
            kibibytes += number_after(line, "Rss:");
        }
    }
    kibibytes * 1024
}

/// Bytes that a process caused to be written to storage.
pub(super) fn written_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    text.lines().map(|line| number_after(line, "write_bytes:")).sum()
}

/// The number behind `name` at the start of `line`; 0 where there is none.
fn number_after(line: &str, name: &str) -> u64 {
    let rest = line.strip_prefix(name).unwrap_or_default();
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time, in the kernel's ticks, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Processors {
    all: u64,
    others: u64,
}

impl Processors {
    /// Since boot; the time of the processes in `ours` does not count as others'.
    pub(super) fn now(ours: &[u32]) -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal
        let ticks: Vec<u64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
        let tick = |column: usize| ticks.get(column).copied().unwrap_or(0);
        let busy = tick(0) + tick(1) + tick(2) + tick(7);
        let mine: u64 = ours.iter().map(|pid| process_ticks(*pid)).sum();
        Self { all: ticks.iter().take(8).sum(), others: busy.saturating_sub(mine) }
    }

    /// Share of all processors' time that others used since `before`, from 0 to 1.
    pub(super) fn used_by_others_since(self, before: Self) -> f64 {
        let others = self.others.saturating_sub(before.others) as f64;
        (others / self.all.saturating_sub(before.all).max(1) as f64).min(1.0)
    }
}

/// User and system time of a process.
fn process_ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold spaces: state is the third field of the manual page.
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').skip(11).take(2).flat_map(str::parse::<u64>).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_work_is_not_others() {
        let ours = [std::process::id()];
        assert!(resident_bytes(ours[0]) > 64 << 10);
        let before = Processors::now(&ours);
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 100 {
            std::hint::spin_loop();
        }
        let after = Processors::now(&ours);
        assert!(process_ticks(ours[0]) > 0);
        assert!((0.0..=1.0).contains(&after.used_by_others_since(before)));
    }

    #[test]
    fn numbers_stand_behind_their_names() {
        assert_eq!(number_after("write_bytes: 4096", "write_bytes:"), 4096);
        assert_eq!(number_after("cancelled_write_bytes: 5", "write_bytes:"), 0);
    }
}
