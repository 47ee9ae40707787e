//! A physically indexed cache, simulated: which accesses miss because too many pages share its sets.
//!
//! The paper's last-level cache: 1 MiB, 8 ways, least recently used. A page of 4 KiB covers 64 sets of
//! neighbouring numbers, its *colour*; 32 colours. Whole pages are accessed, so all sets of a colour see
//! the same, and one of them stands for all.

use crate::workload::random::Random;

const COLOURS: u64 = 32;
const WAYS: usize = 8;

/// Pages in use at a time: three quarters of the cache, so that a perfect one would miss none twice.
const IN_USE: usize = (COLOURS as usize * WAYS) / 4 * 3;

/// Accesses to each page in use, on average.
const ACCESSES_EACH: usize = 20;

/// Misses per 1,000 accesses of a program that works on so many neighbouring pages, then on the next;
/// the first access to each page is not counted.
pub(super) fn conflict_misses(frames: &[u64], seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let (mut misses, mut accesses) = (0u64, 0u64);
    for in_use in frames.chunks_exact(IN_USE) {
        let mut sets = vec![Vec::with_capacity(WAYS); COLOURS as usize];
        let mut seen = [false; IN_USE];
        for _ in 0..IN_USE * ACCESSES_EACH {
            let page = random.below(IN_USE as u64) as usize;
            let hit = access(&mut sets, in_use[page]);
            if seen[page] {
                accesses += 1;
                misses += u64::from(!hit);
            }
            seen[page] = true;
        }
    }
    misses as f64 * 1e3 / accesses.max(1) as f64
}

/// Whether the page was in the cache; now it is, as the last one used.
fn access(sets: &mut [Vec<u64>], frame: u64) -> bool {
    let set = &mut sets[(frame % COLOURS) as usize];
    let place = set.iter().position(|held| *held == frame);
    match place {
        Some(place) => drop(set.remove(place)),
        None if set.len() == WAYS => drop(set.remove(0)),
        None => {}
    }
    set.push(frame);
    place.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_frames_share_no_set_and_frames_of_one_colour_share_all() {
        let side_by_side: Vec<u64> = (1000..1000 + 4 * IN_USE as u64).collect();
        assert_eq!(conflict_misses(&side_by_side, 1), 0.0);
        let one_colour: Vec<u64> = (0..4 * IN_USE as u64).map(|page| page * COLOURS).collect();
        // 8 of the 192 pages are there.
        let misses = conflict_misses(&one_colour, 1);
        assert!((misses - 1e3 * (1.0 - 8.0 / 192.0)).abs() < 10.0, "{misses}");
    }

    #[test]
    fn the_one_used_longest_ago_goes() {
        let mut sets = vec![Vec::new(); COLOURS as usize];
        let frames: Vec<u64> = (0..=WAYS as u64).map(|way| way * COLOURS).collect();
        for frame in &frames[..WAYS] {
            assert!(!access(&mut sets, *frame));
        }
        assert!(access(&mut sets, frames[0]));
        assert!(!access(&mut sets, frames[WAYS]));
        assert!(access(&mut sets, frames[0]));
        assert!(!access(&mut sets, frames[1]));
    }
}
