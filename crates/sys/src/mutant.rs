//! Planted bugs for the suite that must find them: off, and compiled away, in every ordinary build.
//!
//! With the feature `mutants`, the environment names the one bug that is switched on.

/// The variable that names the bug.
pub const VARIABLE: &str = "WATTKEEP_MUTANT";

/// This build can be made sick.
pub const COMPILED_IN: bool = cfg!(feature = "mutants");

/// Whether the bug of this name is switched on. Constant `false` without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn planted(_name: &str) -> bool {
    false
}

/// Whether the bug of this name is switched on.
#[cfg(feature = "mutants")]
pub fn planted(name: &str) -> bool {
    static NAMED: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAMED.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default()) == name
}
