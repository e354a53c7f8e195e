//! Words of members and clients.

use super::{Malformed, Reader, Wire, put_kind};
use crate::core::{
    Batch, Beside, Checkpoint, Digest, Fetch, Fetched, Message, NewView, Outcome, Outline, Phase,
    Prepared, Reply, Request, Sequence, Signatures, Signed, SignedReply, SignedRequest, Stable,
    Status, View, ViewChange, Vote, Vouch,
};

/// A struct as its fields, in this order.
macro_rules! fields {
    ($($name:ident { $($field:ident: $type:ty),* })*) => {$(
        impl Wire for $name {
            const LEAST: usize = 0 $(+ <$type>::LEAST)*;

            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut Reader) -> Result<Self, Malformed> {
                Ok(Self { $($field: Wire::take(from)?),* })
            }
        }
    )*};
}

/// An enum as the number of its variant and what that holds.
macro_rules! kinds {
    ($($name:ident $of:literal { $($kind:literal => $variant:ident $(($($value:ident),*))?),* })*) => {$(
        impl Wire for $name {
            const LEAST: usize = u8::LEAST;

            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($($value),*))? => {
                        put_kind($kind, out);
                        $($($value.put(out);)*)?
                    })*
                }
            }

            fn take(from: &mut Reader) -> Result<Self, Malformed> {
                Ok(match u8::take(from)? {
                    $($kind => Self::$variant $(($({
                        let $value = Wire::take(from)?;
                        $value
                    }),*))?,)*
                    kind => return Err(Malformed::Kind { of: $of, kind }),
                })
            }
        }
    )*};
}

pub(super) use fields;
pub(crate) use kinds;

fields! {
    Request { client: crate::core::ClientId, number: u64, operation: bytes::Bytes }
    SignedRequest { request: Request, signature: crate::core::Signature }
    Vote { phase: Phase, view: View, sequence: Sequence, digest: Digest }
    Checkpoint { sequence: Sequence, digest: Digest }
    Vouch { client: crate::core::ClientId, number: u64, digest: Digest }
    Prepared { view: View, sequence: Sequence, digest: Digest, signatures: Signatures }
    Stable { checkpoint: Checkpoint, signatures: Signatures }
    ViewChange { view: View, stable: Stable, prepared: Vec<Prepared> }
    NewView { view: View, changes: Vec<Signed<std::sync::Arc<ViewChange>>> }
    Status { view: View, is_changing: bool, stable: Sequence, done: Sequence }
    Reply { client: crate::core::ClientId, number: u64, view: View, outcome: Outcome }
    Beside { is_left: bool, digest: Digest }
    SignedReply {
        epoch: u64,
        by: convoke::NodeId,
        reply: Reply,
        way: Vec<Beside>,
        signature: crate::core::Signature
    }
}

kinds! {
    Phase "phase" { 1 => Propose, 2 => Prepare, 3 => Commit }
    Outcome "outcome" { 1 => Done(result), 2 => Forgotten }
    Fetched "answer" { 1 => Batch(batch), 2 => Parts(sequence, membership, parts), 3 => Part(bytes), 4 => Requests(requests) }
    Message "message" {
        1 => Propose(vote, batch),
        2 => Vote(vote),
        3 => Checkpoint(checkpoint),
        4 => ViewChange(change),
        5 => NewView(new_view),
        6 => Stable(stable),
        7 => Status(status),
        8 => Fetch(fetch),
        9 => Fetched(fetched),
        10 => Vouch(vouches),
        11 => Pass(requests),
        12 => Outline(vote, outline),
        13 => Pull(digests)
    }
}

impl<T: Wire> Wire for Signed<T> {
    const LEAST: usize =
        u64::LEAST + convoke::NodeId::LEAST + T::LEAST + crate::core::Signature::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        self.epoch.put(out);
        self.by.put(out);
        self.body.put(out);
        self.signature.put(out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        let (epoch, by) = (Wire::take(from)?, Wire::take(from)?);
        let (body, signature) = (Wire::take(from)?, Wire::take(from)?);
        Ok(Self { epoch, by, body, signature })
    }
}

impl Wire for Batch {
    const LEAST: usize = u32::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        super::reader::put_all(self.requests(), out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        Vec::take(from).map(Self::new)
    }
}

impl Wire for Outline {
    const LEAST: usize = u32::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        super::reader::put_all(self.requests(), out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        Vec::<Digest>::take(from).map(Self::new)
    }
}

impl Wire for Fetch {
    const LEAST: usize = u8::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Batch(digest) => {
                put_kind(1, out);
                digest.put(out);
            }
            Self::Parts(sequence) => {
                put_kind(2, out);
                sequence.put(out);
            }
            Self::Part { sequence, index } => {
                put_kind(3, out);
                sequence.put(out);
                index.put(out);
            }
        }
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        Ok(match u8::take(from)? {
            1 => Self::Batch(Wire::take(from)?),
            2 => Self::Parts(Wire::take(from)?),
            3 => Self::Part { sequence: Wire::take(from)?, index: Wire::take(from)? },
            kind => return Err(Malformed::Kind { of: "question", kind }),
        })
    }
}
