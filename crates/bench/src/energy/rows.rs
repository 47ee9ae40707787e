//! The memory's row buffers: which access finds its row open.
//!
//! Two modules of one rank, eight banks each, rows of 8 KiB, as the paper's DDR3; rows follow one another
//! over the banks, and a row stays open until another of its bank is needed.

const ROW_BYTES: usize = 8 << 10;
const BANKS: usize = 16;

/// The open row of each bank.
#[derive(Default)]
pub(super) struct RowBuffers {
    open: [Option<usize>; BANKS],
}

impl RowBuffers {
    /// Opens the row of `line`; whether it was.
    pub(super) fn access(&mut self, line: usize) -> bool {
        let row = line / ROW_BYTES;
        self.open[row % BANKS].replace(row) == Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_has_one_row_open() {
        let mut rows = RowBuffers::default();
        assert!(!rows.access(0));
        assert!(rows.access(ROW_BYTES - 64));
        assert!(!rows.access(ROW_BYTES), "the next bank");
        assert!(rows.access(64), "the first bank's row is still open");
        assert!(!rows.access(BANKS * ROW_BYTES));
        assert!(!rows.access(0));
    }
}
