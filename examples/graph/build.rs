//! Generates the client and server of the graph service.

fn main() -> Result<(), convoke_build::Error> {
    convoke_build::compile_protos(&["proto/graph.proto"], &["proto"])
}
