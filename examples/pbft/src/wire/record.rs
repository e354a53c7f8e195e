//! Records of a ledger.

use super::{Malformed, Reader, Wire, kinds, put_kind};
use crate::core::{Forgotten, Record};

kinds! {
    Forgotten "what was forgotten" { 1 => Checkpoint(sequence), 2 => View(view) }
    Record "record" {
        1 => Snapshot(sequence, membership, state),
        2 => Stable(stable),
        3 => Left(view),
        4 => Entered(new_view),
        5 => Batch(batch),
        6 => Accepted(vote, signature),
        7 => Prepared(prepared),
        8 => Committed(vote),
        9 => HandedOver(handover),
        10 => Clients(clients),
        11 => Lost(forgotten)
    }
}
