//! A query in three forms, from the client's side.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture as _};
use std::str::FromStr;
use std::time::Duration;

use convoke::{Call, CallError, Endpoint, Failure, NodeId, Outcome, Path, Peer, Reply};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::proto::{Facts, GraphClient, Next, Sight, Step, graph};
use crate::query::{Answer, Query};
use crate::steps::{MIXED, assemble, first, rows_begun};
use crate::store::Sharding;

/// Forms of a query, by who walks from shard to shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The request itself: each shard sends it on, and its facts to the client.
    Tree,
    /// The client: it asks each shard in turn, several at once where it can.
    Client,
    /// The shards, each waiting for the next one's answer.
    Nested,
}

impl Form {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Client, Self::Nested];

    /// One-way hops from the question to the last fact, when that took `depth` requests one after
    /// another.
    pub fn hops(self, depth: u32) -> u32 {
        match self {
            Self::Tree => depth + 1,
            Self::Client | Self::Nested => 2 * depth,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tree => "tree",
            Self::Client => "client",
            Self::Nested => "nested",
        })
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|form| form.to_string() == text);
        found.ok_or_else(|| format!("{text:?} is no form: tree, client or nested"))
    }
}

/// The shards as a client sees them.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    client: GraphClient,
    cluster: u64,
    peers: Vec<Peer>,
    sharding: Sharding,
    deadline: Duration,
}

/// Reason why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// A branch failed, of a form in which no part is an answer; or the call ended without all of
    /// its replies.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Facts are of two graphs, or a row lacks a part that no failed branch would have found.
    #[error("the shards have different data: {SAME_DATA}")]
    OtherData,
}

/// How shards come to have parts of one graph.
pub(crate) const SAME_DATA: &str =
    "start all with the same --data, or the same --persons and --seed";

/// An answer and how it came about.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The rows.
    pub answer: Answer,
    /// Requests one after another on the longest way.
    pub depth: u32,
    /// Branches that were lost, with what they would have found.
    pub failures: Vec<Failure>,
}

impl Client {
    /// A client of these shards, of the cluster of this number.
    pub fn new(endpoint: &Endpoint, cluster: u64, peers: Vec<Peer>, sharding: Sharding) -> Self {
        let client = GraphClient::new(endpoint);
        let deadline = Duration::from_secs(10);
        Self { endpoint: endpoint.clone(), client, cluster, peers, sharding, deadline }
    }

    /// Ends each query within `deadline`, with an answer or with what is missing. Default 10 s.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The endpoint it asks from.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The shards.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Asks a query in one of the forms.
    ///
    /// # Errors
    /// [`AskError::Call`] of the first branch that failed, but for the tree form, whose answer
    /// names the failed branches and has every row that could be found.
    pub async fn ask(&self, form: Form, query: Query, id: i64) -> Result<Answered, AskError> {
        let (facts, failures) = match form {
            Form::Tree => self.walk(query, id).await?,
            Form::Client => (self.look(query, id).await?, Vec::new()),
            Form::Nested => (self.gather(query, id).await?, Vec::new()),
        };
        // A step that finds nothing sends no facts, only its manifest.
        let depth = facts.depth.max(1);
        let (is_mixed, begun) = (facts.data == MIXED, rows_begun(query, &facts));
        let answer = assemble(query, id, facts);
        if is_mixed || (failures.is_empty() && answer.rows.len() < begun) {
            return Err(AskError::OtherData);
        }
        Ok(Answered { answer, depth, failures })
    }

    fn first(&self, query: Query, id: i64) -> BTreeMap<usize, Step> {
        let mut steps = first(query, id, self.sharding);
        steps.values_mut().for_each(|step| step.cluster = self.cluster);
        steps
    }

    /// The call tree of a query, opened and not read.
    ///
    /// # Errors
    /// [`CallError`] when it cannot be opened.
    pub fn open(&self, query: Query, id: i64, trace: bool) -> Result<Call<Facts>, CallError> {
        let steps = self.first(query, id).into_iter();
        let steps = steps.map(|(shard, step)| (self.peers[shard], graph::WALK.request(step)));
        let call = self.endpoint.fan_out(steps).deadline(self.deadline);
        if trace { call.trace().open() } else { call.open() }
    }

    async fn walk(&self, query: Query, id: i64) -> Result<(Facts, Vec<Failure>), CallError> {
        let (replies, outcome) = self.open(query, id, false)?.collect().await?;
        is_told(&outcome)?;
        Ok((together(replies), outcome.failures))
    }

    /// Follows up each answer as soon as it is there, for as long as the deadline of the query
    /// allows: each step has what is left of it.
    async fn look(&self, query: Query, id: i64) -> Result<Facts, CallError> {
        let begun = Instant::now();
        let left = || self.deadline.saturating_sub(begun.elapsed());
        let mut facts = Facts::default();
        let mut asked = JoinSet::new();
        for (shard, step) in self.first(query, id) {
            asked.spawn(self.look_at(self.peers[shard], step, left()));
        }
        while let Some(sight) = asked.join_next().await {
            let (from, sight) = sight.expect("a request does not panic")?;
            for Next { shard, step } in sight.next {
                let peer = self.peers.get(shard as usize);
                let peer = *peer.ok_or_else(|| no_shard(from, shard, self.peers.len()))?;
                if let Some(step) = step {
                    asked.spawn(self.look_at(peer, step, left()));
                }
            }
            facts.absorb(sight.facts.unwrap_or_default());
        }
        Ok(facts)
    }

    fn look_at(
        &self,
        peer: Peer,
        step: Step,
        within: Duration,
    ) -> impl Future<Output = Result<(NodeId, Sight), CallError>> + Send + 'static {
        let sight = self.client.look(step).deadline(within).to(peer).into_future();
        async move { Ok((peer.node(), sight.await?)) }
    }

    async fn gather(&self, query: Query, id: i64) -> Result<Facts, CallError> {
        let steps = self.first(query, id).into_iter();
        let steps = steps.map(|(shard, step)| (self.peers[shard], graph::GATHER.request(step)));
        let call = self.endpoint.fan_out(steps).deadline(self.deadline);
        let (replies, outcome) = call.open()?.collect().await?;
        whole(replies, outcome)
    }
}

/// Facts of a call of which nothing is missing.
///
/// # Errors
/// Why something is: that of the first branch that failed.
pub(crate) fn whole(replies: Vec<Reply<Facts>>, outcome: Outcome) -> Result<Facts, CallError> {
    is_told(&outcome)?;
    match outcome.failures.into_iter().next() {
        Some(failure) => Err(CallError::Branch(failure)),
        None => Ok(together(replies)),
    }
}

/// Looks that failed branches say all that is missing of a call. None does of one that has outgrown
/// the bounds of its initiator.
///
/// # Errors
/// The end of the call, which no branch tells.
pub fn is_told(outcome: &Outcome) -> Result<(), CallError> {
    match outcome.is_complete() || !outcome.failures.is_empty() {
        true => Ok(()),
        false => Err(CallError::Ended(outcome.end)),
    }
}

fn no_shard(from: NodeId, shard: u32, count: usize) -> CallError {
    let message = format!("it leads to shard {shard}, and there are {count}");
    CallError::Decode { path: Path::root(), from, message }
}

fn together(replies: Vec<Reply<Facts>>) -> Facts {
    let mut facts = Facts::default();
    replies.into_iter().for_each(|reply| facts.absorb(reply.into_inner()));
    facts
}
