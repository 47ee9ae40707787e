//! Runs one campaign and prints its counts: `campaign histories 1000 1`.

use wattkeep_sim::campaign;
use wattkeep_sim::tally::Tally;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        arguments.get(at).map_or(default, |text| text.parse().expect("a count and a seed are numbers"))
    };
    let (count, seed) = (number(1, 1000), number(2, 1));
    let began = std::time::Instant::now();
    let mut progress = |_: &Tally| {};
    let tally = match arguments.first().map(String::as_str) {
        Some("histories") => campaign::histories(count, seed, &mut progress),
        Some("crash") => campaign::crash(count, seed, &mut progress),
        Some("recrash") => campaign::recrash(count, count / 10, seed, &mut progress),
        Some("enumerate") => campaign::enumerate(count, seed, &mut progress),
        Some("power") => campaign::power(count, seed, &mut progress),
        Some("auditor") => campaign::auditor(count, seed, &mut progress),
        other => panic!("{other:?} is no campaign"),
    };
    println!("{tally}");
    println!("{:.1} s", began.elapsed().as_secs_f64());
    assert!(tally.is_clean(), "the campaign found something");
}
