//! Headers, lengths and white space: what makes a file readable before it is read.

use super::files::TextFile;
use super::source::{Source, is_word};
use super::tables::Tables;
use super::{Report, Rule};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 100;
const LINE_COLUMNS_MAX: usize = 120;

/// An exception further below its limit than this must be lowered.
const RATCHET_SLACK_LINES: usize = 50;

/// A header shorter than this says nothing.
const HEADER_CHARS_MIN: usize = 20;

/// White space is ours to decide here; a Makefile needs its tabs.
const CHECKED_EXTENSIONS: [&str; 8] = ["rs", "toml", "md", "c", "h", "sh", "py", "yml"];

/// Tables in documents are as wide as they are, and TOML cannot break an inline table.
const WIDTH_FREE_EXTENSIONS: [&str; 2] = ["md", "toml"];

/// White space and width of any text file that people write.
pub(crate) fn check_text(file: &TextFile, report: &mut Report) {
    if !CHECKED_EXTENSIONS.contains(&file.extension()) {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        if line.ends_with(char::is_whitespace) {
            report.add(&file.path, index + 1, Rule::TrailingSpace, "remove the white space at the end");
        }
        if line.contains('\t') {
            report.add(&file.path, index + 1, Rule::Tab, "indent with spaces; write \\t in a string");
        }
        let columns = line.chars().count();
        let width_matters = !WIDTH_FREE_EXTENSIONS.contains(&file.extension()) && !line.contains("://");
        if width_matters && columns > LINE_COLUMNS_MAX {
            let instead = format!("{columns} columns: break it at {LINE_COLUMNS_MAX}");
            report.add(&file.path, index + 1, Rule::LineWidth, instead);
        }
    }
}

/// Header, file length and function lengths of a Rust file.
pub(crate) fn check_source(source: &Source, tables: &Tables, report: &mut Report) {
    let first = source.lines.first().map_or("", |line| line.raw.as_str());
    let says = first.strip_prefix("//!").map_or(0, |header| header.trim().chars().count());
    if says < HEADER_CHARS_MIN {
        let instead = "open with '//!' and a sentence on what this file owns, then its invariants";
        report.add(&source.path, 1, Rule::Header, instead);
    }

    let lines = source.lines.len();
    let limit = tables.long_files.iter().find(|(path, _)| *path == source.path);
    let limit = limit.map_or(FILE_LINES_MAX, |(_, limit)| *limit);
    if lines > limit {
        let instead = format!("{lines} lines, {limit} at most: split it along the flow, not by size");
        report.add(&source.path, lines, Rule::FileLength, instead);
    }

    for function in functions(source) {
        let limit = function_limit(&source.path, &function.name, tables);
        if function.lines > limit {
            let instead = format!(
                "'{}' has {} lines, {limit} at most: give its steps names",
                function.name, function.lines
            );
            report.add(&source.path, function.line, Rule::FunctionLength, instead);
        }
    }
}

/// The exceptions themselves: they only go down.
pub(crate) fn check_tables(sources: &[Source], tables: &Tables, report: &mut Report) {
    for (path, limit) in tables.long_files {
        let source = sources.iter().find(|source| source.path == *path);
        let lines = source.map_or(0, |source| source.lines.len());
        check_ratchet(path, "the file", lines, *limit, FILE_LINES_MAX, report);
    }
    for (path, name, limit) in tables.long_functions {
        let source = sources.iter().find(|source| source.path == *path);
        let functions = source.map(functions).unwrap_or_default();
        let named = functions.iter().filter(|function| function.name == *name);
        let lines = named.map(|function| function.lines).max().unwrap_or(0);
        check_ratchet(path, &format!("'{name}'"), lines, *limit, FUNCTION_LINES_MAX, report);
    }
}

fn check_ratchet(path: &str, what: &str, lines: usize, limit: usize, everyone: usize, report: &mut Report) {
    if lines <= everyone {
        let instead = format!("{what} needs no exception any more: remove it from tables.rs");
        report.add(path, 1, Rule::Ratchet, instead);
    } else if limit > lines + RATCHET_SLACK_LINES {
        let instead = format!("{what} has {lines} lines now: lower its limit of {limit} in tables.rs");
        report.add(path, 1, Rule::Ratchet, instead);
    }
}

fn function_limit(path: &str, name: &str, tables: &Tables) -> usize {
    let listed = tables.long_functions.iter().find(|(in_path, of, _)| *in_path == path && *of == name);
    listed.map_or(FUNCTION_LINES_MAX, |(_, _, limit)| *limit)
}

struct Function {
    name: String,
    /// Counted from 1.
    line: usize,
    lines: usize,
}

/// Every function with a body, nested ones too.
fn functions(source: &Source) -> Vec<Function> {
    let joined = source.joined();
    let mut functions = Vec::new();
    for at in 0..joined.code.len() {
        if !joined.word_at(at, "fn") {
            continue;
        }
        let name_at = joined.skip_space(at + 2);
        let name: String = joined.code[name_at..].iter().take_while(|c| is_word(**c)).collect();
        // A function pointer has no name.
        if name.is_empty() {
            continue;
        }
        let Some(open) = joined.body_or_semicolon(name_at) else {
            continue;
        };
        let Some(close) = (joined.code[open] == '{').then(|| joined.closing(open)).flatten() else {
            continue;
        };
        let first = joined.line_of[at];
        functions.push(Function { name, line: first + 1, lines: joined.line_of[close] - first + 1 });
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_from_name_to_brace() {
        let text = "fn a(\n  b: [u8; 2],\n) -> fn(u8) {\n  fn c() { \"}\"; }\n}\nfn d();\nfn e() {}";
        let measured: Vec<_> = functions(&Source::parse("a.rs", text))
            .into_iter()
            .map(|function| (function.name, function.line, function.lines))
            .collect();
        let expected = [("a", 1, 5), ("c", 4, 1), ("e", 7, 1)];
        assert_eq!(measured, expected.map(|(name, line, lines)| (name.to_owned(), line, lines)));
    }
}
