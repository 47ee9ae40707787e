//! How long memory and SSD live under writes: Memorage's equations (1) and (2), section 4.4, and the
//! years that a drive's rated endurance gives.
//!
//! Perfect wear levelling is assumed, as in the paper. Sizes and rates may be in any unit, as long as
//! it is the same one.

/// Days in a year, for people.
pub const DAYS_PER_YEAR: f64 = 365.25;

/// The platform of equation (1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    /// α: capacity of the storage over that of the memory.
    pub capacity_ratio: f64,
    /// β: write rate of the memory over that of the storage.
    pub rate_ratio: f64,
    /// γ: write endurance of the memory over that of the storage.
    pub endurance_ratio: f64,
}

impl Shared {
    /// Equation (1): how many times longer the memory lives when both wear out together,
    /// `(1 + α / γ) x β / (1 + β)`.
    pub fn memory_lifetime_gain(&self) -> f64 {
        (1.0 + self.capacity_ratio / self.endurance_ratio) * self.rate_ratio / (1.0 + self.rate_ratio)
    }
}

/// The exchange of equation (2): the memory borrows a part of its size from the storage, rests as much
/// of its own, and gives it back after a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Borrowed {
    /// h: what is borrowed, as a share of the memory; below 1.
    pub share: f64,
    /// τ: how long it is kept, in days.
    pub days: f64,
    /// C_m: size of the memory, in bytes.
    pub memory_bytes: f64,
    /// B_s: write rate of the storage, in bytes a day.
    pub storage_bytes_per_day: f64,
    /// β: write rate of the memory over that of the storage.
    pub rate_ratio: f64,
}

impl Borrowed {
    /// Equation (2), memory: `1 / (1 - h)` times longer.
    pub fn memory_lifetime_gain(&self) -> f64 {
        1.0 / (1.0 - self.share)
    }

    /// Equation (2), storage: `1 + β h + 2 h C_m / (τ B_s)` times shorter.
    pub fn storage_lifetime_loss(&self) -> f64 {
        let moved = 2.0 * self.share * self.memory_bytes / (self.days * self.storage_bytes_per_day);
        1.0 + self.rate_ratio * self.share + moved
    }
}

/// Days until so many bytes, each writable so often, are worn out by so many bytes a day.
pub fn lifetime_days(endurance_writes: f64, capacity_bytes: f64, bytes_per_day: f64) -> f64 {
    endurance_writes * capacity_bytes / bytes_per_day
}

/// Years until a drive has taken the bytes that its maker rates it for. `None` when nothing is written.
pub fn drive_years(rated_bytes: f64, bytes_per_day: f64) -> Option<f64> {
    (bytes_per_day > 0.0).then(|| rated_bytes / bytes_per_day / DAYS_PER_YEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    fn notebook(storage_gb: f64, rate_ratio: f64) -> f64 {
        Shared { capacity_ratio: storage_gb / 8.0, rate_ratio, endurance_ratio: 10.0 }.memory_lifetime_gain()
    }

    fn printed(value: f64) -> f64 {
        (value * 10.0).round() / 10.0
    }

    /// Figure 10: 8 GB of memory, 240 or 480 GB of storage. The curves pass 2 and 3.5 at β = 1, are
    /// near their end at β = 10, and the abstract's 3.9 and 6.9 are their values near β = 70.
    #[test]
    fn figure_10_of_memorage() {
        assert_eq!((notebook(240.0, 1.0), notebook(480.0, 1.0)), (2.0, 3.5));
        assert_eq!((printed(notebook(240.0, 10.0)), printed(notebook(480.0, 10.0))), (3.6, 6.4));
        assert_eq!((printed(notebook(240.0, 70.0)), printed(notebook(480.0, 70.0))), (3.9, 6.9));
        assert!(notebook(240.0, 1e9) < 4.0 + 1e-6 && notebook(480.0, 1e9) < 7.0 + 1e-6);
    }

    fn figure_11(share: f64, days: f64) -> Borrowed {
        Borrowed { share, days, memory_bytes: 8.0 * GB, storage_bytes_per_day: 12.0 * GB, rate_ratio: 720.0 }
    }

    /// Figure 11 and its worked example. Twice the memory's life costs about 1,000 times the storage's at
    /// τ = 0.001 days, and h = 0.7 stays below 1,500 there. The text prints τ = 0.0001 for the latter:
    /// its own equation gives 9,838 then, so a zero too many is assumed.
    #[test]
    fn figure_11_of_memorage() {
        assert_eq!(figure_11(0.5, 0.001).memory_lifetime_gain(), 2.0);
        assert_eq!(figure_11(0.5, 0.001).storage_lifetime_loss().round(), 1028.0);
        assert_eq!(figure_11(0.7, 0.001).storage_lifetime_loss().round(), 1438.0);
        assert_eq!(figure_11(0.7, 0.0001).storage_lifetime_loss().round(), 9838.0);
        assert!(figure_11(0.8, 0.001).storage_lifetime_loss() > 1500.0);
    }

    /// "The expected lifetime of the 480 GB PSD is over 10,000 years", "only 2.5 years" for the memory.
    #[test]
    fn the_worked_example_of_memorage() {
        let storage = lifetime_days(1e5, 480.0 * GB, 12.0 * GB) / DAYS_PER_YEAR;
        assert!((10_000.0..11_000.0).contains(&storage), "{storage}");
        let memory = lifetime_days(1e6, 8.0 * GB, 0.1 * GB * 86_400.0) / DAYS_PER_YEAR;
        assert_eq!(printed(memory), 2.5);
        let (gain, loss) =
            (figure_11(0.5, 0.001).memory_lifetime_gain(), figure_11(0.5, 0.001).storage_lifetime_loss());
        assert!((memory * gain - 5.0).abs() < 0.1, "5 years");
        assert!((storage / loss - 10.0).abs() < 1.0, "10 years");
    }

    #[test]
    fn a_drive_lives_as_long_as_its_rating() {
        // 600 TB written, 300 GB a day.
        assert_eq!(drive_years(600e12, 300e9).map(printed), Some(5.5));
        assert_eq!(drive_years(600e12, 0.0), None);
    }
}
