//! Transactions on a persistent heap: all of their stores survive, or none.
