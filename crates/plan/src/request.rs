//! One request of a trace, and the accesses to pages that it is made of.
//!
//! Times are nanoseconds from any beginning; where a trace has only an order, a request's time is its
//! number, and whoever holds the trace knows that. Offsets are bytes on one volume.
//!
//! Invariant: what a reader hands out ends at or below 2^64 bytes.

use std::ops::RangeInclusive;

/// Bytes in a page, as powers of two.
const PAGE_SHIFT: u32 = 12;

/// Bytes in a page.
pub const PAGE_BYTES: u64 = 1 << PAGE_SHIFT;

/// A read or a write of one range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, in nanoseconds.
    pub time_ns: u64,
    /// Whether it writes; it reads otherwise.
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub length: u32,
}

impl Request {
    /// Numbers of the 4 KiB pages that it touches, also those it touches only in part.
    #[inline]
    pub fn pages(&self) -> RangeInclusive<u64> {
        let last = self.offset.saturating_add(u64::from(self.length.max(1)) - 1);
        self.offset >> PAGE_SHIFT..=last >> PAGE_SHIFT
    }

    /// Its accesses, one per page, in address order.
    #[inline]
    pub fn accesses(self) -> impl Iterator<Item = Access> {
        self.pages().map(move |page| Access { time_ns: self.time_ns, page, write: self.write })
    }
}

/// A read or a write of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, in nanoseconds.
    pub time_ns: u64,
    /// Which 4 KiB page of the volume.
    pub page: u64,
    /// Whether it writes; it reads otherwise.
    pub write: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(offset: u64, length: u32) -> (u64, u64) {
        let pages = Request { time_ns: 0, write: true, offset, length }.pages();
        (*pages.start(), *pages.end())
    }

    #[test]
    fn a_request_touches_each_page_that_holds_one_of_its_bytes() {
        assert_eq!(pages(0, 4096), (0, 0));
        assert_eq!(pages(4095, 1), (0, 0));
        assert_eq!(pages(4095, 2), (0, 1));
        assert_eq!(pages(4096, 8192), (1, 2));
        assert_eq!(pages(u64::MAX, 1), (u64::MAX >> 12, u64::MAX >> 12));
        assert_eq!(pages(u64::MAX - 10, u32::MAX), (u64::MAX >> 12, u64::MAX >> 12), "ends at 2^64");
    }

    #[test]
    fn accesses_carry_time_and_kind() {
        let request = Request { time_ns: 7, write: true, offset: 5000, length: 4096 };
        let accesses: Vec<_> = request.accesses().collect();
        let access = |page| Access { time_ns: 7, page, write: true };
        assert_eq!(accesses, [access(1), access(2)]);
    }
}
