//! A dirty budget as a person writes it: pages, bytes, or a share of the region.
//!
//! Nothing is guessed and nothing is clamped: a budget of zero, or above the region it is for, is an
//! error that names the value and shows valid ones. Bytes and shares round down to whole pages.

use std::fmt;
use std::str::FromStr;

use crate::energy::Fraction;
use crate::units::{PAGE_BYTES, ParseError, ParseProblem, Quantity, Rounding, SIZE, Unit, format_size};

const EXAMPLES: &str = "'4096' or '4096pages', '64MiB', '11%'";

static PAGES: Quantity = Quantity {
    what: "a dirty budget",
    examples: EXAMPLES,
    units: &[Unit::new(&["pages", "page"], 1)],
    bare_scale: Some(1),
    rounding: Rounding::Down,
};

static PERCENT: Quantity = Quantity {
    what: "a dirty budget",
    examples: EXAMPLES,
    units: &[Unit::new(&["%"], 10_000)],
    bare_scale: None,
    rounding: Rounding::Down,
};

/// A budget before the region it is for is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetSpec {
    /// So many pages.
    Pages(u64),
    /// So many bytes, rounded down to whole pages.
    Bytes(u64),
    /// A share of the region, rounded down to whole pages.
    Percent(Fraction),
}

/// Why a text, or a spec on a given region, is no budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// Not a number, negative, unknown unit, or more than 64 bits.
    Unreadable(ParseError),
    /// Nothing may be dirty: no write could ever proceed.
    Zero {
        /// The budget as given.
        value: String,
    },
    /// More than nothing, but less than a page.
    BelowOnePage {
        /// The budget as given.
        value: String,
        /// Pages in the region it was for.
        region_pages: u64,
    },
    /// More than there is to be dirty.
    AboveRegion {
        /// The budget as given.
        value: String,
        /// The budget in pages; `None` for a share above 100 %.
        budget_pages: Option<u64>,
        /// Pages in the region it was for; `None` when not yet known.
        region_pages: Option<u64>,
    },
    /// More pages than a page number can hold.
    TooManyPages {
        /// The budget as given.
        value: String,
        /// The budget in pages.
        budget_pages: u64,
    },
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Ends in the examples itself.
            Self::Unreadable(error) => return error.fmt(f),
            Self::Zero { value } => {
                write!(f, "the dirty budget '{value}' is zero: no page could ever be written")?;
            }
            Self::BelowOnePage { value, region_pages } => write!(
                f,
                "the dirty budget '{value}' is less than one page of {PAGE_BYTES} bytes in a region of \
                 {region_pages} pages: no page could ever be written"
            )?,
            Self::AboveRegion { value, budget_pages, region_pages } => {
                write!(f, "the dirty budget '{value}' is above the region")?;
                if let (Some(budget), Some(region)) = (budget_pages, region_pages) {
                    let size = format_size(region.saturating_mul(PAGE_BYTES));
                    write!(f, ": {budget} pages of a region of {region} pages ({size})")?;
                }
            }
            Self::TooManyPages { value, budget_pages } => write!(
                f,
                "the dirty budget '{value}' is too large: {budget_pages} pages, {} at most",
                u32::MAX
            )?,
        }
        write!(f, " (examples: {EXAMPLES})")
    }
}

impl std::error::Error for BudgetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

/// Reads a budget: `4096`, `4096pages`, `64MiB`, `11%`.
pub fn parse_budget(text: &str) -> Result<BudgetSpec, BudgetError> {
    let unreadable = |error: ParseError| {
        BudgetError::Unreadable(ParseError { what: PAGES.what, examples: EXAMPLES, ..error })
    };
    let zero = || BudgetError::Zero { value: text.to_owned() };
    if text.trim_end().ends_with('%') {
        let parts = PERCENT.parse(text).map_err(unreadable)?;
        if parts == 0 {
            return Err(zero());
        }
        let share = u32::try_from(parts).ok().and_then(Fraction::from_parts_per_million);
        return share.map(BudgetSpec::Percent).ok_or_else(|| BudgetError::AboveRegion {
            value: text.to_owned(),
            budget_pages: None,
            region_pages: None,
        });
    }
    let spec = match PAGES.parse(text) {
        Ok(pages) => BudgetSpec::Pages(pages),
        Err(error) if matches!(error.problem, ParseProblem::UnitUnknown { .. }) => {
            BudgetSpec::Bytes(SIZE.parse(text).map_err(unreadable)?)
        }
        Err(error) => return Err(unreadable(error)),
    };
    match spec {
        BudgetSpec::Pages(0) | BudgetSpec::Bytes(0) => Err(zero()),
        spec => Ok(spec),
    }
}

impl BudgetSpec {
    /// The budget in pages of a region of `region_pages`: at least 1, at most the region.
    pub fn resolve(&self, region_pages: u64) -> Result<u32, BudgetError> {
        let value = || self.to_string();
        let budget_pages = match *self {
            Self::Pages(pages) => pages,
            Self::Bytes(bytes) => bytes / PAGE_BYTES,
            Self::Percent(share) => share.of_rounded_down(region_pages),
        };
        if budget_pages == 0 {
            return Err(match *self {
                Self::Pages(0) | Self::Bytes(0) | Self::Percent(Fraction::ZERO) => {
                    BudgetError::Zero { value: value() }
                }
                _ => BudgetError::BelowOnePage { value: value(), region_pages },
            });
        }
        if budget_pages > region_pages {
            return Err(BudgetError::AboveRegion {
                value: value(),
                budget_pages: Some(budget_pages),
                region_pages: Some(region_pages),
            });
        }
        u32::try_from(budget_pages).map_err(|_| BudgetError::TooManyPages { value: value(), budget_pages })
    }
}

impl FromStr for BudgetSpec {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        parse_budget(text)
    }
}

/// Exact, unlike the formats of [`crate::units`]: parsing gives the same spec back.
impl fmt::Display for BudgetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages(pages) => f.pad(&format!("{pages}pages")),
            Self::Bytes(bytes) => f.pad(&exact_size(*bytes)),
            Self::Percent(share) => share.fmt(f),
        }
    }
}

fn exact_size(bytes: u64) -> String {
    let steps = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let exact = steps.iter().find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
    exact.map_or_else(|| format!("{bytes}B"), |(name, scale)| format!("{}{name}", bytes / scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB_PAGES: u64 = (1 << 30) / PAGE_BYTES;

    fn resolved(text: &str) -> u32 {
        parse_budget(text).and_then(|spec| spec.resolve(GIB_PAGES)).expect(text)
    }

    #[test]
    fn each_form_resolves_rounding_down() {
        assert_eq!(resolved("4096"), 4096);
        assert_eq!(resolved("4096pages"), 4096);
        assert_eq!(resolved("4096 pages"), 4096);
        assert_eq!(resolved("1page"), 1);
        assert_eq!(resolved("64MiB"), 16_384);
        assert_eq!(resolved("64MB"), 15_625);
        assert_eq!(resolved("8191B"), 1);
        assert_eq!(resolved("11%"), 28_835);
        assert_eq!(resolved("0.5 %"), 1_310);
        assert_eq!(resolved("100%"), GIB_PAGES as u32);
        assert_eq!(resolved("1GiB"), GIB_PAGES as u32);
    }

    /// The text, and what its error says after naming it.
    #[test]
    fn each_mistake_has_its_own_message() {
        for (text, says) in [
            ("0", "the dirty budget '0' is zero: no page could ever be written"),
            ("0%", "the dirty budget '0%' is zero: no page could ever be written"),
            ("0MiB", "the dirty budget '0MiB' is zero: no page could ever be written"),
            ("4095B", "the dirty budget '4095B' is less than one page of 4096 bytes"),
            ("0.0001%", "the dirty budget '0.0001%' is less than one page of 4096 bytes"),
            (
                "2GiB",
                "the dirty budget '2GiB' is above the region: 524288 pages of a region of 262144 pages (1 GiB)",
            ),
            ("262145", "the dirty budget '262145pages' is above the region: 262145 pages"),
            ("101%", "the dirty budget '101%' is above the region"),
            ("-5", "'-5' is not a dirty budget: it is negative"),
            ("-11%", "'-11%' is not a dirty budget: it is negative"),
            ("NaN", "'NaN' is not a dirty budget: it does not start with a decimal number"),
            ("nan%", "'nan%' is not a dirty budget: it does not start with a decimal number"),
            ("inf", "'inf' is not a dirty budget: it does not start with a decimal number"),
            ("lots", "'lots' is not a dirty budget: it does not start with a decimal number"),
            ("%", "'%' is not a dirty budget: it does not start with a decimal number"),
            ("", "'' is not a dirty budget: it is empty"),
            ("64MiBs", "'64MiBs' is not a dirty budget: the unit 'MiBs' is unknown"),
            ("64mib", "'64mib' is not a dirty budget: the unit 'mib' is unknown"),
            ("11%%", "'11%%' is not a dirty budget: the unit '%%' is unknown"),
            ("99999999999999999999", "'99999999999999999999' is not a dirty budget: it is too large"),
            ("99999999999TiB", "'99999999999TiB' is not a dirty budget: it is too large"),
        ] {
            let result = parse_budget(text).and_then(|spec| spec.resolve(GIB_PAGES));
            let message = result.expect_err(text).to_string();
            assert!(message.starts_with(says), "{message}");
            assert!(message.ends_with(" (examples: '4096' or '4096pages', '64MiB', '11%')"), "{message}");
        }
    }

    #[test]
    fn a_budget_fits_a_page_number() {
        let error = BudgetSpec::Pages(1 << 32).resolve(1 << 40).expect_err("33 bits");
        assert_eq!(
            error,
            BudgetError::TooManyPages { value: "4294967296pages".to_owned(), budget_pages: 1 << 32 }
        );
        assert_eq!(BudgetSpec::Pages(u64::from(u32::MAX)).resolve(u64::MAX), Ok(u32::MAX));
    }

    #[test]
    fn an_empty_region_has_no_budget() {
        assert!(BudgetSpec::Percent(Fraction::ONE).resolve(0).is_err());
        assert!(BudgetSpec::Pages(1).resolve(0).is_err());
    }

    proptest! {
        #[test]
        fn a_resolved_budget_is_within_the_region(kind in 0..3, amount: u64, region_pages: u64) {
            let parts = (amount % u64::from(Fraction::PARTS)) as u32;
            let spec = match kind {
                0 => BudgetSpec::Pages(amount),
                1 => BudgetSpec::Bytes(amount),
                _ => BudgetSpec::Percent(Fraction::from_parts_per_million(parts).expect("in range")),
            };
            if let Ok(pages) = spec.resolve(region_pages) {
                prop_assert!(pages > 0 && u64::from(pages) <= region_pages);
                prop_assert_eq!(parse_budget(&spec.to_string()), Ok(spec), "display is exact");
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC*", number in "[-+0-9.eE]{0,60} ?(%|pages|[KMG]i?B)?") {
            for text in [text, number] {
                let _ = parse_budget(&text).and_then(|spec| spec.resolve(GIB_PAGES));
            }
        }
    }
}
