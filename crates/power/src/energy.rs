//! Energy, power and fractions as integers that carry their unit.
//!
//! Readings from a battery are floating-point numbers of unknown sanity: [`Millijoules::from_joules`],
//! [`Milliwatts::from_watts`] and [`Fraction::from_f64`] are the doors through which they become
//! trusted, and what is not a finite number in range does not pass.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{ParseError, ParseProblem, Quantity, Rounding, Unit, format_stepped};

static ENERGY: Quantity = Quantity {
    what: "an energy",
    examples: "'300kJ', '12Wh', '0.5kWh'",
    units: &[
        Unit::new(&["mJ"], 1),
        Unit::new(&["J", "Ws"], 1_000),
        Unit::new(&["kJ", "KJ"], 1_000_000),
        Unit::new(&["MJ"], 1_000_000_000),
        Unit::new(&["mWh"], 3_600),
        Unit::new(&["Wh"], 3_600_000),
        Unit::new(&["kWh", "KWh"], 3_600_000_000),
    ],
    bare_scale: None,
    rounding: Rounding::Down,
};

static POWER: Quantity = Quantity {
    what: "a power",
    examples: "'75W', '1.2kW', '900mW'",
    units: &[Unit::new(&["mW"], 1), Unit::new(&["W"], 1_000), Unit::new(&["kW", "KW"], 1_000_000)],
    bare_scale: None,
    rounding: Rounding::Up,
};

static FRACTION: Quantity = Quantity {
    what: "a fraction",
    examples: "'80%', '12.5%', '0.8'",
    units: &[Unit::new(&["%"], 10_000)],
    bare_scale: Some(1_000_000),
    rounding: Rounding::Down,
};

/// Energy. What we have, so parsing and conversion round down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millijoules(pub u64);

impl Millijoules {
    /// From a reading in joules; `None` if it is negative, not finite or too large.
    pub fn from_joules(joules: f64) -> Option<Self> {
        scaled_integer((joules * 1e3).floor()).map(Self)
    }

    /// From a reading in watt-hours; `None` if it is negative, not finite or too large.
    pub fn from_watt_hours(watt_hours: f64) -> Option<Self> {
        scaled_integer((watt_hours * 3.6e6).floor()).map(Self)
    }

    /// This share of the energy, rounded down: a charge level, an ageing, a depth of discharge.
    pub fn share(self, share: Fraction) -> Self {
        Self(share.of_rounded_down(self.0))
    }
}

impl FromStr for Millijoules {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        ENERGY.parse(text).map(Self)
    }
}

impl fmt::Display for Millijoules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_stepped(self.0, &[("mJ", 1), ("J", 1_000), ("kJ", 1_000_000), ("MJ", 1_000_000_000)]))
    }
}

/// Power. What we need, so parsing and conversion round up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Milliwatts(pub u64);

impl Milliwatts {
    /// From a reading in watts; `None` if it is negative, not finite or too large.
    pub fn from_watts(watts: f64) -> Option<Self> {
        let milliwatts = scaled_integer((watts * 1e3).ceil())?;
        (watts >= 0.0).then_some(Self(milliwatts))
    }
}

impl FromStr for Milliwatts {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        POWER.parse(text).map(Self)
    }
}

impl fmt::Display for Milliwatts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_stepped(self.0, &[("mW", 1), ("W", 1_000), ("kW", 1_000_000)]))
    }
}

/// A share between zero and one, in millionths: a derating, an efficiency, a charge level.
///
/// Holding one proves that it is not above one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Fraction(u32);

impl Fraction {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole.
    pub const ONE: Self = Self(Self::PARTS);
    /// Parts in the whole.
    pub const PARTS: u32 = 1_000_000;

    /// From millionths; `None` above one.
    pub const fn from_parts_per_million(parts: u32) -> Option<Self> {
        if parts <= Self::PARTS { Some(Self(parts)) } else { None }
    }

    /// From whole percent; `None` above 100.
    pub const fn from_percent(percent: u32) -> Option<Self> {
        if percent <= 100 { Some(Self(percent * 10_000)) } else { None }
    }

    /// From a reading, rounded down; `None` if it is negative, above one or not a number.
    pub fn from_f64(share: f64) -> Option<Self> {
        // The nudge of a billionth keeps 0.29 at 290,000 millionths: the float is just below.
        let parts = scaled_integer((share * f64::from(Self::PARTS) + 1e-9).floor())?;
        if share < 0.0 {
            return None;
        }
        u32::try_from(parts).ok().and_then(Self::from_parts_per_million)
    }

    /// Millionths.
    pub const fn parts_per_million(self) -> u32 {
        self.0
    }

    /// `floor(whole x self)`.
    pub fn of_rounded_down(self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.0) / u128::from(Self::PARTS);
        u64::try_from(share).expect("a share is not above its whole")
    }

    /// `ceil(part / self)`: the smallest whole whose share is at least `part`. `None` if there is
    /// none below 2^64.
    pub fn whole_of_rounded_up(self, part: u64) -> Option<u64> {
        if self.0 == 0 {
            return None;
        }
        let whole = (u128::from(part) * u128::from(Self::PARTS)).div_ceil(u128::from(self.0));
        u64::try_from(whole).ok()
    }
}

impl TryFrom<u32> for Fraction {
    type Error = &'static str;

    fn try_from(parts: u32) -> Result<Self, Self::Error> {
        Self::from_parts_per_million(parts).ok_or("a fraction is at most 1,000,000 millionths")
    }
}

impl From<Fraction> for u32 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

impl FromStr for Fraction {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts = FRACTION.parse(text)?;
        let fraction = u32::try_from(parts).ok().and_then(Self::from_parts_per_million);
        fraction.ok_or_else(|| ParseError {
            what: FRACTION.what,
            value: text.to_owned(),
            problem: ParseProblem::TooLarge,
            examples: FRACTION.examples,
        })
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", f64::from(self.0) / 10_000.0))
    }
}

/// `None` unless the number is finite, not negative and fits.
fn scaled_integer(number: f64) -> Option<u64> {
    // 2^64 exactly: the first float that does not fit. NaN fails every comparison.
    let fits = (0.0..18_446_744_073_709_551_616.0).contains(&number);
    fits.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn energy(text: &str) -> Result<u64, ParseProblem> {
        text.parse::<Millijoules>().map(|energy| energy.0).map_err(|error| error.problem)
    }

    #[test]
    fn energy_and_power_in_the_units_people_write() {
        assert_eq!(energy("300kJ"), Ok(300_000_000));
        assert_eq!(energy("12Wh"), Ok(43_200_000));
        assert_eq!(energy("0.0005 J"), Ok(0), "what we have rounds down");
        assert_eq!(energy("300"), Err(ParseProblem::UnitMissing));
        assert_eq!(energy("300 calories"), Err(ParseProblem::UnitUnknown { unit: "calories".to_owned() }));
        assert_eq!("75 W".parse(), Ok(Milliwatts(75_000)));
        assert_eq!("0.0001W".parse(), Ok(Milliwatts(1)), "what we need rounds up");
        assert_eq!(Millijoules(43_200_000).to_string(), "43.2 kJ");
        assert_eq!(Milliwatts(300_000).to_string(), "300 W");
    }

    #[test]
    fn readings_that_are_no_number_do_not_pass() {
        for reading in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -1e-3, 1e300] {
            assert_eq!(Millijoules::from_joules(reading), None, "{reading}");
            assert_eq!(Millijoules::from_watt_hours(reading), None, "{reading}");
            assert_eq!(Fraction::from_f64(reading), None, "{reading}");
        }
        assert_eq!(Milliwatts::from_watts(f64::NAN), None);
        assert_eq!(Milliwatts::from_watts(-1e-9), None);
        assert_eq!(Milliwatts::from_watts(75.0001), Some(Milliwatts(75_001)), "rounds up");
        assert_eq!(Millijoules::from_joules(0.0019), Some(Millijoules(1)), "rounds down");
        assert_eq!(Fraction::from_f64(1.000_002), None);
        assert_eq!(Fraction::from_f64(0.29), Fraction::from_percent(29));
        assert_eq!(Millijoules::from_watt_hours(12.0), Some(Millijoules(43_200_000)));
    }

    #[test]
    fn fractions_parse_and_refuse_more_than_the_whole() {
        assert_eq!("80%".parse::<Fraction>().ok(), Fraction::from_percent(80));
        assert_eq!("0.8".parse::<Fraction>().ok(), Fraction::from_percent(80));
        assert_eq!("100%".parse(), Ok(Fraction::ONE));
        let error = "120%".parse::<Fraction>().expect_err("above one");
        assert_eq!(
            error.to_string(),
            "'120%' is not a fraction: it is too large (examples: '80%', '12.5%', '0.8')"
        );
        assert_eq!(Fraction::from_parts_per_million(125_000).expect("below one").to_string(), "12.5%");
    }

    #[test]
    fn stored_fractions_are_checked() {
        assert!(serde_json::from_str::<Fraction>("1000001").is_err());
        assert_eq!(serde_json::from_str::<Fraction>("800000").ok(), Fraction::from_percent(80));
    }

    proptest! {
        #[test]
        fn a_whole_is_the_smallest_with_that_share(part: u64, parts in 1..=Fraction::PARTS) {
            let fraction = Fraction::from_parts_per_million(parts).expect("in range");
            if let Some(whole) = fraction.whole_of_rounded_up(part) {
                prop_assert!(fraction.of_rounded_down(whole) >= part);
                prop_assert!(whole == 0 || fraction.of_rounded_down(whole - 1) < part);
            }
        }

        #[test]
        fn no_reading_panics(reading: f64) {
            let _ = (Millijoules::from_joules(reading), Milliwatts::from_watts(reading), Fraction::from_f64(reading));
        }
    }
}
