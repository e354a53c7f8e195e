//! Clients of the world: they ask the primary, then all, and believe f + 1.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;

use super::{Event, Violation, World};
use crate::core::{ClientId, Outcome, Reply, Request, SignedReply, SignedRequest, Signer, View};

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
}

/// A request that has no outcome yet.
#[derive(Debug)]
struct Open {
    request: SignedRequest,
    asked: Duration,
    outcomes: BTreeMap<NodeId, Outcome>,
}

impl Client {
    pub(super) fn new(id: ClientId, signer: Signer) -> Self {
        Self { id, signer, next: 0, view: View(0), open: BTreeMap::new() }
    }

    /// Numbers of requests without an outcome.
    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }
}

impl World {
    pub(super) fn step_client(&mut self, id: ClientId) {
        let pause = self.random.micros(self.menu.pause_us.clone());
        self.schedule.after(pause, Event::Client { client: id });
        self.ask_again(id);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let number = client.next;
        // Of a request so far below the highest it could not be told any more if it ran.
        let is_far = client.open().next().is_some_and(|first| number >= first + WINDOW as u64);
        let is_full = client.open.len() as u64 >= self.menu.each_client;
        if is_full || is_far || self.is_closing {
            return;
        }
        client.next += 1;
        self.truth.asked(id, client.next);
        self.report.asked += 1;
        let operation = Bytes::from([id.0.to_le_bytes(), number.to_le_bytes()].concat());
        let request = Request { client: id, number, operation };
        let request = client.signer.sign_request(self.scope, request);
        let open = Open {
            request: request.clone(),
            asked: self.schedule.now(),
            outcomes: BTreeMap::new(),
        };
        client.open.insert(number, open);
        let primary = self.keys.primary(client.view);
        self.deliver_request(None, primary, request);
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
            for member in self.keys.group().members().to_vec() {
                self.deliver_request(None, member, request.clone());
            }
        }
    }

    pub(super) fn take_reply(&mut self, reply: SignedReply) -> Result<(), Violation> {
        let reply = match self.keys.open_reply(reply) {
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
