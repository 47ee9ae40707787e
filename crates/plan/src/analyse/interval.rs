//! Data written in the worst interval (Viyojit, section 3, figure 2).
//!
//! "We slice the entire trace duration into multiple intervals of (say) ten minutes each and determine
//! the amount of data written during each interval in the trace by treating each NV-DRAM page write as
//! a write to a unique NV-DRAM page. Among all the intervals within a trace, we further consider the
//! worst interval." The slices begin at the first request and do not slide. Beside that adversarial
//! count, which a log-structured file system would cause, stands the count of distinct pages.
//!
//! Does not know pages: who counts says whether a page is new in the interval.

/// The slices of one length, on one volume.
#[derive(Clone, Debug)]
pub struct Intervals {
    number: u32,
    distinct: u64,
    written: u64,
    worst: Worst,
}

/// The worst interval of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    /// Most distinct pages written in one interval.
    pub distinct_pages: u64,
    /// Most page writes in one interval, each counted as a page of its own.
    pub written_pages: u64,
}

impl Intervals {
    /// None yet.
    pub fn new() -> Self {
        Self { number: 0, distinct: 0, written: 0, worst: Worst::default() }
    }

    /// A page was written in interval `number`, which is not before the last one; `new` says whether for the
    /// first time in it.
    #[inline]
    pub fn page_written(&mut self, number: u32, new: bool) {
        if number != self.number {
            (self.number, self.distinct, self.written) = (number, 0, 0);
        }
        self.written += 1;
        self.distinct += u64::from(new);
        self.worst.written_pages = self.worst.written_pages.max(self.written);
        self.worst.distinct_pages = self.worst.distinct_pages.max(self.distinct);
    }

    /// The worst so far.
    pub fn worst(&self) -> Worst {
        self.worst
    }
}

impl Default for Intervals {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_interval_may_differ_between_both_counts() {
        let mut intervals = Intervals::new();
        // Interval 0: three writes to one page. Interval 4: two pages, once each.
        for (number, new) in [(0, true), (0, false), (0, false), (4, true), (4, true)] {
            intervals.page_written(number, new);
        }
        assert_eq!(intervals.worst(), Worst { distinct_pages: 2, written_pages: 3 });
    }
}
