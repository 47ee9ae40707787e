//! The keeper's voice: one line on standard error, for what no caller is there to hear.

use std::io::Write;

/// Says what went wrong and what to do next.
pub(super) fn complain(what: &str) {
    // Not eprintln: it panics when nobody reads, and a keeper must not end for that.
    let _ = writeln!(std::io::stderr(), "wattkeepd: {what}");
}
