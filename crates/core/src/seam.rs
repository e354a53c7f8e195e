//! Methods of this crate's types for the crates that are built on it: quorum calls, overlays, the
//! gRPC edge. They are invisible where their trait is not imported, and the facade does not have
//! them.

use std::sync::Arc;
use std::task::{Context, Poll};

use convoke_proto::wire::Extension;

use crate::carrier::{BodyCarrier, CarrierTaken};
pub use crate::client::Progress;

/// News of a [`Call`](crate::Call), one by one.
pub trait CallSeam<Resp> {
    /// Next news of the call; `None` at the end, which [`Call::end`](crate::Call::end) then names.
    /// For those who count members rather than replies; failures seen so are not in the outcome.
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Option<Progress<Resp>>>;
}

/// More news of the call that a [`CallBuilder`](crate::CallBuilder) opens.
pub trait CallBuilderSeam: Sized {
    /// Tells also of branches that end without a reply, as [`Progress::Silent`].
    #[must_use]
    fn tell_silent(self) -> Self;

    /// Tells also of branches whose request was handed to a connection, as [`Progress::Sent`].
    /// Those at this node itself are not told of.
    #[must_use]
    fn tell_sent(self) -> Self;

    /// Does not end a branch by what the task above it says of it, such as that its node cannot be
    /// reached: it may live and answer.
    #[must_use]
    fn ignore_hearsay(self) -> Self;
}

/// Extensions of a [`Request`](crate::Request).
pub trait RequestSeam: Sized {
    /// Adds an extension as it goes over the wire, such as the
    /// [trace context](convoke_proto::wire::extension::TRACE_CONTEXT) a gateway was given.
    #[must_use]
    fn raw_extension(self, extension: Extension) -> Self;
}

/// Methods that an [`Endpoint`](crate::Endpoint) serves, and the carrier of its large messages.
pub trait EndpointSeam {
    /// Gives large messages of fan-outs to `carrier` from now on, and takes from it those of
    /// others.
    ///
    /// # Errors
    /// [`CarrierTaken`] when it has one.
    fn carry_bodies(&self, carrier: Arc<dyn BodyCarrier>) -> Result<(), CarrierTaken>;

    /// Sends all messages within their requests again.
    fn stop_carrying(&self);

    /// The name of a method, `package.Service/Method`, if this endpoint serves it.
    fn served_method(&self, name: &str) -> Option<&'static str>;

    /// True when this endpoint serves a method of this name, and that takes a streamed request.
    fn takes_items(&self, name: &str) -> bool;
}
