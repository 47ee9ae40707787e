//! Lints our own source for what the compiler and clippy cannot know: the rules of this house.
//!
//! The tables in [`tables`] say what is allowed; each rule file reads lines and reports findings.
//! Limits ratchet: an exception that has become smaller must be lowered, one that has gone must be
//! removed.
//!
//! Every rule is planted and caught in a test: a check that cannot fail is a defect.
//!
//! - [`files`]: which files there are
//! - [`source`]: a Rust file as lines of code and comment, tests told apart
//! - [`shape`]: headers, lengths, white space
//! - [`unsafety`]: where unsafe code may be, and its discharged preconditions
//! - [`calls`]: banned calls, leftovers
//! - [`imports`]: who may use whom, crates and modules
//! - [`manifest`]: descriptions and dependencies of crates
//! - [`prose`]: what committed text must not mention

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use files::TextFile;
use tables::Tables;

mod calls;
mod files;
mod imports;
mod manifest;
mod prose;
mod shape;
mod source;
mod tables;
#[cfg(test)]
mod tests;
mod unsafety;

/// What a finding breaks. The name is printed, so that a person can search for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Header,
    FileLength,
    FunctionLength,
    Ratchet,
    TrailingSpace,
    Tab,
    LineWidth,
    UnsafeFile,
    SafetySection,
    SafetyComment,
    BannedCall,
    Leftover,
    CrateImport,
    ModuleImport,
    CrateDescription,
    MachinePath,
    WorkplaceWord,
    FileSize,
}

impl Rule {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 18] = [
        Self::Header,
        Self::FileLength,
        Self::FunctionLength,
        Self::Ratchet,
        Self::TrailingSpace,
        Self::Tab,
        Self::LineWidth,
        Self::UnsafeFile,
        Self::SafetySection,
        Self::SafetyComment,
        Self::BannedCall,
        Self::Leftover,
        Self::CrateImport,
        Self::ModuleImport,
        Self::CrateDescription,
        Self::MachinePath,
        Self::WorkplaceWord,
        Self::FileSize,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::FileLength => "file-length",
            Self::FunctionLength => "function-length",
            Self::Ratchet => "ratchet",
            Self::TrailingSpace => "trailing-space",
            Self::Tab => "tab",
            Self::LineWidth => "line-width",
            Self::UnsafeFile => "unsafe-file",
            Self::SafetySection => "safety-section",
            Self::SafetyComment => "safety-comment",
            Self::BannedCall => "banned-call",
            Self::Leftover => "leftover",
            Self::CrateImport => "crate-import",
            Self::ModuleImport => "module-import",
            Self::CrateDescription => "crate-description",
            Self::MachinePath => "machine-path",
            Self::WorkplaceWord => "workplace-word",
            Self::FileSize => "file-size",
        }
    }
}

/// One thing to change, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    rule: Rule,
    instead: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule.name(), self.instead)
    }
}

/// Collects findings while the rules run.
#[derive(Default)]
pub(crate) struct Report {
    findings: BTreeSet<Finding>,
}

impl Report {
    pub(crate) fn add(&mut self, path: &str, line: usize, rule: Rule, instead: impl Into<String>) {
        let instead = instead.into();
        self.findings.insert(Finding { path: path.to_owned(), line, rule, instead });
    }
}

/// Lints the workspace and prints each finding, then the count.
pub(crate) fn run(root: &Path) -> ExitCode {
    let files = match files::load(root) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("tidy: cannot read {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    let findings = check(&files, &tables::TABLES);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} findings", files.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs every rule over every file.
pub(crate) fn check(files: &[TextFile], tables: &Tables) -> BTreeSet<Finding> {
    let mut report = Report::default();
    for file in files {
        files::check_size(file, &mut report);
        shape::check_text(file, &mut report);
        prose::check(file, &mut report);
        if file.name() == "Cargo.toml" {
            manifest::check(file, tables, &mut report);
        }
    }
    let sources = source::parse_all(files);
    for source in &sources {
        shape::check_source(source, tables, &mut report);
        unsafety::check(source, tables, &mut report);
        calls::check(source, tables, &mut report);
        imports::check(source, tables, &mut report);
    }
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    shape::check_tables(&sources, tables, &mut report);
    unsafety::check_table(&paths, tables, &mut report);
    report.findings
}
