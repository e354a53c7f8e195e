//! Clients of the world: they ask the primary, then all, and believe f + 1.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;

use super::{Event, Violation, World, connection_of};
use crate::core::{
    ClientId, Outcome, Reply, Request, Signature, SignedReply, SignedRequest, Signer, Trust, View,
};

/// Requests of a client that its session tells from each other.
pub(super) const WINDOW: usize = 8;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    id: ClientId,
    signer: Signer,
    next: u64,
    /// The view it believes in.
    view: View,
    open: BTreeMap<u64, Open>,
    /// It tells some members alone, and not all the same.
    is_partial: bool,
}

/// A request that has no outcome yet.
#[derive(Debug)]
struct Open {
    request: SignedRequest,
    asked: Duration,
    outcomes: BTreeMap<NodeId, Outcome>,
}

impl Client {
    pub(super) fn new(id: ClientId, signer: Signer, is_partial: bool) -> Self {
        Self { id, signer, next: 0, view: View(0), open: BTreeMap::new(), is_partial }
    }

    /// Numbers of requests without an outcome, of which there has to be one in the end.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied().filter(|_| !self.is_partial)
    }
}

impl World {
    pub(super) fn step_client(&mut self, id: ClientId) {
        let pause = self.random.micros(self.menu.pause_us.clone());
        self.schedule.after(pause, Event::Client { client: id });
        if self.clients.get(&id).is_some_and(|client| client.is_partial) {
            return self.ask_some(id);
        }
        self.ask_again(id);
        let change = self.draw_change(id);
        if self.is_administrator(id) && change.is_none() {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        let number = client.next;
        // Of a request so far below the highest it could not be told any more if it ran.
        let is_far = client.open().next().is_some_and(|first| number >= first + WINDOW as u64);
        let is_full = client.open.len() as u64 >= self.menu.each_client;
        if is_full || is_far || self.is_closing {
            return;
        }
        client.next += 1;
        self.report.asked += 1;
        let operation = Bytes::from([id.0.to_le_bytes(), number.to_le_bytes()].concat());
        let operation = change.unwrap_or(operation);
        self.truth.asked(id, number, operation.clone());
        let request = Request { client: id, number, operation };
        let request = client.signer.sign_request(self.scope, request);
        let open = Open {
            request: request.clone(),
            asked: self.schedule.now(),
            outcomes: BTreeMap::new(),
        };
        client.open.insert(number, open);
        if self.menu.trust == Trust::Channels || self.menu.is_outlined {
            return self.ask_all(id, &request);
        }
        let primary = self.keys.primary(client.view);
        self.deliver_request(connection_of(id), primary, request);
    }

    fn ask_all(&mut self, client: ClientId, request: &SignedRequest) {
        for member in self.keys.group().members().to_vec() {
            self.deliver_request(connection_of(client), member, request.clone());
        }
    }

    /// Makes a request of which some members hear, and perhaps others of another.
    fn ask_some(&mut self, id: ClientId) {
        if self.is_closing {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        let number = client.next;
        client.next += 1;
        let others = self.random.chance(40);
        for member in self.keys.group().members().to_vec() {
            let is_other = others && self.random.chance(50);
            if !is_other && self.random.chance(50) {
                continue;
            }
            let name = (number | u64::from(is_other) << 40).to_le_bytes();
            let operation = Bytes::from([id.0.to_le_bytes(), name].concat());
            self.truth.asked(id, number, operation.clone());
            let request = Request { client: id, number, operation };
            let request = SignedRequest { request, signature: Signature::NONE };
            self.deliver_request(connection_of(id), member, request);
        }
    }

    /// Asks all replicas what the primary did not answer in time.
    fn ask_again(&mut self, id: ClientId) {
        let (now, timeout) = (self.schedule.now(), self.timeout());
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut again = Vec::new();
        for open in client.open.values_mut().filter(|open| open.asked + timeout < now) {
            open.asked = now;
            again.push(open.request.clone());
        }
        for request in again {
            self.ask_all(id, &request);
        }
    }

    pub(super) fn take_reply(&mut self, from: NodeId, reply: SignedReply) -> Result<(), Violation> {
        let reply = match self.keys.open_reply(from, reply) {
            Ok(reply) => reply.into_inner(),
            Err(refused) => return self.refuse(refused),
        };
        let needed = self.keys.group().witnesses();
        let SignedReply { by, reply: Reply { client: id, number, view, outcome }, .. } = reply;
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let Some(open) = client.open.get_mut(&number) else { return Ok(()) };
        open.outcomes.insert(by, outcome.clone());
        if open.outcomes.values().filter(|other| **other == outcome).count() < needed {
            return Ok(());
        }
        client.open.remove(&number);
        client.view = view;
        self.report.accepted += 1;
        self.truth.accepted(client.id, number, outcome)
    }
}
