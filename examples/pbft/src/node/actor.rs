//! The actor: the one task that owns the replica.

mod inspection;

use std::sync::{Arc, Once};
use std::time::Duration;

use convoke::quorum::{Configuration, MulticastError};
use convoke::{CallError, Deferred, Endpoint, NodeId};
use node_kit::durable::{Durable, WaitQueue};
use node_kit::ledger::{Ledger, LedgerError, SnapshotPace};
use node_kit::places::Place;
use node_kit::turns::{News, Turns};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::counts::Counts;
use super::epoch::{Epoch, Joined, Shared};
use super::hearing::Hearing;
use super::meters::Meters;
use super::waiters::{Waiter, Waiters};
use super::{Lie, NodeError, Options, Part, Standing, recovery};
use crate::core::{
    Batch, Digest, Effect, Forgotten, Handover, Message, Outcome, Record, Replica, Reply, Signed,
    SignedRequest, Verified, Vote,
};
use crate::kv::Machine;
use crate::proto::{Answer, Inspection, PbftClient, Words, words};
use crate::wire;

/// Something that came.
#[derive(Debug)]
pub(super) enum Input {
    Words { words: Verified<Signed<Message>>, _place: Place },
    Request { request: Verified<SignedRequest>, waiter: Option<Waiter>, _place: Place },
    Awaited { waiter: Waiter, _place: Place },
    HandedOver { handover: Verified<Handover>, _place: Place },
    OtherEpoch { from: NodeId, epoch: u64, _place: Place },
    Since { epoch: u64, tell: oneshot::Sender<Vec<Handover>>, _place: Arc<Place> },
    Inspect { with_state: bool, tell: oneshot::Sender<Inspection>, _place: Option<Arc<Place>> },
    Saved(Result<(), LedgerError>),
    Stop { deadline: Instant },
}

/// Words that leave once the ledger allows it, those they are for, and their epoch.
type Leaving = (Vec<NodeId>, u64, Message);

/// Replies, and who waits for each.
type Replies = Vec<(Reply, Vec<Deferred<Answer>>)>;

/// The state of a node, and what it waits for.
pub(super) struct Actor {
    options: Arc<Options>,
    replica: Replica<Machine>,
    hearing: Hearing,
    /// Since when a state is lacking, if it is.
    lacks_since: Option<Instant>,
    ledger: Ledger,
    inputs: mpsc::Sender<Input>,
    turns: Turns<Input>,
    client: PbftClient,
    endpoint: Endpoint,
    epoch: Arc<Epoch>,
    shared: Shared,
    joined: Joined,
    /// When it stops, once it was removed.
    leaves: Option<Instant>,
    others: Configuration,
    stand: watch::Sender<Standing>,
    counts: Arc<Counts>,
    begun: Instant,
    waiters: Waiters,
    next_sweep: Instant,
    /// Words that wait for the ledger, in the order of their places.
    held: WaitQueue<Leaving>,
    replies: Replies,
    meters: Meters,
    /// Of snapshots: its bytes are those appended.
    pace: SnapshotPace,
    stopping: Option<Instant>,
    /// The digest of the state, and when it was worked out.
    digested: Option<(Instant, Inspection)>,
    batches: u64,
    batched: u64,
    lies: u64,
    /// It was said that words are larger than a message.
    too_large: Once,
}

impl Actor {
    pub(super) fn new(
        options: Options,
        (replica, hearing): (Replica<Machine>, Hearing),
        ledger: Ledger,
        (endpoint, shared): (&Endpoint, Shared),
        (inputs, turns): (mpsc::Sender<Input>, Turns<Input>),
        stand: watch::Sender<Standing>,
        counts: Arc<Counts>,
    ) -> Self {
        let epoch = Arc::clone(&shared.read());
        let mut joined = Joined::default();
        joined.follow(replica.members(), &options, endpoint);
        let own = options.core.node;
        let mut past = replica.handovers().iter().map(|handover| &handover.members);
        let was_member = past.any(|of| of.nodes.contains_key(&own))
            || options.core.members.nodes.contains_key(&own);
        let is_removed = was_member && !epoch.members.contains(own);
        let leaves = is_removed.then(|| Instant::now() + options.leave_after);
        Self {
            others: epoch.others(own),
            client: PbftClient::new(endpoint),
            endpoint: endpoint.clone(),
            epoch,
            shared,
            joined,
            leaves,
            pace: SnapshotPace::new(options.snapshot_bytes, 0),
            options: Arc::new(options),
            replica,
            hearing,
            lacks_since: None,
            ledger,
            inputs,
            turns,
            stand,
            counts,
            begun: Instant::now(),
            waiters: Waiters::default(),
            next_sweep: Instant::now(),
            held: WaitQueue::default(),
            replies: Replies::new(),
            meters: Meters::new(),
            stopping: None,
            digested: None,
            batches: 0,
            batched: 0,
            lies: 0,
            too_large: Once::new(),
        }
    }

    /// Runs until it fails, or is told to stop.
    pub(super) async fn run(mut self) -> Result<(), NodeError> {
        let ended = self.go_on().await;
        if let Err(NodeError::LostLedger(what)) = ended {
            // The proof may not come again: others keep that of their latest checkpoint alone.
            let record = wire::encode(&Record::Lost(what));
            let durable = self.ledger.durable(self.ledger.append(record));
            match timeout(LOST_WITHIN, durable).await {
                Ok(durable) => durable.map(drop)?,
                Err(_) => tracing::error!("the ledger does not take what was found: {what}"),
            }
        }
        ended
    }

    async fn go_on(&mut self) -> Result<(), NodeError> {
        let endpoint = self.endpoint.clone();
        self.replica.start(self.now());
        self.take_part()?;
        endpoint.together(|| self.work());
        while !self.is_done() {
            if self.leaves.is_some_and(|at| at <= Instant::now()) {
                return Err(NodeError::Removed(self.replica.epoch()));
            }
            let due = self.begun + self.replica.poll_timeout();
            let due = self.stopping.into_iter().chain(self.leaves).fold(due, Instant::min);
            let Some(news) = self.turns.next(due).await? else { break };
            endpoint.together(|| self.turn(news))?;
        }
        Ok(())
    }

    /// Takes what has come, and does all that can be done now. What it sends leaves together.
    fn turn(&mut self, news: News<Input>) -> Result<(), NodeError> {
        match news {
            News::Durable(durable) => self.release(&durable),
            News::Due => self.replica.handle_timeout(self.now()),
            News::Inputs(inputs) => inputs.into_iter().try_for_each(|input| self.take(input))?,
        }
        self.take_part()?;
        self.work();
        Ok(())
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes one input. What it makes the core want is done by [`Self::work`].
    fn take(&mut self, input: Input) -> Result<(), NodeError> {
        let now = self.now();
        match input {
            // As if they had been lost: they are said again.
            Input::Words { words, .. } if is_kept(&words.get().body) && !self.ledger.has_room() => {
            }
            Input::Words { words, _place } => {
                remembers(self.replica.forgotten(words.get()))?;
                self.hearing.hear(words.get(), &self.replica);
                if !self.hearing.is_listening() {
                    self.replica.handle_message(now, words);
                }
            }
            Input::HandedOver { handover, _place } => {
                remembers(self.replica.forgotten_in(handover.get()))?;
                self.replica.handle_handover(now, handover);
            }
            Input::OtherEpoch { from, epoch, _place } => {
                self.replica.handle_other_epoch(now, from, epoch)
            }
            Input::Since { epoch, tell, _place } => {
                let handovers = self.replica.handovers().iter();
                let later = handovers.filter(|of| of.epoch() > epoch).take(HANDOVERS_MAX);
                let _ = tell.send(later.cloned().collect()); // who asked may have given up
            }
            Input::Request { request, waiter, _place } => {
                waiter.into_iter().for_each(|waiter| self.wait(waiter));
                if self.hearing.is_listening() {
                    self.hearing.keep(Input::Request { request, waiter: None, _place });
                } else {
                    self.replica.handle_request(now, request);
                }
            }
            Input::Awaited { waiter, _place } => {
                let (client, number) = (waiter.client, waiter.number);
                self.wait(waiter);
                if let Some(outcome) = self.replica.outcome(client, number) {
                    let (view, _) = self.replica.view();
                    self.reply(Reply { client, number, view, outcome });
                }
            }
            Input::Inspect { with_state, tell, _place } => {
                let _ = tell.send(self.inspect(with_state)); // who asked may have given up
            }
            Input::Saved(saved) => {
                if let Err(no_room) = self.pace.ended(Instant::now(), saved)? {
                    tracing::error!("{no_room}");
                }
            }
            Input::Stop { deadline } => self.stopping = Some(deadline),
        }
        Ok(())
    }

    /// Takes up the requests that came while it listened, once that is over.
    fn take_part(&mut self) -> Result<(), NodeError> {
        self.hearing.take_part().into_iter().try_for_each(|request| self.take(request))
    }

    fn wait(&mut self, waiter: Waiter) {
        self.waiters.insert(waiter, |node| self.epoch.members.contains(node));
    }

    /// Does all that can be done now.
    fn work(&mut self) {
        self.perform();
        // A ledger in memory is durable at once, and so are records that others have waited for.
        self.release(&self.ledger.durable_now());
        self.sync();
        self.answer();
        self.stand();
        self.save();
        if self.next_sweep <= Instant::now() {
            self.next_sweep = Instant::now() + SWEEP_EVERY;
            self.waiters.sweep();
        }
    }

    /// Does what the core wants done.
    fn perform(&mut self) {
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Append(record) => {
                    let bytes = wire::encode(&record);
                    self.pace.add(bytes.len() as u64);
                    self.ledger.append(bytes);
                }
                Effect::HandOver { to, handover } => {
                    self.tell(&[to], words::Words::Handover(wire::encode(&handover)));
                }
                Effect::Epoch(handover) => self.begin_epoch(&handover),
                // As if they had been lost: they are said again. Those that it tells itself, too,
                // are bounded by its log.
                Effect::Say { to, .. }
                    if self.held.len() >= HELD_MAX && !to.contains(&self.options.core.node) => {}
                Effect::Say { to, message, epoch } => {
                    let leaving = message.map(|message| (to, epoch, message));
                    self.held.push(leaving.after(self.ledger.end()));
                }
                Effect::Relay { to, message } => self.send(&[to], &message),
                Effect::Forward { to, request } => {
                    self.tell(&[to], words::Words::Request(wire::encode(&request)));
                }
                Effect::Reply(reply) => self.reply(reply),
                Effect::Executed { sequence, digest, outcomes } => {
                    if let Some(observer) = &self.options.observer {
                        observer.0(sequence, digest);
                    }
                    self.batches += 1;
                    self.batched += outcomes.len() as u64;
                    self.meters.batch_requests.record(outcomes.len() as f64);
                }
                Effect::Lied { first, second } => {
                    self.lies += 1;
                    tracing::warn!(node = %first.by, ?first, ?second, "it contradicts itself");
                }
            }
        }
    }

    /// Talks to other members from now on, under other keys.
    fn begin_epoch(&mut self, handover: &Handover) {
        let own = self.options.core.node;
        let was_member = self.epoch.members.contains(own);
        self.epoch = Arc::new(self.epoch.after(handover, &self.options));
        *self.shared.write() = Arc::clone(&self.epoch);
        self.joined.follow(&handover.members, &self.options, &self.endpoint);
        self.hearing.begin_epoch();
        // The set without this node may be empty, and a configuration not: so it is with it first.
        self.others = self.epoch.others(own);
        let epoch = handover.epoch();
        tracing::info!(epoch, takes_part = self.replica.takes_part(), "members");
        let group = handover.members.group().ok();
        let checked = group.map(|of| of.check_window(self.options.core.window));
        if let Some(Err(error)) = checked {
            tracing::warn!(epoch, %error, "views may not begin any more");
        }
        let is_member = self.epoch.members.contains(own);
        if is_member {
            self.leaves = None;
        } else if was_member || self.leaves.is_some() {
            // One that is behind learns of an epoch at a time, and may be a member of a later one.
            self.leaves = Some(Instant::now() + self.options.leave_after);
        }
    }

    /// Lets words go that wait no longer. This node's own come back to it by the same door as those
    /// of others, and may make more words.
    fn release(&mut self, durable: &Durable) {
        while let Some((to, epoch, message)) = self.held.pop(durable) {
            let Options { core, signer, .. } = &*self.options;
            let keys = &self.epoch.keys;
            if epoch != keys.scope().epoch {
                continue;
            }
            let own = keys.sign(signer, core.node, message);
            self.spread(&to, own.get());
            if to.contains(&core.node) {
                self.replica.handle_message(self.now(), own);
                self.perform();
            }
        }
    }

    /// Sends own words to others; a liar tells each of them something else.
    fn spread(&self, to: &[NodeId], words: &Signed<Message>) {
        let others: Vec<NodeId> =
            to.iter().copied().filter(|node| *node != self.options.core.node).collect();
        match (self.options.lie, &words.body) {
            (Some(Lie::Equivocate), Message::Propose(vote, Some(batch))) => {
                for (index, other) in others.iter().enumerate() {
                    self.send(&[*other], &self.another(vote, batch, index));
                }
            }
            (Some(Lie::Contradict), Message::Vote(vote)) => {
                for (index, other) in others.iter().enumerate() {
                    let digest = if index % 2 == 0 { vote.digest } else { Digest([9; 32]) };
                    let vote = Message::Vote(Vote { digest, ..*vote });
                    let Options { core, signer, .. } = &*self.options;
                    self.send(&[*other], self.epoch.keys.sign(signer, core.node, vote).get());
                }
            }
            _ => self.send(&others, words),
        }
    }

    /// A proposal for the same place: the same requests, and so many of them once more.
    fn another(&self, vote: &Vote, batch: &Batch, more: usize) -> Signed<Message> {
        let Options { core, signer, .. } = &*self.options;
        let requests = batch.requests();
        let batch = Batch::new(requests.iter().cycle().take(requests.len() + more).cloned());
        let vote = Vote { digest: batch.digest(), ..*vote };
        let message = Message::Propose(vote, Some(batch));
        self.epoch.keys.sign(signer, core.node, message).into_inner()
    }

    fn send(&self, to: &[NodeId], words: &Signed<Message>) {
        self.tell(to, words::Words::Said(wire::encode(words)));
    }

    /// Sends it one-way. What cannot be sent is lost: the protocol says it again.
    fn tell(&self, to: &[NodeId], words: words::Words) {
        if to.is_empty() {
            return;
        }
        let members = match to.len() == self.others.len() {
            true => self.others.clone(),
            false => match Configuration::new(to.to_vec()) {
                Ok(members) => members,
                Err(_) => return,
            },
        };
        let told = self.client.on(&members).tell(Words { words: Some(words) });
        match told.send_and_forget() {
            Err(error @ MulticastError::NotOpened(CallError::TooLarge { .. })) => {
                self.too_large.call_once(|| {
                    tracing::warn!(
                        %error,
                        "words that no message holds are never sent, and others may wait for them: \
                         lower checkpoint_every in all cluster files"
                    );
                })
            }
            Err(error) => tracing::debug!(%error, "words were not sent"),
            Ok(()) => {}
        }
    }

    /// Waits for the ledger, where something rests on it: one wait for all of it.
    fn sync(&mut self) {
        if let Some(position) = self.held.last() {
            self.turns.wait_durable(&self.ledger, position);
        }
    }

    fn reply(&mut self, reply: Reply) {
        let outcome = match self.options.lie {
            Some(Lie::Contradict) => Outcome::Done("a lie".into()),
            _ => reply.outcome,
        };
        let reply = Reply { outcome, ..reply };
        let waiting = self.waiters.take(reply.client, reply.number);
        if !waiting.is_empty() {
            self.replies.push((reply, waiting));
        }
    }

    /// Signs the replies of this turn, and answers with them: beside this task.
    fn answer(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        if replies.is_empty() {
            return;
        }
        let (options, keys) = (Arc::clone(&self.options), Arc::clone(&self.epoch.keys));
        let endpoint = self.endpoint.clone();
        tokio::spawn(async move {
            let Options { core, signer, .. } = &*options;
            let (replies, waiting): (Vec<Reply>, Vec<_>) = replies.into_iter().unzip();
            let signed = keys.sign_replies(signer, core.node, replies);
            let answers = signed.iter().map(|signed| Answer { reply: wire::encode(signed) });
            endpoint.together(|| {
                for (answer, waiting) in answers.zip(waiting) {
                    for task in waiting {
                        let _ = task.answer(&answer); // an error: who asked has given up
                    }
                }
            });
        });
    }

    fn stand(&mut self) {
        let (view, has_begun) = self.replica.view();
        let primary = self.epoch.keys.primary(view);
        let standing = Standing { view, has_begun, primary, part: self.part() };
        self.meters.batches_executed.set(self.replica.executed().0 as f64);
        self.meters.requests_waiting.set(self.replica.waiting() as f64);
        let is_new = |known: &mut Standing| std::mem::replace(known, standing) != standing;
        if self.stand.send_if_modified(is_new) {
            let (node, part) = (self.options.core.node, standing.part);
            tracing::info!(%node, %view, has_begun, %primary, ?part, "view");
            self.meters.view.set(view.0 as f64);
            let leads = has_begun && primary == self.options.core.node;
            self.meters.is_primary.set(f64::from(u8::from(leads)));
        }
    }

    /// Its part. A state that others have a moment earlier is not lacking yet: it comes by
    /// execution.
    fn part(&mut self) -> Part {
        let lacks = self.replica.is_fetching();
        let since = lacks.then(|| *self.lacks_since.get_or_insert_with(Instant::now));
        self.lacks_since = since;
        match () {
            () if !self.replica.takes_part() => Part::Outside,
            () if !self.hearing.is_enough() => Part::Hearing,
            () if since.is_some_and(|since| since.elapsed() >= self.options.core.repeat) => {
                Part::Fetching
            }
            () => Part::Whole,
        }
    }

    /// Begins a snapshot when enough has come since the last. Called when the core wants nothing
    /// more done, so that the ledger and the replica are of one time.
    fn save(&mut self) {
        if !self.pace.begin(Instant::now()) {
            return;
        }
        let (ledger, position) = (self.ledger.clone(), self.ledger.end());
        let (records, inputs) = (self.replica.records(), self.inputs.clone());
        tokio::spawn(async move {
            let saved = recovery::save(ledger, position, records).await;
            let _ = inputs.send(Input::Saved(saved)).await; // the actor may have ended
        });
    }

    /// True when it was told to stop, and has nothing left to do or no time.
    fn is_done(&self) -> bool {
        let Some(deadline) = self.stopping else { return false };
        (self.held.is_empty() && !self.pace.is_writing()) || Instant::now() >= deadline
    }
}

/// Ends the node where its ledger does not know what it has said.
fn remembers(forgotten: Option<Forgotten>) -> Result<(), NodeError> {
    forgotten.map_or(Ok(()), |what| Err(NodeError::LostLedger(what)))
}

/// True for words that bring what the ledger has to keep: batches and states.
fn is_kept(message: &Message) -> bool {
    matches!(message, Message::Propose(..) | Message::Outline(..) | Message::Fetched(_))
}

/// Words that wait for the ledger, at most: many times what waits for a disk that works. Beside one
/// that hangs further words to others alone are not said.
const HELD_MAX: usize = 1_024;

/// Handovers of one answer, at most.
const HANDOVERS_MAX: usize = 64;

/// Time for the disk to take it that the ledger was lost before.
const LOST_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two looks for clients that have given up.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
