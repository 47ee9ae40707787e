//! Why a space refuses.

use std::fmt;

/// Why bytes cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The range leaves the space.
    Outside {
        /// Where it begins.
        at: usize,
        /// How long it is.
        len: usize,
        /// How long the space is.
        space: usize,
    },
    /// A word that does not lie on a word.
    Unaligned {
        /// Where it was to lie.
        at: usize,
    },
    /// The space cannot be made so large.
    Full {
        /// What was wanted.
        bytes: usize,
        /// What there can be.
        most: usize,
    },
    /// The region refused; the text says why, and what to do.
    Region(String),
    /// The device or the file system refused.
    Device(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { at, len, space } => {
                write!(f, "{len} bytes at offset {at:#x} leave a space of {space:#x} bytes")
            }
            Self::Unaligned { at } => write!(f, "offset {at:#x} is not that of a word"),
            Self::Full { bytes, most } => {
                write!(f, "{bytes} bytes are wanted where there can be {most}: make the region larger")
            }
            Self::Region(why) | Self::Device(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}
