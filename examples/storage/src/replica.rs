//! A replica as a node: the write in its forms, served by one endpoint.

use convoke::quorum::{Configuration, Majority};
use convoke::{Code, Context, Endpoint, NodeId, Status};
use parking_lot::Mutex;

use crate::cluster::fingerprint;
use crate::proto::{
    Key, NestedValue, Storage, StorageClient, StorageServer, UsageReport, UsageRequest, Value,
    WriteResponse,
};
use crate::register::{Refused, Registers, Version};

/// Memory of a replica's keys and values, at most: a part of any machine.
pub const BYTES_MAX: usize = 256 << 20;

/// Fate of a replica when it takes a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    #[default]
    Lives,
    /// Its process ends once it has stored the write, before anybody else learns of it.
    CrashesOnWrite,
}

/// One replica. Where the others are is the concern of its endpoint.
#[derive(Debug)]
pub struct Replica {
    registers: Mutex<Registers>,
    fate: Fate,
    cluster: u64,
    members: Configuration,
    fingerprint: u64,
}

impl Replica {
    /// One of these members, of the cluster of this number.
    pub fn new(fate: Fate, cluster: u64, members: &Configuration) -> Self {
        let registers = Mutex::new(Registers::new(BYTES_MAX));
        let fingerprint = fingerprint(cluster, members);
        Self { registers, fate, cluster, members: members.clone(), fingerprint }
    }

    /// Service that its endpoint serves. It echoes among the members.
    pub fn service(self) -> StorageServer<Self> {
        let members = self.members.clone();
        StorageServer::new(self).members(members)
    }

    /// Refuses a request that means other members: two majorities need not have one in common then.
    fn check(&self, meant: u64) -> Result<(), Status> {
        let Self { cluster, members, .. } = self;
        if meant == self.fingerprint {
            return Ok(());
        }
        let nodes: Vec<u64> = members.nodes().map(NodeId::get).collect();
        let text = format!(
            "it is a replica of cluster {cluster} with the members {nodes:?}, and another was \
             meant: take the cluster file that the replicas have"
        );
        Err(Status::new(Code::FailedPrecondition, text))
    }

    fn store(&self, value: Value) -> Result<Version, Status> {
        self.check(value.cluster)?;
        Ok(self.registers.lock().write(value)?)
    }

    /// First step of every write of a client: stores the value, and ends the process there if
    /// that is the replica's fate.
    fn take(&self, value: Value) -> Result<Version, Status> {
        let version = self.store(value)?;
        match self.fate {
            Fate::Lives => Ok(version),
            Fate::CrashesOnWrite => std::process::exit(CRASHED),
        }
    }
}

/// The exit code of a replica that crashes as it is told to.
pub const CRASHED: i32 = 70;

impl Storage for Replica {
    async fn write(&self, value: Value, _: Context) -> Result<WriteResponse, Status> {
        Ok(self.take(value)?.into())
    }

    // The phases follow when the value is stored: the generated server leads them.
    async fn write_echo(&self, value: Value, _: Context) -> Result<WriteResponse, Status> {
        Ok(self.take(value)?.into())
    }

    async fn write_echo_echo(&self, value: Value, _: Context) -> Result<WriteResponse, Status> {
        Ok(self.take(value)?.into())
    }

    async fn nested_write(
        &self,
        nested: NestedValue,
        context: Context,
    ) -> Result<WriteResponse, Status> {
        let value = nested.value.unwrap_or_default();
        if nested.phases > NESTED_PHASES_MAX {
            return Err(Status::new(Code::InvalidArgument, "there are two phases at most"));
        }
        let version = self.take(value.clone())?;
        let storage = StorageClient::new(&context).on(&self.members);
        for _ in 0..nested.phases {
            storage.echo_write(value.clone()).acked_by(Majority).await?;
        }
        Ok(version.into())
    }

    async fn echo_write(&self, value: Value, _: Context) -> Result<WriteResponse, Status> {
        Ok(self.store(value)?.into())
    }

    async fn read(&self, key: Key, _: Context) -> Result<Value, Status> {
        self.check(key.cluster)?;
        Ok(self.registers.lock().read(key))
    }

    async fn usage(&self, _: UsageRequest, context: Context) -> Result<UsageReport, Status> {
        Ok(usage(&context.endpoint()))
    }
}

/// A client may not have the replicas work for ever.
const NESTED_PHASES_MAX: u32 = 2;

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let code = match refused {
            Refused::NoTimestamp => Code::InvalidArgument,
            Refused::Full { .. } => Code::ResourceExhausted,
        };
        Self::new(code, refused.to_string())
    }
}

/// Resources that this process has used, and frames that its endpoint has sent.
pub fn usage(endpoint: &Endpoint) -> UsageReport {
    let cpu = cpu_time::ProcessTime::now().as_duration();
    UsageReport {
        cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX),
        frames_sent: endpoint.counters().frames_sent,
    }
}
