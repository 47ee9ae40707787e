//! Progress bars: on standard error, when it is a terminal, and never in the way.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for `label`, from 0 to a total that [`set`] tells.
pub(crate) fn bar(label: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {percent:>3} %  {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    hidden_unless_watched(ProgressBar::new(1)).with_style(style).with_message(label.to_owned())
}

/// A line that changes in place.
pub(crate) fn line() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    hidden_unless_watched(ProgressBar::new_spinner()).with_style(style)
}

fn hidden_unless_watched(bar: ProgressBar) -> ProgressBar {
    if std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(12));
        bar.enable_steady_tick(Duration::from_millis(250));
    } else {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// `done` of `total`.
pub(crate) fn set(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total.max(1));
    bar.set_position(done);
}
