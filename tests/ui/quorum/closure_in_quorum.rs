//! A closure decides by `quorum_by`.

use convoke_core::CallBuilder;
use convoke_quorum::{Majority, QuorumExt, Replies, Verdict};

fn count(call: CallBuilder<u64>) {
    let counted = call.quorum(|replies: &Replies<u64>| match replies.reach(&Majority) {
        true => Verdict::Done(replies.len()),
        false => Verdict::Continue,
    });
    drop(counted);
}

fn main() {}
