//! A member that lies: what it makes of the words of its replica, and of those it has heard.
//!
//! It has its own key and no other. Its replica, or its twins, follow the protocol; the lies are in
//! what leaves it. Equivocation needs no code of its own: twins with one key, each heard by some,
//! are two honest replicas that contradict each other (Bano et al., "Twins: BFT systems made
//! robust", OPODIS 2021). Small changes of real words are those of ByzzFuzz (Winter et al., OOPSLA
//! 2023).

use std::sync::Arc;

use bytes::Bytes;
use convoke::NodeId;
use convoke_sim::random::Random;

use super::Menu;
use crate::core::{
    Batch, ClientId, Digest, Fetched, Keys, Message, NewView, Outline, Phase, Request, Scope,
    Sequence, Signature, Signed, SignedRequest, Signer, Trust, View, ViewChange, Vote, Vouch,
};

#[derive(Debug)]
pub(super) struct Liar {
    node: NodeId,
    signer: Signer,
    keys: Keys,
    /// Words that it has heard or said, the latest last.
    heard: Vec<Signed<Message>>,
    batches: Vec<Batch>,
    changes: Vec<Signed<Arc<ViewChange>>>,
    /// Divides the others between its twins.
    salt: u64,
}

/// So much of what it has heard it remembers.
const HEARD_MAX: usize = 200;

impl Liar {
    pub(super) fn new(node: NodeId, signer: Signer, keys: Keys) -> Self {
        let (heard, batches, changes) = (Vec::new(), vec![Batch::null()], Vec::new());
        Self { node, signer, keys, heard, batches, changes, salt: 0 }
    }

    /// Signs words in somebody's name with its own key, where words like these are signed.
    fn sign(&self, by: NodeId, body: Message) -> Signed<Message> {
        self.keys.sign(&self.signer, by, body).into_inner()
    }

    /// Signs by these keys from now on.
    pub(super) fn begin_epoch(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// Divides the others anew between its twins.
    pub(super) fn divide(&mut self, random: &mut Random) {
        self.salt = random.draw();
    }

    /// The twin that another member hears.
    pub(super) fn side(&self, other: NodeId) -> u8 {
        u8::from((self.salt >> (other.get() % 64)) & 1 == 1)
    }

    pub(super) fn hear(&mut self, message: &Signed<Message>) {
        match &message.body {
            Message::Propose(_, Some(batch)) => push(&mut self.batches, batch.clone(), 12),
            Message::Fetched(Fetched::Requests(requests)) => {
                push(&mut self.batches, Batch::new(requests.iter().cloned()), 12);
            }
            Message::ViewChange(change) => {
                let Signed { epoch, by, signature, .. } = *message;
                let change = Signed { epoch, by, body: change.clone(), signature };
                push(&mut self.changes, change, 24);
            }
            Message::Status(_) => return,
            _ => {}
        }
        push(&mut self.heard, message.clone(), HEARD_MAX);
    }

    /// Its words to one of the others, when its replica says this.
    pub(super) fn say(
        &mut self,
        random: &mut Random,
        menu: &Menu,
        to: NodeId,
        message: Signed<Message>,
    ) -> Vec<Signed<Message>> {
        self.hear(&message);
        let habits = &menu.habits;
        let others = (1..=menu.nodes).filter(|other| *other != self.node.get());
        if others.take(usize::try_from(habits.silent_to).unwrap_or(0)).any(|of| of == to.get()) {
            return Vec::new();
        }
        if habits.hoards && !self.shares(menu, to, &message.body) {
            return Vec::new();
        }
        let message = if habits.hoards { self.hide(message) } else { message };
        let mut said = Vec::new();
        if let Message::Status(status) = message.body
            && habits.hoards
        {
            said.extend(self.want(status.view.next()));
        }
        if random.per_mille(habits.replayed_per_mille) {
            said.extend(random.pick(&self.heard).cloned());
        }
        if random.per_mille(habits.forged_per_mille) {
            said.push(self.forge(random, menu, message.clone()));
        }
        // A primary tells all of them the same lie about a place, half of the time.
        let mut alike = match message.body {
            Message::Propose(vote, _) | Message::Outline(vote, _) if self.salt & 1 == 1 => {
                Random::of(self.salt ^ vote.view.0, vote.sequence.0)
            }
            _ => Random::new(random.draw()),
        };
        let random = &mut alike;
        if message.by == self.node && random.per_mille(habits.tampered_per_mille) {
            if random.chance(30) {
                said.push(message.clone());
            }
            let body = self.tamper(random, menu, message.body);
            said.push(self.sign(self.node, body));
        } else {
            said.push(message);
        }
        said
    }

    /// True for words that it says to this one where it keeps what is prepared to liars.
    fn shares(&self, menu: &Menu, to: NodeId, body: &Message) -> bool {
        let needed = (self.keys.group().quorum() as u64).saturating_sub(menu.liars);
        let is_needed = to.get() + needed > menu.nodes;
        let is_liar = to.get() <= menu.liars;
        match body {
            Message::Propose(vote, _) | Message::Outline(vote, _) => {
                is_liar || is_needed && vote.view == View(0)
            }
            Message::Vote(vote) => is_liar || vote.phase == Phase::Commit,
            Message::Fetched(_) => is_liar,
            _ => true,
        }
    }

    /// Word that it wants this view, with what it took along the last time.
    fn want(&self, view: View) -> Option<Signed<Message>> {
        let last = self.changes.iter().rev().find(|change| change.by == self.node)?;
        let change = ViewChange { view, ..(*last.body).clone() };
        Some(self.sign(self.node, Message::ViewChange(self.late(&change))))
    }

    /// The same words, in which it takes along to each view what it could have to one before.
    fn hide(&self, message: Signed<Message>) -> Signed<Message> {
        let body = match &message.body {
            _ if message.by != self.node => return message,
            Message::ViewChange(change) => Message::ViewChange(self.late(change)),
            Message::NewView(new_view) => {
                let mut changes = new_view.changes.clone();
                for own in changes.iter_mut().filter(|change| change.by == self.node) {
                    own.body = self.late(&own.body);
                    own.signature =
                        self.sign(self.node, Message::ViewChange(own.body.clone())).signature;
                }
                Message::NewView(Arc::new(NewView { view: new_view.view, changes }))
            }
            _ => return message,
        };
        self.sign(self.node, body)
    }

    fn late(&self, change: &ViewChange) -> Arc<ViewChange> {
        let before = |of: &&Signed<Arc<ViewChange>>| {
            of.by == self.node && of.body.view < change.view && !of.body.prepared.is_empty()
        };
        let before = self.changes.iter().find(before).map(|of| of.body.prepared.clone());
        let mut prepared = before.unwrap_or_default();
        prepared.retain(|proof| proof.sequence > change.stable.checkpoint.sequence);
        Arc::new(ViewChange { prepared, ..change.clone() })
    }

    /// A request that its client never made, signed with a key that is not the client's where it is
    /// to be signed.
    pub(super) fn invent(&self, random: &mut Random, menu: &Menu) -> SignedRequest {
        let client = ClientId(1 + random.within(0..menu.clients));
        let number = (1 << 20) + random.within(0..4);
        let operation = Bytes::from([client.0.to_le_bytes(), number.to_le_bytes()].concat());
        let request = Request { client, number, operation };
        match menu.trust {
            Trust::Signatures => self.signer.sign_request(self.keys.scope(), request),
            Trust::Channels => SignedRequest { request, signature: Signature::NONE },
        }
    }

    /// Word that a client has made a request, which it has not.
    pub(super) fn vouch(&self, random: &mut Random, request: &SignedRequest) -> Signed<Message> {
        let body = match random.chance(50) {
            true => Message::Vouch(vec![Vouch::of(&request.request)]),
            false => Message::Pass(vec![request.clone()]),
        };
        self.sign(self.node, body)
    }

    /// Words in the name of somebody else, or of another scope.
    fn forge(&self, random: &mut Random, menu: &Menu, message: Signed<Message>) -> Signed<Message> {
        let other = NodeId::new(1 + random.within(0..menu.nodes));
        let body = self.tamper(random, menu, message.body);
        match random.index(3) {
            0 => self.sign(other, body),
            1 => {
                let scope = self.keys.scope();
                let epoch = if random.chance(50) { scope.epoch + 1 } else { scope.epoch - 1 };
                let scope = Scope { epoch, ..scope };
                self.signer.sign(scope, self.node, body)
            }
            _ => {
                let epoch = self.keys.scope().epoch;
                Signed { epoch, by: other, body, signature: Signature([7; 64]) }
            }
        }
    }

    /// The same words with a field changed.
    fn tamper(&self, random: &mut Random, menu: &Menu, body: Message) -> Message {
        match body {
            Message::Propose(vote, _) if menu.trust == Trust::Channels && random.chance(30) => {
                let batch = Batch::new([self.invent(random, menu)]);
                Message::Propose(Vote { digest: batch.digest(), ..vote }, Some(batch))
            }
            Message::Propose(vote, _) if random.chance(60) => {
                let batch = random.pick(&self.batches).cloned().unwrap_or_else(Batch::null);
                Message::Propose(Vote { digest: batch.digest(), ..vote }, Some(batch))
            }
            Message::Propose(vote, batch) => {
                Message::Propose(self.tamper_vote(random, vote), batch)
            }
            Message::Outline(vote, _) if random.chance(40) => {
                // What it names comes from nobody but itself, if it does.
                let batch = random.pick(&self.batches).cloned().unwrap_or_else(Batch::null);
                let named = batch.outline().requests().iter().copied();
                let outline = Outline::new(named.chain([some_digest(random)]));
                Message::Outline(Vote { digest: outline.digest(), ..vote }, outline)
            }
            Message::Outline(vote, outline) => {
                Message::Outline(self.tamper_vote(random, vote), outline)
            }
            Message::Vote(vote) => Message::Vote(self.tamper_vote(random, vote)),
            Message::Checkpoint(mut claim) => {
                claim.digest = some_digest(random);
                Message::Checkpoint(claim)
            }
            Message::ViewChange(change) => {
                Message::ViewChange(Arc::new(tamper_change(random, &change)))
            }
            Message::NewView(new_view) => Message::NewView(self.tamper_view(random, &new_view)),
            Message::Status(mut status) => {
                status.done = Sequence(status.done.0 + random.within(0..4));
                status.view = near(random, status.view.0).map_or(status.view, View);
                Message::Status(status)
            }
            Message::Fetched(Fetched::Part(bytes)) => {
                let mut bytes = bytes.to_vec();
                let index = random.index(bytes.len());
                bytes.iter_mut().skip(index).take(1).for_each(|byte| *byte ^= 1);
                Message::Fetched(Fetched::Part(bytes.into()))
            }
            Message::Fetched(Fetched::Requests(mut requests)) => {
                let batch = random.pick(&self.batches);
                let other = batch.and_then(|batch| random.pick(batch.requests()).cloned());
                other.into_iter().for_each(|other| requests.insert(0, other));
                Message::Fetched(Fetched::Requests(requests))
            }
            Message::Fetched(Fetched::Parts(sequence, mut members, parts)) if random.chance(50) => {
                members.now.nodes.retain(|node, _| node.get() > 1);
                Message::Fetched(Fetched::Parts(sequence, members, parts))
            }
            Message::Fetched(Fetched::Parts(sequence, members, parts)) => {
                let parts = parts.iter().map(|_| some_digest(random)).collect();
                Message::Fetched(Fetched::Parts(sequence, members, parts))
            }
            other => other,
        }
    }

    fn tamper_vote(&self, random: &mut Random, vote: Vote) -> Vote {
        match random.index(3) {
            0 => {
                let batch = random.pick(&self.batches);
                let digest = batch.map_or_else(|| some_digest(random), Batch::digest);
                Vote { digest, ..vote }
            }
            1 => Vote { view: near(random, vote.view.0).map_or(vote.view, View), ..vote },
            _ => {
                let sequence = near(random, vote.sequence.0).map_or(vote.sequence, Sequence);
                Vote { sequence, ..vote }
            }
        }
    }

    /// The same view from the word of others that want it, if it has heard more than it needs, or
    /// with its own word changed.
    fn tamper_view(&self, random: &mut Random, new_view: &NewView) -> Arc<NewView> {
        let mut changes = new_view.changes.clone();
        let heard = self.changes.iter().filter(|change| change.body.view == new_view.view);
        for other in heard {
            if changes.iter().all(|change| change.by != other.by) && random.chance(50) {
                let index = random.index(changes.len());
                changes[index] = other.clone();
            }
        }
        for change in changes.iter_mut().filter(|change| change.by == self.node) {
            let body = Arc::new(tamper_change(random, &change.body));
            let signed = self.sign(self.node, Message::ViewChange(body.clone()));
            *change =
                Signed { epoch: signed.epoch, by: self.node, body, signature: signed.signature };
        }
        Arc::new(NewView { view: new_view.view, changes })
    }
}

/// Word that a view is wanted, without some of what is prepared, or for another view.
fn tamper_change(random: &mut Random, change: &ViewChange) -> ViewChange {
    let mut change = change.clone();
    match random.index(3) {
        0 => change.prepared.clear(),
        1 => change.prepared.retain(|_| random.chance(50)),
        _ => change.view = near(random, change.view.0).map_or(change.view, View),
    }
    change
}

fn near(random: &mut Random, number: u64) -> Option<u64> {
    if random.chance(50) { number.checked_sub(1) } else { number.checked_add(1) }
}

fn some_digest(random: &mut Random) -> Digest {
    Digest::of(&random.draw().to_le_bytes())
}

fn push<T>(items: &mut Vec<T>, item: T, most: usize) {
    if items.len() == most {
        items.remove(0);
    }
    items.push(item);
}
