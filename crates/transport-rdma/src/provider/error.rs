//! Errors of a device, and what to do about them.

/// Reason why a device did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// There is no device, or none of the name.
    #[error("no RDMA device {wanted}: {advice}")]
    NoDevice {
        /// Name that was asked for.
        wanted: String,
        /// Advice on getting one.
        advice: String,
    },
    /// This system has no verbs: they are Linux's.
    #[error("no RDMA device {wanted}: devices are opened on Linux alone; use tcp:// here")]
    Unsupported {
        /// Name that was asked for.
        wanted: String,
    },
    /// The process may not use the device.
    #[error(
        "no permission for {what}: the user needs access to /dev/infiniband (group rdma on most \
         systems)"
    )]
    Permission {
        /// Thing that was asked for.
        what: String,
    },
    /// The system does not let the process lock so much memory. Who dials is told so in 128 bytes,
    /// so the advice comes before the numbers.
    #[error(
        "cannot register {needed_bytes} bytes: raise ulimit -l or LimitMEMLOCK=, or lower the \
         slots per peer; {used_bytes} of {} bytes are taken",
        limit_text(*.limit_bytes)
    )]
    MemoryLimit {
        /// Bytes that were to be registered.
        needed_bytes: u64,
        /// Bytes that this device has registered already.
        used_bytes: u64,
        /// Bytes that the system allows; `None` when the limit could not be read.
        limit_bytes: Option<u64>,
    },
    /// The device has no more of something.
    #[error("the device has no room for more {what}: {advice}")]
    Exhausted {
        /// Thing that it has no more of.
        what: &'static str,
        /// Advice on what to change.
        advice: String,
    },
    /// An address cannot be bound, resolved or reached.
    #[error("{0}")]
    Address(String),
    /// A queue is full: more was posted than it was made for.
    #[error("the {0} queue is full")]
    QueueFull(&'static str),
    /// A slot that was posted is not free to be; a bug of the program.
    #[error("slot {0} is in use")]
    SlotInUse(u32),
    /// The device is gone or has failed.
    #[error("the RDMA device is lost: {0}")]
    DeviceLost(String),
    /// The runtime that drives the device has ended.
    #[error("the runtime of the device has ended: listen and dial on one that goes on")]
    NoRuntime,
    /// A call failed.
    #[error("{call} failed: {message}")]
    System {
        /// Name of the call, such as `ibv_create_qp`.
        call: &'static str,
        /// The system's error number, or the device's status.
        code: i32,
        /// Meaning of the code.
        message: String,
    },
}

impl VerbsError {
    /// A queue pair cannot be made on a slab that another one works on.
    pub(crate) fn slab_in_use(call: &'static str) -> Self {
        Self::System { call, code: BUSY, message: "another queue pair works on the slab".into() }
    }
}

/// The system's error number for a thing in use, `EBUSY`.
const BUSY: i32 = 16;

fn limit_text(limit_bytes: Option<u64>) -> String {
    limit_bytes.map_or_else(|| "an unknown number of".into(), |bytes| bytes.to_string())
}
