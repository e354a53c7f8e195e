//! Brings the bodies of fan-outs and casts to their receivers by the overlay.
//!
//! ```text
//! reference = life u32 | sequence number u64 | SHA-256 of the body
//! ```
//! The request comes straight from its sender, so the reference is as good as the request. The body
//! may have come through a relay, and is taken only if it has the digest: a relay cannot change
//! what members vote on.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use convoke_core::NodeId;
use convoke_core::carrier::{BodyCarrier, Carried, CarryError};
use convoke_core::transport::BoxFuture;
use sha2::{Digest as _, Sha256};

use crate::bodies::Body;
use crate::driver::{Driver, Forget};
use crate::event::Fetched;
use crate::payload::Payload;
use crate::site::SiteSet;
use crate::wire::{Life, OpId, SEQ_MAX};

/// The carrier of one endpoint.
#[derive(Debug)]
pub(crate) struct OverlayCarrier {
    pub(crate) driver: Arc<Driver>,
    pub(crate) body_bytes_min: usize,
}

/// Time that a body may take before it is asked for. Its source sends it again by itself when a
/// relay fails, so this is for when that has died.
const PATIENCE: Duration = Duration::from_secs(1);

const REFERENCE_BYTES: usize = 4 + 8 + 32;

/// Name of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reference {
    life: Life,
    seq: u64,
    digest: [u8; 32],
}

impl Reference {
    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(REFERENCE_BYTES);
        bytes.put_u32_le(self.life.0);
        bytes.put_u64_le(self.seq);
        bytes.put_slice(&self.digest);
        bytes.freeze()
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        if bytes.len() != REFERENCE_BYTES {
            return None;
        }
        let (life, seq) = (Life(bytes.get_u32_le()), bytes.get_u64_le());
        let mut digest = [0; 32];
        bytes.copy_to_slice(&mut digest);
        (seq <= SEQ_MAX).then_some(Self { life, seq, digest })
    }
}

impl BodyCarrier for OverlayCarrier {
    fn body_bytes_min(&self) -> usize {
        self.body_bytes_min
    }

    /// Takes what is for two sites or more, for those that can be reached, unless too much is
    /// unacknowledged. The others may have no overlay, or none yet.
    fn offer(&self, to: &[NodeId], body: &Bytes) -> Option<Carried> {
        let to: SiteSet = to.iter().filter_map(|node| self.driver.site_of(*node)).collect();
        // Only what will be sent is worth the hash.
        let sites = self.driver.with_quietly(|state| state.receivers(to, body.len()))?;
        let digest = sha256(body);
        let op = self.driver.with(|state, now| state.bring(now, body.clone(), sites)).ok()?;
        let reference = Reference { life: op.life, seq: op.seq, digest }.encode();
        let nodes = sites.iter().map(|site| self.driver.nodes[site.index()]).collect();
        Some(Carried { reference, nodes })
    }

    fn held(&self, to: NodeId, reference: &Bytes) -> Option<Bytes> {
        let Reference { life, seq, .. } = Reference::decode(reference)?;
        let op = OpId { source: self.driver.me, life, seq };
        self.driver.site_of(to)?;
        let payload = self.driver.with_quietly(|state| state.node.own(op).cloned())?;
        payload.is_body().then(|| payload.into_bytes())
    }

    fn body(&self, from: NodeId, reference: Bytes) -> BoxFuture<Result<Bytes, CarryError>> {
        let driver = self.driver.clone();
        Box::pin(async move {
            let invalid = |message: &str| CarryError::Invalid { from, message: message.into() };
            let reference = Reference::decode(&reference)
                .ok_or_else(|| invalid("it is no reference of an overlay"))?;
            let missing = |message: &str| CarryError::Missing { from, message: message.into() };
            // Lists of sites change, and not everywhere at the same time.
            let source = driver
                .site_of(from)
                .ok_or_else(|| missing("its sender is no site of this node's overlay"))?;
            let op = OpId { source, life: reference.life, seq: reference.seq };
            let body = await_body(&driver, op).await.map_err(missing)?;
            // Chunks by relays are held against what their source says. This is of a source that is
            // gone, whose body another site has brought: not the sender's doing.
            match sha256(&body) == reference.digest {
                true => Ok(body),
                false => Err(missing("what another site has brought of it was changed")),
            }
        })
    }
}

/// # Errors
/// Why it will not come.
async fn await_body(driver: &Arc<Driver>, op: OpId) -> Result<Bytes, &'static str> {
    // Before what it waits by, so that it is dropped after that.
    let _forgotten = Forget { driver, op };
    let mut waiting = match driver.with_quietly(|state| state.bodies.take(op)) {
        Body::Here(body) => return Ok(body.into_bytes()),
        Body::Awaited(waiting) => waiting,
    };
    let (links, is_linked) = driver.with_quietly(|state| {
        let up = state.node.up();
        (up, up.contains(op.source))
    });
    if links.is_empty() {
        return Err("this node's overlay is not connected with any other");
    }
    let mut patience = if is_linked { PATIENCE } else { Duration::ZERO };
    loop {
        let came = tokio::time::timeout(patience, &mut waiting).await;
        patience = PATIENCE;
        if let Ok(came) = came {
            return came.map(Payload::into_bytes).map_err(|_| match driver.is_closed() {
                true => "this node's overlay was closed",
                false => "no site has it any more",
            });
        }
        match driver.with(|state, now| state.node.fetch(now, op)) {
            Ok(Fetched::Held(payload)) => {
                return Ok(payload.into_bytes());
            }
            Ok(Fetched::Delivered) => return Err("it came, and made room for others"),
            // Too much is being fetched, or it is on its way.
            Ok(Fetched::Asked) | Err(_) => {}
        }
    }
}

fn sha256(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_come_back_as_they_were_and_nothing_else_is_one() {
        let reference = Reference { life: Life(7), seq: SEQ_MAX, digest: [9; 32] };
        let bytes = reference.encode();
        assert!(bytes.len() <= convoke_core::carrier::REFERENCE_BYTES_MAX);
        assert_eq!(Reference::decode(&bytes), Some(reference));
        assert_eq!(Reference::decode(&bytes[1..]), None);
        assert_eq!(Reference::decode(&[0; 45]), None);
        let beyond = Reference { seq: SEQ_MAX + 1, ..reference };
        assert_eq!(Reference::decode(&beyond.encode()), None, "no source counts so far");
    }
}
