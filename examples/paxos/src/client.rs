//! A client: requests that take effect once, and errors that say whether they did.
//!
//! ```text
//!   put ─▶ number of the session ─▶ attempt at the leader, or at any node ─▶ Ok
//!              ▲                          │ refused, lost, too late
//!              └── pause with jitter ◀────┘ until the deadline: Unavailable, or OutcomeUnknown
//! ```
//! In the [direct shape](votes) a put is answered by the votes of its acceptors.
//!
//! All attempts of a request have one number in a session of the store, so it runs once however
//! many of them arrive. A session is opened with the first write, and again when the store has let
//! go of it.

mod attempts;
mod store;
pub mod votes;

use std::time::Duration;

use bytes::Bytes;
use convoke::quorum::Configuration;
use convoke::{CallError, Endpoint, NodeId};
use convoke_sim::random::Random;
use tokio::time::{Instant, sleep, sleep_until};

use self::attempts::Attempts;
use self::votes::Counted;
pub use self::votes::Shape;
use crate::mutant::{self, Mutant};
use crate::proto::{
    Cas, Change, Command, Entry, Get, InspectRequest, Inspection, Join, LeaderHint, Pair,
    PaxosClient, Reply, Request, Scan, Scanned, SessionName, change, command, entry, reply,
    request,
};

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of the cluster, so that another refuses its requests; 0 for any.
    pub cluster: u64,
    /// Time for a request with all its attempts. Default 10 s.
    pub deadline: Duration,
    /// Time for one attempt. Default 1 s.
    pub attempt: Duration,
    /// Pause after the first attempt that failed, about; then twice as long each time. Default
    /// 10 ms.
    pub pause: Duration,
    /// The longest pause, about. Default 500 ms.
    pub pause_max: Duration,
    /// Reads are answered by this node, from what it has applied: they may be old, and go back in
    /// time when the node is another. Default: none, and reads see all that was written before.
    pub stale: Option<NodeId>,
    /// The node that is asked, whoever leads: it hands on what is for the leader. While it does not
    /// answer nobody else is asked. Default: none, and the leader is asked.
    pub at: Option<NodeId>,
    /// The way in which puts are answered. Default: gather.
    pub shape: Shape,
    /// Decides how pauses vary, who is asked first, and the number of its sessions: another for
    /// each client.
    pub seed: u64,
}

impl Options {
    /// Defaults for a client of this cluster.
    pub fn new(cluster: u64, seed: u64) -> Self {
        Self {
            cluster,
            deadline: Duration::from_secs(10),
            attempt: Duration::from_secs(1),
            pause: Duration::from_millis(10),
            pause_max: Duration::from_millis(500),
            stale: None,
            at: None,
            shape: Shape::Gather,
            seed,
        }
    }
}

/// The reason a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The caller's: the request is malformed, or too large, or meant for another cluster. It did
    /// not run.
    #[error("refused: {0}")]
    Refused(String),
    /// The store holds as much as it may. It did not run: delete something.
    #[error("the store is full")]
    Full,
    /// Nobody has taken it until the deadline. It did not run, and never will: repeat it later.
    #[error("nobody has taken the request in time, and it will not run: {0}")]
    Unavailable(String),
    /// It may have run, or may run yet; it runs once at most. Read what became of it.
    #[error("the outcome is unknown, the request may run or not: {0}")]
    OutcomeUnknown(String),
}

/// The reason the state of a node is not known.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// It does not answer.
    #[error(transparent)]
    NoAnswer(#[from] CallError),
    /// It belongs to another cluster: its state is nobody's business here.
    #[error("{node} is of cluster {found}, and {wanted} was meant")]
    OtherCluster {
        /// The node.
        node: NodeId,
        /// Number of its cluster.
        found: u64,
        /// Number of the client's.
        wanted: u64,
    },
}

/// A client, with one request at a time. Any number of them can share an endpoint.
#[derive(Debug)]
pub struct Client {
    client: PaxosClient,
    nodes: Vec<NodeId>,
    members: Configuration,
    options: Options,
    random: Random,
    session: Option<SessionName>,
    number: u64,
    /// Index of the node that is asked next.
    at: usize,
    anyway: bool,
    decided_by_votes: u64,
}

impl Client {
    /// A client of these nodes, whose addresses the endpoint knows.
    pub fn new(endpoint: &Endpoint, members: &Configuration, options: Options) -> Self {
        let nodes: Vec<NodeId> = members.nodes().collect();
        let mut random = Random::of(options.seed, 3);
        let at = random.index(nodes.len());
        let client = PaxosClient::new(endpoint);
        Self {
            client,
            nodes,
            members: members.clone(),
            options,
            random,
            session: None,
            number: 0,
            at,
            anyway: false,
            decided_by_votes: 0,
        }
    }

    /// The same, which changes members also where the leader has not heard a majority of those who
    /// vote then. Until they are back nothing can be written, so such a change is refused
    /// otherwise.
    #[must_use]
    pub fn anyway(self, anyway: bool) -> Self {
        Self { anyway, ..self }
    }

    /// Writes a value, whatever there was.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn put(
        &mut self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<(), ClientError> {
        let pair = Pair { key: key.into(), value: value.into() };
        match self.command(command::Action::Put(pair)).await? {
            reply::Result::Done(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes a key, and gives the value that it had.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delete(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>, ClientError> {
        match self.command(command::Action::Delete(key.into())).await? {
            reply::Result::Found(found) => Ok(found.value),
            other => Err(unexpected(&other)),
        }
    }

    /// Writes a value if what is there is as expected; `None` expects nothing. Otherwise gives what
    /// is there.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cas(
        &mut self,
        key: impl Into<Bytes>,
        expected: Option<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<Result<(), Option<Bytes>>, ClientError> {
        let cas = Cas { key: key.into(), expected, value: value.into() };
        match self.command(command::Action::Cas(cas)).await? {
            reply::Result::Done(_) => Ok(Ok(())),
            reply::Result::Found(found) => Ok(Err(found.value)),
            other => Err(unexpected(&other)),
        }
    }

    /// The value of a key: no older than any write that had been answered when this was called.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>, ClientError> {
        let action = request::Action::Get(Get { key: key.into() });
        match self.execute(action, true, self.deadline()).await? {
            reply::Result::Found(found) => Ok(found.value),
            other => Err(unexpected(&other)),
        }
    }

    /// Pairs in the order of their keys, as [`get`](Self::get) reads them. What is more than an
    /// answer takes begins at `next`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scan(&mut self, scan: Scan) -> Result<Scanned, ClientError> {
        match self.execute(request::Action::Scan(scan), true, self.deadline()).await? {
            reply::Result::Scanned(scanned) => Ok(scanned),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets a node join: it learns first, and votes once it has caught up. It may be a member that
    /// has lost its ledger, and answers. With `learns` it never votes. Addresses are needed where
    /// the cluster files do not have them.
    ///
    /// Resolves when the log has it; it is in force a little later, as [`inspect`](Self::inspect)
    /// says. May be repeated.
    ///
    /// # Errors
    /// [`ClientError`]: also where those who vote then could choose nothing, as too few of them are
    /// up, unless it is to be [anyway](Self::anyway).
    pub async fn join(
        &mut self,
        node: NodeId,
        addresses: Vec<String>,
        learns: bool,
    ) -> Result<(), ClientError> {
        let deadline = self.deadline();
        let within = self.options.attempt.min(self.options.deadline);
        let life = match self.inspect_within(node, within).await {
            Ok(state) => Some(state.life),
            Err(InspectError::NoAnswer(_)) => None,
            Err(error) => return Err(ClientError::Refused(error.to_string())),
        };
        let join = Join { node: node.get(), addresses, learns, life };
        self.change(change::What::Join(join), deadline).await
    }

    /// Makes a node no member any more. As [`join`](Self::join): once it is in force, and
    /// [settled](Inspection::is_settled), the node may be stopped.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn leave(&mut self, node: NodeId) -> Result<(), ClientError> {
        self.change(change::What::Leave(node.get()), self.deadline()).await
    }

    async fn change(&mut self, what: change::What, deadline: Instant) -> Result<(), ClientError> {
        loop {
            let change = Change { what: Some(what.clone()), anyway: self.anyway };
            let action = request::Action::Change(change);
            match self.execute(action, false, deadline).await? {
                reply::Result::Done(_) => return Ok(()),
                reply::Result::Refused(_) if Instant::now() < deadline => {}
                reply::Result::Refused(_) => {
                    let text = "the members change all the time".to_owned();
                    return Err(ClientError::Unavailable(text));
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Ends its session, which would make room for others only after a while. The next write opens
    /// another.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn close(&mut self) -> Result<(), ClientError> {
        if let Some(session) = self.session.take() {
            let entry = Entry { what: Some(entry::What::Close(session)) };
            self.execute(request::Action::Write(entry), true, self.deadline()).await?;
        }
        Ok(())
    }

    /// State of a node.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn inspect(&self, node: NodeId) -> Result<Inspection, InspectError> {
        self.inspect_within(node, self.options.attempt).await
    }

    async fn inspect_within(
        &self,
        node: NodeId,
        within: Duration,
    ) -> Result<Inspection, InspectError> {
        let state = self.client.inspect(InspectRequest {}).to(node).deadline(within).await?;
        let (found, wanted) = (state.cluster, self.options.cluster);
        match wanted == 0 || wanted == found {
            true => Ok(state),
            false => Err(InspectError::OtherCluster { node, found, wanted }),
        }
    }

    /// Puts that votes have answered so far.
    pub fn decided_by_votes(&self) -> u64 {
        self.decided_by_votes
    }

    /// Runs a command in a session; in a new one where the store has let go of the last before it
    /// has heard of the command.
    async fn command(&mut self, action: command::Action) -> Result<reply::Result, ClientError> {
        let deadline = self.deadline();
        for _ in 0..SESSIONS_MAX {
            let session = self.session(deadline).await?;
            self.number += 1;
            let number = self.number;
            let command = Command { session: Some(session), number, action: Some(action.clone()) };
            let write = request::Action::Write(command.into());
            match self.execute(write, false, deadline).await? {
                reply::Result::Refused(_) => self.session = None,
                result => return Ok(result),
            }
        }
        Err(ClientError::Unavailable("the store forgets its sessions at once".to_owned()))
    }

    async fn session(&mut self, deadline: Instant) -> Result<SessionName, ClientError> {
        if let Some(session) = self.session {
            return Ok(session);
        }
        let entry = Entry { what: Some(entry::What::Open(self.random.draw())) };
        // A session that is opened twice is one that nobody uses: it goes by itself.
        match self.execute(request::Action::Write(entry), true, deadline).await? {
            reply::Result::Opened(session) => {
                (self.session, self.number) = (Some(session), 0);
                Ok(session)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The moment at which a request that begins now is given up, with all that it takes.
    fn deadline(&self) -> Instant {
        Instant::now() + self.options.deadline
    }

    /// Makes attempts until one has a result. A request that is `harmless` has no effect that
    /// matters: its outcome is never unknown.
    async fn execute(
        &mut self,
        action: request::Action,
        harmless: bool,
        deadline: Instant,
    ) -> Result<reply::Result, ClientError> {
        let is_read = matches!(action, request::Action::Get(_) | request::Action::Scan(_));
        let stale = self.options.stale.filter(|_| is_read);
        let fixed = stale.or(self.options.at);
        let wants_votes = self.options.shape == Shape::Direct && is_put(&action);
        let request = Request {
            action: Some(action),
            cluster: self.options.cluster,
            is_stale: stale.is_some(),
            ..Request::default()
        };
        let mut attempts = Attempts::new(&self.options, harmless);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let budget = self.options.attempt.min(left);
            let node = fixed.unwrap_or(self.nodes[self.at]);
            // One that may have run is asked about: only the machine knows what it replied.
            let counts_votes = wants_votes && !attempts.may_have_run;
            let request = Request { counts_votes, ..request.clone() };
            let pause = match self.attempt(request, node, budget).await {
                Ok(Reply { result: Some(result), leader }) => {
                    self.move_to(leader);
                    return attempts.judge(result);
                }
                Ok(Reply { result: None, .. }) => attempts.pause(&mut self.random),
                Err(error) => {
                    attempts.failed(&error)?;
                    let hint = hint(&error).and_then(|leader| self.index_of(leader));
                    let is_new = hint.is_some_and(|at| at != self.at) && fixed.is_none();
                    self.at = hint.unwrap_or((self.at + 1) % self.nodes.len());
                    if is_new && attempts.follow() {
                        Duration::ZERO
                    } else {
                        attempts.pause(&mut self.random)
                    }
                }
            };
            if Instant::now() + pause >= deadline {
                sleep_until(deadline).await;
                return Err(attempts.over());
            }
            sleep(pause).await;
        }
    }

    async fn attempt(
        &mut self,
        request: Request,
        node: NodeId,
        within: Duration,
    ) -> Result<Reply, CallError> {
        let counts_votes = request.counts_votes;
        let call = self.client.execute(request).to(node);
        if !counts_votes {
            return call.deadline(within).await;
        }
        let Counted { reply, by_votes } = votes::count(call, &self.members, within).await?;
        self.decided_by_votes += u64::from(by_votes);
        Ok(reply)
    }

    /// Asks the node that leads from now on, if it was another that was asked: each request would
    /// take one way more.
    fn move_to(&mut self, leader: u64) {
        if mutant::is(Mutant::StaysAtFollower) {
            return;
        }
        let leader = NodeId::try_from(leader).ok();
        self.at = leader.and_then(|leader| self.index_of(leader)).unwrap_or(self.at);
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|known| *known == node)
    }
}

/// Sessions that are opened for one request, at most.
const SESSIONS_MAX: usize = 3;

fn is_put(action: &request::Action) -> bool {
    let request::Action::Write(Entry { what: Some(entry::What::Command(command)) }) = action else {
        return false;
    };
    matches!(command.action, Some(command::Action::Put(_)))
}

fn hint(error: &CallError) -> Option<NodeId> {
    let hint: LeaderHint = error.status()?.detail()?;
    NodeId::try_from(hint.leader).ok()
}

fn unexpected(result: &reply::Result) -> ClientError {
    ClientError::OutcomeUnknown(format!(
        "the store answers with what was not asked for: {result:?}"
    ))
}

#[cfg(test)]
mod tests;
