//! Four members with a register each, and a client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use convoke::quorum::Configuration;
use convoke::sim::transport::SimNetwork;
use convoke::{Code, Context, Endpoint, EndpointBuilder, Finish, NodeId, Status, Task};

use super::replicated::{
    Entry, Key, Storage, StorageClient, StorageMembers, StorageServer, Stored, storage,
};

/// One way between any two nodes.
pub(crate) const DELAY: Duration = Duration::from_millis(1);

/// A deadline for calls that cannot be answered.
pub(crate) const SOON: Duration = Duration::from_secs(1);

const CLIENT: u64 = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Register {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<String, Vec<Entry>>,
    log: Vec<String>,
    refuses: bool,
    hangs: bool,
}

pub(crate) fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

pub(crate) fn configuration() -> Configuration {
    Configuration::new((1..=4).map(|id| (id, format!("sim://n{id}")))).expect("distinct ids")
}

pub(crate) fn key(key: &str) -> Key {
    Key { key: key.to_owned() }
}

pub(crate) fn entry(key: &str, version: u64) -> Entry {
    Entry { key: key.to_owned(), value: format!("{key} {version}"), version }
}

impl Register {
    /// From now on it stores nothing.
    pub(crate) fn refuse(&self) {
        self.state().refuses = true;
    }

    /// From now on handlers that append do not return.
    pub(crate) fn hang(&self) {
        self.state().hangs = true;
    }

    pub(crate) fn read(&self, key: &str) -> Entry {
        let state = self.state();
        let newest = state.entries.get(key).and_then(|entries| entries.last());
        newest.cloned().unwrap_or_default()
    }

    /// Entries that were appended, forgotten and hinted, and whom requests say to be by, in order.
    pub(crate) fn log(&self) -> Vec<String> {
        self.state().log.clone()
    }

    fn store(&self, entry: Entry) -> Result<Stored, Status> {
        let mut state = self.state();
        if state.refuses {
            return Err(Status::new(Code::PermissionDenied, "it refuses"));
        }
        let version = entry.version;
        state.entries.entry(entry.key.clone()).or_default().push(entry);
        Ok(Stored { version })
    }

    /// Notes whom a request says to be by.
    fn note(&self, context: &Context) {
        if let Some(by) = context.metadata().text("by") {
            self.state().log.push(format!("by {by}"));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Register {
    async fn read(&self, request: Key, context: Context) -> Result<Entry, Status> {
        self.note(&context);
        Ok(Self::read(self, &request.key))
    }

    async fn write(&self, request: Entry, _: Context) -> Result<(), Status> {
        self.store(request).map(drop)
    }

    async fn write_echo(&self, request: Entry, context: Context) -> Result<Stored, Status> {
        self.note(&context);
        self.store(request)
    }

    async fn write_echo_echo(&self, request: Entry, _: Context) -> Result<Stored, Status> {
        self.store(request)
    }

    async fn append(&self, request: Entry, _: Context) -> Result<(), Status> {
        self.state().log.push(request.key);
        let hangs = self.state().hangs;
        if hangs {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn forget(&self, request: Key, _: Context) -> Result<(), Status> {
        self.state().log.push(request.key);
        Ok(())
    }

    async fn hint(&self, request: Key, context: Context) -> Result<(), Status> {
        self.note(&context);
        self.state().log.push(format!("hint {}", request.key));
        Ok(())
    }

    async fn collect(&self, request: Key, task: Task<Entry>) -> Result<Finish, Status> {
        task.reply(&Self::read(self, &request.key))?;
        // Members 2 to 4 reply to the initiator themselves.
        let others = configuration().without([node(1)]);
        let others = others.members().iter();
        task.fan_out(others.map(|other| (other, storage::READ.request(request.clone())))).await
    }

    async fn history(&self, request: Key, task: Task<Entry>) -> Result<Finish, Status> {
        let entries = self.state().entries.get(&request.key).cloned().unwrap_or_default();
        let mut stream = task.stream()?;
        for entry in entries {
            stream.send(&entry).await?;
        }
        drop(stream);
        Ok(task.finish())
    }

    async fn on_(&self, (): (), _: Context) -> Result<Entry, Status> {
        Err(Status::new(Code::Unimplemented, "deprecated"))
    }
}

/// Members 1 to 4, and a client that is none of them.
pub(crate) struct Cluster {
    pub(crate) members: Configuration,
    pub(crate) client: Endpoint,
    pub(crate) storage: StorageClient,
    network: SimNetwork,
    registers: BTreeMap<u64, Arc<Register>>,
    servers: BTreeMap<u64, Endpoint>,
}

fn endpoint(network: &SimNetwork, id: u64) -> EndpointBuilder {
    let builder = Endpoint::builder().node(node(id)).transport(network.transport());
    builder.listen(format!("sim://n{id}")).seed(id)
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_in_epoch(0).await
    }

    /// All connected to all, [`DELAY`] apart.
    pub(crate) async fn start_in_epoch(epoch: u64) -> Self {
        let (network, members) = (SimNetwork::new(7), configuration());
        let registers: BTreeMap<u64, Arc<Register>> =
            (1..=4).map(|id| (id, Arc::default())).collect();
        let mut servers = BTreeMap::new();
        for (&id, register) in &registers {
            let server = StorageServer::from_arc(register.clone());
            let server = server.members(members.with_epoch(epoch));
            let server = endpoint(&network, id).serve(server).start().await.unwrap();
            servers.insert(id, server);
        }
        let client = endpoint(&network, CLIENT).start().await.unwrap();
        for endpoint in servers.values().chain([&client]) {
            members.introduce(endpoint).unwrap();
            endpoint.peer(node(CLIENT), [format!("sim://n{CLIENT}")]).unwrap();
        }
        for endpoint in servers.values().chain([&client]) {
            for member in &members {
                endpoint.warm_up(member).await.unwrap();
            }
        }
        network.default_latency(DELAY);
        let storage = StorageClient::new(&client);
        Self { members, client, storage, network, registers, servers }
    }

    pub(crate) fn at_members(&self) -> StorageMembers {
        self.storage.on(&self.members)
    }

    pub(crate) fn register(&self, id: u64) -> &Register {
        &self.registers[&id]
    }

    pub(crate) fn crash(&mut self, id: u64) {
        self.network.crash(node(id));
        self.servers.remove(&id);
    }

    /// Lets everything that is on its way arrive.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(100 * DELAY).await;
    }

    pub(crate) async fn stop(self) {
        for endpoint in self.servers.into_values().chain([self.client]) {
            assert!(endpoint.shutdown(Duration::from_secs(30)).await, "something still runs");
        }
    }
}
