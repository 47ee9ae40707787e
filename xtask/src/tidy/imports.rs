//! Who may use whom: between crates, and between the modules of a crate.
//!
//! Reads `use` trees and written-out paths, and resolves `super`. Lines that only tests compile may
//! also use what the crate's tests may.

use super::source::{Joined, Source, is_word};
use super::tables::{CrateRule, Tables};
use super::{Report, Rule};

/// Crates and modules that a file names.
pub(crate) fn check(source: &Source, tables: &Tables, report: &mut Report) {
    let paths = paths(source);
    check_crates(source, &paths, tables, report);
    for rule in tables.modules.iter().filter(|rule| source.path.starts_with(rule.within)) {
        for path in paths.iter().filter(|path| !source.lines[path.line].in_test) {
            let Some(banned) = rule.must_not_use.iter().find(|banned| is_within(&path.text, banned)) else {
                continue;
            };
            let instead = format!("{} must not use {banned}: {}", rule.within, rule.because);
            report.add(&source.path, path.line + 1, Rule::ModuleImport, instead);
        }
    }
}

fn check_crates(source: &Source, paths: &[UsedPath], tables: &Tables, report: &mut Report) {
    let Some(rule) = crate_of(&source.path, tables) else {
        return;
    };
    let outside_src = !source.path.contains("/src/");
    for path in paths {
        let root = path.text.split("::").next().unwrap_or_default().replace('_', "-");
        let ours = tables.crates.iter().any(|rule| rule.package == root);
        if !ours || root == rule.package {
            continue;
        }
        let for_tests = outside_src || source.lines[path.line].in_test;
        if !rule.may_use(&root, for_tests) {
            report.add(&source.path, path.line + 1, Rule::CrateImport, rule.instead_of(&root));
        }
    }
}

/// The rule of the crate that holds `path`.
pub(crate) fn crate_of<'t>(path: &str, tables: &'t Tables) -> Option<&'t CrateRule> {
    let folder = |rule: &&CrateRule| path.strip_prefix(rule.folder).is_some_and(|rest| rest.starts_with('/'));
    tables.crates.iter().find(folder)
}

impl CrateRule {
    /// Whether the crate may use `package`.
    pub(crate) fn may_use(&self, package: &str, for_tests: bool) -> bool {
        self.uses.contains(&package) || (for_tests && self.tests_use.contains(&package))
    }

    /// What to do instead of using `package`.
    pub(crate) fn instead_of(&self, package: &str) -> String {
        let allowed = if self.uses.is_empty() { "nothing of ours".to_owned() } else { self.uses.join(", ") };
        format!("{} must not use {package}: crates build upward, and it may use {allowed}", self.package)
    }
}

/// A path as code names it, from the crate's root or from another crate.
#[derive(Debug, PartialEq)]
struct UsedPath {
    /// Counted from 0.
    line: usize,
    text: String,
}

/// Every path in the code: `use` trees expanded, `super` resolved.
fn paths(source: &Source) -> Vec<UsedPath> {
    let joined = source.joined();
    let module = module_of(&source.path);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < joined.code.len() {
        let line = joined.line_of[at];
        let (texts, end) = match joined.use_statement(at) {
            Some((tree, end)) => (expand("", &tree), end),
            None => {
                let (text, end) = joined.written_path(at);
                (vec![text], end)
            }
        };
        let named = texts.into_iter().filter(|text| text.contains("::") || text.starts_with("wattkeep"));
        paths.extend(named.map(|text| UsedPath { line, text: resolve(&text, &module) }));
        at = end;
    }
    paths
}

impl Joined {
    /// The tree of a `use` statement at `at`, without white space, and where it ends.
    fn use_statement(&self, at: usize) -> Option<(String, usize)> {
        let is_use = self.word_at(at, "use") && self.code.get(at + 3).is_some_and(|c| c.is_whitespace());
        let length = is_use.then(|| self.code[at..].iter().position(|c| *c == ';')).flatten()?;
        let tree: String = self.code[at + 4..at + length].iter().collect();
        // Aliases do not matter, and would join the name once the spaces go.
        let words: Vec<&str> = tree.split_whitespace().collect();
        let mut kept = String::new();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            if word == "as" {
                let alias = words.next().unwrap_or_default();
                kept.push_str(alias.trim_start_matches(is_word));
            } else {
                kept.push_str(word);
            }
        }
        Some((kept, at + length + 1))
    }

    /// The path written at `at`, empty where none starts, and where to look on.
    fn written_path(&self, at: usize) -> (String, usize) {
        let mut text = String::new();
        let mut end = at;
        loop {
            let name: String = self.code[end..].iter().take_while(|c| is_word(**c)).collect();
            if name.is_empty() {
                break;
            }
            end += name.chars().count();
            text.push_str(&name);
            if self.code[end..].starts_with(&[':', ':']) {
                text.push_str("::");
                end += 2;
            } else {
                break;
            }
        }
        (text, end.max(at + 1))
    }
}

/// `a::{b, c::{d}}` as `a::b`, `a::c::d`.
fn expand(prefix: &str, tree: &str) -> Vec<String> {
    let Some(open) = tree.find('{') else {
        let path = format!("{prefix}{tree}");
        return vec![path.trim_end_matches("::self").trim_start_matches("::").to_owned()];
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let inside = tree[open + 1..].strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let branches = split_at_commas(inside);
    branches
        .into_iter()
        .filter(|branch| !branch.is_empty())
        .flat_map(|branch| expand(&prefix, branch))
        .collect()
}

/// Splits at the commas outside braces.
fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The module that a file is, from the crate's root.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.split_once("/src/").map_or("", |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs");
    let mut module: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|name| matches!(name.as_str(), "mod" | "lib" | "main" | "")) {
        module.pop();
    }
    module
}

/// Turns `super::a` and `self::a` into `crate::...`.
fn resolve(path: &str, module: &[String]) -> String {
    let mut segments = path.split("::").peekable();
    let mut module = module.to_vec();
    let mut relative = false;
    while let Some(step) = segments.next_if(|segment| matches!(*segment, "super" | "self")) {
        relative = true;
        if step == "super" {
            module.pop();
        }
    }
    if !relative {
        return path.to_owned();
    }
    let rest = segments.map(str::to_owned);
    ["crate".to_owned()].into_iter().chain(module).chain(rest).collect::<Vec<_>>().join("::")
}

/// Whether `path` is `banned`, or below it.
fn is_within(path: &str, banned: &str) -> bool {
    path.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tables::TABLES;
    use crate::tidy::tests::rules_of;

    fn named(path: &str, text: &str) -> Vec<String> {
        paths(&Source::parse(path, text)).into_iter().map(|path| path.text).collect()
    }

    #[test]
    fn paths_are_expanded_and_resolved() {
        let file = "crates/keep/src/victim/queue.rs";
        let tree = "pub use crate::{a, b::{self, c as d, e::*}};";
        assert_eq!(named(file, tree), ["crate::a", "crate::b", "crate::b::c", "crate::b::e::*"]);
        assert_eq!(named(file, "use a::{\n    b,\n    c,\n};"), ["a::b", "a::c"]);
        assert_eq!(named(file, "use super::super::client;"), ["crate::client"]);
        assert_eq!(
            named(file, "let a: super::B = std::time::Instant::now();"),
            ["crate::victim::B", "std::time::Instant::now"]
        );
        assert_eq!(named("crates/keep/src/victim/mod.rs", "use self::a::B;"), ["crate::victim::a::B"]);
        assert_eq!(named(file, "fn a() -> impl use<'a> B {}"), [] as [&str; 0]);
    }

    fn found(path: &str, text: &str) -> Vec<Rule> {
        let source = Source::parse(path, text);
        rules_of(|report| check(&source, &TABLES, report))
    }

    #[test]
    fn crates_build_upward() {
        for (path, text) in [
            ("crates/sys/src/a.rs", "use wattkeep_store::types;"),
            ("crates/store/src/a.rs", "use wattkeep_keep::types;"),
            ("crates/power/src/a.rs", "wattkeep_sys::memfd::seal();"),
            ("crates/keep/src/a.rs", "use {wattkeep::A, std::io};"),
            ("crates/keep/src/a.rs", "extern crate wattkeep_bench;"),
            ("crates/bench/src/a.rs", "use wattkeep_keep::types;"),
            ("crates/wattkeep/src/a.rs", "use wattkeep_cli::a;"),
            ("crates/store/src/a.rs", "use wattkeep_sim::disk;"),
            ("xtask/src/a.rs", "use wattkeep_sys::a;"),
        ] {
            assert_eq!(found(path, text), [Rule::CrateImport], "{path}: {text}");
        }
        for (path, text) in [
            ("crates/store/src/a.rs", "use wattkeep_sys::buffer; use wattkeep_store::types;"),
            ("crates/keep/src/a.rs", "use wattkeep_sys::a; use wattkeep_store::b; use wattkeep_power::c;"),
            ("crates/store/src/a.rs", "#[cfg(test)]\nmod tests { use wattkeep_sim::disk; }"),
            ("crates/keep/tests/a.rs", "use wattkeep_sim::disk;"),
            ("crates/cli/src/a.rs", "use wattkeep::a; use wattkeep_bench::b;"),
        ] {
            assert_eq!(found(path, text), [], "{path}: {text}");
        }
    }

    #[test]
    fn modules_keep_to_their_table() {
        for (path, text) in [
            ("crates/keep/src/control/a.rs", "use crate::client::grant;"),
            ("crates/keep/src/control/a.rs", "use crate::{types, keeper};"),
            ("crates/keep/src/victim/a.rs", "use std::time::Instant;"),
            ("crates/keep/src/victim/a.rs", "let a = wattkeep_sys::futex::wait;"),
            ("crates/keep/src/victim/a.rs", "use super::super::client::grant;"),
            ("crates/store/src/superblock.rs", "use std::fs::File;"),
            ("crates/power/src/a.rs", "use std::time::SystemTime;"),
        ] {
            assert_eq!(found(path, text), [Rule::ModuleImport], "{path}: {text}");
        }
        for (path, text) in [
            ("crates/keep/src/control/a.rs", "use crate::client_words; // crate::client"),
            ("crates/keep/src/victim/a.rs", "#[cfg(test)]\nmod tests { use std::time::Instant; }"),
            ("crates/keep/src/keeper/a.rs", "use crate::client::grant;"),
        ] {
            assert_eq!(found(path, text), [], "{path}: {text}");
        }
    }
}
