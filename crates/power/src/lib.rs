//! Energy in, dirty budget out: how many pages a save can still write after the mains fail.
//!
//! Pure arithmetic on integers that carry their unit: no I/O, no clocks, nothing of ours below. Any
//! doubt (an overflow, a zero divisor, a reading that is not a number) gives a budget of zero, which
//! disarms; nothing is ever rounded in the battery's favour.
//!
//! The modules, in the order data flows through them:
//!
//! - [`units`]: text to integers and back: durations, sizes
//! - [`energy`]: millijoules, milliwatts, fractions
//! - [`window`]: components' power, the save window, the time left for copying
//! - [`calibration`]: what the store and the kernel were measured to do, and its tracking at run time
//! - [`budget`]: the formula, and its inverses
//! - [`spec`]: a budget as a person writes it: `4096`, `64MiB`, `11%`

pub mod units;

pub mod energy;

pub mod window;

pub mod calibration;

pub mod budget;

pub mod spec;
