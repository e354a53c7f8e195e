//! Generates the messages, client and server of the service.

fn main() -> Result<(), convoke_build::Error> {
    convoke_build::configure().bytes(["."]).compile_protos(&["proto/pbft.proto"], &["proto"])
}
