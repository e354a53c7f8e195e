//! Typed names of methods and the requests made of them.

mod raw;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use convoke_proto::call::RootRequest;
use convoke_proto::encoded::Encoded;
use convoke_proto::id::MethodId;

use crate::error::CallError;
use crate::message::Payload;
use convoke_proto::metadata::{self, Oversize};

pub(crate) use raw::OTHER;
pub use raw::{RawMessage, RequestSeam};

/// A method that takes a `Req` and is answered with `Resp`s, whoever sends them.
///
/// Generated from a `.proto` file, or written by hand:
/// ```
/// # use convoke_core::Method;
/// # #[derive(Clone, PartialEq, prost::Message)] struct Ask {}
/// # #[derive(Clone, PartialEq, prost::Message)] struct Answer {}
/// const ASK: Method<Ask, Answer> = Method::new("oracle.Oracle/Ask");
/// ```
pub struct Method<Req, Resp> {
    name: &'static str,
    id: MethodId,
    is_ordered: bool,
    is_read_only: bool,
    is_idempotent: bool,
    types: PhantomData<fn(Req) -> Resp>,
}

impl<Req, Resp> Method<Req, Resp> {
    /// The method with this full name, `package.Service/Method`.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            id: MethodId::of(name),
            is_ordered: false,
            is_read_only: false,
            is_idempotent: false,
            types: PhantomData,
        }
    }

    /// Its handlers run one at a time for each peer, in the order of submission, each until it
    /// returns or calls `release()`.
    #[must_use]
    pub const fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// It changes nothing: late tasks of a decided call may be cancelled.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Running it twice is the same as once: a request that may have run may be sent again.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.is_idempotent = true;
        self
    }

    /// `package.Service/Method`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its name on the wire.
    pub const fn id(&self) -> MethodId {
        self.id
    }

    /// True when its handlers run one at a time for each peer.
    pub const fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// True when it changes nothing.
    pub const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// True when running it twice is the same as once. A method that changes nothing is.
    pub const fn is_idempotent(&self) -> bool {
        self.is_idempotent || self.is_read_only
    }

    /// A request of this method with an encoded message; none where its items follow.
    pub(crate) fn request_of(&self, payload: Encoded) -> Request<Resp> {
        let request = Request::of(self.id, self.name, self.is_read_only, payload);
        Request { is_idempotent: self.is_idempotent(), ..request }
    }
}

impl<Req: Payload, Resp> Method<Req, Resp> {
    /// A request of this method.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers give the message away, as to any call"
    )]
    pub fn request(&self, message: Req) -> Request<Resp> {
        self.request_of(message.to_encoded())
    }
}

impl<Req, Resp> Clone for Method<Req, Resp> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Req, Resp> Copy for Method<Req, Resp> {}

impl<Req, Resp> fmt::Debug for Method<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A request that is to be answered with `Resp`s, not yet addressed.
pub struct Request<Resp> {
    /// As it opens a root branch.
    pub(crate) root: RootRequest,
    pub(crate) name: &'static str,
    pub(crate) is_read_only: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) oversize: Option<Oversize>,
    types: PhantomData<fn() -> Resp>,
}

impl<Resp> Request<Resp> {
    fn of(method: MethodId, name: &'static str, is_read_only: bool, payload: Encoded) -> Self {
        let root = RootRequest { method, extensions: Vec::new(), payload, budget: None };
        let (is_idempotent, oversize, types) = (is_read_only, None, PhantomData);
        Self { root, name, is_read_only, is_idempotent, oversize, types }
    }

    /// The full name of its method.
    pub fn method_name(&self) -> &'static str {
        self.name
    }

    /// True when its method says that running it twice is the same as once.
    pub fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// True when its method says that it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Refuses it where its metadata is too large, or its message larger than `limit`.
    pub(crate) fn check_size(&self, limit: usize) -> Result<(), CallError> {
        let size = self.root.payload.len();
        match self.oversize {
            Some((size, limit)) => Err(CallError::MetadataTooLarge { size, limit }),
            None if size > limit => Err(CallError::TooLarge { size, limit }),
            None => Ok(()),
        }
    }

    /// The branch that it opens ends within `deadline`, with [`Cause::Deadline`]; the others go on.
    /// Default: that of its call or task, which it never exceeds.
    ///
    /// A branch of the call itself is ended by the initiator, that of a task by the node it is at.
    /// Should that node hang, the branch of a task stays open until the node is lost or the call
    /// ends.
    ///
    /// [`Cause::Deadline`]: crate::Cause::Deadline
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.root.budget = Some(deadline);
        self
    }

    /// Adds metadata, which the handlers of this request and of all branches below it can read. A
    /// key of more than 255 bytes, or more than 16,000 bytes in all, makes the call fail as too
    /// large.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        if let Err(oversize) = metadata::push(&mut self.root.extensions, key, value.as_ref()) {
            self.oversize = Some(oversize);
        }
        self
    }
}

impl<Resp> Clone for Request<Resp> {
    fn clone(&self) -> Self {
        Self {
            root: self.root.clone(),
            name: self.name,
            is_read_only: self.is_read_only,
            is_idempotent: self.is_idempotent,
            oversize: self.oversize,
            types: PhantomData,
        }
    }
}

impl<Resp> fmt::Debug for Request<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.name)
            .field("payload_bytes", &self.root.payload.len())
            .finish_non_exhaustive()
    }
}
