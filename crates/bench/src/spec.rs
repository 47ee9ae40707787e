//! Owns the names of the workloads: what a person types, and what we print back.
//!
//! Invariant: the text a [`WorkloadSpec`] displays parses to the same specification.
//!
//! Does not open files, or know how a workload runs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The workload names a person can type, for help texts and errors.
pub const WORKLOAD_NAMES: &str =
    "ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-f, uniform, sequential, heap, trace:FILE";

/// One of the core mixes of the Yahoo Cloud Serving Benchmark.
///
/// E is left out: it scans key ranges, and our table is not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YcsbMix {
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 50 % reads, 50 % read-modify-writes.
    F,
}

impl YcsbMix {
    /// The name as printed, such as `ycsb-a`.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "ycsb-a",
            Self::B => "ycsb-b",
            Self::C => "ycsb-c",
            Self::D => "ycsb-d",
            Self::F => "ycsb-f",
        }
    }
}

/// Which workload to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadSpec {
    /// Records of 1 KB, requested as the YCSB mix says.
    Ycsb(YcsbMix),
    /// Writes of 64 bytes to one page, anywhere.
    Uniform,
    /// Whole pages, one after the other, round and round.
    Sequential,
    /// Transactions on a hash table in a persistent heap.
    Heap,
    /// The requests of a CSV trace.
    Trace(PathBuf),
}

impl fmt::Display for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ycsb(mix) => f.write_str(mix.name()),
            Self::Uniform => f.write_str("uniform"),
            Self::Sequential => f.write_str("sequential"),
            Self::Heap => f.write_str("heap"),
            Self::Trace(path) => write!(f, "trace:{}", path.display()),
        }
    }
}

/// The text names no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The name is none of ours.
    Unknown {
        /// What was typed.
        text: String,
    },
    /// `trace:` without a file.
    TraceWithoutFile,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { text } => {
                write!(f, "unknown workload '{text}': choose one of {WORKLOAD_NAMES}")
            }
            Self::TraceWithoutFile => f.write_str(
                "workload 'trace:' names no file: write trace:FILE, a CSV with the header \
                     time,operation,offset,length",
            ),
        }
    }
}

impl std::error::Error for SpecError {}

impl FromStr for WorkloadSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let typed = text.trim();
        // The file's name keeps its case: only the word before it is ours.
        if let Some((word, file)) = typed.split_once(':')
            && word.eq_ignore_ascii_case("trace")
        {
            return match file {
                "" => Err(SpecError::TraceWithoutFile),
                file => Ok(Self::Trace(PathBuf::from(file))),
            };
        }
        let lower = typed.to_ascii_lowercase();
        let letter = lower.strip_prefix("ycsb-").or_else(|| lower.strip_prefix("ycsb:")).unwrap_or(&lower);
        match letter {
            "a" => Ok(Self::Ycsb(YcsbMix::A)),
            "b" => Ok(Self::Ycsb(YcsbMix::B)),
            "c" => Ok(Self::Ycsb(YcsbMix::C)),
            "d" => Ok(Self::Ycsb(YcsbMix::D)),
            "f" => Ok(Self::Ycsb(YcsbMix::F)),
            _ => match lower.as_str() {
                "uniform" => Ok(Self::Uniform),
                "sequential" => Ok(Self::Sequential),
                "heap" => Ok(Self::Heap),
                _ => Err(SpecError::Unknown { text: typed.to_owned() }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> WorkloadSpec {
        text.parse().expect("a valid specification")
    }

    #[test]
    fn every_spelling_of_a_mix_is_the_same_mix() {
        for text in ["ycsb-a", "YCSB-A", "ycsb:a", "ycsb:A", "Ycsb:a", "A", "a", " a "] {
            assert_eq!(parse(text), WorkloadSpec::Ycsb(YcsbMix::A), "{text}");
        }
    }

    #[test]
    fn what_we_print_parses_back() {
        for text in WORKLOAD_NAMES.split(", ") {
            assert_eq!(parse(text).to_string(), text);
        }
    }

    #[test]
    fn a_trace_file_keeps_its_case_and_its_colons() {
        assert_eq!(parse("TRACE:/Data/a:B.csv"), WorkloadSpec::Trace(PathBuf::from("/Data/a:B.csv")));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_valid_ones() {
        for text in ["ycsb-e", "ycsb-uniform", "", "zipf", "ycsb-", "tracefile"] {
            let error = text.parse::<WorkloadSpec>().expect_err(text).to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
            assert!(error.contains(WORKLOAD_NAMES), "{error}");
        }
        let error = "trace:".parse::<WorkloadSpec>().expect_err("no file");
        assert_eq!(error, SpecError::TraceWithoutFile);
    }
}
