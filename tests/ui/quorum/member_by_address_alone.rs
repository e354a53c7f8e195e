//! A member is a node, wherever it listens.

use convoke_quorum::Configuration;

fn main() {
    let _ = Configuration::new(["tcp://a:1"]);
}
