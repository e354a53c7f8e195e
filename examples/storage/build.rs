//! Generates the client and server of the storage service.

fn main() -> Result<(), convoke_build::Error> {
    convoke_build::compile_protos(&["proto/storage.proto"], &["proto"])
}
