//! Models of the protocols between client and keeper, and of those that `announce` has for the threads of a program,
//! walked by a model checker.
//!
//! A model is a handful of threads that call the real code; the checker decides who runs at every
//! access to an atomic. *loom* tries every order, with the reorderings that the processor and the
//! compiler may make, and so suits small models: the words and queues. *shuttle* draws schedules by
//! chance, every access in one order, and suits whole stages. Run by `cargo xtask models`.

mod arrival;
mod bell;
mod biased;
#[cfg(shuttle)]
mod cuts;
mod harness;
mod hazard;
#[cfg(shuttle)]
mod keeping;
mod ledger;
#[cfg(shuttle)]
mod machine;
#[cfg(shuttle)]
mod progress;
#[cfg(shuttle)]
mod regions;
mod ring;
#[cfg(shuttle)]
mod table;
