//! `dflash compare`.

use crate::cli::CompareArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let _ = args;
    Err(Failure::usage("not built yet"))
}
