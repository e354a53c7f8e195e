//! Generates the messages, client and server of the service.

fn main() -> Result<(), convoke_build::Error> {
    convoke_build::configure()
        .bytes(["."])
        .prost(|config| {
            config.enable_type_names(); // details of a status are found by their name
        })
        .compile_protos(&["proto/paxos.proto"], &["proto"])
}
