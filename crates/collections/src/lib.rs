//! Hash table, B+tree, vector and string, on a persistent heap, changed by transactions.
