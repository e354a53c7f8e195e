//! The signature floor: processor time below which nothing signed can come.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use convoke::NodeId;
use pbft::core::{Claims, ClientId, Group, Keys, Request, Scope, SignedRequest, Signer};
use serde::Serialize;

/// Microseconds that signatures take on one processor of this machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Signatures {
    /// To make one.
    pub(crate) sign_us: f64,
    /// To check one by itself.
    pub(crate) check_us: f64,
    /// To check one among 64 of as many keys.
    pub(crate) check_of_64_us: f64,
}

impl Signatures {
    /// Measures them, each the median of several rounds.
    pub(crate) fn measure() -> Result<Self> {
        let scope = Scope { cluster: 1, epoch: 1 };
        let signer = |client: u64| Signer::ed25519([u8::try_from(client).unwrap_or(0); 32]);
        let request = |client| {
            let operation = Bytes::from_static(&[7; 100]);
            Request { client: ClientId(client), number: 1, operation }
        };
        let sign = |client| signer(client).sign_request(scope, request(client));
        let signed: Vec<SignedRequest> = (0..COUNT).map(sign).collect();
        let clients: BTreeMap<_, _> =
            (0..COUNT).map(|c| (ClientId(c), signer(c).checker())).collect();
        let keys = Keys::new(scope, Group::new([NodeId::new(1)])?, BTreeMap::new(), clients);
        let signers: Vec<Signer> = (0..COUNT).map(signer).collect();
        let sign_us = median(|| {
            for (client, signer) in (0..).zip(&signers) {
                std::hint::black_box(signer.sign_request(scope, request(client)));
            }
            Ok(())
        })?;
        let check_us = median(|| {
            for signed in &signed {
                keys.examine_request(FROM, signed.clone())?.open()?;
            }
            Ok(())
        })?;
        let check_of_64_us = median(|| {
            let examined = signed.iter().map(|signed| keys.examine_request(FROM, signed.clone()));
            let examined = examined.collect::<Result<Vec<_>, _>>()?;
            Claims::prove(examined.iter().map(|one| &**one.claims()));
            examined.into_iter().try_for_each(|one| one.open().map(drop))?;
            Ok(())
        })?;
        Ok(Self { sign_us, check_us, check_of_64_us })
    }

    /// Microseconds of all of n replicas per request, in batches of so many, when each replica
    /// checks each request, and each vote of another, among 64, and signs its votes and the replies
    /// of a batch at once.
    pub(crate) fn floor_us(&self, replicas: usize, requests_per_batch: f64) -> f64 {
        let n = replicas as f64;
        let votes_checked = (n - 1.0) + (n - 1.0) * (n - 1.0) + n * (n - 1.0);
        let signed = 1.0 + (n - 1.0) + n + n;
        let per_batch = votes_checked * self.check_of_64_us + signed * self.sign_us;
        n * self.check_of_64_us + per_batch / requests_per_batch.max(1.0)
    }
}

/// Whoever brings something that is signed.
const FROM: NodeId = NodeId::new(1);

/// Signatures of a round.
const COUNT: u64 = 64;

const ROUNDS: usize = 15;

/// Microseconds that one of a round's takes.
fn median(mut round: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut took = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        round()?;
        took.push(begun.elapsed().as_secs_f64() * 1e6 / COUNT as f64);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[ROUNDS / 2])
}
