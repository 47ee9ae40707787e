//! Where unsafe code may be, and that each block discharges numbered preconditions.
//!
//! The compiler denies unsafe code everywhere; a file opts in below a `# Safety` section that
//! numbers what must hold. The list of such files is in [`super::tables`], so that it grows in the open.

use std::collections::BTreeSet;

use super::source::{Line, Source};
use super::tables::Tables;
use super::{Report, Rule};

/// A statement longer than this above its unsafe block hides the comment.
const STATEMENT_LINES_MAX: usize = 10;

/// The opt-in of the file, its section, and every unsafe block in it.
pub(crate) fn check(source: &Source, tables: &Tables, report: &mut Report) {
    let opts_in =
        |line: &&Line| line.code.contains("allow(unsafe_code)") || line.code.contains("expect(unsafe_code)");
    if let Some(index) = source.lines.iter().position(|line| opts_in(&line)) {
        if !tables.unsafe_files.contains(&source.path.as_str()) {
            let instead = "no unsafe code here: use a safe wrapper of sys, or list the file in tables.rs";
            report.add(&source.path, index + 1, Rule::UnsafeFile, instead);
        }
        let is_section = |line: &Line| line.comment.starts_with("//!") && line.comment.contains("# Safety");
        if !source.lines.iter().any(is_section) {
            let instead = "add a '//! # Safety' section that numbers what must hold";
            report.add(&source.path, index + 1, Rule::SafetySection, instead);
        }
    }

    let joined = source.joined();
    for at in 0..joined.code.len() {
        if !joined.word_at(at, "unsafe") {
            continue;
        }
        let next = joined.skip_space(at + "unsafe".len());
        let needs_comment = joined.code.get(next) == Some(&'{') || joined.word_at(next, "impl");
        if !needs_comment {
            continue;
        }
        let index = joined.line_of[at];
        if !comment_above(&source.lines, index).is_some_and(|comment| cites_a_number(&comment)) {
            let instead = "write '// SAFETY: 1, 2: why' right above, with the numbers of the preconditions";
            report.add(&source.path, index + 1, Rule::SafetyComment, instead);
        }
    }
}

/// Listed files that do not exist.
pub(crate) fn check_table(paths: &BTreeSet<&str>, tables: &Tables, report: &mut Report) {
    for path in tables.unsafe_files.iter().filter(|path| !paths.contains(*path)) {
        let instead = "the file is gone: remove it from the list of unsafe files in tables.rs";
        report.add(path, 1, Rule::Ratchet, instead);
    }
}

/// The comment block above the statement that holds line `index`.
fn comment_above(lines: &[Line], index: usize) -> Option<String> {
    let mut above = lines[..index].iter().enumerate().rev().take(STATEMENT_LINES_MAX);
    let (last, _) = above.find_map(|(at, line)| {
        let code = line.code.trim();
        let is_comment = code.is_empty() && !line.comment.is_empty();
        let ends_statement = code.is_empty() || code.ends_with([';', '{', '}']);
        let attribute = code.starts_with("#[");
        (is_comment || (ends_statement && !attribute)).then_some((at, line))
    })?;
    let block = lines[..=last].iter().rev();
    let block = block.take_while(|line| line.code.trim().is_empty() && !line.comment.is_empty());
    let mut block: Vec<&str> = block.map(|line| line.comment.trim_start_matches('/')).collect();
    block.reverse();
    let text = block.concat();
    text.split_once("SAFETY:").map(|(_, after)| after.to_owned())
}

/// Whether the text opens with a precondition's number, or with whose it is: `1, 2: ...`, `3.`,
/// `1 by the caller`, `` `map` 1 and 3: ... ``. A number further on is a quantity.
fn cites_a_number(text: &str) -> bool {
    text.split_whitespace().take(2).any(|word| {
        let number = word.trim_end_matches([',', ':', '.', ';']);
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{TABLES, rules_of};

    fn found(text: &str) -> Vec<Rule> {
        let source = Source::parse("crates/sys/src/raw.rs", text);
        rules_of(|report| check(&source, &TABLES, report))
    }

    #[test]
    fn each_block_cites_a_number() {
        for good in [
            "// SAFETY: 1: because\nunsafe { a() }",
            "// SAFETY: 1, 2: because\n// of more\nunsafe { a() }",
            "// SAFETY: `map` 1 and 3: because\nunsafe { a() }",
            "// SAFETY: 2 by the caller.\nunsafe { a() }",
            "// SAFETY: 3.\nunsafe { a() }",
            "// SAFETY: 1: because\nlet a =\n    unsafe { a() };",
            "// SAFETY: 1: because\n#[cfg(b)]\nunsafe impl Send for A {}",
            "/// # Safety\nunsafe fn a();",
            "// unsafe { }\nlet a = \"unsafe { }\";",
        ] {
            assert_eq!(found(good), [], "{good}");
        }
        for bad in [
            "unsafe { a() }",
            "// SAFETY: trust me\nunsafe { a() }",
            "// SAFETY: as above.\nunsafe { a() }",
            "// SAFETY: pages of 4096 bytes: fine\nunsafe { a() }",
            "// because 1:\nunsafe { a() }",
            "// SAFETY: 1: b\nb();\nunsafe { a() }",
            "// SAFETY: 1: b\n\nunsafe { a() }",
            "unsafe impl Send for A {}",
            "// SAFETY: 1: b\nunsafe impl Send for A {}\nunsafe impl Sync for A {}",
        ] {
            assert_eq!(found(bad), [Rule::SafetyComment], "{bad}");
        }
    }

    #[test]
    fn unsafe_files_are_listed_and_have_a_section() {
        assert_eq!(found("//! # Safety\n#![allow(unsafe_code)]"), []);
        assert_eq!(found("//! x\n#![allow(unsafe_code)]"), [Rule::SafetySection]);
        let other = Source::parse("crates/keep/src/a.rs", "//! # Safety\n#[allow(unsafe_code)]");
        assert_eq!(rules_of(|report| check(&other, &TABLES, report)), [Rule::UnsafeFile]);
        let gone = |report: &mut Report| check_table(&BTreeSet::new(), &TABLES, report);
        assert_eq!(rules_of(gone), [Rule::Ratchet]);
    }
}
