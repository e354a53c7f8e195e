//! No node is number 0.

use convoke_core::NodeId;

const NOBODY: NodeId = NodeId::new(0);

fn main() {
    let _ = NOBODY;
}
