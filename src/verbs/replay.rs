//! `dflash replay`.

use crate::cli::ReplayArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let _ = args;
    Err(Failure::usage("not built yet"))
}
