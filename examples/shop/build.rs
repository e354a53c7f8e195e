//! Generates the clients and servers of the shop.

fn main() -> Result<(), convoke_build::Error> {
    convoke_build::compile_protos(&["proto/shop.proto"], &["proto"])
}
