//! The service: what replicas and clients send, decoded, checked, and handed to the actor.

use std::sync::Arc;

use bytes::Bytes;
use convoke::{Caller, Code, Context, Finish, NodeId, Status, Task};
use node_kit::places::{Place, Places, no_place};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};

use super::Standing;
use super::actor::Input;
use super::counts::{Counts, Dropped};
use super::epoch::{Epoch, Share, Shared};
use super::gate::Gate;
use super::waiters::Waiter;
use crate::core::{ClientId, Message, Refused, Signed, SignedRequest, Trust, Verified};
use crate::kv::OPERATION_BYTES_MAX;
use crate::proto::{
    Answer, Asked, Awaited, Handovers, InspectRequest, Inspection, Pbft, Since, Words, asked, pbft,
    words,
};
use crate::wire;

/// State that handlers share: nothing of the actor's.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) epoch: Shared,
    pub(super) words: Gate,
    pub(super) requests: Gate,
    /// Places of questions that anybody may ask: so few that none keeps another from being heard.
    pub(super) questions: Places,
    /// Places of requests, until the actor has taken them.
    pub(super) places: Places,
    pub(super) inputs: mpsc::Sender<Input>,
    /// Inputs of those who need not be members.
    pub(super) asked: mpsc::Sender<Input>,
    pub(super) counts: Arc<Counts>,
    pub(super) standing: watch::Receiver<Standing>,
}

impl Pbft for Front {
    async fn tell(&self, words: Words, context: Context) -> Result<(), Status> {
        let from = self.proven(context.caller())?;
        let place = self.place_of_words(from, words.encoded_len())?;
        match words.words {
            Some(words::Words::Said(bytes)) => {
                let words = self.decoded(bytes)?;
                let epoch = words.1.epoch;
                if epoch < self.epoch().keys.scope().epoch {
                    // A member that is behind, or was one, is told so.
                    self.send(Input::OtherEpoch { from, epoch, _place: place })?;
                    return Err(self.refuse(Dropped::Refused(Refused::Epoch)));
                }
                if self.has_begun(&words.1.body) {
                    return Ok(());
                }
                let (words, place) = self.open(from, words, place).await?;
                self.send(Input::Words { words, _place: place })
            }
            Some(words::Words::Request(bytes)) => {
                let request = self.open_request(&self.words, from, bytes).await?;
                self.send(Input::Request { request, waiter: None, _place: place })
            }
            Some(words::Words::Handover(bytes)) => {
                let handover = wire::decode(bytes);
                let handover = handover.map_err(|_| self.refuse(Dropped::Malformed))?;
                let opened = self.epoch().keys.open_handover(handover);
                let handover = opened.map_err(|why| self.refuse(Dropped::Refused(why)))?;
                self.send(Input::HandedOver { handover, _place: place })
            }
            None => Err(self.refuse(Dropped::Malformed)),
        }
    }

    async fn execute(&self, asked: Asked, task: Task<Answer>) -> Result<Finish, Status> {
        let asker = self.proven(task.context().caller())?;
        match asked.asked {
            Some(asked::Asked::Request(bytes)) => self.delegate(asker, bytes, task).await,
            Some(asked::Asked::RequestToAll(bytes)) => {
                let _place = self.place_of(&self.places, asker, bytes.len())?;
                let request = self.open_request(&self.requests, asker, bytes).await?;
                let (client, number) = name(&request);
                let queue = self.room_in(&self.asked)?;
                let (task, finish) = task.defer();
                let waiter = Some(Waiter { client, number, asker, task });
                queue.send(Input::Request { request, waiter, _place });
                Ok(finish)
            }
            Some(asked::Asked::Awaited(Awaited { client, number, asker: of })) => {
                let _place = self.place_of_awaited(asker, of)?;
                let queue = self.room_in(&self.asked).map_err(|_| no_reply())?;
                let (task, finish) = task.defer();
                let waiter = Waiter { client: ClientId(client), number, asker, task };
                queue.send(Input::Awaited { waiter, _place });
                Ok(finish)
            }
            None => Err(self.refuse(Dropped::Malformed)),
        }
    }

    async fn hand_over(
        &self,
        Since { epoch, cluster }: Since,
        context: Context,
    ) -> Result<Handovers, Status> {
        let own = self.epoch().keys.scope().cluster;
        if cluster != own {
            let text = format!("this is cluster {own}, and {cluster} was meant");
            return Err(Status::new(Code::FailedPrecondition, text).without_effect());
        }
        let place = self.place_of_question(&context)?;
        let (tell, told) = oneshot::channel();
        self.ask(Input::Since { epoch, tell, _place: Arc::clone(&place) })?;
        let handovers = told.await.map_err(|_| stopping())?;
        Ok(Handovers { handovers: handovers.iter().map(wire::encode).collect() })
    }

    async fn inspect(
        &self,
        InspectRequest { with_state }: InspectRequest,
        context: Context,
    ) -> Result<Inspection, Status> {
        let place = self.place_of_question(&context)?;
        let (tell, told) = oneshot::channel();
        self.ask(Input::Inspect { with_state, tell, _place: Some(Arc::clone(&place)) })?;
        told.await.map_err(|_| stopping())
    }
}

impl Front {
    /// Takes a request, and lets each replica answer its client by itself.
    async fn delegate(
        &self,
        asker: NodeId,
        bytes: Bytes,
        task: Task<Answer>,
    ) -> Result<Finish, Status> {
        if self.epoch().keys.trust() == Trust::Channels {
            return Err(self.refuse(Dropped::NotToAll));
        }
        let _place = self.place_of(&self.places, asker, bytes.len())?;
        let request = self.open_request(&self.requests, asker, bytes).await?;
        let (client, number) = name(&request);
        self.ask(Input::Request { request, waiter: None, _place })?;
        let awaited = Awaited { client: client.0, number, asker: asker.get() };
        let asked = Asked { asked: Some(asked::Asked::Awaited(awaited)) };
        let members = self.epoch().members.clone();
        let branches = members.nodes().map(|node| (node, pbft::EXECUTE.request(asked.clone())));
        task.fan_out(branches).await
    }

    /// The node that calls, which has to have proven its name where that is what counts.
    fn proven(&self, caller: Caller) -> Result<NodeId, Status> {
        if self.epoch().keys.trust() == Trust::Channels && !caller.is_authenticated() {
            return Err(self.refuse(Dropped::Refused(Refused::Connection)));
        }
        Ok(caller.node())
    }

    /// A place among the words of a member.
    fn place_of_words(&self, from: NodeId, bytes: usize) -> Result<Place, Status> {
        let place = self.member(&self.epoch(), from)?.words.place(from, bytes);
        place.ok_or_else(|| self.refuse(Dropped::Flood))
    }

    /// A place among the replies that a member awaits for others, by whom it names: it has heard
    /// the request from that one itself, while the initiator of a call may be anybody.
    fn place_of_awaited(&self, member: NodeId, asker: u64) -> Result<Place, Status> {
        let asker = NodeId::try_from(asker).unwrap_or(member);
        let epoch = self.epoch();
        let places = &self.member(&epoch, member)?.awaited;
        self.place_of(places, asker, 0).map_err(|_| no_reply())
    }

    fn member<'a>(&self, epoch: &'a Epoch, node: NodeId) -> Result<&'a Share, Status> {
        epoch.shares.get(&node).ok_or_else(|| self.refuse(Dropped::NoMember))
    }

    /// A place among those of who asks.
    fn place_of(&self, places: &Places, asker: NodeId, bytes: usize) -> Result<Place, Status> {
        places.place(asker, bytes).ok_or_else(|| self.refuse(Dropped::Full))
    }

    /// The place of a question, until neither the actor nor the handler has it: a call that is
    /// given up leaves its question before the actor.
    fn place_of_question(&self, context: &Context) -> Result<Arc<Place>, Status> {
        self.place_of(&self.questions, context.caller().node(), 0).map(Arc::new)
    }

    fn epoch(&self) -> Arc<Epoch> {
        Arc::clone(&self.epoch.read())
    }

    /// Words, and the count of their bytes.
    fn decoded(&self, bytes: Bytes) -> Result<(usize, Signed<Message>), Status> {
        let size = bytes.len();
        let words = wire::decode(bytes).map_err(|_| self.refuse(Dropped::Malformed))?;
        Ok((size, words))
    }

    /// True for words that begin a view, where it or a later one has begun. Their signatures would
    /// be checked for nothing.
    fn has_begun(&self, words: &Message) -> bool {
        let Message::NewView(new_view) = words else { return false };
        self.standing.borrow().is_past(new_view.view)
    }

    async fn open(
        &self,
        from: NodeId,
        (size, words): (usize, Signed<Message>),
        place: Place,
    ) -> Result<(Verified<Signed<Message>>, Place), Status> {
        let keys = Arc::clone(&self.epoch().keys);
        let (opened, place) = match size <= EXAMINED_HERE_BYTES {
            true => (self.words.pass(keys.examine(from, words)).await, place),
            false => {
                // The words are there until this has ended, whoever gives them up: and so is their
                // place.
                let open = move || (keys.open(from, words), place);
                tokio::task::spawn_blocking(open).await.map_err(|_| stopping())?
            }
        };
        let words = opened.map_err(|refused| self.refuse(Dropped::Refused(refused)))?;
        Ok((words, place))
    }

    async fn open_request(
        &self,
        gate: &Gate,
        from: NodeId,
        bytes: Bytes,
    ) -> Result<Verified<SignedRequest>, Status> {
        let signed: SignedRequest =
            wire::decode(bytes).map_err(|_| self.refuse(Dropped::Malformed))?;
        if signed.request.operation.len() > OPERATION_BYTES_MAX {
            return Err(self.refuse(Dropped::TooLarge));
        }
        let keys = Arc::clone(&self.epoch().keys);
        let opened = gate.pass(keys.examine_request(from, signed)).await;
        opened.map_err(|refused| self.refuse(Dropped::Refused(refused)))
    }

    /// Puts what a member has said before the actor.
    fn send(&self, input: Input) -> Result<(), Status> {
        self.room_in(&self.inputs).map(|queue| queue.send(input))
    }

    /// Puts what anybody may ask before the actor, behind what members have said.
    fn ask(&self, input: Input) -> Result<(), Status> {
        self.room_in(&self.asked).map(|queue| queue.send(input))
    }

    /// Room for an input. A handler has it before it lets go of its task by `defer`: from then on
    /// who asked is told what becomes of the task, and not what the handler returns.
    fn room_in<'a>(
        &self,
        inputs: &'a mpsc::Sender<Input>,
    ) -> Result<mpsc::Permit<'a, Input>, Status> {
        inputs.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => self.refuse(Dropped::Full),
            mpsc::error::TrySendError::Closed(()) => stopping(),
        })
    }

    /// Counts it, and says so to who sent it. Nothing was done.
    fn refuse(&self, cause: Dropped) -> Status {
        self.counts.count(cause);
        let (code, text) = match cause {
            Dropped::Malformed => {
                (Code::InvalidArgument, "these bytes are no words of this program".to_owned())
            }
            // It may be one already where this replica has not heard of it yet.
            Dropped::NoMember => {
                (Code::Unavailable, "the node is no replica of this cluster".to_owned())
            }
            Dropped::TooLarge => {
                let text = format!("an operation has {OPERATION_BYTES_MAX} bytes at most");
                (Code::InvalidArgument, text)
            }
            Dropped::Flood => {
                (Code::ResourceExhausted, "too many words of this replica wait here".to_owned())
            }
            Dropped::NotToAll => {
                let text = "requests are not signed here: ask all replicas".to_owned();
                (Code::InvalidArgument, text)
            }
            Dropped::Full => return no_place(),
            Dropped::Refused(refused) => (Code::PermissionDenied, refused.to_string()),
        };
        Status::new(code, text).without_effect()
    }
}

/// Bytes of words that are looked through at once; larger ones, with their signatures, on a thread
/// that may take its time.
const EXAMINED_HERE_BYTES: usize = 16 << 10;

fn name(request: &Verified<SignedRequest>) -> (ClientId, u64) {
    let request = &request.get().request;
    (request.client, request.number)
}

/// The refusal of a replica that has no room for who awaits its reply, or is about to stop. Others
/// have the request by then.
fn no_reply() -> Status {
    Status::new(Code::Aborted, "this replica does not answer: the request may run, or not")
}

fn stopping() -> Status {
    Status::new(Code::Unavailable, "the node is stopping").without_effect()
}

#[cfg(test)]
mod tests;
