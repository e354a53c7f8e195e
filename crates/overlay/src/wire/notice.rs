//! NOTICE and MISSED: a source tells its receivers itself what comes to them by which relay, and
//! they tell it what did not, or came changed. No relay touches either.

use sha2::{Digest as _, Sha256};

use crate::site::Site;

use super::codec::{Reader, WireError, write_life, write_number, write_site};
use super::{Data, Life};

/// Half of a SHA-256 of a chunk and its place in its operation. Enough against a second chunk with
/// the same digest, which is all that a relay could look for; whoever can choose both is the
/// source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkDigest(pub [u8; 16]);

impl ChunkDigest {
    /// The digest of what a frame carries.
    pub fn of(data: &Data) -> Self {
        let Data { op, index, count, is_body, payload, .. } = data;
        let mut digest = Sha256::new();
        digest.update(op.seq.to_le_bytes());
        digest.update(index.to_le_bytes());
        digest.update(count.to_le_bytes());
        digest.update([u8::from(*is_body)]);
        digest.update(payload);
        let mut half = [0; 16];
        half.copy_from_slice(&digest.finalize()[..16]);
        Self(half)
    }
}

/// Chunks of the sender's stream that come to the receiver by way of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// In which life of the sender.
    pub life: Life,
    /// The relay.
    pub relay: Site,
    /// Their sequence numbers and digests, at most [`Notice::CHUNKS_MAX`], in the order in which
    /// they were sent.
    pub chunks: Vec<(u64, ChunkDigest)>,
}

impl Notice {
    /// Most chunks of one frame.
    pub const CHUNKS_MAX: usize = 256;

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_life(self.life, out);
        write_site(self.relay, out);
        for (seq, digest) in &self.chunks {
            write_number((*seq).into(), out);
            out.extend_from_slice(&digest.0);
        }
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (life, relay) = (input.life()?, input.site()?);
        let mut chunks = Vec::new();
        while !input.is_empty() {
            if chunks.len() == Self::CHUNKS_MAX {
                return Err(WireError::Invalid("the number of chunks"));
            }
            chunks.push((input.seq()?, ChunkDigest(input.bytes()?)));
        }
        Ok(Self { life, relay, chunks })
    }
}

/// A relay's fault with chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// They have not come in time.
    Absent,
    /// They came, and are not what the source says.
    Changed,
    /// They have come after all, when they were missed already: the relay is slow, and not to
    /// blame.
    Late,
    /// They came, and there was no room for them: its application does not read. The relay is not
    /// to blame. By its source: there is room now.
    Full,
}

/// Chunks of the receiver's stream that the sender has not got by a relay as it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// In which life of the receiver.
    pub life: Life,
    /// The relay; the receiver itself for what it has sent directly.
    pub relay: Site,
    /// The fault.
    pub flaw: Flaw,
    /// Their sequence numbers, at most [`Notice::CHUNKS_MAX`].
    pub seqs: Vec<u64>,
}

impl Missed {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_life(self.life, out);
        write_site(self.relay, out);
        out.push(self.flaw as u8);
        self.seqs.iter().for_each(|seq| write_number((*seq).into(), out));
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (life, relay) = (input.life()?, input.site()?);
        let flaw = match input.u8()? {
            0 => Flaw::Absent,
            1 => Flaw::Changed,
            2 => Flaw::Late,
            3 => Flaw::Full,
            _ => return Err(WireError::Reserved),
        };
        let mut seqs = Vec::new();
        while !input.is_empty() {
            if seqs.len() == Notice::CHUNKS_MAX {
                return Err(WireError::Invalid("the number of chunks"));
            }
            seqs.push(input.seq()?);
        }
        Ok(Self { life, relay, flaw, seqs })
    }
}
