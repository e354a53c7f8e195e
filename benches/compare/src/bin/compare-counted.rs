//! `compare-counted`: the program `compare` that counts allocations, too, in its servers as well.
//!
//! Counting takes time, a hundred times for a call of those who allocate a hundred times. So
//! `compare` does not count, and rates and processor times are taken from it.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::process::ExitCode;

use alloc_tracker::Allocator;

/// Counts allocations, and leaves them to the system's allocator.
#[global_allocator]
static ALLOCATOR: Allocator<System> = Allocator::system();

fn main() -> ExitCode {
    compare::program::main()
}
