//! The `agentd` binary.

use std::process::ExitCode;

/// jemalloc: a turn makes some hundred small allocations and frees them at once; the system allocator is
/// slower at this and retains more memory.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    agentd::run_command_line()
}
