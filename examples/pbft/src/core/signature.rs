//! Keys that sign and keys that check, and the claims that signatures make.
//!
//! [`Claims`] are checked together where they can be: one among 64 takes about 0.6 of the time that
//! one takes by itself, and less where keys are the same. ZIP 215 says which Ed25519 signatures are right such that a
//! check of many and a check of each always agree: replicas never differ about what a liar signed.

use std::fmt;
use std::sync::{Arc, OnceLock};

use convoke::NodeId;
use ed25519_zebra::batch::{Item, Verifier};
use ed25519_zebra::{SigningKey, VerificationKeyBytes};
use ring::hmac;

use super::group::Digest;
use super::keys::Refused;
use super::known::Known;
use super::text::Text;

/// A signature.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// No signature, where a connection proves who speaks.
    pub const NONE: Self = Self([0; 64]);
}

/// A key that signs.
#[derive(Clone)]
pub enum Signer {
    /// Ed25519 (RFC 8032).
    Ed25519(Box<SigningKey>),
    /// HMAC-SHA-256, for simulations: who can check it can forge it, so keys stay with the world.
    StandIn([u8; 32]),
    /// No signature, to measure all else: nothing is protected.
    Unsigned,
}

/// A key that checks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Checker {
    /// Ed25519 (RFC 8032), by the rules of ZIP 215.
    Ed25519([u8; 32]),
    /// See [`Signer::StandIn`].
    StandIn([u8; 32]),
    /// See [`Signer::Unsigned`].
    Unsigned,
    /// A client that is known by its connection: what comes by that of this node is its own. It
    /// signs nothing.
    Connection(NodeId),
}

impl Signer {
    /// The Ed25519 key of a secret seed.
    pub fn ed25519(seed: [u8; 32]) -> Self {
        Self::Ed25519(Box::new(SigningKey::from_bytes(&seed)))
    }

    /// The stand-in of a secret seed.
    pub fn stand_in(seed: [u8; 32]) -> Self {
        Self::StandIn(seed)
    }

    /// The key that checks what this one signs.
    pub fn checker(&self) -> Checker {
        match self {
            Self::Ed25519(key) => Checker::Ed25519(key.verification_key().into()),
            Self::StandIn(seed) => Checker::StandIn(*seed),
            Self::Unsigned => Checker::Unsigned,
        }
    }

    pub(super) fn sign_text(&self, text: &Text) -> Signature {
        match self {
            Self::Unsigned => Signature::NONE,
            Self::Ed25519(key) => Signature(key.sign(text.bytes()).to_bytes()),
            Self::StandIn(seed) => {
                let key = stand_in(seed);
                let mut signature = [0; 64];
                signature[..32].copy_from_slice(hmac::sign(&key, text.bytes()).as_ref());
                Signature(signature)
            }
        }
    }
}

/// The signatures of one message, of which each has to be right.
#[derive(Debug, Default)]
pub struct Claims {
    claims: Vec<Claim>,
    known: Option<Arc<Known>>,
    verdict: OnceLock<Result<(), Refused>>,
}

#[derive(Debug)]
struct Claim {
    item: Item,
    name: Option<Digest>,
    /// The reason the message is refused if it is wrong.
    wrong: Refused,
}

impl Claims {
    /// None yet. Signatures that were found right before are taken from `known`, and enter it.
    pub(super) fn new(known: Option<Arc<Known>>) -> Self {
        Self { known, ..Self::default() }
    }

    /// Claims that the holder of a key has signed a text.
    ///
    /// # Errors
    /// `wrong`, where that is seen at once.
    pub(super) fn add(
        &mut self,
        checker: &Checker,
        text: &Text,
        signature: &Signature,
        wrong: Refused,
    ) -> Result<(), Refused> {
        let is_right = match checker {
            Checker::Unsigned => true,
            Checker::Connection(_) => *signature == Signature::NONE,
            Checker::StandIn(seed) => {
                hmac::verify(&stand_in(seed), text.bytes(), &signature.0[..32]).is_ok()
                    && signature.0[32..] == [0; 32]
            }
            Checker::Ed25519(key) => {
                let name = |_: &Arc<Known>| Known::name(key, text, signature);
                let name = self.known.as_ref().map(name);
                let known = self.known.as_ref().zip(name);
                if !known.is_some_and(|(known, name)| known.contains(&name)) {
                    let key = VerificationKeyBytes::from(*key);
                    let item = Item::from((key, signature.0.into(), text.bytes()));
                    self.claims.push(Claim { item, name, wrong });
                }
                true
            }
        };
        if is_right { Ok(()) } else { Err(wrong) }
    }

    /// Signatures that are not known to be right.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// True when all were known to be right.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Checks the claims of several messages together, and, should any be wrong, those of each by
    /// themselves: one liar costs the others half a check more, and none of them is refused.
    pub fn prove<'a>(all: impl Iterator<Item = &'a Self> + Clone) {
        let are_right = are_right(all.clone().flat_map(|claims| &claims.claims));
        for claims in all {
            let verdict = claims.verdict.get_or_init(|| match are_right {
                true => Ok(()),
                false => claims.check(),
            });
            if let (Ok(()), Some(known)) = (verdict, &claims.known) {
                claims.claims.iter().filter_map(|claim| claim.name).for_each(|n| known.insert(n));
            }
        }
    }

    /// Checks them, unless that was done, and says what is wrong first.
    pub(super) fn verdict(&self) -> Result<(), Refused> {
        if self.verdict.get().is_none() {
            Self::prove(std::iter::once(self));
        }
        self.verdict.get().copied().unwrap_or(Err(Refused::Signature))
    }

    fn check(&self) -> Result<(), Refused> {
        if are_right(self.claims.iter()) {
            return Ok(());
        }
        let is_wrong = |claim: &&Claim| claim.item.clone().verify_single().is_err();
        Err(self.claims.iter().find(is_wrong).map_or(Refused::Signature, |claim| claim.wrong))
    }
}

fn stand_in(seed: &[u8; 32]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, seed)
}

/// True when all of them are right.
fn are_right<'a>(mut claims: impl Iterator<Item = &'a Claim> + Clone) -> bool {
    let mut rest = claims.clone().skip(1);
    if rest.next().is_none() {
        return claims.next().is_none_or(|claim| claim.item.clone().verify_single().is_ok());
    }
    let mut verifier = Verifier::new();
    claims.for_each(|claim| verifier.queue(claim.item.clone()));
    verifier.verify(rand::rng()).is_ok()
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "~{:02x}{:02x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checker(..)")
    }
}
