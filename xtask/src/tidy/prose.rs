//! What committed text must not mention: folders of the machine it was written on, and the tools of
//! the workplace. A reader elsewhere has neither.

use super::files::TextFile;
use super::source::is_word;
use super::{Report, Rule};

const CHECKED_EXTENSIONS: [&str; 9] = ["rs", "toml", "md", "c", "h", "sh", "py", "yml", "txt"];
const CHECKED_NAMES: [&str; 2] = ["Makefile", "run"];

// Each is broken in two, so that this file does not hold what it forbids.
const MACHINE_FOLDERS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const WORKPLACE_WORDS: [&str; 9] = [
    concat!("anth", "ropic"),
    concat!("chat", "gpt"),
    concat!("cla", "ude"),
    concat!("cod", "ex"),
    concat!("cop", "ilot"),
    concat!("ll", "m"),
    concat!("ll", "ms"),
    concat!("open", "ai"),
    concat!("sub", "agent"),
];

/// Paths of this machine, words of the workplace.
pub(crate) fn check(file: &TextFile, report: &mut Report) {
    if !CHECKED_EXTENSIONS.contains(&file.extension()) && !CHECKED_NAMES.contains(&file.name()) {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        for folder in MACHINE_FOLDERS.iter().filter(|folder| holds_folder(line, folder)) {
            let instead = format!("no {folder}: give the path from the root of the checkout");
            report.add(&file.path, index + 1, Rule::MachinePath, instead);
        }
        let lower = line.to_lowercase();
        let mut words = lower.split(|c| !is_word(c));
        if let Some(word) = words.find(|word| WORKPLACE_WORDS.contains(word)) {
            let instead = format!("no '{word}': say what the program does, not how it was written");
            report.add(&file.path, index + 1, Rule::WorkplaceWord, instead);
        }
    }
}

/// Whether an absolute path below `folder` stands in the line.
fn holds_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '/' | '~' | '}' | ')'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::rules_of;

    fn found(path: &str, text: &str) -> Vec<Rule> {
        let file = TextFile { path: path.to_owned(), size_bytes: 0, text: text.to_owned() };
        rules_of(|report| check(&file, report))
    }

    #[test]
    fn paths_of_a_machine_are_caught() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(found("docs/a.md", &format!("see {folder}main/x")), [Rule::MachinePath]);
            assert_eq!(found("a.rs", &format!("const A: &str = \"{folder}a\";")), [Rule::MachinePath]);
            assert_eq!(found("docs/a.md", &format!("see target{folder}x and $DIR/..{folder}")), []);
            assert_eq!(found("a.bin", folder), []);
        }
    }

    #[test]
    fn words_of_the_workplace_are_caught() {
        for word in WORKPLACE_WORDS {
            assert_eq!(found("docs/a.md", &format!("by {word}.")), [Rule::WorkplaceWord]);
            assert_eq!(found("Makefile", &word.to_uppercase()), [Rule::WorkplaceWord]);
            assert_eq!(found("docs/a.md", &format!("x{word}x")), []);
        }
    }
}
