//! The actor: the one task that owns the replica and its machine.

mod inspection;
mod members;
mod polling;
mod saving;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Once;
use std::time::Duration;

use convoke::quorum::{Configuration, QuorumExt as _};
use convoke::{Cause, Code, Deferred, Endpoint, Failure, KeepConnected, NodeId};
use node_kit::durable::{Durable, WaitQueue};
use node_kit::ledger::{Ledger, LedgerError, SnapshotPace};
use node_kit::places::Place;
use node_kit::turns::{News, Turns};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::lacking::{Lacking, lacking};
use super::meters::Meters;
use super::polls::{Poll, Polled, Polls};
use super::recovery::{Cost, State, append};
use super::requests::{Reading, Requests, Waiter, stopping};
use super::service::Known;
use super::snapshots::Served;
use super::{NodeError, Options};
use crate::core::{Answer, Ask, Effect, Recipients, Replica, Slot, Standing, Token, Value};
use crate::kv::{Foresight, Machine};
use crate::proto::{self, Change, Entry, Inspection, PaxosClient, Question};

/// Something that came.
#[derive(Debug)]
pub(super) enum Input {
    Ask {
        from: NodeId,
        epoch: u64,
        ask: Ask,
        task: Deferred<proto::Answer>,
        _place: Place,
    },
    Answer {
        from: NodeId,
        answer: Answer,
    },
    /// A member answers no question of this node.
    Refused {
        from: NodeId,
        words: String,
    },
    Write(Entry, Waiter),
    Change(Change, Waiter),
    Read(Reading, Waiter),
    /// A read of what is applied here.
    ReadStale(Reading, Waiter),
    Poll {
        polled: Polled,
        poll: Poll,
        _place: Place,
    },
    Inspect {
        tell: oneshot::Sender<Inspection>,
        _place: Option<Place>,
    },
    /// Reads are left that can be answered: the actor has sent this to itself, to come behind what
    /// others have sent.
    GoOn,
    Written(Result<Slot, LedgerError>),
    Fetched(Option<Box<Machine>>),
    /// A member takes a part of a snapshot of all up to `upto`.
    Fetching {
        from: NodeId,
        upto: Slot,
        bytes: u64,
    },
    Stop {
        deadline: Instant,
    },
}

/// Something that leaves once the ledger allows it.
enum Leaving {
    Answer(Option<Deferred<proto::Answer>>, Answer),
    Own(Answer),
}

/// The state of a node, and what it waits for.
pub(super) struct Actor {
    options: Options,
    replica: Replica,
    machine: Machine,
    ledger: Ledger,
    client: PaxosClient,
    endpoint: Endpoint,
    /// Members but this node.
    others: Configuration,
    known: Known,
    served: Served,
    /// Connections to members that are not in the cluster file.
    kept: BTreeMap<NodeId, KeepConnected>,
    inputs: mpsc::Sender<Input>,
    turns: Turns<Input>,
    stand: watch::Sender<Standing>,
    lacks: watch::Sender<Option<Lacking>>,
    begun: Instant,
    requests: Requests,
    foresight: Foresight,
    polls: Polls,
    /// [`Input::GoOn`] is on its way.
    goes_on: bool,
    /// The question that the core is given now.
    asked: Option<(Token, Deferred<proto::Answer>)>,
    /// Answers that wait for the ledger, in the order of their places.
    held: WaitQueue<Leaving>,
    meters: Meters,
    next_token: Token,
    /// Of snapshots: its bytes are those of values applied.
    pace: SnapshotPace,
    snapshots: u64,
    frozen_max: Duration,
    /// Of the start of the process.
    cost: Cost,
    stopping: Option<Instant>,
    next_hand_over: Instant,
    /// It was said that sessions make room for each other.
    crowded: Once,
    /// It was said that there is no leader.
    has_told: bool,
    /// The words of members that answer no question, as they were told.
    refusals: BTreeMap<NodeId, String>,
    batches: u64,
    batched: u64,
    polled: u64,
}

impl Actor {
    pub(super) fn new(
        options: Options,
        state: State,
        ledger: Ledger,
        endpoint: &Endpoint,
        (inputs, turns): (mpsc::Sender<Input>, Turns<Input>),
        (stand, lacks): (watch::Sender<Standing>, watch::Sender<Option<Lacking>>),
        (known, served): (Known, Served),
    ) -> Self {
        let State { replica, machine, cost, unsaved_bytes } = state;
        let others = replica.others();
        let pace = SnapshotPace::new(options.snapshot_bytes, unsaved_bytes);
        Self {
            others: options.members.subset(|peer| others.contains(&peer.node())),
            client: PaxosClient::new(endpoint),
            endpoint: endpoint.clone(),
            known,
            served,
            kept: BTreeMap::new(),
            options,
            replica,
            machine,
            ledger,
            inputs,
            turns,
            stand,
            lacks,
            begun: Instant::now(),
            requests: Requests::default(),
            foresight: Foresight::default(),
            polls: Polls::default(),
            goes_on: false,
            asked: None,
            held: WaitQueue::default(),
            meters: Meters::new(),
            next_token: 0,
            pace,
            snapshots: 0,
            frozen_max: Duration::ZERO,
            cost,
            stopping: None,
            next_hand_over: Instant::now(),
            crowded: Once::new(),
            has_told: false,
            refusals: BTreeMap::new(),
            batches: 0,
            batched: 0,
            polled: 0,
        }
    }

    /// Runs until the ledger fails, or it is told to stop.
    pub(super) async fn run(mut self) -> Result<(), NodeError> {
        let endpoint = self.endpoint.clone();
        self.replica.start(self.now());
        endpoint.together(|| self.work());
        while !self.is_done() {
            let due = self.begun + self.replica.poll_timeout();
            let due = self.stopping.map_or(due, |deadline| due.min(deadline));
            let Some(news) = self.turns.next(due).await? else { break };
            endpoint.together(|| self.turn(news))?;
            if self.goes_on {
                tokio::task::yield_now().await; // to those who bring what has come meanwhile
            }
        }
        let late = self.turns.close().await;
        endpoint.together(|| self.refuse(late));
        Ok(())
    }

    /// Tells those who wait when it stops, or come later, what becomes of their requests.
    fn refuse(&mut self, late: Vec<Input>) {
        for input in late {
            if let Input::Write(_, waiter)
            | Input::Read(_, waiter)
            | Input::ReadStale(_, waiter)
            | Input::Change(_, waiter) = input
            {
                waiter.fail(stopping());
            }
        }
        self.requests.stop();
    }

    /// Takes what has come, and does all that can be done now. What it sends leaves together.
    fn turn(&mut self, news: News<Input>) -> Result<(), NodeError> {
        match news {
            News::Durable(durable) => self.synced(&durable),
            News::Due => {
                self.replica.handle_timeout(self.now());
                self.tell_silence();
            }
            News::Inputs(inputs) => inputs.into_iter().try_for_each(|input| self.take(input))?,
        }
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
            // As if it had been lost: it is asked again, or told.
            Input::Ask { ask: Ask::Accept { values, .. }, .. }
                if !values.is_empty() && !self.ledger.has_room() => {}
            Input::Answer { answer: Answer::Chosen { .. }, .. } if !self.ledger.has_room() => {}
            Input::Ask { .. } if self.held.len() >= HELD_MAX => {}
            Input::Ask { from, epoch, ask, task, _place } => {
                let token = self.token();
                self.asked = Some((token, task));
                self.replica.handle_ask(now, from, token, (epoch, ask));
                self.perform();
            }
            Input::Answer { from, answer } => {
                self.refusals.remove(&from);
                self.replica.handle_answer(now, from, answer);
            }
            Input::Refused { from, words } => self.refused(from, words),
            Input::Write(_, waiter)
            | Input::Read(_, waiter)
            | Input::ReadStale(_, waiter)
            | Input::Change(_, waiter)
                if self.stopping.is_some() =>
            {
                waiter.fail(stopping());
            }
            Input::Write(entry, waiter) => self.requests.write(entry, waiter),
            Input::Read(reading, waiter) => self.requests.read(reading, waiter),
            Input::ReadStale(reading, waiter) => self.requests.read_stale(reading, waiter),
            Input::Change(change, waiter) => self.change(&change, waiter),
            Input::Poll { polled, poll, _place } => self.poll(polled, poll),
            Input::Inspect { tell, _place } => {
                let _ = tell.send(self.inspect()); // who asked may have given up
            }
            Input::GoOn => self.goes_on = false,
            Input::Written(written) => self.written(written)?,
            Input::Fetched(machine) => self.fetched(machine),
            Input::Fetching { from, upto, bytes } => self.fetching(from, upto, bytes),
            Input::Stop { deadline } => self.stopping = Some(deadline),
        }
        Ok(())
    }

    /// Does all that can be done now.
    fn work(&mut self) {
        self.perform();
        if !matches!(self.replica.standing(), Standing::Leading(_)) {
            self.requests.give_up(leader(self.replica.standing()));
        }
        self.propose();
        self.read();
        self.perform();
        self.answer_reads();
        self.hand_over();
        self.save();
        self.sync();
        self.show();
        self.meters.slots_applied.set(self.machine.applied().0 as f64);
        self.meters.requests_waiting.set(self.requests.len() as f64);
    }

    /// Shows what it lacks, where that has changed.
    fn show(&self) {
        let lacking = lacking(&self.replica);
        if self.lacks.send_if_modified(|known| mem::replace(known, lacking) != lacking) {
            self.meters.ready.set(f64::from(u8::from(lacking.is_none())));
        }
    }

    /// Proposes batches, while few are under way and the ledger has room: what waits is the next
    /// one.
    fn propose(&mut self) {
        while self.replica.in_flight() < self.options.pipeline
            && self.replica.room() > 0
            && self.ledger.has_room()
        {
            let Options { batch_requests_max, batch_bytes_max, .. } = self.options;
            let batch = self.requests.next_batch(batch_requests_max, batch_bytes_max);
            let Some(batch) = batch else { return };
            let value = Value::Commands(batch.bytes.clone());
            let now = self.now();
            let Ok((ballot, slot)) = self.replica.propose(now, value) else { return };
            let is_certain = self.foresight.foresee(&self.machine, slot, batch.entries());
            self.batches += 1;
            self.batched += batch.len() as u64;
            self.meters.batch_requests.record(batch.len() as f64);
            self.requests.proposed(slot, batch);
            self.perform();
            self.ask_votes(ballot, slot, &is_certain);
        }
    }

    /// Begins a round for the reads that came since the last.
    fn read(&mut self) {
        let token = self.token();
        if self.requests.begin_reads(token)
            && let Err(error) = self.replica.read(token)
        {
            self.requests.unready(token, error.leader);
        }
    }

    /// Answers some of the reads that can be, and the rest in later turns: whatever else has come
    /// is done in between. They see what is applied by then, which is no less than they have to.
    fn answer_reads(&mut self) {
        let (mut count, mut bytes) = (0, 0);
        while count < READS_MAX
            && bytes < READ_BYTES_MAX
            && let Some((reading, waiter)) = self.requests.next_ready()
        {
            let reply = reading.reply(&self.machine);
            (count, bytes) = (count + 1, bytes + reply.encoded_len());
            waiter.answer(&reply);
        }
        if self.requests.has_ready() && !self.goes_on {
            // An error: inputs fill the queue, and so make the next turn.
            self.goes_on = self.inputs.try_send(Input::GoOn).is_ok();
        }
    }

    /// Asks another node to lead, again after a while: once nothing waits here any more of a node
    /// that stops, or when the disk hangs. A burst that the disk catches up with is no reason.
    fn hand_over(&mut self) {
        let now = Instant::now();
        let is_full = !self.ledger.has_room() && self.is_stuck();
        let is_over = self.stopping.is_some() && self.requests.len() == 0;
        if (is_over || is_full) && self.next_hand_over <= now {
            self.next_hand_over = now + self.options.core.heartbeat;
            self.replica.hand_over();
            self.perform();
        }
    }

    /// Does what the core wants done.
    fn perform(&mut self) {
        while let Some(effect) = self.replica.poll_effect() {
            match effect {
                Effect::Append(record) => drop(append(&self.ledger, &record)),
                Effect::Ask { to, epoch, ask } => self.ask(to, epoch, &ask),
                Effect::Answer { token, answer } => {
                    let task = self.asked(token);
                    self.leave(Leaving::Answer(task, answer));
                }
                Effect::AnswerDurable { token, answer } => {
                    let task = self.asked(token);
                    self.hold(answer.map(|answer| Leaving::Answer(task, answer)));
                }
                Effect::Own(answer) => self.hold(answer.map(Leaving::Own)),
                Effect::Apply { slot, value } => self.apply(slot, &value),
                Effect::Ready(token) => self.requests.ready(token),
                Effect::Unready(token) => {
                    self.requests.unready(token, leader(self.replica.standing()));
                }
                Effect::Standing(standing) => self.stand(standing),
                Effect::Membership(membership) => self.members_changed(&membership),
                Effect::FetchSnapshot { from, .. } => self.fetch(from),
            }
        }
    }

    fn hold(&mut self, leaving: node_kit::durable::Held<Leaving>) {
        self.held.push(leaving.after(self.ledger.end()));
    }

    /// Waits for the ledger, where something rests on it: one wait for all of it.
    fn sync(&mut self) {
        if let Some(position) = self.held.last() {
            self.turns.wait_durable(&self.ledger, position);
        }
    }

    fn synced(&mut self, durable: &Durable) {
        while let Some(leaving) = self.held.pop(durable) {
            self.leave(leaving);
        }
    }

    fn leave(&mut self, leaving: Leaving) {
        let (Leaving::Answer(_, answer) | Leaving::Own(answer)) = &leaving;
        self.polls.said(answer);
        match leaving {
            Leaving::Answer(Some(task), answer) => {
                let _ = task.answer(&(&answer).into()); // an error: who asked has given up
            }
            Leaving::Answer(None, _) => {}
            Leaving::Own(answer) => {
                self.replica.handle_answer(self.now(), self.options.core.node, answer);
            }
        }
    }

    /// Asks others, and passes on what they answer. Who does not is asked again by the core.
    fn ask(&self, to: Recipients, epoch: u64, ask: &Ask) {
        if matches!(ask, Ask::CatchUp { .. }) && !self.ledger.has_room() {
            return; // the values would be dropped
        }
        let members = match to {
            Recipients::Others => Ok(self.others.clone()),
            Recipients::One(node) => Configuration::new([node]),
        };
        let Ok(members) = members else { return };
        let question = self.client.ask(Question::new(self.options.cluster, epoch, ask));
        let deadline = 2 * self.options.core.election_timeout;
        let call = question.to_all(&members).deadline(deadline).quorum_call().open();
        let Ok(mut call) = call else { return };
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            while let Some((from, answer)) = call.next().await {
                let input = match answer {
                    Ok(answer) => match Answer::try_from(answer) {
                        Ok(answer) => Input::Answer { from, answer },
                        Err(_) => continue,
                    },
                    Err(error) => match error.failure() {
                        Some(failure) if is_refusal(failure) => {
                            Input::Refused { from, words: failure.text.clone() }
                        }
                        _ => continue,
                    },
                };
                if inputs.send(input).await.is_err() {
                    break;
                }
            }
        });
    }

    fn apply(&mut self, slot: Slot, value: &Value) {
        if slot <= self.machine.applied() {
            return;
        }
        let replies = self.machine.apply(slot, value);
        self.pace.add(value.size() as u64);
        if self.machine.is_crowded() {
            self.crowded.call_once(|| {
                tracing::warn!(
                    sessions = self.machine.sessions(),
                    "a further session ends the one that was used longest ago: its client opens \
                     another with its next write, or may not know what became of the last"
                );
            });
        }
        for (waiter, reply) in self.requests.applied(slot, value).into_iter().zip(&replies) {
            if let Some(waiter) = waiter {
                waiter.answer(reply);
            }
        }
    }

    fn stand(&mut self, standing: Standing) {
        tracing::info!(node = %self.options.core.node, ?standing, "standing");
        let leads = matches!(standing, Standing::Leading(_));
        self.meters.leads.set(f64::from(u8::from(leads)));
        if !leads {
            self.requests.give_up(leader(standing));
        }
        self.stand.send_replace(standing);
    }

    /// Says what a member has against this node, when that is new.
    fn refused(&mut self, from: NodeId, words: String) {
        if self.refusals.get(&from).is_none_or(|known| *known != words) {
            tracing::warn!(node = %from, "it answers no question: {words}");
            self.refusals.insert(from, words);
        }
    }

    /// Says once that a voter finds no leader, until one is there again, and why that may be.
    fn tell_silence(&mut self) {
        let is_alone = self.replica.votes() && self.replica.standing() == Standing::Leaderless;
        let is_long = is_alone && self.replica.attempts() > ATTEMPTS_TOLD;
        if is_long && !self.has_told {
            let members: Vec<_> = self.others.nodes().map(|node| node.to_string()).collect();
            let members = members.join(", ");
            if self.is_stuck() {
                tracing::warn!("no leader for long: the disk of this node does not write");
            } else if self.replica.membership().is_none() {
                tracing::warn!(
                    "no leader for long: a cluster that is new begins when all its members answer \
                     ({members}), and not all have"
                );
            } else {
                tracing::warn!(
                    "no leader for long: too few of the members that this node knows of answer \
                     ({members}). Where others have taken their place, name those in the cluster \
                     file of this node, `role = \"spare\"`, and start it again: they say if it is \
                     still a member"
                );
            }
        }
        self.has_told = is_long;
    }

    /// True when answers have waited for the disk for as long as others wait for a leader.
    fn is_stuck(&self) -> bool {
        let timeout = self.options.core.election_timeout;
        self.turns.waits_since().is_some_and(|begun| begun + timeout <= Instant::now())
    }

    /// True when it was told to stop, and has nothing left to do or no time.
    fn is_done(&self) -> bool {
        let Some(deadline) = self.stopping else { return false };
        let leads = matches!(self.replica.standing(), Standing::Leading(_));
        let is_alone = !self.replica.has_other_voters();
        let is_idle = self.requests.len() == 0 && self.held.is_empty() && !self.pace.is_writing();
        (is_idle && (!leads || is_alone)) || Instant::now() >= deadline
    }

    fn token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    /// The question of a token. The core answers at once, so there is no other by then.
    fn asked(&mut self, token: Token) -> Option<Deferred<proto::Answer>> {
        self.asked.take_if(|(of, _)| *of == token).map(|(_, task)| task)
    }
}

/// Answers that wait for the ledger, at most: many times what waits for a disk that works. Beside
/// one that hangs further questions are not taken.
const HELD_MAX: usize = 1_024;

/// Reads that are answered in one turn, at most: as many as can come in one, so that they do not
/// pile up.
const READS_MAX: usize = 1_024;

/// Bytes of their answers, after which no further one is given: four of the longest scans, some
/// milliseconds.
const READ_BYTES_MAX: usize = 4 << 20;

/// Attempts to lead, or to find who does, before it is said that they are in vain: each takes one
/// to two election timeouts.
const ATTEMPTS_TOLD: u64 = 20;

/// True for what a member says to one that is not of its cluster, or no member.
fn is_refusal(failure: &Failure) -> bool {
    let code = Code::from_number(failure.code);
    failure.cause == Cause::Application
        && matches!(code, Code::FailedPrecondition | Code::PermissionDenied)
}

fn leader(standing: Standing) -> Option<NodeId> {
    if let Standing::Following(leader) = standing { Some(leader) } else { None }
}
