//! A replica as a node: the write in its forms, served by one endpoint.

use std::sync::{Arc, OnceLock};

use convoke::quorum::{Configuration, Majority};
use convoke::{Code, Context, Endpoint, Service, Status};
use parking_lot::Mutex;

use crate::proto::{
    Key, NestedValue, Storage, StorageClient, StorageMembers, StorageServer, UsageReport,
    UsageRequest, Value, WriteResponse,
};
use crate::register::{Refused, Registers, Version};

/// Keys of a replica, at most. With values as large as messages may be, that is what bounds its memory.
pub const KEYS_MAX: usize = 1 << 20;

/// What a replica does with a write, besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// Nothing.
    #[default]
    Lives,
    /// Its process ends once it has stored the write, before anybody else learns of it.
    CrashesOnWrite,
}

/// One replica and the way to the others.
#[derive(Debug)]
pub struct Replica {
    registers: Mutex<Registers>,
    fate: Fate,
    joined: OnceLock<Joined>,
}

#[derive(Debug)]
struct Joined {
    storage: StorageMembers,
    endpoint: Endpoint,
}

impl Replica {
    /// A replica that does not know the others yet.
    pub fn new(fate: Fate) -> Arc<Self> {
        let registers = Mutex::new(Registers::new(KEYS_MAX));
        Arc::new(Self { registers, fate, joined: OnceLock::new() })
    }

    /// What an endpoint serves, which is one of these members. It echoes among them.
    pub fn service(self: &Arc<Self>, members: &Configuration) -> Service {
        StorageServer::from_arc(self.clone()).members(members.clone()).into()
    }

    /// Tells it the endpoint by which it calls the others, itself included.
    ///
    /// # Panics
    /// The second time.
    pub fn join(&self, endpoint: &Endpoint, members: &Configuration) {
        let storage = StorageClient::new(endpoint).on(members);
        let joined = Joined { storage, endpoint: endpoint.clone() };
        self.joined.set(joined).expect("a replica joins once");
    }

    fn joined(&self) -> Result<&Joined, Status> {
        let status = || Status::new(Code::Unavailable, "this replica does not know the others yet");
        self.joined.get().ok_or_else(status)
    }

    fn store(&self, value: Value) -> Result<Version, Status> {
        Ok(self.registers.lock().write(value)?)
    }

    /// What every write of a client begins with.
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
    async fn write(&self, value: Value, _: &Context) -> Result<WriteResponse, Status> {
        Ok(self.take(value)?.into())
    }

    // The phases follow when the value is stored: the generated server leads them.
    async fn write_echo(&self, value: Value, _: &Context) -> Result<WriteResponse, Status> {
        Ok(self.take(value)?.into())
    }

    async fn write_echo_echo(&self, value: Value, _: &Context) -> Result<WriteResponse, Status> {
        Ok(self.take(value)?.into())
    }

    async fn nested_write(
        &self,
        nested: NestedValue,
        context: &Context,
    ) -> Result<WriteResponse, Status> {
        let storage = &self.joined()?.storage;
        let value = nested.value.unwrap_or_default();
        if nested.phases > NESTED_PHASES_MAX {
            return Err(Status::new(Code::InvalidArgument, "there are two phases at most"));
        }
        let version = self.take(value.clone())?;
        for _ in 0..nested.phases {
            let echo = storage.echo_write(value.clone()).deadline(context.remaining());
            echo.acked_by(Majority).await?;
        }
        Ok(version.into())
    }

    async fn echo_write(&self, value: Value, _: &Context) -> Result<WriteResponse, Status> {
        Ok(self.store(value)?.into())
    }

    async fn read(&self, key: Key, _: &Context) -> Result<Value, Status> {
        Ok(self.registers.lock().read(key))
    }

    async fn usage(&self, _: UsageRequest, _: &Context) -> Result<UsageReport, Status> {
        Ok(usage(&self.joined()?.endpoint))
    }
}

/// A client may not have the replicas work for ever.
const NESTED_PHASES_MAX: u32 = 2;

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let code = match refused {
            Refused::NoTimestamp => Code::InvalidArgument,
            Refused::TooManyKeys { .. } => Code::ResourceExhausted,
        };
        Self::new(code, refused.to_string())
    }
}

/// What this process has used and its endpoint has sent.
pub fn usage(endpoint: &Endpoint) -> UsageReport {
    let cpu = cpu_time::ProcessTime::now().as_duration();
    UsageReport {
        cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX),
        frames_sent: endpoint.counters().frames_sent,
    }
}
