//! Runs a model under the checker of this build, and says in one line how much of it was explored.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[cfg(loom)]
pub(super) use loom::thread;
#[cfg(shuttle)]
pub(super) use shuttle::thread;

/// Explores `model`. With loom: every schedule of at most three preemptions.
/// With shuttle: `schedules` drawn by chance, of which a third by priorities (PCT), which finds bugs that
/// need one thread to fall far behind.
pub(super) fn explore(name: &str, schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    let explored = catch_unwind(AssertUnwindSafe(|| run(name, schedules, model)));
    let (schedules, violations) = match &explored {
        Ok(schedules) => (*schedules, 0),
        Err(_) => (0, 1),
    };
    println!(
        r#"{{"model":"{name}","checker":"{CHECKER}","schedules":{schedules},"violations":{violations}}}"#
    );
    if let Err(panic) = explored {
        resume_unwind(panic);
    }
}

#[cfg(loom)]
const CHECKER: &str = "loom";

#[cfg(loom)]
fn run(name: &str, _schedules: usize, model: impl Fn() + Send + Sync + 'static) -> usize {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let explored = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&explored);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    eprintln!("{name}: replay a failure with LOOM_LOG=1 LOOM_LOCATION=1 cargo xtask models {}", test());
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    explored.load(Ordering::Relaxed)
}

#[cfg(shuttle)]
const CHECKER: &str = "shuttle";

#[cfg(shuttle)]
fn run(name: &str, schedules: usize, model: impl Fn() + Send + Sync + 'static) -> usize {
    use std::sync::Arc;

    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};

    let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let schedules = asked("WATTKEEP_SCHEDULES").unwrap_or(schedules);
    let seed = asked("WATTKEEP_SEED").unwrap_or(1) as u64;
    eprintln!(
        "{name}: seed {seed}; a failure prints its own: replay it with \
         SHUTTLE_RANDOM_SEED=<failing seed> WATTKEEP_SCHEDULES=1 cargo xtask models {}",
        test()
    );
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    // The seed says it all.
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(20_000);
    let model = Arc::new(model);
    let by_priority = Arc::clone(&model);
    let random = RandomScheduler::new_from_seed(seed, schedules - schedules / 3);
    let priorities = PctScheduler::new_from_seed(seed, 3, schedules / 3);
    Runner::new(random, config.clone()).run(move || model())
        + if schedules >= 3 { Runner::new(priorities, config).run(move || by_priority()) } else { 0 }
}

/// What `cargo xtask models` calls the test that runs now.
fn test() -> String {
    let thread = std::thread::current();
    thread.name().and_then(|name| name.strip_prefix("models::")).unwrap_or_default().to_owned()
}
