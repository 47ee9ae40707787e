//! One simulated machine: the real engine over twins, one thread, no chance but the seed's.
//!
//! The program's threads, the keeper and the SSD take turns; between two steps nothing runs. After each
//! step the auditor looks. The modules, in the order a store flows through them:

pub mod machine; // the parts, put together as the real program does it

pub mod threads; // the program's threads: stores, loads, announcements, waits

pub mod steps; // a script's steps

pub mod audit; // an independent count of dirty pages

pub mod recovered; // what a reopened store shows, compared with the oracle

pub mod show; // all of it in words

pub use machine::{Planted, Settings, Trouble, World};
pub use recovered::Expected;
pub use steps::{Recorded, boot, open_store};
