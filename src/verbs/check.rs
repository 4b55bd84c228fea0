//! `dflash check`.

use crate::cli::CheckArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let _ = args;
    Err(Failure::usage("not built yet"))
}
