//! What of a battery can be used: depth of discharge, ageing, temperature; and back to the battery to buy.
//!
//! Pure arithmetic. Shares round down, what must be bought rounds up.

use wattkeep_power::energy::{Fraction, Millijoules};

/// Depth of discharge that lets a battery live for four years: 50 % (Viyojit, section 2.2).
pub const DEPTH_OF_DISCHARGE: Fraction = match Fraction::from_percent(50) {
    Some(share) => share,
    None => Fraction::ZERO,
};

/// Capacity at which a battery counts as worn out and is replaced: 80 % of the rated one (IEEE Std 450
/// and 1188). A plan must hold on the last day before.
pub const WORN_OUT: Fraction = match Fraction::from_percent(80) {
    Some(share) => share,
    None => Fraction::ZERO,
};

/// Temperature of the rating, in degrees Celsius.
pub const RATED_CELSIUS: f64 = 25.0;

/// Capacity lost per kelvin below the rating. IEEE Std 485 sizes lead-acid cells 1.11 times larger at
/// 15.6 °C and 1.30 times at 4.4 °C: 1.1 % per kelvin covers both. Warmth gives nothing.
const LOSS_PER_KELVIN: f64 = 0.011;

/// How much of the rated energy a plan may count on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Battery {
    /// Share of the energy that may be taken out.
    pub depth_of_discharge: Fraction,
    /// Capacity left by age, of the rated one.
    pub health: Fraction,
    /// Coldest temperature that it works at, in degrees Celsius.
    pub celsius: f64,
}

impl Default for Battery {
    fn default() -> Self {
        Self { depth_of_discharge: DEPTH_OF_DISCHARGE, health: WORN_OUT, celsius: RATED_CELSIUS }
    }
}

impl Battery {
    /// The share of the rated energy that can be used. Zero when the temperature is not a number, or so
    /// low that nothing is left.
    pub fn derating(&self) -> Fraction {
        let cold = (RATED_CELSIUS - self.celsius).max(0.0);
        let warmth = if self.celsius.is_nan() { 0.0 } else { 1.0 - LOSS_PER_KELVIN * cold };
        let temperature = Fraction::from_f64(warmth.max(0.0)).unwrap_or(Fraction::ZERO);
        let parts = [self.health, temperature]
            .iter()
            .fold(u64::from(self.depth_of_discharge.parts_per_million()), |rest, f| f.of_rounded_down(rest));
        u32::try_from(parts).ok().and_then(Fraction::from_parts_per_million).unwrap_or(Fraction::ZERO)
    }

    /// What a battery of this rating delivers.
    pub fn usable(&self, rated: Millijoules) -> Millijoules {
        rated.share(self.derating())
    }

    /// The rating that delivers so much; `None` when none does.
    pub fn rating_for(&self, usable: Millijoules) -> Option<Millijoules> {
        self.derating().whole_of_rounded_up(usable.0).map(Millijoules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_discharged_and_worn_out_leaves_forty_percent() {
        let battery = Battery::default();
        assert_eq!(battery.derating(), Fraction::from_percent(40).expect("in range"));
        assert_eq!(battery.usable(Millijoules(300_000_000)), Millijoules(120_000_000));
        assert_eq!(battery.rating_for(Millijoules(120_000_000)), Some(Millijoules(300_000_000)));
    }

    /// The paper's server needs 300 kJ: discharged to half only, and nothing else, it needs twice that.
    #[test]
    fn the_papers_server_buys_twice_its_energy() {
        let new = Battery { health: Fraction::ONE, ..Battery::default() };
        assert_eq!(new.rating_for(Millijoules(300_000_000)), Some(Millijoules(600_000_000)));
    }

    #[test]
    fn cold_takes_and_warmth_gives_nothing() {
        let at = |celsius| Battery { celsius, ..Battery::default() }.derating().parts_per_million();
        assert!(at(15.6) < at(25.0) && at(4.4) < at(15.6));
        assert_eq!(at(40.0), at(25.0));
        // As much as the standard's factors, or more.
        assert!(f64::from(at(15.6)) <= 400_000.0 / 1.11 && f64::from(at(4.4)) <= 400_000.0 / 1.29);
        assert_eq!(at(-80.0), 0);
        assert_eq!(at(f64::NAN), 0);
        assert_eq!(Battery { celsius: -80.0, ..Battery::default() }.rating_for(Millijoules(1)), None);
    }
}
