//! Signatures, and the door that only checked words pass.
//!
//! A [`Replica`](super::Replica) takes [`Verified`] values alone, and only [`Keys`] makes them. So
//! no vote is counted before its signature, and a proof is checked as a whole before it enters.

use std::fmt;
use std::sync::Arc;

use std::collections::BTreeMap;

use convoke::NodeId;
use ring::hmac;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::group::{ClientId, Group, View};
use super::known::Known;
use super::message::{
    Batch, Fetched, Message, NewView, Phase, Prepared, Reply, Request, SignedRequest, Stable,
    ViewChange, Vote,
};
use super::text::{Text, Words, request_text};
use crate::mutant::{self, Mutant};

/// Cluster and epoch that every signed word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The cluster.
    pub cluster: u64,
    /// The epoch of its configuration.
    pub epoch: u64,
}

/// A signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

/// Words of a member with its signature, not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<T> {
    /// The member.
    pub by: NodeId,
    /// Its words.
    pub body: T,
    /// The signature under them.
    pub signature: Signature,
}

/// Something whose signatures were checked, all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// The value.
    pub fn get(&self) -> &T {
        &self.0
    }
}

/// A key that signs.
#[derive(Clone)]
pub enum Signer {
    /// Ed25519 (RFC 8032).
    Ed25519(Arc<Ed25519KeyPair>),
    /// HMAC-SHA-256, for simulations: who can check it can forge it, so keys stay with the world.
    StandIn(hmac::Key),
    /// No signature, to measure all else: nothing is protected.
    Unsigned,
}

/// A key that checks.
#[derive(Clone)]
pub enum Checker {
    /// Ed25519 (RFC 8032).
    Ed25519([u8; 32]),
    /// See [`Signer::StandIn`].
    StandIn(hmac::Key),
    /// See [`Signer::Unsigned`].
    Unsigned,
}

impl Signer {
    /// The Ed25519 key of a secret seed.
    ///
    /// # Panics
    /// Never: any 32 bytes are a seed.
    pub fn ed25519(seed: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed");
        Self::Ed25519(Arc::new(pair))
    }

    /// The stand-in of a secret seed.
    pub fn stand_in(seed: [u8; 32]) -> Self {
        Self::StandIn(hmac::Key::new(hmac::HMAC_SHA256, &seed))
    }

    /// The key that checks what this one signs.
    pub fn checker(&self) -> Checker {
        match self {
            Self::Ed25519(pair) => {
                let mut key = [0; 32];
                key.copy_from_slice(pair.public_key().as_ref());
                Checker::Ed25519(key)
            }
            Self::StandIn(key) => Checker::StandIn(key.clone()),
            Self::Unsigned => Checker::Unsigned,
        }
    }

    /// Signs words of a member.
    pub fn sign(&self, scope: Scope, by: NodeId, body: Message) -> Signed<Message> {
        let signature = self.sign_text(&body.text(scope, by));
        Signed { by, body, signature }
    }

    /// Signs an answer to a client.
    pub fn sign_reply(&self, scope: Scope, by: NodeId, body: Reply) -> Signed<Reply> {
        let signature = self.sign_text(&body.text(scope, by));
        Signed { by, body, signature }
    }

    /// Signs a request of a client.
    pub fn sign_request(&self, scope: Scope, request: Request) -> SignedRequest {
        let signature = self.sign_text(&request_text(scope, &request));
        SignedRequest { request, signature }
    }

    fn sign_text(&self, text: &Text) -> Signature {
        let mut signature = [0; 64];
        match self {
            Self::Unsigned => {}
            Self::Ed25519(pair) => signature.copy_from_slice(pair.sign(text.bytes()).as_ref()),
            Self::StandIn(key) => {
                signature[..32].copy_from_slice(hmac::sign(key, text.bytes()).as_ref());
            }
        }
        Signature(signature)
    }
}

impl Checker {
    fn accepts(&self, text: &Text, signature: &Signature) -> bool {
        match self {
            Self::Unsigned => true,
            Self::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(text.bytes(), &signature.0).is_ok()
            }
            Self::StandIn(key) => {
                hmac::verify(key, text.bytes(), &signature.0[..32]).is_ok()
                    && signature.0[32..] == [0; 32]
            }
        }
    }
}

/// The reason words do not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refused {
    /// No member, or no client, has this name.
    #[error("the sender is unknown here")]
    Stranger,
    /// The signature is another's, or under other words.
    #[error("the signature is not the sender's under these words")]
    Signature,
    /// A request in it is not its client's.
    #[error("a request in it is not signed by its client")]
    Request,
    /// A proof in it proves nothing.
    #[error("a certificate in it is not one")]
    Certificate,
}

/// Everybody's keys of one cluster and epoch.
#[derive(Clone, Debug)]
pub struct Keys {
    scope: Scope,
    group: Group,
    members: BTreeMap<NodeId, Checker>,
    clients: BTreeMap<ClientId, Checker>,
    known: Option<Arc<Known>>,
}

impl Keys {
    /// The keys of these members and clients.
    pub fn new(
        scope: Scope,
        group: Group,
        members: BTreeMap<NodeId, Checker>,
        clients: BTreeMap<ClientId, Checker>,
    ) -> Self {
        Self { scope, group, members, clients, known: None }
    }

    /// The same, which remember so many signatures that were right: lost votes are said again, and
    /// proofs are made of votes that were heard before. Clones remember together.
    #[must_use]
    pub fn remembering(self, signatures: usize) -> Self {
        Self { known: Some(Arc::new(Known::new(signatures))), ..self }
    }

    fn accepts(&self, checker: &Checker, text: &Text, signature: &Signature) -> bool {
        let (Some(known), Checker::Ed25519(key)) = (&self.known, checker) else {
            return checker.accepts(text, signature);
        };
        let name = Known::name(key, text, signature);
        let is_right = known.contains(&name) || checker.accepts(text, signature);
        if is_right {
            known.insert(name);
        }
        is_right
    }

    /// Signs words of this node's replica. They need no check: all that they are made of has had
    /// its own.
    pub fn sign(&self, signer: &Signer, by: NodeId, body: Message) -> Verified<Signed<Message>> {
        Verified(signer.sign(self.scope, by, body))
    }

    /// Checks words of a member, and every signature in them.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open(&self, message: Signed<Message>) -> Result<Verified<Signed<Message>>, Refused> {
        self.check(&message.body, message.by, &message.signature)?;
        match &message.body {
            Message::Propose(_, Some(batch)) | Message::Fetched(Fetched::Batch(batch)) => {
                self.check_batch(batch)?;
            }
            Message::ViewChange(change) => self.check_change(change)?,
            Message::NewView(new_view) => self.check_new_view(new_view)?,
            Message::Stable(stable) => self.check_stable(stable)?,
            _ => {}
        }
        Ok(Verified(message))
    }

    /// Checks a request.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open_request(&self, signed: SignedRequest) -> Result<Verified<SignedRequest>, Refused> {
        if !mutant::is(Mutant::RequestsUnsigned) {
            self.check_request(&signed)?;
        }
        Ok(Verified(signed))
    }

    /// Checks an answer, for a client.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open_reply(&self, reply: Signed<Reply>) -> Result<Verified<Signed<Reply>>, Refused> {
        self.check(&reply.body, reply.by, &reply.signature)?;
        Ok(Verified(reply))
    }

    fn check(&self, words: &impl Words, by: NodeId, signature: &Signature) -> Result<(), Refused> {
        let checker = self.members.get(&by).ok_or(Refused::Stranger)?;
        let is_right = self.accepts(checker, &words.text(self.scope, by), signature);
        if is_right || mutant::is(Mutant::VoteUnverified) {
            Ok(())
        } else {
            Err(Refused::Signature)
        }
    }

    fn check_request(&self, signed: &SignedRequest) -> Result<(), Refused> {
        let checker = self.clients.get(&signed.request.client).ok_or(Refused::Stranger)?;
        let text = request_text(self.scope, &signed.request);
        if self.accepts(checker, &text, &signed.signature) { Ok(()) } else { Err(Refused::Request) }
    }

    fn check_batch(&self, batch: &Batch) -> Result<(), Refused> {
        if mutant::is(Mutant::RequestsUnsigned) {
            return Ok(());
        }
        let is_signed = |signed| self.check_request(signed).is_ok();
        if batch.requests().iter().all(is_signed) { Ok(()) } else { Err(Refused::Request) }
    }

    fn check_new_view(&self, new_view: &NewView) -> Result<(), Refused> {
        let mut members: Vec<NodeId> = new_view.changes.iter().map(|change| change.by).collect();
        members.sort_unstable();
        members.dedup();
        if members.len() < self.group.quorum() || members.len() != new_view.changes.len() {
            return Err(Refused::Certificate);
        }
        for Signed { by, body, signature } in &new_view.changes {
            if body.view != new_view.view {
                return Err(Refused::Certificate);
            }
            self.check(&**body, *by, signature)?;
            self.check_change(body)?;
        }
        Ok(())
    }

    fn check_change(&self, change: &ViewChange) -> Result<(), Refused> {
        self.check_stable(&change.stable)?;
        let mut last = change.stable.checkpoint.sequence;
        for prepared in &change.prepared {
            if prepared.sequence <= last || prepared.view >= change.view {
                return Err(Refused::Certificate);
            }
            last = prepared.sequence;
            self.check_prepared(prepared)?;
        }
        Ok(())
    }

    fn check_prepared(&self, prepared: &Prepared) -> Result<(), Refused> {
        let Prepared { view, sequence, digest, signatures } = prepared;
        let primary = self.group.primary(*view);
        let has_proposal = signatures.contains_key(&primary);
        if signatures.len() < self.group.quorum() || !has_proposal {
            return Err(Refused::Certificate);
        }
        for (by, signature) in signatures {
            let phase = if *by == primary { Phase::Propose } else { Phase::Prepare };
            let vote = Vote { phase, view: *view, sequence: *sequence, digest: *digest };
            self.check(&vote, *by, signature).map_err(|_| Refused::Certificate)?;
        }
        Ok(())
    }

    fn check_stable(&self, stable: &Stable) -> Result<(), Refused> {
        let Stable { checkpoint, signatures } = stable;
        if checkpoint.sequence.0 == 0 && signatures.is_empty() {
            return Ok(());
        }
        if signatures.len() < self.group.quorum() {
            return Err(Refused::Certificate);
        }
        for (by, signature) in signatures {
            self.check(checkpoint, *by, signature).map_err(|_| Refused::Certificate)?;
        }
        Ok(())
    }

    /// Cluster and epoch.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The clients.
    pub fn clients(&self) -> impl ExactSizeIterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// The members.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The primary of a view.
    pub fn primary(&self, view: View) -> NodeId {
        self.group.primary(view)
    }
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
