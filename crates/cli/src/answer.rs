//! What a command has to say, and how it is printed: for people, or as one JSON object.
//!
//! Standard output carries the answer and nothing else; a reader that went away is no error.

use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;

use crate::failure::Exit;

/// How answers are to be printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// Prints a line for people at once, while a long command runs.
    pub(crate) fn say(self, line: &str) {
        if !self.json {
            write_out(&format!("{line}\n"));
        }
    }
}

/// The end of a command that did what was asked.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    json: Value,
    code: ExitCode,
}

impl Answer {
    /// An answer of exit code 0.
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Self { text: text.into(), json, code: ExitCode::SUCCESS }
    }

    /// An answer that was printed on the way.
    pub(crate) fn printed() -> Self {
        Self::new("", Value::Null)
    }

    /// The same answer, with exit code 1 unless `holds`.
    pub(crate) fn that_holds(mut self, holds: bool) -> Self {
        self.code = if holds { ExitCode::SUCCESS } else { Exit::NotSo.code() };
        self
    }

    /// The same answer, with the exit code of a program that was run for it.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = ExitCode::from(code);
        self
    }

    /// Prints it, and gives the code to exit with.
    pub(crate) fn print(&self, output: Output) -> ExitCode {
        self.show(output);
        self.code
    }

    /// Prints it; `false` when nobody reads any more.
    pub(crate) fn show(&self, output: Output) -> bool {
        match output.json {
            true if self.json.is_null() => true,
            true => write_out(&format!("{}\n", self.json)),
            false if self.text.is_empty() => true,
            false => write_out(&format!("{}\n", self.text.trim_end())),
        }
    }
}

/// Writes to standard output; `false` when nobody reads any more. Who stopped reading has read enough.
pub(crate) fn write_out(text: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}
