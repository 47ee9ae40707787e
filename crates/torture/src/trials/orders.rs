//! Orders to a subject, by lines on its standard input. There is one: `save`.
//!
//! It does what an operator does when the power is going: `wattkeep save`. Then it says `report JSON`, the
//! command's word that everything is on the SSD, and `saved T K` for each thread: the stamps in memory, which
//! no thread can change any more.

use std::io::BufRead as _;
use std::path::Path;
use std::process::Command;

use wattkeep::Region;

use super::stamps::{Stamps, load};
use super::subject::{say, tell};

/// Obeys until nobody gives orders any more.
pub(crate) fn obey(directory: &Path, stamps: &Stamps, region: &Region) {
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        if order.trim() != "save" {
            say(format_args!("unknown order {order:?}"));
            continue;
        }
        match save(directory) {
            Ok(report) => {
                say(format_args!("report {report}"));
                tell("saved", &stamps.highest(|slot| load(region, slot)));
            }
            Err(cause) => say(format_args!("no-save {cause}")),
        }
    }
}

/// The report of the save, in one line of JSON.
fn save(directory: &Path) -> Result<String, String> {
    let beside = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("wattkeep");
    let output =
        Command::new(&beside).args(["save", "--json"]).arg(directory).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}: {}", output.status, text(&output.stderr)))
    }
}
