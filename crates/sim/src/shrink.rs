//! The shortest script that still fails: delta debugging over its steps, then over their numbers.
//!
//! Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): leaves ever
//! smaller pieces out, and keeps what still fails.

use crate::script::{Op, Script};

/// Runs at most, whatever the script: shrinking is for people, and people wait.
const RUNS_MAX: usize = 3000;

/// Shortens `script`, for which `fails` is true, as long as it stays true.
pub fn shrink(script: &Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut runs = 0;
    let mut shortest = script.clone();
    let mut try_it = |shortest: &mut Script, ops: Vec<Op>| {
        runs += 1;
        let shorter = Script { ops, ..shortest.clone() };
        let good = runs <= RUNS_MAX && fails(&shorter);
        if good {
            *shortest = shorter;
        }
        good
    };
    let mut piece = shortest.ops.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shortened = false;
        while at < shortest.ops.len() {
            let mut ops = shortest.ops.clone();
            ops.drain(at..(at + piece).min(ops.len()));
            if try_it(&mut shortest, ops) { shortened = true } else { at += piece }
        }
        if piece == 1 && !shortened {
            break;
        }
        piece = piece.div_ceil(2).max(1);
    }
    for at in 0..shortest.ops.len() {
        while let Some(simpler) = simpler(shortest.ops[at]) {
            let mut ops = shortest.ops.clone();
            ops[at] = simpler;
            if !try_it(&mut shortest, ops) {
                break;
            }
        }
    }
    shortest
}

/// The same step with a smaller number.
fn simpler(op: Op) -> Option<Op> {
    match op {
        Op::Turn { turns } if turns > 1 => Some(Op::Turn { turns: turns / 2 }),
        Op::Store { thread, page, place, value } if value > 9 => {
            Some(Op::Store { thread, page, place, value: value / 1000 + 1 })
        }
        Op::Announce { thread, page, pages } if pages > 1 => {
            Some(Op::Announce { thread, page, pages: pages - 1 })
        }
        Op::Cut { cut, seed, again: Some(_) } => Some(Op::Cut { cut, seed, again: None }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Mix, script};

    #[test]
    fn what_does_not_matter_is_left_out() {
        let long = script(7, 400, [24, 8], Mix::ALL);
        let wants = |script: &Script| {
            let saves = script.ops.iter().position(|op| *op == Op::Save);
            saves.is_some_and(|at| script.ops[at..].iter().any(|op| matches!(op, Op::Turn { .. })))
        };
        assert!(wants(&long));
        assert_eq!(shrink(&long, wants).ops, [Op::Save, Op::Turn { turns: 1 }]);
    }
}
