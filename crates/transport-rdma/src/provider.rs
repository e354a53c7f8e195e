//! The seam to a device: verbs, without their pointers.
//!
//! A [`Provider`] is one opened device with one completion queue and one channel of connection
//! events. The engine drives every provider in the same way, so what holds over the simulated one
//! ([`simulated`]) is what runs over real verbs.
//!
//! # What holds for every provider
//!
//! - **Nothing blocks.** Each method returns at once; what takes time reports itself by an
//!   [`Event`] or a [`Completion`].
//! - **Who calls.** [`poll_completions`](Provider::poll_completions),
//!   [`poll_event`](Provider::poll_event), [`arm`](Provider::arm) and
//!   [`poll_ready`](Provider::poll_ready) are called by one task at a time. Everything else may be
//!   called by any thread at the same time; posts to one queue pair come one at a time, since the
//!   engine holds the connection's lock.
//! - **Slots, not pointers.** A queue pair works on the slots of the one [`Slab`] it was made with,
//!   alone, and keeps it alive. A post moves the slot's state (`Slab::begin_receive`,
//!   `Slab::begin_send`) and fails when the slot is not the engine's to give; a completed receive
//!   moves it on (`Slab::end_receive`) before the completion is reported. So a slot never belongs
//!   to the device and to the program at once.
//! - **Every work request comes back**, as long as it was signalled or fails: with its result, or
//!   *flushed* once the queue pair has failed or was disconnected. An unsignalled send that
//!   succeeds reports nothing; a later signalled completion of the same queue pair means that all
//!   sends before it are done.
//! - **After an error** a queue pair is in its error state: what is posted then succeeds as a call
//!   and comes back flushed. A peer that goes away is told by [`Event::Disconnected`] and by
//!   nothing else: nothing is flushed until [`disconnect`](Provider::disconnect) is called.
//! - **Receiver-not-ready is an error** at once (no retries of it): the credits keep it from
//!   happening.
//! - **Order of destruction** is the provider's affair: handles may be dropped in any order.
//!   Dropping a queue pair stops the device from touching its slots before the drop returns.
//!
//! # Sleeping
//!
//! A completion queued before arming wakes nobody. So the engine polls until nothing comes, calls
//! `arm`, polls once more, and only then waits for `poll_ready`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::ffi::slab::Slab;

mod error;
mod inline;
pub mod simulated;
#[cfg(all(feature = "verbs", target_os = "linux"))]
pub mod verbs;
mod work;

pub use error::VerbsError;
pub(crate) use inline::{INVALID, InlineLimit};
pub use work::{Completion, Data, Direction, SendRequest, Tag, WorkId, WorkStatus};

/// Longest private data of a connect request, as rdma_cm over reliable connected queue pairs
/// allows.
pub const REQUEST_DATA_BYTES_MAX: usize = 56;
/// Longest private data of an accept.
pub const ACCEPT_DATA_BYTES_MAX: usize = 196;
/// Longest private data of a reject.
pub const REJECT_DATA_BYTES_MAX: usize = 148;

/// One opened device. See the [module](self) for what holds for every method.
pub trait Provider: Send + Sync + fmt::Debug + Sized + 'static {
    /// A place where connect requests arrive; closed when dropped: no [`Event::Request`] of it
    /// follows a drop, and requests that wait are rejected.
    type Listener: Send + Sync + fmt::Debug;
    /// A connect request that is neither accepted nor rejected; rejected without data when dropped.
    type Request: Send + fmt::Debug;
    /// A slab the device may access; deregistered when it and the queue pairs made with it are
    /// dropped.
    type Memory: Send + Sync + fmt::Debug;
    /// One reliable connected queue pair with its connection; destroyed when dropped, drained or
    /// not. After the drop neither event nor completion of its [`Tag`] is reported.
    type QueuePair: Send + Sync + fmt::Debug;

    /// Limits of the device.
    fn limits(&self) -> DeviceLimits;

    /// Registers all of a slab for local access. Remote access is never granted.
    ///
    /// # Errors
    /// [`VerbsError::MemoryLimit`] with limit and need when the system does not let so much be
    /// locked.
    fn register(&self, slab: &Arc<Slab>) -> Result<Self::Memory, VerbsError>;

    /// Accepts connect requests at `address`; answers where it listens, port 0 replaced by the
    /// system's choice.
    ///
    /// # Errors
    /// [`VerbsError::Address`] when it cannot be bound, or is no address of this device.
    fn listen(
        &self,
        tag: Tag,
        address: SocketAddr,
        backlog: u16,
    ) -> Result<(Self::Listener, SocketAddr), VerbsError>;

    /// Starts a connection: finds the way to `address` and makes a queue pair. [`Event::Resolved`]
    /// follows, or [`Event::Unreachable`], at the latest after `timeout`. Receives may be posted
    /// from `Resolved` on.
    ///
    /// # Errors
    /// Those of making a connection identifier; then no event follows.
    fn dial(
        &self,
        tag: Tag,
        address: SocketAddr,
        timeout: Duration,
        settings: QueuePairSettings,
        memory: &Arc<Self::Memory>,
    ) -> Result<Self::QueuePair, VerbsError>;

    /// Sends the connect request of a resolved queue pair, with at most [`REQUEST_DATA_BYTES_MAX`]
    /// of private data. [`Event::Established`], [`Event::Rejected`] or [`Event::Unreachable`]
    /// follows.
    ///
    /// # Errors
    /// [`VerbsError::System`]; then no event follows.
    fn connect(&self, queue_pair: &Self::QueuePair, private_data: &[u8]) -> Result<(), VerbsError>;

    /// Makes the queue pair of a request; receives may be posted to it at once.
    ///
    /// # Errors
    /// Those of making a queue pair; the request has then been rejected.
    fn prepare(
        &self,
        tag: Tag,
        request: Self::Request,
        settings: QueuePairSettings,
        memory: &Arc<Self::Memory>,
    ) -> Result<Self::QueuePair, VerbsError>;

    /// Accepts the request of a prepared queue pair, with at most [`ACCEPT_DATA_BYTES_MAX`] of
    /// private data. Completions of receives may come before [`Event::Established`]; sends may be
    /// posted from that event on.
    ///
    /// # Errors
    /// [`VerbsError::System`]; the queue pair is then of no use.
    fn accept(&self, queue_pair: &Self::QueuePair, private_data: &[u8]) -> Result<(), VerbsError>;

    /// Rejects a request with at most [`REJECT_DATA_BYTES_MAX`] of private data, as far as the
    /// other end can still be told.
    fn reject(&self, request: Self::Request, private_data: &[u8]);

    /// Ends the connection: the queue pair goes to its error state, and every work request comes
    /// back. May be called at any time after `dial` or `prepare`, and again; does nothing the
    /// second time.
    fn disconnect(&self, queue_pair: &Self::QueuePair);

    /// Number of bytes that may be sent inline, as granted: at least zero, maybe less than asked
    /// for.
    fn inline_bytes_max(&self, queue_pair: &Self::QueuePair) -> u32;

    /// Posts one receive of a whole slot for each of `slots`, in order, with the id
    /// [`WorkId::receive`]. The slots become the device's.
    ///
    /// # Errors
    /// [`PostError`]; those before it are posted.
    fn post_receives(&self, queue_pair: &Self::QueuePair, slots: &[u32]) -> Result<(), PostError>;

    /// Posts one send; [`WorkId::send`] says how it is called. Inline bytes have been copied when
    /// it returns; a slot is the device's until a completion of this or a later send of the queue
    /// pair.
    ///
    /// # Errors
    /// [`VerbsError::QueueFull`] when the send queue has no room; a provider over a device that
    /// does not notice counts itself. Others as the device says.
    fn post_send(
        &self,
        queue_pair: &Self::QueuePair,
        send: &SendRequest<'_>,
    ) -> Result<(), VerbsError>;

    /// Posts sends in order, each as with [`post_send`](Self::post_send), with one ring of the
    /// doorbell.
    ///
    /// # Errors
    /// [`PostError`]; those before it are posted.
    fn post_sends(
        &self,
        queue_pair: &Self::QueuePair,
        sends: &[SendRequest<'_>],
    ) -> Result<(), PostError>;

    /// Appends at most `budget` completions to `into`; answers how many. Those of dropped queue
    /// pairs are left out and do not count.
    ///
    /// # Errors
    /// [`VerbsError::DeviceLost`] when the completion queue has failed.
    fn poll_completions(
        &self,
        budget: usize,
        into: &mut Vec<Completion>,
    ) -> Result<usize, VerbsError>;

    /// The next event of a connection or of the device; `None` when there is none now.
    fn poll_event(&self) -> Option<Event<Self>>;

    /// Asks for one wake-up of [`poll_ready`](Self::poll_ready) at the next completion. Arming
    /// twice is arming once.
    ///
    /// # Errors
    /// [`VerbsError::DeviceLost`] when the completion queue has failed.
    fn arm(&self) -> Result<(), VerbsError>;

    /// Ready once a completion has come since [`arm`](Self::arm), or an event waits for
    /// [`poll_event`](Self::poll_event). May be ready without either. Called within a tokio
    /// runtime, always the same, where a provider registers its descriptors on the first call; the
    /// last caller's task is woken.
    ///
    /// # Errors
    /// [`VerbsError::DeviceLost`] when the descriptors cannot be waited for: they could not be
    /// registered, or the runtime has ended.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), VerbsError>>;
}

/// Limits of a device, so far as they matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Its name, such as `mlx5_0`, for messages.
    pub name: String,
    /// Most work requests of one queue.
    pub work_requests_max: u32,
    /// Most completions that can wait, over all queue pairs: the sum of their queues must stay
    /// within.
    pub completions_max: u32,
}

impl DeviceLimits {
    /// Looks whether a queue pair can be made with these settings, of which many a device only says
    /// that an argument does not do.
    pub(crate) fn check(&self, settings: &QueuePairSettings) -> Result<(), VerbsError> {
        let most = self.work_requests_max;
        let wanted = settings.receives_max.max(settings.sends_max);
        if wanted > most {
            let advice =
                format!("a queue holds {most}, and {wanted} are needed; lower the slots per peer");
            return Err(VerbsError::Exhausted { what: "work requests", advice });
        }
        Ok(())
    }
}

/// Settings with which a queue pair is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairSettings {
    /// Receives that may be posted at once.
    pub receives_max: u32,
    /// Sends that may be posted at once, signalled or not, until a completion shows that they are
    /// done.
    pub sends_max: u32,
    /// Bytes to send inline, as wished; see [`Provider::inline_bytes_max`]. Where the device
    /// refuses so many, the provider asks for fewer.
    pub inline_bytes: u32,
    /// Number of times that an unanswered packet is sent again, 0 to 6. Seven means for ever on
    /// some devices.
    pub retry_count: u8,
    /// Time until it is sent again: 4.096 us times two to the power of this. A silent peer is given
    /// up after `retry_count + 1` times as long, about.
    pub ack_timeout_exponent: u8,
}

/// A post that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {posted} could not be posted: {error}")]
pub struct PostError {
    /// Number of requests before it that were posted.
    pub posted: usize,
    /// Reason.
    pub error: VerbsError,
}

/// Event of a connection or of the device.
#[derive(Debug)]
pub enum Event<P: Provider> {
    /// Somebody wants to connect to a listener.
    Request {
        /// The listener's.
        listener: Tag,
        /// To prepare, or to reject.
        request: P::Request,
        /// Address of the end that asks.
        peer: SocketAddr,
        /// The address of this end that was asked.
        local: SocketAddr,
        /// Private data that it sent along, maybe padded with zeroes.
        private_data: Vec<u8>,
    },
    /// A dialled queue pair exists; it takes receives, and then [`Provider::connect`].
    Resolved {
        /// The queue pair's.
        tag: Tag,
        /// The address of this end.
        local: SocketAddr,
    },
    /// A queue pair is connected; it takes sends.
    Established {
        /// The queue pair's.
        tag: Tag,
        /// Private data that the accepting end sent along, maybe padded with zeroes; empty at the
        /// accepting end.
        private_data: Vec<u8>,
    },
    /// The other end does not want the connection.
    Rejected {
        /// The queue pair's.
        tag: Tag,
        /// True when somebody listens there and said no; otherwise nobody listens.
        is_by_listener: bool,
        /// Private data that it sent along, maybe padded with zeroes.
        private_data: Vec<u8>,
    },
    /// The other end cannot be reached, or did not answer in time.
    Unreachable {
        /// The queue pair's.
        tag: Tag,
        /// Reason, as far as is known.
        error: VerbsError,
    },
    /// The other end has disconnected or died, or has answered our disconnect.
    Disconnected {
        /// The queue pair's.
        tag: Tag,
    },
    /// The device has put a queue pair into its error state, without a completion that says why.
    Failed {
        /// The queue pair's.
        tag: Tag,
        /// Error of the device.
        error: VerbsError,
    },
    /// The device is gone, or its completion queue failed: nothing of it works any more.
    DeviceLost {
        /// Error of the device.
        error: VerbsError,
    },
}
