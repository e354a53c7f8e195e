//! The service: what peers and clients send, handed to the actor.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke::{Code, Context, Finish, NodeId, Status, Task};
use node_kit::ledger::Ledger;
use node_kit::places::{Place, Places, no_place};
use parking_lot::RwLock;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};

use super::actor::Input;
use super::polls::Poll;
use super::requests::{Reading, Waiter, not_leading, stopping};
use super::snapshots::{self, Served};
use crate::core::{Ask, Standing};
use crate::kv;
use crate::proto::{
    self, Answer, Change, FetchRequest, FetchedPart, InspectRequest, Inspection, Paxos, Question,
    Reply, Request, change, paxos, request,
};

/// Members but this node, as far as it knows: those who may have parts of its snapshot.
pub(super) type Known = Arc<RwLock<BTreeSet<NodeId>>>;

/// State that handlers share: nothing of the actor's but its standing.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) node: NodeId,
    pub(super) cluster: u64,
    pub(super) known: Known,
    pub(super) inputs: mpsc::Sender<Input>,
    /// Inputs of those who need not be members.
    pub(super) asked: mpsc::Sender<Input>,
    pub(super) standing: watch::Receiver<Standing>,
    /// Places of requests, until they are answered.
    pub(super) places: Places,
    /// Places of what members ask, until the actor has taken it.
    pub(super) asks: Places,
    /// Places of what others ask, who are told that they are no members: a few.
    pub(super) asks_of_others: Places,
    /// Places of votes that members ask for, until the actor has taken that up.
    pub(super) polls: Places,
    /// Places of questions about this node.
    pub(super) questions: Places,
    pub(super) ledger: Ledger,
    pub(super) served: Served,
}

impl Paxos for Front {
    async fn ask(&self, question: Question, task: Task<Answer>) -> Result<Finish, Status> {
        let (from, epoch) = (task.context().caller().node(), question.epoch);
        self.check_cluster(question.cluster)?;
        let _place = self.place_of_ask(from, question.encoded_len())?;
        let ask = Ask::try_from(question).map_err(malformed)?;
        let room = room_in(&self.inputs)?;
        let (task, finish) = task.defer();
        room.send(Input::Ask { from, epoch, ask, task, _place });
        Ok(finish)
    }

    async fn execute(&self, request: Request, task: Task<Reply>) -> Result<Finish, Status> {
        if request.cluster != 0 {
            self.check_cluster(request.cluster)?;
        }
        let standing = *self.standing.borrow();
        match standing {
            _ if request.is_stale => self.take(request, task),
            Standing::Leading(_) => self.take(request, task),
            Standing::Following(leader) if !request.is_forwarded => {
                // The leader answers the client itself: one trip less than to come back here.
                let asker = task.context().caller().node().get();
                let request = Request { is_forwarded: true, asker, ..request };
                let request = paxos::EXECUTE.request(request);
                task.tail(leader, request).await.map_err(|_| not_leading(None))
            }
            Standing::Following(leader) => Err(not_leading(Some(leader))),
            Standing::Leaderless | Standing::Outside => Err(not_leading(None)),
        }
    }

    async fn vote(&self, poll: proto::Poll, task: Task<Reply>) -> Result<Finish, Status> {
        self.check_cluster(poll.cluster)?;
        let from = task.context().caller().node();
        self.check_member(from)?;
        let _place = self.polls.place(from, 0).ok_or_else(no_vote)?;
        let room = room_in(&self.inputs).map_err(|_| no_vote())?;
        let (task, finish) = task.defer();
        let (polled, poll) = (poll.into(), Poll { task, _room: None });
        room.send(Input::Poll { polled, poll, _place });
        Ok(finish)
    }

    async fn fetch(&self, request: FetchRequest, context: Context) -> Result<FetchedPart, Status> {
        self.check_cluster(request.cluster)?;
        let from = context.caller().node();
        self.check_member(from)?;
        let FetchRequest { position, place, .. } = request;
        let (snapshot, upto) = self.served.to(from, position, &self.ledger).await?;
        let bytes = snapshot.len_bytes();
        // An error: the next part says it again.
        let _ = self.inputs.try_send(Input::Fetching { from, upto, bytes });
        let is_known = snapshot.position().records() == position;
        snapshots::part(&snapshot, if is_known { place } else { 0 }).await
    }

    async fn inspect(&self, _: InspectRequest, context: Context) -> Result<Inspection, Status> {
        let place = self.questions.place(context.caller().node(), 0).ok_or_else(no_place)?;
        let (tell, told) = oneshot::channel();
        room_in(&self.asked)?.send(Input::Inspect { tell, _place: Some(place) });
        told.await.map_err(|_| stopping())
    }
}

impl Front {
    fn check_member(&self, from: NodeId) -> Result<(), Status> {
        if self.known.read().contains(&from) {
            return Ok(());
        }
        let text = format!("{from} is no member of this cluster");
        Err(Status::new(Code::PermissionDenied, text).without_effect())
    }

    fn check_cluster(&self, cluster: u64) -> Result<(), Status> {
        if cluster == self.cluster {
            return Ok(());
        }
        let text = format!("this is cluster {}, and {cluster} was meant", self.cluster);
        Err(Status::new(Code::FailedPrecondition, text).without_effect())
    }

    /// Puts a request of a client before the actor.
    fn take(&self, request: Request, task: Task<Reply>) -> Result<Finish, Status> {
        let size = request.encoded_len() + REQUEST_BYTES;
        let asker = self.asker(&request, task.context().caller().node());
        let action = request.action.ok_or_else(|| invalid("the request asks for nothing"))?;
        if let request::Action::Write(entry) = &action
            && !kv::is_valid(entry)
        {
            return Err(invalid(&format!(
                "the request is malformed, or its key is above {} bytes, or its value above {}",
                kv::KEY_BYTES_MAX,
                kv::VALUE_BYTES_MAX
            )));
        }
        if let request::Action::Change(change) = &action {
            check_change(change)?;
        }
        let place = self.places.place(asker, size).ok_or_else(no_place)?;
        let room = room_in(&self.asked)?;
        let (task, finish) = task.defer();
        let hint = request.is_forwarded.then_some(self.node);
        let counts_votes = request.counts_votes;
        let waiter = Waiter { task, hint, counts_votes, room: place };
        let read = if request.is_stale { Input::ReadStale } else { Input::Read };
        room.send(match action {
            request::Action::Write(entry) => Input::Write(entry, waiter),
            request::Action::Change(change) => Input::Change(change, waiter),
            request::Action::Get(get) => read(Reading::Get(get), waiter),
            request::Action::Scan(scan) => read(Reading::Scan(scan), waiter),
        });
        Ok(finish)
    }

    /// The node whose places a request takes: the one at the other end of the connection, or, of
    /// what a member has handed on, the one at the other end of that member's. The initiator that a
    /// request names may be anybody.
    fn asker(&self, request: &Request, caller: NodeId) -> NodeId {
        let is_handed_on = request.is_forwarded && self.known.read().contains(&caller);
        let asker = is_handed_on.then(|| NodeId::try_from(request.asker).ok()).flatten();
        asker.unwrap_or(caller)
    }

    /// A place for a question of so many bytes. Who is no member takes none of those that are for
    /// members.
    fn place_of_ask(&self, from: NodeId, bytes: usize) -> Result<Place, Status> {
        let is_member = self.known.read().contains(&from);
        let places = if is_member { &self.asks } else { &self.asks_of_others };
        places.place(from, bytes).ok_or_else(no_place)
    }
}

/// Room for an input. A handler has it before it lets go of its task by `defer`: from then on who
/// asked is told what becomes of the task, and not what the handler returns.
fn room_in(inputs: &mpsc::Sender<Input>) -> Result<mpsc::Permit<'_, Input>, Status> {
    inputs.try_reserve().map_err(|error| match error {
        mpsc::error::TrySendError::Full(()) => no_place(),
        mpsc::error::TrySendError::Closed(()) => stopping(),
    })
}

/// The refusal of a node that has no room for a poll, or is about to stop. The leader has proposed
/// the request by then.
fn no_vote() -> Status {
    Status::new(Code::Aborted, "this node does not vote now: the request may run, or not")
}

/// # Errors
/// A change names no node, or no addresses.
fn check_change(change: &Change) -> Result<(), Status> {
    let (node, addresses) = match &change.what {
        Some(change::What::Join(join)) => (join.node, &join.addresses[..]),
        Some(change::What::Leave(node)) => (*node, &[][..]),
        None => return Err(invalid("the change says nothing")),
    };
    if NodeId::try_from(node).is_err() {
        return Err(invalid("a node is never 0"));
    }
    if addresses.len() > ADDRESSES_MAX || addresses.iter().any(|text| text.len() > 256) {
        return Err(invalid("a member has more than 8 addresses, or one is above 256 bytes"));
    }
    for text in addresses {
        let parsed = text.parse::<convoke::transport::Address>();
        parsed.map_err(|error| invalid(&format!("{text:?}: {error}")))?;
    }
    Ok(())
}

/// Addresses of a member, at most.
const ADDRESSES_MAX: usize = 8;

/// Bytes that a request takes beside its key and value, about.
const REQUEST_BYTES: usize = 512;

fn invalid(text: &str) -> Status {
    Status::new(Code::InvalidArgument, text).without_effect()
}

fn malformed(error: crate::wire::Malformed) -> Status {
    Status::new(Code::InvalidArgument, error.to_string()).without_effect()
}

#[cfg(test)]
mod tests;
