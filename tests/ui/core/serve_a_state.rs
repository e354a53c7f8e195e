//! A state is served by naming its methods, or by the generated server around it.

use convoke_core::Endpoint;

struct Shard;

fn main() {
    let _ = Endpoint::builder().serve(Shard);
}
