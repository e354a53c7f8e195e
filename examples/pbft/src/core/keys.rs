//! Keys of all, and the door that only checked words pass.
//!
//! A [`Replica`](super::Replica) takes [`Verified`] values alone, and only [`Keys`] makes them. So
//! no vote is counted before its signature, and a proof is checked as a whole before it enters.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke::NodeId;

use super::group::{ClientId, Group, NoMembers, View};
use super::handover::Handover;
use super::known::Known;
use super::members::{Member, Members};
use super::message::{
    Batch, Checkpoint, Fetched, Message, NewView, Phase, Prepared, Reply, Request, SignedRequest,
    Stable, ViewChange, Vote,
};
use super::replies::{SignedReply, WAY_MAX};
use super::signature::{Checker, Claims, Signature, Signer};
use super::sizes::is_small;
use super::text::{Words, request_text};
use super::trust::Trust;
use crate::mutant::{self, Mutant};

/// Cluster and epoch that every signed word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The cluster.
    pub cluster: u64,
    /// The epoch of its configuration.
    pub epoch: u64,
}

/// Words of a member with its signature, not checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signed<T> {
    /// The epoch in which it says them.
    pub epoch: u64,
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

/// Words whose shape is right, and the signatures that still have to be.
#[derive(Debug)]
pub struct Unproven<T> {
    words: T,
    claims: Arc<Claims>,
}

impl<T> Unproven<T> {
    /// Its signatures, to be checked with those of others.
    pub fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// Lets it in if its signatures are right. They are checked here where nobody has done it.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open(self) -> Result<Verified<T>, Refused> {
        self.claims.verdict().map(|()| Verified(self.words))
    }
}

impl Signer {
    /// Signs words of a member.
    pub fn sign(&self, scope: Scope, by: NodeId, body: Message) -> Signed<Message> {
        let signature = self.sign_text(&body.text(scope, by));
        Signed { epoch: scope.epoch, by, body, signature }
    }

    /// Signs a request of a client.
    pub fn sign_request(&self, scope: Scope, request: Request) -> SignedRequest {
        let signature = self.sign_text(&request_text(scope, &request));
        SignedRequest { request, signature }
    }
}

/// The reason words do not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refused {
    /// They are of an epoch that is over, or that is not known to have begun.
    #[error("it is of another epoch than the members are in here")]
    Epoch,
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
    /// It takes up more than its share of the message with which a view begins.
    #[error("it is larger than one word of those with which a view begins may be")]
    OverShare,
    /// A batch in it is larger than one may be, or it has more requests.
    #[error(
        "a batch in it has more than {} requests or {} bytes",
        Batch::REQUESTS_MAX,
        Batch::BYTES_MAX
    )]
    Batch,
    /// It is unsigned, or asks for something, and came over the connection of somebody else.
    #[error("the connection does not prove its sender")]
    Connection,
}

/// Everybody's keys of one cluster and epoch.
#[derive(Clone, Debug)]
pub struct Keys {
    scope: Scope,
    group: Group,
    members: BTreeMap<NodeId, Checker>,
    clients: BTreeMap<ClientId, Checker>,
    trust: Trust,
    known: Option<Arc<Known>>,
    /// The checkpoint with which the epoch has begun, if it is not the first.
    genesis: Option<Checkpoint>,
}

impl Keys {
    /// The keys of these members and clients, who sign all that they say.
    pub fn new(
        scope: Scope,
        group: Group,
        members: BTreeMap<NodeId, Checker>,
        clients: BTreeMap<ClientId, Checker>,
    ) -> Self {
        Self {
            scope,
            group,
            members,
            clients,
            trust: Trust::Signatures,
            known: None,
            genesis: None,
        }
    }

    /// The same, with this trust. Clients that connections prove have [`Checker::Connection`].
    #[must_use]
    pub fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// The same, which remember so many signatures that were right: lost votes are said again, and
    /// proofs are made of votes that were heard before. Clones remember together.
    #[must_use]
    pub fn remembering(self, signatures: usize) -> Self {
        Self { known: Some(Arc::new(Known::new(signatures))), ..self }
    }

    /// The keys of the next epoch. Clients stay the same.
    ///
    /// # Errors
    /// [`NoMembers`].
    pub fn after(&self, handover: &Handover) -> Result<Self, NoMembers> {
        let members = &handover.members;
        let checkers = members.nodes.iter().map(|(node, member)| (*node, member.key.clone()));
        Ok(Self {
            scope: Scope { epoch: members.epoch, ..self.scope },
            group: members.group()?,
            members: checkers.collect(),
            genesis: Some(handover.stable.checkpoint),
            ..self.clone()
        })
    }

    /// Checks the proof that this epoch has ended, whoever sends it.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open_handover(&self, handover: Handover) -> Result<Verified<Handover>, Refused> {
        let is_next = handover.epoch() == self.scope.epoch + 1;
        if !is_next {
            return Err(Refused::Epoch);
        }
        let is_proof = handover.is_bound() && !handover.stable.signatures.is_empty();
        if !is_proof || handover.members.group().is_err() {
            return Err(Refused::Certificate);
        }
        let mut claims = self.no_claims();
        self.claim_stable(&handover.stable, &mut claims)?;
        claims.verdict().map(|()| Verified(handover))
    }

    /// Signs words of this node's replica, where they are to be signed. They need no check: all
    /// that they are made of has had its own.
    pub fn sign(&self, signer: &Signer, by: NodeId, body: Message) -> Verified<Signed<Message>> {
        let signed = match self.trust.signs(&body) {
            true => signer.sign(self.scope, by, body),
            false => Signed { epoch: self.scope.epoch, by, body, signature: Signature::NONE },
        };
        Verified(signed)
    }

    /// Signs replies of this node's replica, where they are to be signed.
    pub fn sign_replies(
        &self,
        signer: &Signer,
        by: NodeId,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Vec<SignedReply> {
        match self.trust {
            Trust::Signatures => signer.sign_replies(self.scope, by, replies),
            Trust::Channels => {
                let unsigned = |reply| SignedReply::unsigned(self.scope.epoch, by, reply);
                replies.into_iter().map(unsigned).collect()
            }
        }
    }

    /// Checks words of a member, and every signature in them.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open(
        &self,
        from: NodeId,
        message: Signed<Message>,
    ) -> Result<Verified<Signed<Message>>, Refused> {
        self.examine(from, message)?.open()
    }

    /// Checks all of a member's words but their signatures. `from` is who is at the other end of
    /// the connection, which has to be proven where this [trusts](Self::trust) connections.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn examine(
        &self,
        from: NodeId,
        message: Signed<Message>,
    ) -> Result<Unproven<Signed<Message>>, Refused> {
        let mut claims = self.no_claims();
        if message.epoch != self.scope.epoch {
            if !mutant::is(Mutant::EpochNotChecked) {
                return Err(Refused::Epoch);
            }
            let scope = Scope { epoch: message.epoch, ..self.scope };
            return Self { scope, ..self.clone() }.examine(from, message);
        }
        let Signed { by, body, signature, .. } = &message;
        if let Message::NewView(new_view) = body
            && *by != self.primary(new_view.view)
            && !mutant::is(Mutant::BegunByAnybody)
        {
            return Err(Refused::Certificate);
        }
        // Answers are counted for who asks: a question that another passes on would use up its own.
        if matches!(body, Message::Fetch(_) | Message::Pull(_) | Message::Status(_)) && from != *by
        {
            return Err(Refused::Connection);
        }
        match self.trust.signs(body) {
            true => self.claim(body, *by, signature, Refused::Signature, &mut claims)?,
            false => self.claim_connection(from, *by, signature)?,
        }
        match body {
            Message::Propose(_, Some(batch)) | Message::Fetched(Fetched::Batch(batch)) => {
                self.claim_batch(batch, &mut claims)?;
            }
            Message::Pass(requests) | Message::Fetched(Fetched::Requests(requests)) => {
                if requests.len() > Batch::REQUESTS_MAX {
                    return Err(Refused::Batch);
                }
                self.claim_requests(requests, &mut claims)?
            }
            Message::Pull(digests) if digests.len() > Batch::REQUESTS_MAX => {
                return Err(Refused::Batch);
            }
            Message::Vouch(vouches) => {
                let is_known = |client| self.clients.contains_key(client);
                if !vouches.iter().all(|vouch| is_known(&vouch.client)) {
                    return Err(Refused::Request);
                }
            }
            Message::ViewChange(change) if !is_small(change, self.group.quorum()) => {
                return Err(Refused::OverShare);
            }
            Message::Outline(_, outline) if !outline.is_small() => return Err(Refused::Batch),
            Message::ViewChange(change) => self.claim_change(change, &mut claims)?,
            Message::NewView(new_view) => {
                // Of the thousands in it none is looked at for somebody else in that name.
                if !mutant::is(Mutant::BegunByAnybody) {
                    std::mem::replace(&mut claims, self.no_claims()).verdict()?;
                }
                self.claim_new_view(new_view, &mut claims)?;
            }
            Message::Stable(stable) => self.claim_stable(stable, &mut claims)?,
            _ => {}
        }
        Ok(Unproven { words: message, claims: Arc::new(claims) })
    }

    /// Checks all of a request but its signature. `from` is who is at the other end of the
    /// connection, which has to be proven where that proves the client.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn examine_request(
        &self,
        from: NodeId,
        signed: SignedRequest,
    ) -> Result<Unproven<SignedRequest>, Refused> {
        let mut claims = self.no_claims();
        if !mutant::is(Mutant::RequestsUnsigned) {
            self.claim_request(&signed, &mut claims)?;
            let client = self.clients.get(&signed.request.client);
            if let Some(Checker::Connection(node)) = client
                && *node != from
            {
                return Err(Refused::Connection);
            }
        }
        Ok(Unproven { words: signed, claims: Arc::new(claims) })
    }

    /// Checks an answer of the member that is at the other end of the connection, for a client.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open_reply(
        &self,
        from: NodeId,
        reply: SignedReply,
    ) -> Result<Verified<SignedReply>, Refused> {
        if reply.epoch != self.scope.epoch {
            return Err(Refused::Epoch);
        }
        if self.trust == Trust::Channels {
            let is_bare = reply.way.is_empty();
            let known = self.claim_connection(from, reply.by, &reply.signature);
            let known = known.and(if is_bare { Ok(()) } else { Err(Refused::Signature) });
            return known.map(|()| Verified(reply));
        }
        let mut claims = self.no_claims();
        let checker = self.members.get(&reply.by).ok_or(Refused::Stranger)?;
        if reply.way.len() > WAY_MAX {
            return Err(Refused::Signature);
        }
        let text = reply.text(self.scope);
        if !mutant::is(Mutant::VoteUnverified) {
            claims.add(checker, &text, &reply.signature, Refused::Signature)?;
        }
        claims.verdict().map(|()| Verified(reply))
    }

    /// True for an answer in which a member of this epoch says that a later one has begun. One
    /// whose key is another by then cannot say so here.
    pub fn says_later(&self, from: NodeId, reply: &SignedReply) -> bool {
        let scope = Scope { epoch: reply.epoch, ..self.scope };
        let later = || Self { scope, ..self.clone() };
        reply.epoch > self.scope.epoch && later().open_reply(from, reply.clone()).is_ok()
    }

    fn no_claims(&self) -> Claims {
        Claims::new(self.known.clone())
    }

    fn claim(
        &self,
        words: &impl Words,
        by: NodeId,
        signature: &Signature,
        wrong: Refused,
        claims: &mut Claims,
    ) -> Result<(), Refused> {
        let checker = self.members.get(&by).ok_or(Refused::Stranger)?;
        if mutant::is(Mutant::VoteUnverified) {
            return Ok(());
        }
        claims.add(checker, &words.text(self.scope, by), signature, wrong)
    }

    /// Claims that words without a signature are of the member that the connection proves.
    fn claim_connection(
        &self,
        from: NodeId,
        by: NodeId,
        signature: &Signature,
    ) -> Result<(), Refused> {
        if !self.members.contains_key(&by) {
            return Err(Refused::Stranger);
        }
        let is_its = from == by || mutant::is(Mutant::NamesClaimed);
        match (is_its, *signature == Signature::NONE) {
            (true, true) => Ok(()),
            (false, _) => Err(Refused::Connection),
            (true, false) => Err(Refused::Signature),
        }
    }

    fn claim_request(&self, signed: &SignedRequest, claims: &mut Claims) -> Result<(), Refused> {
        let checker = self.clients.get(&signed.request.client).ok_or(Refused::Stranger)?;
        let text = request_text(self.scope, &signed.request);
        claims.add(checker, &text, &signed.signature, Refused::Request)
    }

    fn claim_batch(&self, batch: &Batch, claims: &mut Claims) -> Result<(), Refused> {
        if !batch.is_small() {
            return Err(Refused::Batch);
        }
        self.claim_requests(batch.requests(), claims)
    }

    fn claim_requests(
        &self,
        requests: &[SignedRequest],
        claims: &mut Claims,
    ) -> Result<(), Refused> {
        if mutant::is(Mutant::RequestsUnsigned) {
            return Ok(());
        }
        let mut requests = requests.iter();
        let claimed = requests.try_for_each(|signed| self.claim_request(signed, claims));
        claimed.map_err(|_| Refused::Request)
    }

    fn claim_new_view(&self, new_view: &NewView, claims: &mut Claims) -> Result<(), Refused> {
        let mut members: Vec<NodeId> = new_view.changes.iter().map(|change| change.by).collect();
        members.sort_unstable();
        members.dedup();
        if members.len() < self.group.quorum() || members.len() != new_view.changes.len() {
            return Err(Refused::Certificate);
        }
        for Signed { epoch, by, body, signature } in &new_view.changes {
            if body.view != new_view.view || *epoch != self.scope.epoch {
                return Err(Refused::Certificate);
            }
            self.claim(&**body, *by, signature, Refused::Signature, claims)?;
            self.claim_change(body, claims)?;
        }
        Ok(())
    }

    fn claim_change(&self, change: &ViewChange, claims: &mut Claims) -> Result<(), Refused> {
        self.claim_stable(&change.stable, claims)?;
        let mut last = change.stable.checkpoint.sequence;
        for prepared in &change.prepared {
            if prepared.sequence <= last || prepared.view >= change.view {
                return Err(Refused::Certificate);
            }
            last = prepared.sequence;
            self.claim_prepared(prepared, claims)?;
        }
        Ok(())
    }

    fn claim_prepared(&self, prepared: &Prepared, claims: &mut Claims) -> Result<(), Refused> {
        let Prepared { view, sequence, digest, signatures } = prepared;
        let primary = self.group.primary(*view);
        let has_proposal = signatures.contains_key(&primary);
        if signatures.len() < self.group.quorum() || !has_proposal {
            return Err(Refused::Certificate);
        }
        for (by, signature) in signatures {
            let phase = if *by == primary { Phase::Propose } else { Phase::Prepare };
            let vote = Vote { phase, view: *view, sequence: *sequence, digest: *digest };
            let claimed = self.claim(&vote, *by, signature, Refused::Certificate, claims);
            claimed.map_err(|_| Refused::Certificate)?; // also where a stranger has signed
        }
        Ok(())
    }

    fn claim_stable(&self, stable: &Stable, claims: &mut Claims) -> Result<(), Refused> {
        let Stable { checkpoint, signatures } = stable;
        if self.is_genesis(checkpoint) && signatures.is_empty() {
            return Ok(());
        }
        if signatures.len() < self.group.quorum() {
            return Err(Refused::Certificate);
        }
        for (by, signature) in signatures {
            let claimed = self.claim(checkpoint, *by, signature, Refused::Certificate, claims);
            claimed.map_err(|_| Refused::Certificate)?;
        }
        Ok(())
    }

    /// True for the state in which the epoch begins, which needs no proof by its members.
    fn is_genesis(&self, checkpoint: &Checkpoint) -> bool {
        match &self.genesis {
            Some(genesis) => genesis == checkpoint,
            None => checkpoint.sequence.0 == 0,
        }
    }

    /// The members with their keys. Addresses are those of the cluster files.
    pub fn members(&self) -> Members {
        let member = |key: &Checker| Member { key: key.clone(), addresses: Vec::new() };
        let nodes = self.members.iter().map(|(node, key)| (*node, member(key))).collect();
        Members { epoch: self.scope.epoch, nodes }
    }

    /// The proof by which words are believed.
    pub fn trust(&self) -> Trust {
        self.trust
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
