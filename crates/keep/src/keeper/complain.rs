//! The keeper's voice: one line on standard error, for what no caller is there to hear.

/// Says what went wrong and what to do next.
pub(super) fn complain(what: &str) {
    eprintln!("wattkeepd: {what}");
}
