//! Generates the clients and servers of the library.

fn main() -> Result<(), convoke_build::Error> {
    convoke_build::compile_protos(&["proto/library.proto"], &["proto"])
}
