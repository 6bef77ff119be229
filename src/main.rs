//! The binary `virtual-queue`: arguments and environment in, exit code out. Everything else is in the library.

use std::{
    env,
    io::{stderr, stdout},
    process::ExitCode,
};

/// What one thread allocates another often frees: a buyer's call gathered by a worker, made by the store's thread. The
/// system's allocator is slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Nobody reads what cannot be written; failing is all that is left then.
    virtual_queue::cli::run(env::args_os(), env::vars_os(), &mut stdout(), &mut stderr()).unwrap_or(ExitCode::FAILURE)
}
