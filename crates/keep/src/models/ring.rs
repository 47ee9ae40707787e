//! The queue: what was pushed comes out once, nothing else does, and a full queue says so.

use std::sync::Arc;

use super::harness::{explore, thread};
use crate::control::ring::Ring;

#[test]
fn values_come_out_once_and_none_is_invented() {
    explore("ring", 60_000, || {
        let ring = Arc::new(Ring::<2>::new());
        let producer = |values: [u64; 2]| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || values.into_iter().filter(|value| ring.push(*value)).collect::<Vec<_>>())
        };
        let producers = [producer([1, 2]), producer([3, 4])];
        let mut came: Vec<u64> = (0..2).filter_map(|_| ring.pop()).collect();
        let mut went: Vec<u64> =
            producers.into_iter().flat_map(|producer| producer.join().expect("no producer panics")).collect();
        came.extend(std::iter::from_fn(|| ring.pop()));
        let of_one = |low: u64| {
            came.iter().copied().filter(|value| (low..low + 2).contains(value)).collect::<Vec<_>>()
        };
        assert!(
            of_one(1).is_sorted() && of_one(3).is_sorted(),
            "one thread's values changed places: {came:?}"
        );
        assert!(went.len() >= 2, "a queue that is not full refused: only {went:?} went in");
        came.sort_unstable();
        went.sort_unstable();
        assert_eq!(came, went);
    });
}

#[test]
fn two_takers_never_get_the_same_value() {
    explore("ring-takers", 60_000, || {
        let ring = Arc::new(Ring::<2>::new());
        assert!(ring.push(1) && ring.push(2));
        let taker = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.pop())
        };
        let ours = ring.pop();
        let refilled = ring.push(3);
        let theirs = taker.join().expect("the taker does not panic");
        let mut came: Vec<u64> = ours.into_iter().chain(theirs).collect();
        came.extend(std::iter::from_fn(|| ring.pop()));
        came.sort_unstable();
        // A taker between claiming and emptying its cell still blocks it.
        assert_eq!(came, if refilled { vec![1, 2, 3] } else { vec![1, 2] });
    });
}
