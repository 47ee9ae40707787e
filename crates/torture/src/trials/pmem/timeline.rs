//! What a program had begun and had been promised, at each step of its history.

/// Numbered changes, each begun and then promised. Numbers rise.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    begun: Vec<(usize, u64)>,
    promised: Vec<(usize, u64)>,
}

impl Timeline {
    /// Change `number` begins at the step.
    pub(super) fn begin(&mut self, step: usize, number: u64) {
        self.begun.push((step, number));
    }

    /// From the step on, changes up to `number` survive.
    pub(super) fn promise(&mut self, step: usize, number: u64) {
        self.promised.push((step, number));
    }

    /// The change that a cut after the step must not lose.
    pub(super) fn least(&self, step: usize) -> u64 {
        last(&self.promised, step)
    }

    /// The last change that a cut after the step may show.
    pub(super) fn most(&self, step: usize) -> u64 {
        last(&self.begun, step)
    }

    /// An error unless `number` is between what was promised and what was begun at the step.
    pub(super) fn judge(&self, step: usize, number: u64) -> Result<(), String> {
        let (least, most) = (self.least(step), self.most(step));
        if number < least {
            return Err(format!("change {number} is the last one, {least} was promised"));
        }
        if number > most {
            return Err(format!("change {number} is there, {most} was the last to begin"));
        }
        Ok(())
    }
}

fn last(events: &[(usize, u64)], step: usize) -> u64 {
    let before = events.partition_point(|(at, _)| *at <= step);
    before.checked_sub(1).map_or(0, |index| events[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_may_be_seen_when_it_begins_and_must_be_when_it_is_promised() {
        let mut timeline = Timeline::default();
        timeline.begin(10, 1);
        timeline.promise(20, 1);
        timeline.begin(20, 2);
        for (step, numbers) in [(9, 0..=0), (10, 0..=1), (19, 0..=1), (20, 1..=2), (99, 1..=2)] {
            for number in 0..4 {
                assert_eq!(
                    timeline.judge(step, number).is_ok(),
                    numbers.contains(&number),
                    "{step} {number}"
                );
            }
        }
    }
}
