//! The client's side: a write in each of its forms, and a register that many clients read and
//! write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke::Endpoint;
use convoke::quorum::{Configuration, Majority, QuorumBuilder, QuorumError};
use tokio::time::Instant;

use crate::cluster::fingerprint;
use crate::form::{Form, Phases};
use crate::proto::{Key, NestedValue, StorageClient, StorageMembers, Value, WriteResponse};
use crate::register::Version;

/// The replicas as a client sees them. Cheap to clone.
///
/// An endpoint has one client and its clones: they know of each other's versions, and give no two
/// values one version. An endpoint that starts again takes another node id, as it does by default,
/// since it has forgotten them.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    storage: StorageMembers,
    members: Configuration,
    fingerprint: u64,
    deadline: Duration,
    /// The greatest timestamp that was chosen here, of any key: what was sent once may be stored,
    /// whether or not its write went well.
    chosen: Arc<AtomicU64>,
}

/// Reason why a value was not written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no quorum.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// Somebody has written with the greatest timestamp there is: a faulty writer, who has used the
    /// key up, or another that this client has written.
    #[error(
        "{key:?}, or a key that was written here before, has the greatest timestamp there is, so \
         nothing newer can be written"
    )]
    NoTimestampLeft {
        /// The key.
        key: String,
    },
}

impl Client {
    /// A client of these replicas, to which its endpoint knows the way, of the cluster of this
    /// number.
    pub fn new(endpoint: &Endpoint, cluster: u64, members: Configuration) -> Self {
        let storage = StorageClient::new(endpoint).on(&members);
        let (deadline, chosen) = (Duration::from_secs(10), Arc::default());
        let fingerprint = fingerprint(cluster, &members);
        Self { endpoint: endpoint.clone(), storage, members, fingerprint, deadline, chosen }
    }

    /// Ends each operation within `deadline`, with an answer or an error that says who is missing.
    /// Default 10 s.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The endpoint it asks from.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The replicas.
    pub fn members(&self) -> &Configuration {
        &self.members
    }

    /// A key as its replicas are asked for it.
    pub fn key(&self, key: &str) -> Key {
        Key { key: key.to_owned(), cluster: self.fingerprint }
    }

    fn of_cluster(&self, value: Value) -> Value {
        Value { cluster: self.fingerprint, ..value }
    }

    /// Writes a value of a version chosen by the caller.
    ///
    /// # Errors
    /// [`QuorumError`] as soon as no majority can answer. Replicas may have stored the value all
    /// the same.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, replicas that have the request may have stored the value.
    pub async fn put(&self, form: Form, phases: Phases, value: Value) -> Result<(), QuorumError> {
        self.put_within(self.budget(), form, phases, value).await
    }

    async fn put_within(
        &self,
        budget: Budget,
        form: Form,
        phases: Phases,
        value: Value,
    ) -> Result<(), QuorumError> {
        if form != Form::Client {
            let call = self.open(form, phases, value).deadline(budget.left());
            call.acked_by(Majority).await?;
            return Ok(());
        }
        let call = self.open(form, phases, value.clone()).deadline(budget.left());
        call.acked_by(Majority).await?;
        for _ in 0..phases.count() {
            let value = self.of_cluster(value.clone());
            let echo = self.storage.echo_write(value).deadline(budget.left());
            echo.acked_by(Majority).await?;
        }
        Ok(())
    }

    /// The quorum call that a write begins with; all of it, unless the client leads the phases.
    pub fn open(&self, form: Form, phases: Phases, value: Value) -> QuorumBuilder<WriteResponse> {
        let value = self.of_cluster(value);
        let call = match (form, phases) {
            (Form::Nested, phases) => {
                let (value, phases) = (Some(value), phases.count());
                self.storage.nested_write(NestedValue { value, phases })
            }
            (Form::Client, _) | (Form::Echo, Phases::None) => self.storage.write(value),
            (Form::Echo, Phases::One) => self.storage.write_echo(value),
            (Form::Echo, Phases::Two) => self.storage.write_echo_echo(value),
        };
        call.deadline(self.deadline)
    }

    /// Writes a value that is newer than all whose write has ended, and than all that this client
    /// has tried to write: asks a majority for its versions first.
    ///
    /// # Errors
    /// [`WriteError`]; replicas may have stored the value all the same.
    pub async fn write(
        &self,
        form: Form,
        phases: Phases,
        key: &str,
        value: &[u8],
    ) -> Result<Version, WriteError> {
        let budget = self.budget();
        let newest = self.newest(budget, key).await?.0.timestamp;
        let Some(timestamp) = self.choose(newest) else {
            return Err(WriteError::NoTimestampLeft { key: key.to_owned() });
        };
        let (key, value, writer) = (key.to_owned(), value.to_vec(), self.endpoint.node().get());
        let value = Value { key, value, timestamp, writer, ..Value::default() };
        let version = value.version();
        self.put_within(budget, form, phases, value).await?;
        Ok(version)
    }

    /// A timestamp above this one, and above all that were chosen here.
    fn choose(&self, newest: u64) -> Option<u64> {
        let above = |chosen: u64| chosen.max(newest).checked_add(1);
        let before = self.chosen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, above).ok()?;
        above(before)
    }

    /// The newest value of a key: of the last write that has ended, or of one that runs. Where a
    /// majority does not agree on it, it is written back first, so that nobody reads an older one
    /// afterwards.
    ///
    /// # Errors
    /// [`QuorumError`] as soon as no majority can answer.
    pub async fn read(&self, key: &str) -> Result<Value, QuorumError> {
        let budget = self.budget();
        let (newest, is_agreed) = self.newest(budget, key).await?;
        if !is_agreed {
            self.put_within(budget, Form::Echo, Phases::None, newest.clone()).await?;
        }
        Ok(newest)
    }

    /// The newest value of a majority, and whether all of it have that one.
    async fn newest(&self, budget: Budget, key: &str) -> Result<(Value, bool), QuorumError> {
        let read = self.storage.read(self.key(key)).deadline(budget.left()).cancel_late();
        let values = read.quorum(Majority).await?;
        let newest = values.iter().map(|(_, value)| value);
        let newest = newest.max_by_key(|value| (value.version(), &value.value));
        let newest = newest.cloned().unwrap_or_default();
        let is_agreed = values.iter().all(|(_, value)| *value == newest);
        Ok((newest, is_agreed))
    }

    /// For an operation that begins now.
    fn budget(&self) -> Budget {
        Budget { begun: Instant::now(), deadline: self.deadline }
    }
}

/// The deadline of an operation, which its calls share.
#[derive(Clone, Copy, Debug)]
struct Budget {
    begun: Instant,
    deadline: Duration,
}

impl Budget {
    fn left(self) -> Duration {
        self.deadline.saturating_sub(self.begun.elapsed())
    }
}
