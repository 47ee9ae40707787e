//! Draws an invented drill, to look at the picture without running one.
//!
//!     cargo run -p wattkeep-bench --example drill_picture -- FILE.svg

use wattkeep_bench::chart::{Sample, Timeline, to_svg};

const CUT_S: f64 = 42.0;
const SAVED_S: f64 = 43.62;
const PAGES_PER_S: f64 = 17_500.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give the file to write")?;
    let samples = (0..470).map(|i| sample(f64::from(i) * 0.1)).collect();
    let timeline = Timeline {
        title: "wattkeep drill: ycsb-a on 1 GiB, save window 2.5 s".to_owned(),
        samples,
        cut_t_s: Some(CUT_S),
        saved_t_s: Some(SAVED_S),
    };
    std::fs::write(path, to_svg(&timeline)?)?;
    Ok(())
}

/// Fills up to the budget, is given less budget half way, is cut, is saved.
fn sample(t_s: f64) -> Sample {
    let budget = if t_s < 24.0 { 28_672.0 } else { 22_016.0 };
    let ripple = (t_s * 7.0).sin() + (t_s * 17.3).sin() + (t_s * 41.0).cos();
    let kept = budget * 0.93 + 400.0 * ripple;
    let (dirty, faults, ssd) = if t_s < CUT_S {
        let filling = 30_000.0 * (1.0 - (-t_s / 4.0).exp());
        let faults = 9_000.0 + 42_000.0 * (-t_s / 3.0).exp() + 600.0 * ripple;
        let busy = if filling < kept { 0.2 } else { 1.0 };
        (filling.min(kept), faults, faults * 4096.0 * busy)
    } else if t_s < SAVED_S {
        let left = (SAVED_S - t_s) / (SAVED_S - CUT_S);
        (budget * 0.93 * left, 0.0, PAGES_PER_S * 4096.0 * 9.0)
    } else {
        (0.0, 0.0, 0.0)
    };
    Sample {
        t_s,
        dirty_pages: dirty as u64,
        budget_pages: budget as u64,
        faults_per_s: faults,
        ssd_bytes_per_s: ssd,
    }
}
