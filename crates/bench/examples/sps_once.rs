//! Makes swaps by one scheme and nothing else: to be counted by cachegrind.
//!
//! `sps_once SCHEME SWAPS`, with the names of `wattkeep bench sps`. Without the loading, counts are those of a
//! run with more swaps less those of a run with fewer. Cachegrind knows no flushes: compare the schemes that
//! need none.

use wattkeep_bench::sps::{Swaps, paper_schemes};

const STRINGS: usize = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(swaps)) = (arguments.next(), arguments.next()) else {
        return Err("usage: sps_once SCHEME SWAPS, as in 'sps_once L 100000'".into());
    };
    let scheme = paper_schemes().into_iter().find(|scheme| scheme.name == name);
    let scheme = scheme.ok_or_else(|| format!("no scheme '{name}': none, L, LCS, IS, TS and so on"))?;
    let mut strings = scheme.make(STRINGS, &std::env::temp_dir())?;
    Swaps::new(STRINGS, 1).run(&mut *strings, swaps.parse()?)?;
    Ok(())
}
