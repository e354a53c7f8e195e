//! A rule for enough acknowledgements is a system.

use convoke_core::CallBuilder;
use convoke_quorum::QuorumExt;

struct Two;

fn store(call: CallBuilder<u64>) {
    drop(call.acked_by(Two));
}

fn main() {}
