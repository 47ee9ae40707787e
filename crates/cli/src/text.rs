//! Numbers, times and tables as a person reads them.

use wattkeep_power::units::format_size;

/// Bytes in a page.
pub(crate) const PAGE: u64 = wattkeep_store::types::PAGE_SIZE as u64;

pub(crate) use wattkeep_bench::chart::thousands;

/// `28,836 pages (112.6 MiB)`.
pub(crate) fn pages(count: u64) -> String {
    let noun = if count == 1 { "page" } else { "pages" };
    format!("{} {noun} ({})", thousands(count), format_size(count * PAGE))
}

/// `1 transaction`, `28,836 transactions`.
pub(crate) fn count(count: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(count), if count == 1 { "" } else { "s" })
}

/// Operations per second, with its unit: `0.78 M op/s`.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2} M op/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.0} k op/s", rate / 1e3),
        rate => format!("{rate:.0} op/s"),
    }
}

/// Milliseconds, with as many digits as matter.
pub(crate) fn millis(ms: f64) -> String {
    match ms {
        ms if ms >= 10_000.0 => format!("{:.1} s", ms / 1e3),
        ms if ms >= 1_000.0 => format!("{:.2} s", ms / 1e3),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms => format!("{ms:.1} ms"),
    }
}

/// `6f1c...` with the usual dashes.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// `2026-01-31 12:00:00 UTC`.
pub(crate) fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days since 0000-03-01: leap days come last in such years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Lines of a name and what it is, aligned.
pub(crate) fn facts(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// A table with a heading; columns are as wide as their widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A bar of `width` characters, `part` of `whole` filled.
pub(crate) fn bar(part: u64, whole: u64, width: usize) -> String {
    let filled = (part.min(whole) * width as u64).checked_div(whole).unwrap_or(0) as usize;
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59:59 UTC");
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00:00 UTC");
    }

    #[test]
    fn numbers_read_easily() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(pages(1), "1 page (4 KiB)");
        assert_eq!(rate(780_000.0), "780 k op/s");
        assert_eq!(bar(1, 4, 8), "██░░░░░░");
        assert_eq!(bar(9, 4, 4), "████");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "bb".to_owned()], vec!["ccc".to_owned(), "d".to_owned()]];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
    }
}
