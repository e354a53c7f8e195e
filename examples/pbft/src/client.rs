//! A client: requests that take effect once, and results that f + 1 replicas say alike.
//!
//! ```text
//!   put ─▶ signed, numbered ─▶ the primary ─▶ every replica answers by itself ─▶ f + 1 alike
//!                │ no f + 1 in time               ▲                               of n leaves
//!                └──────────▶ all replicas ───────┘ until the deadline: OutcomeUnknown
//! ```
//! The primary hands a branch to each replica, so replies need not come back through it. Whoever
//! asks all lets them know that the primary may be silent: they pass the request on, and wait for
//! it as long as the view's timeout.
//!
//! Numbers begin with the time of the clock and rise, so that a client whose process has ended goes
//! on behind them. A key is for one process at a time: a slower one of two is told that its outcome
//! is unknown.

mod members;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use convoke::quorum::{
    Configuration, MemberError, QuorumBuilder, QuorumError, QuorumExt as _, QuorumFunction as _,
    matching_by,
};
use convoke::{Cause, Code, Endpoint, NodeId};
use node_kit::program::store::{Pairs, Store, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::core::{
    ClientId, Keys, Members, Outcome, Reply, Request, SignedReply, SignedRequest, Signer, Trust,
    View,
};
use crate::kv::{self, OPERATION_BYTES_MAX, Operation};
use crate::proto::{Answer, Asked, PbftClient, asked};
use crate::wire;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for a request with all its attempts. Default 10 s.
    pub deadline: Duration,
    /// Time for the primary, after which all replicas are asked; then twice as long each time.
    /// Default 1 s.
    pub attempt: Duration,
    /// Asks all replicas at once, each time. Where connections prove requests it is so always.
    pub is_to_all: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            attempt: Duration::from_secs(1),
            is_to_all: false,
        }
    }
}

/// The reason a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The caller's: the operation is malformed or too large, or the key is not the client's. It
    /// did not run.
    #[error("refused: {0}")]
    Refused(String),
    /// The store holds as much as it may. It did not run: delete something.
    #[error("the store is full")]
    Full,
    /// A read has no result. Reads have no effect: repeat it.
    #[error("no f + 1 replicas have answered alike in time: {0}")]
    Unavailable(String),
    /// It may have run, or may run yet; it runs once at most. Read what became of it.
    #[error("the outcome is unknown, the request may run or not: {0}")]
    OutcomeUnknown(String),
}

/// A client, with one request at a time. Any number of them can share an endpoint.
#[derive(Debug)]
pub struct Client {
    client: PbftClient,
    endpoint: Endpoint,
    nodes: Configuration,
    /// Members of the latest epoch that is known.
    latest: Members,
    keys: Arc<Keys>,
    id: ClientId,
    signer: Signer,
    options: Options,
    number: u64,
    primary: NodeId,
}

impl Client {
    /// A client of these replicas, whose addresses the endpoint knows. Where connections prove
    /// requests the signer is [`Signer::Unsigned`], and the endpoint the node of the client.
    pub fn new(
        endpoint: &Endpoint,
        members: &Configuration,
        keys: Arc<Keys>,
        (id, signer): (ClientId, Signer),
        options: Options,
    ) -> Self {
        Self {
            client: PbftClient::new(endpoint),
            endpoint: endpoint.clone(),
            nodes: members.clone(),
            latest: keys.members(),
            primary: keys.primary(View(0)),
            keys,
            id,
            signer,
            options,
            number: 0,
        }
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
        match self.execute(Operation::Put(key.into(), value.into())).await? {
            kv::Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes a key, and gives the value that it had.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delete(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>, ClientError> {
        match self.execute(Operation::Delete(key.into())).await? {
            kv::Answer::Found(found) => Ok(found),
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
        match self.execute(Operation::Cas(key.into(), expected, value.into())).await? {
            kv::Answer::Done => Ok(Ok(())),
            kv::Answer::Found(found) => Ok(Err(found)),
            other => Err(unexpected(&other)),
        }
    }

    /// The value of a key: no older than any write that had been answered when this was called.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get(&mut self, key: impl Into<Bytes>) -> Result<Option<Bytes>, ClientError> {
        match self.execute(Operation::Get(key.into())).await? {
            kv::Answer::Found(found) => Ok(found),
            other => Err(unexpected(&other)),
        }
    }

    /// Pairs from a key on whose keys begin so, in their order: so many at most, or as many as an
    /// answer takes for 0. With it the key of the first that is left out.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn scan(
        &mut self,
        from: impl Into<Bytes>,
        prefix: impl Into<Bytes>,
        limit: u32,
    ) -> Result<Pairs, ClientError> {
        match self.execute(Operation::Scan(from.into(), prefix.into(), limit)).await? {
            kv::Answer::Scanned(pairs, next) => Ok((pairs, next)),
            other => Err(unexpected(&other)),
        }
    }

    async fn execute(&mut self, operation: Operation) -> Result<kv::Answer, ClientError> {
        let is_read = matches!(operation, Operation::Get(_) | Operation::Scan(..));
        match self.ask(wire::encode(&operation)).await {
            Ok(result) => judge(result),
            Err(ClientError::OutcomeUnknown(why)) if is_read => Err(ClientError::Unavailable(why)),
            Err(error) => Err(error),
        }
    }

    /// The result of an operation, whatever its bytes are to the replicas.
    async fn ask(&mut self, operation: Bytes) -> Result<Bytes, ClientError> {
        if operation.len() > OPERATION_BYTES_MAX {
            return Err(ClientError::Refused(format!(
                "the operation has {} bytes, and may have {OPERATION_BYTES_MAX}",
                operation.len()
            )));
        }
        let number = self.next_number();
        let request = Request { client: self.id, number, operation };
        let request = self.signer.sign_request(self.keys.scope(), request);
        match self.attempts(&request).await {
            Ok(Outcome::Done(result)) => Ok(result),
            Ok(Outcome::Forgotten) => Err(ClientError::OutcomeUnknown(
                "the replicas remember later requests of this client: its clock went back, or \
                 another process uses its key. Or it was added to the cluster file later, and they \
                 do not know it"
                    .to_owned(),
            )),
            Err(error) => Err(error),
        }
    }

    /// The microseconds of the clock, or behind the last number where that is no more.
    fn next_number(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(0);
        self.number = now.max(self.number + 1);
        self.number
    }

    /// Asks the primary, and then all, until f + 1 replicas say the same.
    async fn attempts(&mut self, request: &SignedRequest) -> Result<Outcome, ClientError> {
        let deadline = Instant::now() + self.options.deadline;
        let mut pause = self.options.attempt;
        // Where connections prove requests, each replica has to hear it from the client.
        let mut is_to_all = self.options.is_to_all || self.keys.trust() == Trust::Channels;
        loop {
            let begun = Instant::now();
            let within = pause.min(deadline.saturating_duration_since(begun));
            let is_later = Arc::new(AtomicBool::new(false));
            let attempt = self.attempt(request, is_to_all, within, Arc::clone(&is_later));
            let error = match attempt.await {
                Ok(reply) => {
                    self.primary = self.keys.primary(reply.view);
                    return Ok(reply.outcome);
                }
                Err(error) => error,
            };
            if let Some(refusal) = self.refusal(&error) {
                return Err(ClientError::Refused(refusal));
            }
            if is_later.load(Ordering::Relaxed) {
                // Others are members by now, and the request may be decided already.
                let before = self.keys.scope().epoch;
                let _ = timeout_at(deadline, self.learn()).await; // late: what is known has to do
                if self.keys.scope().epoch > before && Instant::now() < deadline {
                    is_to_all = true;
                    continue;
                }
            }
            // A failure at once says nothing of how long a replica may take.
            if is_to_all {
                tokio::time::sleep_until(deadline.min(begun + within)).await;
                pause *= 2;
            }
            is_to_all = true;
            if Instant::now() >= deadline {
                return Err(ClientError::OutcomeUnknown(error.to_string()));
            }
        }
    }

    async fn attempt(
        &self,
        request: &SignedRequest,
        is_to_all: bool,
        within: Duration,
        is_later: Arc<AtomicBool>,
    ) -> Result<Reply, QuorumError> {
        let keys = Arc::clone(&self.keys);
        let (id, number) = (request.request.client, request.request.number);
        let is_its = move |member, answer: &Answer| {
            said(answer).is_some_and(|said| {
                let Reply { client, number: of, .. } = said.reply;
                let is_its = said.by == member && (client, of) == (id, number);
                if keys.says_later(member, &said) {
                    is_later.store(true, Ordering::Relaxed);
                }
                is_its && keys.open_reply(member, said).is_ok()
            })
        };
        let rule = matching_by(self.keys.group().witnesses(), is_alike)
            .map(|answer: &Answer| said(answer).map(|said| said.reply))
            .filter(is_its);
        let call = self.call(wire::encode(request), is_to_all);
        let agreed = call.deadline(within).quorum(rule).await?;
        Ok(agreed.expect("the filter keeps replies alone"))
    }

    fn call(&self, request: Bytes, is_to_all: bool) -> QuorumBuilder<Answer> {
        let asked = |asked| self.client.execute(Asked { asked: Some(asked) });
        if is_to_all {
            asked(asked::Asked::RequestToAll(request)).to_all(&self.nodes).quorum_call()
        } else {
            asked(asked::Asked::Request(request)).to(self.primary).among(&self.nodes)
        }
    }

    /// The refusal that f + 1 replicas give alike, as the caller's doing.
    fn refusal(&self, error: &QuorumError) -> Option<String> {
        let count = error.failed(is_refusal).count();
        (count >= self.keys.group().witnesses()).then(|| error.to_string())
    }
}

/// The reply of an answer, not checked.
fn said(answer: &Answer) -> Option<SignedReply> {
    wire::decode(answer.reply.clone()).ok()
}

/// True for replies of one outcome, whatever their views.
fn is_alike(one: &Option<Reply>, other: &Option<Reply>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.outcome == other.outcome,
        _ => false,
    }
}

fn is_refusal(error: &MemberError) -> bool {
    let code = error.failure().map(|failure| Code::from_number(failure.code));
    error.cause() == Some(Cause::Application)
        && matches!(code, Some(Code::InvalidArgument | Code::PermissionDenied))
}

fn judge(result: Bytes) -> Result<kv::Answer, ClientError> {
    match wire::decode(result) {
        Ok(kv::Answer::Full) => Err(ClientError::Full),
        Ok(kv::Answer::Invalid) => Err(ClientError::Refused(format!(
            "a key has {} bytes at most, a value {}",
            kv::KEY_BYTES_MAX,
            kv::VALUE_BYTES_MAX
        ))),
        Ok(answer) => Ok(answer),
        Err(error) => Err(ClientError::OutcomeUnknown(error.to_string())),
    }
}

fn unexpected(answer: &kv::Answer) -> ClientError {
    let text = format!("the store answers with what was not asked for: {answer:?}");
    ClientError::OutcomeUnknown(text)
}

impl Store for Client {
    async fn get(&mut self, key: Bytes) -> Result<Option<Bytes>, StoreError> {
        Ok(Self::get(self, key).await?)
    }

    async fn put(&mut self, key: Bytes, value: Bytes) -> Result<(), StoreError> {
        Ok(Self::put(self, key, value).await?)
    }

    async fn delete(&mut self, key: Bytes) -> Result<Option<Bytes>, StoreError> {
        Ok(Self::delete(self, key).await?)
    }

    async fn cas(
        &mut self,
        key: Bytes,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> Result<Result<(), Option<Bytes>>, StoreError> {
        Ok(Self::cas(self, key, expected, value).await?)
    }

    async fn scan(&mut self, from: Bytes, prefix: Bytes, limit: u32) -> Result<Pairs, StoreError> {
        Ok(Self::scan(self, from, prefix, limit).await?)
    }
}

impl From<ClientError> for StoreError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::OutcomeUnknown(_) => Self::Unknown(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
