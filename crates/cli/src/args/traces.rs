//! What a person can type of traces: to record one, to plan by one, to compare policies on one.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use wattkeep_plan::battery::RATED_CELSIUS;
use wattkeep_plan::curve::distance::{SAMPLE_PAGES, SAMPLE_PAGES_MIN};
use wattkeep_plan::lab::table::BUDGETS_PERCENT;
use wattkeep_plan::read::FormatName;
use wattkeep_plan::study::VolumeSize;
use wattkeep_power::energy::{Fraction, Milliwatts};
use wattkeep_power::units::{parse_duration_ns, parse_size_bytes};

use super::power;
use crate::commands::plan;

#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// File to write, which must not exist
    #[arg(long, value_name = "FILE", default_value = "trace.csv")]
    pub(crate) out: PathBuf,
    /// Shortest time between two looks, from 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = epoch)]
    pub(crate) epoch: u64,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct PoliciesArgs {
    /// Trace, or zipf:RECORDS for updates of so many records of 1 KB by Zipf's law
    #[arg(value_name = "TRACE")]
    pub(crate) trace: String,
    /// Format, if it is not to be recognised
    #[arg(long, value_name = "F")]
    pub(crate) format: Option<FormatName>,
    /// Budgets in percent of the touched pages
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = percent,
          default_values_t = BUDGETS_PERCENT)]
    pub(crate) budgets: Vec<f64>,
    /// Page writes that count as a millisecond where the trace has no times
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) writes_per_ms: u64,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "a budget is a percentage above 0, and 100 at most".to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// Traces; more than one share a battery
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Format, if it is not to be recognised
    #[arg(long, value_name = "F")]
    pub(crate) format: Option<FormatName>,
    /// Size of the volumes, or of one; the highest byte touched otherwise
    #[arg(long = "volume", value_name = "[NAME=]SIZE", value_parser = plan::parse_volume)]
    pub(crate) volumes: Vec<VolumeSize>,
    /// Write a report for a browser into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Store whose calibration tells what a save costs
    #[arg(long, value_name = "STORE", conflicts_with = "bandwidth")]
    pub(crate) store: Option<PathBuf>,
    /// Worst bandwidth of the SSD: 350MB/s; 1GB/s is assumed
    #[arg(long, value_name = "B", value_parser = plan::parse_bandwidth)]
    pub(crate) bandwidth: Option<u64>,
    /// Power that is drawn while a save runs
    #[arg(long, value_name = "POWER", default_value = "300W", value_parser = power)]
    pub(crate) power: Milliwatts,
    /// Share of the battery's energy that may be taken out; half lets it live for four years
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = share)]
    pub(crate) depth_of_discharge: Fraction,
    /// Capacity that age leaves, of the rated one; at 80 % a battery is replaced
    #[arg(long, value_name = "SHARE", default_value = "80%", value_parser = share)]
    pub(crate) health: Fraction,
    /// Coldest temperature of the battery, in degrees Celsius
    #[arg(long, value_name = "T", default_value_t = RATED_CELSIUS, allow_negative_numbers = true)]
    pub(crate) celsius: f64,
    /// Bytes that the SSD is rated to take in its life
    #[arg(long, value_name = "BYTES", default_value = "600TB", value_parser = endurance)]
    pub(crate) endurance: u64,
    /// Written pages up to which the budget curve is exact; beyond, pages are sampled
    #[arg(long, value_name = "N", default_value_t = SAMPLE_PAGES, value_parser = sample_pages)]
    pub(crate) sample_pages: u32,
}

fn sample_pages(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pages) if pages >= SAMPLE_PAGES_MIN => Ok(pages),
        _ => Err(format!("a number of pages from {SAMPLE_PAGES_MIN} on")),
    }
}

fn share(text: &str) -> Result<Fraction, String> {
    match text.parse() {
        Ok(Fraction::ZERO) => Err("of no energy nothing is saved".to_owned()),
        Ok(share) => Ok(share),
        Err(error) => Err(format!("{error}")),
    }
}

fn endurance(text: &str) -> Result<u64, String> {
    match parse_size_bytes(text).map_err(|error| error.to_string())? {
        0 => Err("an SSD takes at least a byte".to_owned()),
        bytes => Ok(bytes),
    }
}

fn epoch(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text) {
        Ok(epoch_ns @ 1_000_000..=60_000_000_000) => Ok(epoch_ns),
        Ok(_) => Err("from 1ms to 60s".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
