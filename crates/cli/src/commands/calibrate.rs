//! `wattkeep calibrate`: measures the store's SSD, and says what windows and batteries budgets need.

use serde_json::json;
use wattkeep_power::budget::{default_window, energy_for};
use wattkeep_power::energy::Fraction;
use wattkeep_power::units::{format_bandwidth, format_duration_ns};

use crate::answer::{Answer, Output};
use crate::args::CalibrateArgs;
use crate::calibrate;
use crate::failure::Failure;
use crate::keeper::KeeperLine;
use crate::opened;
use crate::progress;
use crate::text::{self, PAGE};

/// Shares of the regions that the table shows, in percent.
const SHARES: [u64; 5] = [1, 5, 11, 50, 100];

pub(crate) fn run(args: &CalibrateArgs, _output: Output) -> Result<Answer, Failure> {
    let (budget, regions) = sizes(args)?;
    let bar = progress::bar("measuring");
    let measured = calibrate::measure(&args.store, args.seconds, u64::from(budget) * PAGE, &bar);
    bar.finish_and_clear();
    let calibration = measured?;
    calibrate::store(&args.store, &calibration)?;
    let mut text = text::facts(&[
        ("worst bandwidth", format_bandwidth(calibration.write_worst_bytes_per_s)),
        ("usual bandwidth", format_bandwidth(calibration.write_median_bytes_per_s)),
        ("worst flush", format_duration_ns(calibration.flush_worst_ns)),
        ("samples", calibration.samples.to_string()),
        ("written to", args.store.join(calibrate::FILE).display().to_string()),
    ]);
    let heading =
        ["dirty budget", "share", "save window", &format!("energy at {}", args.power)].map(String::from);
    let mut rows = vec![heading.to_vec()];
    let mut needs = Vec::new();
    let shares = SHARES.map(|percent| (format!("{percent} %"), (regions * percent / 100).max(1)));
    let now = std::iter::once(("now".to_owned(), u64::from(budget))).filter(|_| budget > 0);
    for (share, pages) in now.chain(shares.into_iter().filter(|_| regions > 0)) {
        let cost = calibrate::save_cost(&calibration, pages);
        let window = default_window(pages, &cost).unwrap_or(u64::MAX);
        let energy =
            energy_for(pages, &cost, Fraction::from_percent(80).unwrap_or(Fraction::ONE), args.power);
        let energy_text = energy.map_or_else(|| "-".to_owned(), |energy| energy.to_string());
        rows.push(vec![text::pages(pages), share.clone(), format_duration_ns(window), energy_text]);
        needs.push(json!({
            "share": share, "budget_pages": pages, "window_ms": window as f64 / 1e6,
            "energy_mj": energy.map(|energy| energy.0), "power_mw": args.power.0,
        }));
    }
    if rows.len() > 1 {
        text += &format!("\n{}", text::table(&rows));
    }
    let json = json!({ "store": args.store, "calibration": calibration, "needs": needs });
    Ok(Answer::new(text, json))
}

/// Budget and pages of all regions, also while a keeper runs.
fn sizes(args: &CalibrateArgs) -> Result<(u32, u64), Failure> {
    if let Some(status) = KeeperLine::connect(&args.store).and_then(|line| line.status().ok()) {
        let bytes: u64 = status.regions.iter().map(|region| region.bytes).sum();
        return Ok((status.budget_pages, bytes / PAGE));
    }
    let (store, _) = opened::read_only(&args.store)?;
    Ok((store.budget_pages(), opened::region_pages(&store)))
}
