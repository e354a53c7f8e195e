//! `compare`: Convoke beside other RPC stacks and bare sockets. `compare --help` lists the
//! arguments.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    compare::program::main()
}
