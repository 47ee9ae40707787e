//! `wattkeep budget`: shows the dirty budget, or sets it: directly, or from a battery or a window.
//!
//! A running keeper is told, and remembers it in the store; otherwise the store is written.

use serde_json::{Value, json};
use wattkeep_keep::protocol::Request;
use wattkeep_power::budget::{SaveCost, budget_for, default_window};
use wattkeep_power::calibration::Calibration;
use wattkeep_power::spec::BudgetSpec;
use wattkeep_power::units::{format_bandwidth, format_duration_ns};
use wattkeep_power::window::{deadline_ns, window_ns};

use crate::answer::Answer;
use crate::args::BudgetArgs;
use crate::calibrate;
use crate::failure::{Exit, Failure};
use crate::keeper::KeeperLine;
use crate::opened;
use crate::text;

pub(crate) fn run(args: &BudgetArgs) -> Result<Answer, Failure> {
    let now = Now::of(args)?;
    let calibration = calibrate::load(&args.store)?;
    if let Some(budget) = &args.budget {
        let pages = resolve(budget, now.region_pages)?;
        set(args, &now, budget, pages)?;
        return Ok(show(args, pages, calibration.as_ref(), String::new(), Value::Null));
    }
    let window = match (args.window, args.energy, args.power) {
        (Some(window), ..) => window,
        (None, Some(energy), Some(power)) => window_ns(energy, args.derating, power),
        (None, ..) => {
            return Ok(show(args, now.budget_pages, calibration.as_ref(), String::new(), Value::Null));
        }
    };
    let Some(calibration) = calibration else {
        let place = args.store.display();
        let cause = format!("{place} was never calibrated; run 'wattkeep calibrate {place}'");
        return Err(Failure::new(Exit::NotSo, cause));
    };
    let (pages, cost) = carried(window, &calibration, now.region_pages);
    if pages == 0 {
        let least = default_window(1, &calibrate::save_cost(&calibration, 1))
            .map_or_else(String::new, format_duration_ns);
        let cause = format!(
            "a window of {} carries no page: the least is {least}; take a larger battery, or a faster SSD",
            format_duration_ns(window)
        );
        return Err(Failure::new(Exit::NotSo, cause));
    }
    let spec = BudgetSpec::Pages(pages);
    let pages = resolve(&spec, now.region_pages)?;
    set(args, &now, &spec, pages)?;
    let json = json!({ "window_ms": window as f64 / 1e6, "cost": cost });
    Ok(show(args, pages, Some(&calibration), arithmetic(args, window, &cost, pages), json))
}

/// The largest budget that a window carries. Protecting pages takes time of its own, so the cost
/// depends on the budget: the fixed point is found from above, in a bounded number of steps.
fn carried(window: u64, calibration: &Calibration, region_pages: u64) -> (u64, SaveCost) {
    let deadline = deadline_ns(window);
    let (mut low, mut high) = (0, region_pages.min(u64::from(u32::MAX)));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if budget_for(deadline, &calibrate::save_cost(calibration, middle)) >= middle {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    (low, calibrate::save_cost(calibration, low))
}

struct Now {
    line: Option<KeeperLine>,
    budget_pages: u32,
    region_pages: u64,
}

impl Now {
    fn of(args: &BudgetArgs) -> Result<Self, Failure> {
        if let Some(line) = KeeperLine::connect(&args.store)
            && let Ok(status) = line.status()
        {
            let bytes: u64 = status.regions.iter().map(|region| region.bytes).sum();
            let (budget_pages, region_pages) = (status.budget_pages, bytes / text::PAGE);
            return Ok(Self { line: Some(line), budget_pages, region_pages });
        }
        let (store, _) = opened::read_only(&args.store)?;
        let (budget_pages, region_pages) = (store.budget_pages(), opened::region_pages(&store));
        Ok(Self { line: None, budget_pages, region_pages })
    }
}

fn resolve(budget: &BudgetSpec, region_pages: u64) -> Result<u32, Failure> {
    budget
        .resolve(region_pages)
        .map_err(|error| Failure::usage(format!("{error}; see 'wattkeep budget --help'")))
}

fn set(args: &BudgetArgs, now: &Now, budget: &BudgetSpec, pages: u32) -> Result<(), Failure> {
    match &now.line {
        Some(line) => Ok(line.done(&Request::SetBudget { budget: budget.to_string() })?),
        None => opened::change(&args.store, |store| Ok(store.set_budget(pages)?)).map(drop),
    }
}

fn arithmetic(args: &BudgetArgs, window: u64, cost: &SaveCost, pages: u32) -> String {
    let overheads = cost.overheads;
    let fixed = overheads.total_ns().unwrap_or(u64::MAX);
    let mut rows = Vec::new();
    if let (Some(energy), Some(power)) = (args.energy, args.power) {
        rows.push(("energy", format!("{energy} x {} / {power}", args.derating)));
    }
    rows.extend([
        ("window", format_duration_ns(window)),
        ("deadline", format!("{} (80 % of the window)", format_duration_ns(deadline_ns(window)))),
        ("- detection", format_duration_ns(overheads.detection_ns)),
        ("- freeze", format_duration_ns(overheads.freeze_ns)),
        ("- commit", format_duration_ns(overheads.commit_ns)),
        ("= copying", format_duration_ns(deadline_ns(window).saturating_sub(fixed))),
        ("x bandwidth", format!("{} (worst measured)", format_bandwidth(cost.bandwidth_bytes_per_s))),
        ("= budget", text::pages(pages.into())),
    ]);
    format!("{}\n", text::facts(&rows))
}

fn show(
    args: &BudgetArgs,
    pages: u32,
    calibration: Option<&Calibration>,
    before: String,
    derived: Value,
) -> Answer {
    let needs = calibration.and_then(|calibration| {
        default_window(pages.into(), &calibrate::save_cost(calibration, pages.into()))
    });
    let place = args.store.display();
    let mut text = format!("{before}dirty budget: {}", text::pages(pages.into()));
    text += &match needs {
        Some(window) => format!("\nneeds a save window of {}", format_duration_ns(window)),
        None => format!("\nnot calibrated: run 'wattkeep calibrate {place}' to learn which window it needs"),
    };
    let json = json!({
        "store": args.store,
        "budget_pages": pages,
        "budget_bytes": u64::from(pages) * text::PAGE,
        "needs_window_ms": needs.map(|window| window as f64 / 1e6),
        "derived": derived,
    });
    Answer::new(text, json)
}
