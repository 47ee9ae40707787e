//! Banned calls, each with its replacement, and leftovers that must not be committed.

use super::source::{Line, Source, is_word};
use super::tables::{BannedCall, Tables};
use super::{Report, Rule};

/// Marks of unfinished work. They are whole words of a comment.
const LEFTOVERS: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Calls in code, leftovers in comments.
pub(crate) fn check(source: &Source, tables: &Tables, report: &mut Report) {
    for (index, line) in source.lines.iter().enumerate() {
        for banned in tables.banned_calls.iter().filter(|banned| applies(banned, source, line)) {
            if holds(&line.code, banned.call) {
                let instead = format!("no {} here: {}", banned.call, banned.instead);
                report.add(&source.path, index + 1, Rule::BannedCall, instead);
            }
        }
        let mut words = line.comment.split(|c| !is_word(c));
        if let Some(mark) = words.find(|word| LEFTOVERS.contains(word)) {
            let instead = format!("no {mark}: do it now, or write down what holds and why");
            report.add(&source.path, index + 1, Rule::Leftover, instead);
        }
    }
}

fn applies(banned: &BannedCall, source: &Source, line: &Line) -> bool {
    let path = source.path.as_str();
    let within = banned.within.is_empty() || banned.within.iter().any(|prefix| path.starts_with(prefix));
    let except = banned.except.iter().any(|prefix| path.starts_with(prefix));
    within && !except && (banned.in_tests_too || !line.in_test)
}

/// Whether `call` stands in `code` and is not the tail of a longer name.
fn holds(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !(call.starts_with(is_word) && before.is_some_and(is_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tables::TABLES;
    use crate::tidy::tests::rules_of;

    fn found(path: &str, text: &str) -> Vec<Rule> {
        let source = Source::parse(path, text);
        rules_of(|report| check(&source, &TABLES, report))
    }

    #[test]
    fn each_banned_call_is_caught_where_it_is_banned() {
        let library = "crates/store/src/a.rs";
        let pure = "crates/power/src/a.rs";
        for (path, text) in [
            (library, "a.unwrap()"),
            (library, "println!(\"\")"),
            (library, "eprintln!(\"\")"),
            (library, "std::thread::sleep(a)"),
            ("crates/keep/src/a.rs", "thread::sleep(a)"),
            (library, "SystemTime::now()"),
            (pure, "Instant::now()"),
            ("crates/keep/src/victim/a.rs", "Instant::now()"),
            (library, "static mut A: u8 = 0;"),
            ("crates/cli/src/a.rs", "a.unwrap()"),
            ("crates/cli/src/a.rs", concat!("to", "do!()")),
            ("crates/cli/src/a.rs", "unimplemented!()"),
            ("crates/cli/src/a.rs", "dbg!(a)"),
            ("crates/cli/tests/a.rs", "dbg!(a)"),
        ] {
            assert_eq!(found(path, text), [Rule::BannedCall], "{path}: {text}");
        }
        for (path, text) in [
            (library, "a.unwrap_or(b)"),
            (library, "my_println!(a)"),
            (library, "a(\".unwrap()\") // .unwrap()"),
            (library, "Instant::now()"),
            (library, "#[cfg(test)]\nmod tests { fn a() { b.unwrap(); println!(); } }"),
            ("crates/store/tests/a.rs", "a.unwrap()"),
            ("crates/cli/src/a.rs", "println!(\"\"); SystemTime::now()"),
            ("crates/keep/src/keeper/a.rs", "SystemTime::now()"),
        ] {
            assert_eq!(found(path, text), [], "{path}: {text}");
        }
    }

    #[test]
    fn leftovers_are_caught_in_comments_only() {
        for mark in LEFTOVERS {
            assert_eq!(found("a.rs", &format!("a(); // {mark}: later")), [Rule::Leftover]);
            assert_eq!(found("a.rs", &format!("//! {mark}(me) later")), [Rule::Leftover]);
            assert_eq!(found("a.rs", &format!("a(\"{mark}\"); // {mark}S")), []);
        }
    }
}
