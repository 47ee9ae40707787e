//! Plants every violation in a small tree, and checks that a clean one passes.

use std::collections::BTreeSet;

use super::files::TextFile;
use super::tables::{BannedCall, CrateRule, ModuleRule, Tables};
use super::{Finding, Report, Rule, check, shape, source::Source};

/// Tables of a tree with two crates and one file of each exception.
pub(crate) const TABLES: Tables = Tables {
    long_files: &[],
    long_functions: &[],
    unsafe_files: &["crates/sys/src/raw.rs"],
    banned_calls: &[BannedCall {
        call: ".unwrap()",
        within: &[],
        except: &[],
        in_tests_too: false,
        instead: "say why",
    }],
    crates: &[
        CrateRule { folder: "crates/sys", package: "wattkeep-sys", uses: &[], tests_use: &[] },
        CrateRule {
            folder: "crates/keep",
            package: "wattkeep-keep",
            uses: &["wattkeep-sys"],
            tests_use: &[],
        },
    ],
    modules: &[ModuleRule {
        within: "crates/keep/src/victim",
        must_not_use: &["std::time"],
        because: "it is pure",
    }],
};

/// The rules that a check reports, in order.
pub(crate) fn rules_of(check: impl FnOnce(&mut Report)) -> Vec<Rule> {
    let mut report = Report::default();
    check(&mut report);
    report.findings.into_iter().map(|finding| finding.rule).collect()
}

fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.to_owned(), size_bytes: text.len() as u64, text: text.to_owned() }
}

const HEADER: &str = "//! Owns nothing, and says so at some length.\n";

fn clean_tree() -> Vec<TextFile> {
    let raw = format!(
        "{HEADER}//! # Safety\n//! 1. It holds.\n#![allow(unsafe_code)]\n// SAFETY: 1: yes\nunsafe {{}}\n"
    );
    vec![
        file("crates/sys/Cargo.toml", "[package]\nname = \"wattkeep-sys\"\ndescription = \"x\"\n"),
        file("crates/sys/src/raw.rs", &raw),
        file("crates/keep/src/victim/mod.rs", &format!("{HEADER}use wattkeep_sys::raw;\n")),
        file("Makefile", "a:\n\techo\n"),
    ]
}

fn rules(findings: &BTreeSet<Finding>) -> BTreeSet<Rule> {
    findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_clean_tree_has_no_findings() {
    assert_eq!(check(&clean_tree(), &TABLES), BTreeSet::new());
}

/// One file for each rule, except the ratchet, whose exception is in the tables.
fn planted() -> Vec<(Rule, TextFile)> {
    let keep = |text: &str| file("crates/keep/src/a.rs", &format!("{HEADER}{text}\n"));
    let victim = |text: &str| file("crates/keep/src/victim/a.rs", &format!("{HEADER}{text}\n"));
    vec![
        (Rule::Header, file("crates/keep/src/a.rs", "fn a() {}\n")),
        (Rule::Header, file("crates/keep/src/a.rs", "//! (opening)\n")),
        (Rule::FileLength, keep(&"//\n".repeat(600))),
        (Rule::FunctionLength, keep(&format!("fn a() {{{}}}", "\n".repeat(100)))),
        (Rule::TrailingSpace, keep("// a ")),
        (Rule::Tab, keep("\t// a")),
        (Rule::LineWidth, keep(&format!("// {}", "a".repeat(118)))),
        (Rule::UnsafeFile, keep("//! # Safety\n#![allow(unsafe_code)]")),
        (Rule::SafetySection, file("crates/sys/src/raw.rs", &format!("{HEADER}#![allow(unsafe_code)]\n"))),
        (Rule::SafetyComment, keep("fn a() { unsafe { b() } }")),
        (Rule::BannedCall, keep("fn a() { b.unwrap() }")),
        (Rule::Leftover, keep(concat!("// TO", "DO: later"))),
        (Rule::CrateImport, file("crates/sys/src/a.rs", &format!("{HEADER}use wattkeep_keep::a;\n"))),
        (Rule::ModuleImport, victim("use std::time::Instant;")),
        (Rule::CrateDescription, file("crates/sys/Cargo.toml", "[package]\nname = \"wattkeep-sys\"\n")),
        (Rule::MachinePath, file("docs/a.md", concat!("see /wo", "rk/main\n"))),
        (Rule::WorkplaceWord, file("README.md", concat!("Made with Cla", "ude.\n"))),
        (Rule::FileSize, file("docs/a.bin", &"a".repeat((512 << 10) + 1))),
    ]
}

#[test]
fn every_planted_violation_is_found_and_nothing_else() {
    let mut seen = BTreeSet::from([Rule::Ratchet]);
    for (rule, planted) in planted() {
        let mut tree = clean_tree();
        tree.retain(|file| file.path != planted.path);
        tree.push(planted);
        let findings = check(&tree, &TABLES);
        assert_eq!(rules(&findings), BTreeSet::from([rule]), "{findings:?}");
        seen.insert(rule);
    }
    assert_eq!(seen, BTreeSet::from(Rule::ALL), "a rule without a planted violation");
}

#[test]
fn just_inside_the_limits_passes() {
    let mut tree = clean_tree();
    let widest = format!("// {}\n", "a".repeat(117));
    let link = format!("// https://example.org/{}\n", "a".repeat(117));
    let function = format!("fn a() {{{}}}\n", "\n".repeat(99));
    let text = format!("{HEADER}{widest}{link}{function}{}", "//\n".repeat(497));
    assert_eq!(text.lines().count(), 600);
    tree.push(file("crates/keep/src/a.rs", &text));
    tree.push(file("docs/a.bin", &"a".repeat(512 << 10)));
    assert_eq!(check(&tree, &TABLES), BTreeSet::new());
}

#[test]
fn exceptions_only_go_down() {
    let long = |lines: usize| format!("{HEADER}fn a() {{{}}}", "\n".repeat(lines));
    let of = |limit_file, limit_function, lines| {
        let long_files: &'static [(&str, usize)] = Box::leak(Box::new([("a.rs", limit_file)]));
        let long_functions: &'static [(&str, &str, usize)] =
            Box::leak(Box::new([("a.rs", "a", limit_function)]));
        let tables = Tables { long_files, long_functions, ..TABLES };
        let source = Source::parse("a.rs", &long(lines));
        rules_of(|report| {
            shape::check_source(&source, &tables, report);
            shape::check_tables(&[source], &tables, report);
        })
    };
    assert_eq!(of(702, 701, 700), [], "at its limit");
    assert_eq!(of(750, 750, 700), [], "within the slack");
    assert_eq!(of(701, 700, 700), [Rule::FunctionLength, Rule::FileLength], "grown");
    assert_eq!(of(753, 701, 700), [Rule::Ratchet], "the file may be lowered");
    assert_eq!(of(702, 752, 700), [Rule::Ratchet], "the function may be lowered");
    assert_eq!(of(120, 120, 90), [Rule::Ratchet, Rule::Ratchet], "no exception any more");
}

#[test]
fn a_finding_says_where_and_what_to_do() {
    let finding = Finding { path: "a.rs".to_owned(), line: 7, rule: Rule::Tab, instead: "b".to_owned() };
    assert_eq!(finding.to_string(), "a.rs:7: tab: b");
    let names: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
}
