//! What the structures promise: that they do what their models do, to readers beside a writer, through power
//! cuts, on damaged bytes, and to those who open them as something else.

mod bad_input;
mod crash;
mod damage;
mod growth;
mod kinds;
mod large;
mod model;
mod readers;
mod support;
mod tracer;
