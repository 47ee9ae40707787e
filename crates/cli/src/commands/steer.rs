//! `wattkeep checkpoint`, `save`, `resume`: orders to a running keeper.

use std::path::Path;

use serde_json::json;
use wattkeep_keep::protocol::{Request, SaveReport};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::keeper::KeeperLine;
use crate::text;

pub(crate) fn checkpoint(place: &Path) -> Result<Answer, Failure> {
    let report = KeeperLine::required(place)?.report(&Request::Checkpoint)?;
    let text = format!("checkpoint {}", sentence(&report));
    Ok(Answer::new(text, json!({ "store": place, "checkpoint": report })))
}

pub(crate) fn save(place: &Path) -> Result<Answer, Failure> {
    let report = KeeperLine::required(place)?.report(&Request::Save)?;
    let place_name = place.display();
    let text = format!("save {}; writers wait for 'wattkeep resume {place_name}'", sentence(&report));
    Ok(Answer::new(text, json!({ "store": place, "save": report })))
}

pub(crate) fn resume(place: &Path) -> Result<Answer, Failure> {
    KeeperLine::required(place)?.done(&Request::Resume)?;
    Ok(Answer::new("writers go on", json!({ "store": place, "resumed": true })))
}

fn sentence(report: &SaveReport) -> String {
    let pages = text::pages(report.pages.into());
    format!("committed epoch {}: {pages} in {}", report.epoch, text::millis(report.total_ms))
}
