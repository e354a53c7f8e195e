//! Generates the messages that all systems with protobuf share, and tonic's client and server.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    // protox parses in Rust, so that no protoc has to be installed.
    let files = protox::compile(["proto/compare.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    println!("cargo::rerun-if-changed=proto/compare.proto");
    Ok(())
}
