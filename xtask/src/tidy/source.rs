//! A Rust file as lines of code and lines of comment, with the lines that only tests compile marked.
//!
//! A lexer, not a parser: it knows strings, comments and characters, so that a rule never mistakes
//! the one for the other, and it counts brackets. The inside of strings is blanked in the code.

use super::files::TextFile;

/// One line, split.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// As written.
    pub(crate) raw: String,
    /// Without comments; the inside of strings is gone.
    pub(crate) code: String,
    /// The comments alone, with their slashes.
    pub(crate) comment: String,
    /// Compiled for tests only.
    pub(crate) in_test: bool,
}

/// A lexed Rust file.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) lines: Vec<Line>,
}

/// Code with its line numbers, joined, for rules that look across lines.
pub(crate) struct Joined {
    pub(crate) code: Vec<char>,
    /// For each character of `code`, its line, counted from 0.
    pub(crate) line_of: Vec<usize>,
}

/// Lexes every Rust file, and marks the files that `#[cfg(test)] mod name;` brings in.
pub(crate) fn parse_all(files: &[TextFile]) -> Vec<Source> {
    let rust_files = files.iter().filter(|file| file.extension() == "rs");
    let mut sources: Vec<Source> = rust_files.map(|file| Source::parse(&file.path, &file.text)).collect();
    let test_only: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let module = source.path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let below = |parent: &String| module.strip_prefix(parent.as_str()).is_some_and(starts_path);
        if test_only.iter().any(below) {
            source.lines.iter_mut().for_each(|line| line.in_test = true);
        }
    }
    sources
}

fn starts_path(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Whether a character can be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Source {
    /// Lexes `text`.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let mut source = Self { path: path.to_owned(), lines: split(text) };
        let folder_of_tests = ["tests", "benches"]
            .iter()
            .any(|folder| path.starts_with(&format!("{folder}/")) || path.contains(&format!("/{folder}/")));
        let whole_file = source.lines.iter().any(|line| line.code.contains("#![cfg(test)]"));
        if folder_of_tests || whole_file {
            source.lines.iter_mut().for_each(|line| line.in_test = true);
        } else {
            source.mark_test_items();
        }
        source
    }

    /// The code of all lines in one piece.
    pub(crate) fn joined(&self) -> Joined {
        let (mut code, mut line_of) = (Vec::new(), Vec::new());
        for (index, line) in self.lines.iter().enumerate() {
            for c in line.code.chars().chain(['\n']) {
                code.push(c);
                line_of.push(index);
            }
        }
        Joined { code, line_of }
    }

    fn mark_test_items(&mut self) {
        let joined = self.joined();
        for at in 0..joined.code.len() {
            if let Some(end) = joined.test_attribute_end(at) {
                let item_end = joined.item_end(end).unwrap_or(joined.code.len() - 1);
                for line in &mut self.lines[joined.line_of[at]..=joined.line_of[item_end]] {
                    line.in_test = true;
                }
            }
        }
    }

    /// Paths, without `.rs`, of the modules that this file declares for tests only.
    fn test_modules(&self) -> Vec<String> {
        let name_at = self.path.rfind('/').map_or(0, |slash| slash + 1);
        let (folder, name) = self.path.split_at(name_at);
        let folder = match name {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            name => format!("{folder}{}/", name.trim_end_matches(".rs")),
        };
        let declarations = self.lines.iter().filter(|line| line.in_test).filter_map(|line| {
            let code = line.code.trim().strip_suffix(';')?;
            let (before, module) = code.rsplit_once(' ')?;
            before.ends_with("mod").then(|| format!("{folder}{module}"))
        });
        declarations.collect()
    }
}

impl Joined {
    /// Whether `word` stands at `at`, with no name character on either side.
    pub(crate) fn word_at(&self, at: usize, word: &str) -> bool {
        let before = at.checked_sub(1).map(|index| self.code[index]);
        let end = at + word.chars().count();
        let matches = self.code.len() >= end && word.chars().eq(self.code[at..end].iter().copied());
        let after = self.code.get(end).copied();
        matches && !before.is_some_and(is_word) && !after.is_some_and(is_word)
    }

    /// The first character at or after `at` that is not white space.
    pub(crate) fn skip_space(&self, at: usize) -> usize {
        let space = self.code[at.min(self.code.len())..].iter().take_while(|c| c.is_whitespace());
        at + space.count()
    }

    /// The bracket that closes the one at `open`.
    pub(crate) fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0usize;
        for (at, c) in self.code.iter().enumerate().skip(open) {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The body's opening brace of the item at `at`, or the semicolon that ends it.
    pub(crate) fn body_or_semicolon(&self, mut at: usize) -> Option<usize> {
        while at < self.code.len() {
            match self.code[at] {
                '{' | ';' => return Some(at),
                '(' | '[' => at = self.closing(at)?,
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// The last character of the item at `at`.
    fn item_end(&self, at: usize) -> Option<usize> {
        let start = self.body_or_semicolon(at)?;
        if self.code[start] == ';' { Some(start) } else { self.closing(start) }
    }

    /// If an attribute at `at` limits its item to tests, the end of that attribute.
    fn test_attribute_end(&self, at: usize) -> Option<usize> {
        if self.code[at] != '#' || self.code.get(at + 1) != Some(&'[') {
            return None;
        }
        let end = self.closing(at + 1)?;
        let text: String = self.code[at + 2..end].iter().filter(|c| !c.is_whitespace()).collect();
        let names_test = text.split(|c| !is_word(c)).any(|word| word == "test");
        let for_tests = text == "test" || (text.starts_with("cfg(") && !text.contains("not(test"));
        (names_test && for_tests).then_some(end + 1)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Code,
    LineComment,
    /// Block comments nest.
    BlockComment(usize),
    Text,
    /// With so many `#`.
    RawText(usize),
}

fn split(text: &str) -> Vec<Line> {
    let mut state = State::Code;
    text.lines().map(|raw| split_line(raw, &mut state)).collect()
}

fn split_line(raw: &str, state: &mut State) -> Line {
    let chars: Vec<char> = raw.chars().collect();
    let mut line = Line { raw: raw.to_owned(), ..Line::default() };
    if *state == State::LineComment {
        *state = State::Code;
    }
    let mut at = 0;
    while at < chars.len() {
        at += step(&chars, at, state, &mut line);
    }
    line
}

/// Takes one token of `chars` at `at` into `line`; returns its length.
fn step(chars: &[char], at: usize, state: &mut State, line: &mut Line) -> usize {
    let c = chars[at];
    let next = chars.get(at + 1).copied();
    match *state {
        State::LineComment => {
            line.comment.push(c);
            1
        }
        State::BlockComment(depth) => {
            line.comment.push(c);
            let (change, taken) = match (c, next) {
                ('/', Some('*')) => (depth + 1, 2),
                ('*', Some('/')) => (depth - 1, 2),
                _ => (depth, 1),
            };
            *state = if change == 0 { State::Code } else { State::BlockComment(change) };
            taken
        }
        State::Text => match c {
            '\\' => 2,
            '"' => {
                line.code.push('"');
                *state = State::Code;
                1
            }
            _ => 1,
        },
        State::RawText(hashes) => {
            let closes = c == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
            if closes {
                line.code.push('"');
                *state = State::Code;
                return 1 + hashes;
            }
            1
        }
        State::Code => step_code(chars, at, state, line),
    }
}

fn step_code(chars: &[char], at: usize, state: &mut State, line: &mut Line) -> usize {
    let c = chars[at];
    let next = chars.get(at + 1).copied();
    match (c, next) {
        ('/', Some('/')) => {
            line.comment.push_str("//");
            *state = State::LineComment;
            2
        }
        ('/', Some('*')) => {
            line.comment.push_str("/*");
            *state = State::BlockComment(1);
            2
        }
        ('"', _) => {
            line.code.push('"');
            *state = State::Text;
            1
        }
        ('r', Some('"' | '#')) if raw_text_starts(chars, at) => {
            let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
            line.code.push_str("r\"");
            *state = State::RawText(hashes);
            2 + hashes
        }
        ('\'', Some('\\')) => {
            let inside = chars.iter().skip(at + 3).take_while(|c| **c != '\'').count();
            line.code.push_str("''");
            4 + inside
        }
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => {
            line.code.push_str("''");
            3
        }
        _ => {
            line.code.push(c);
            1
        }
    }
}

/// `r"`, `r#"`, also after `b` or `c`, but neither `r#type` nor the end of a name.
fn raw_text_starts(chars: &[char], at: usize) -> bool {
    let name_start = match at.checked_sub(1).map(|before| chars[before]) {
        Some('b' | 'c') => at - 1,
        _ => at,
    };
    let in_name = name_start.checked_sub(1).is_some_and(|before| is_word(chars[before]));
    let quote = chars[at + 1..].iter().find(|c| **c != '#');
    !in_name && quote == Some(&'"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::parse("a.rs", text).lines.iter().map(|line| line.code.clone()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn strings_comments_and_characters_are_told_apart() {
        assert_eq!(code("a // b\nc"), "a |c");
        assert_eq!(code("a /* b /* c */ d */ e"), "a  e");
        assert_eq!(code("a /* b\nc */ d"), "a | d");
        assert_eq!(code(r#"f("// \" { ", x) "#), r#"f("", x) "#);
        assert_eq!(code("f(\"one\ntwo {\", x)"), "f(\"|\", x)");
        assert_eq!(code(r##"f(r#"a " { "#, br"{", x)"##), r#"f(r"", br"", x)"#);
        assert_eq!(code("f('{', '\\'', '\\u{7d}', 'a: loop {})"), "f('', '', '', 'a: loop {})");
        assert_eq!(code("fn f<'a>(r#type: &'a str) {}"), "fn f<'a>(r#type: &'a str) {}");
        assert_eq!(code("'//'"), "'|".trim_end_matches('|').to_owned());
        let source = Source::parse("a.rs", "a // b");
        assert_eq!(source.lines[0].comment, "// b");
    }

    fn test_lines(text: &str) -> Vec<usize> {
        let source = Source::parse("crates/x/src/a.rs", text);
        let numbered = source.lines.iter().enumerate();
        numbered.filter(|(_, line)| line.in_test).map(|(index, _)| index + 1).collect()
    }

    #[test]
    fn test_items_are_marked_to_their_end() {
        assert_eq!(test_lines("a\n#[cfg(test)]\nmod tests {\n  x { }\n}\nb"), [2, 3, 4, 5]);
        assert_eq!(test_lines("#[cfg(test)]\nuse a::{b, c};\nd"), [1, 2]);
        assert_eq!(test_lines("#[cfg(all(test, loom))]\nmod a;\nb"), [1, 2]);
        assert_eq!(test_lines("#[cfg(not(test))]\nfn a() {}"), [] as [usize; 0]);
        assert_eq!(test_lines("#[test]\nfn a(b: [u8; 4]) {\n}\nc"), [1, 2, 3]);
        assert_eq!(test_lines("#[derive(Debug)]\nstruct A;"), [] as [usize; 0]);
        assert_eq!(test_lines("#![cfg(test)]\nfn a() {}"), [1, 2]);
    }

    #[test]
    fn files_of_tests_are_marked_whole() {
        let file =
            |path: &str, text: &str| TextFile { path: path.to_owned(), size_bytes: 0, text: text.to_owned() };
        let sources = parse_all(&[
            file("crates/x/src/a.rs", "#[cfg(test)]\nmod twin;\nmod real;"),
            file("crates/x/src/a/real.rs", "fn a() {}"),
            file("crates/x/src/a/twin.rs", "fn a() {}"),
            file("crates/x/tests/b.rs", "fn a() {}"),
        ]);
        let all_test = |source: &Source| source.lines.iter().all(|line| line.in_test);
        assert_eq!(sources.iter().map(all_test).collect::<Vec<_>>(), [false, false, true, true]);
    }
}
