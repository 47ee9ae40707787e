//! `wattkeep bench`: figures beside their rivals.

use crate::answer::{Answer, Output};
use crate::args::BenchArgs;
use crate::failure::{Exit, Failure};

pub(crate) fn run(args: &BenchArgs, _output: Output) -> Result<Answer, Failure> {
    let cause = format!("{:?} is not measured by this version; run 'wattkeep drill' instead", args.name);
    Err(Failure::new(Exit::NotSo, cause))
}
