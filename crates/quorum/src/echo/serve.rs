//! Methods whose replies wait for echo phases, in a service.

use bytes::{Buf, BytesMut};
use convoke_core::{
    Code, Context, DecodeError, Digest, Handler, Method, NodeId, Payload, RawMessage, Service,
    ServiceOf, Status,
};

use crate::Configuration;

use super::digest::digest_of;
use super::error::EchoError;
use super::members::EchoMembers;
use super::plan::EchoPlan;
use super::round::EchoRound;

/// Adds methods with echo phases to a [`Service`]; generated servers do so for `echo_phases`.
pub trait EchoExt: Sized {
    /// Adds a method whose reply leaves a member only after so many majority echo phases among
    /// `members`.
    ///
    /// The handler runs first: what it stores is stored before this member votes for it. Then its
    /// reply is held, the member casts a digest of the method's name and the encoded request to all
    /// others, and the reply leaves once every phase has its majority. Metadata is not in the
    /// digest. A handler that fails does not vote. For crashes only: see [`EchoPlan::majority`].
    ///
    /// The members are a configuration, or [`EchoMembers`] that may change while it runs.
    ///
    /// A request must reach all members in one call. Of an ordered method only the handlers are:
    /// the next one starts when this one has returned, not when its phases are over, since another
    /// member may have begun with the next.
    ///
    /// An endpoint starts with such a service only if its node is one of the members. When a phase
    /// can have no quorum any more, the task fails with the [`Status`] of its
    /// [`EchoError`](super::EchoError), which names the phase and who is missing.
    ///
    /// ```
    /// # use convoke_core::{Context, Method, Service, Status};
    /// use convoke_quorum::{Configuration, echo::EchoExt};
    ///
    /// const WRITE: Method<String, u64> = Method::new("storage.Storage/Write");
    ///
    /// fn storage(members: &Configuration) -> Service {
    ///     Service::new().echo(WRITE, 2, members, |text: String, _: Context| async move {
    ///         Ok::<_, Status>(text.len() as u64)
    ///     })
    /// }
    /// ```
    #[must_use]
    fn echo<Req, Resp, F, Fut>(
        self,
        method: Method<Req, Resp>,
        phases: u16,
        members: impl Into<EchoMembers>,
        handler: F,
    ) -> Self
    where
        Req: Payload,
        Resp: Payload,
        F: Fn(Req, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, Status>> + Send + 'static;
}

impl EchoExt for Service {
    fn echo<Req, Resp, F, Fut>(
        self,
        method: Method<Req, Resp>,
        phases: u16,
        members: impl Into<EchoMembers>,
        handler: F,
    ) -> Self
    where
        Req: Payload,
        Resp: Payload,
        F: Fn(Req, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, Status>> + Send + 'static,
    {
        let (name, members) = (method.name(), members.into());
        let all = members.current();
        if let Err(error) = EchoPlan::majority(all.len(), phases) {
            return self.requires(move |_| Err(format!("{name}: {error}")));
        }
        let voters: Vec<NodeId> = all.nodes().collect();
        let service = self.requires(move |node| match all.contains(node) {
            true => Ok(()),
            false => Err(format!("{name} echoes among {all:?}, and {node} is none of them")),
        });
        service.hears(voters).unary(digested(method), move |request: Digested<Req>, context| {
            let Digested { message, digest } = request;
            let joined = join(&context, &members.current(), phases);
            let begun = joined.map(|round| (round, handler(message, context.clone())));
            async move {
                // A handler that was not begun has changed nothing.
                let (round, handled) = begun.map_err(Status::without_effect)?;
                let reply = handled.await?;
                // Whoever has the next request first must not wait for this node to come to it.
                context.release();
                round.agree(digest_with(name, digest)).await?;
                Ok::<_, Status>(reply)
            }
        })
    }
}

/// Adds methods with echo phases to a [`ServiceOf`], as [`EchoExt`] to a [`Service`].
pub trait EchoOf<S>: Sized {
    /// Adds a method whose reply leaves a member only after so many majority echo phases among
    /// `members`, as [`EchoExt::echo`].
    #[must_use]
    fn echo<Req, Resp, F>(
        self,
        method: Method<Req, Resp>,
        phases: u16,
        members: impl Into<EchoMembers>,
        handler: F,
    ) -> Self
    where
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: for<'a> Handler<'a, S, Req, Context, Resp> + Copy + Send + Sync + 'static;
}

impl<S: Send + Sync + 'static> EchoOf<S> for ServiceOf<S> {
    fn echo<Req, Resp, F>(
        self,
        method: Method<Req, Resp>,
        phases: u16,
        members: impl Into<EchoMembers>,
        handler: F,
    ) -> Self
    where
        Req: Payload + 'static,
        Resp: Payload + 'static,
        F: for<'a> Handler<'a, S, Req, Context, Resp> + Copy + Send + Sync + 'static,
    {
        let state = self.state().clone();
        let members = members.into();
        self.and(|service| {
            service.echo(method, phases, &members, move |request, context| {
                let state = state.clone();
                async move { handler(&state, request, context).await }
            })
        })
    }
}

/// Joins before the handler runs, for nothing is to be stored that cannot be voted on.
fn join(context: &Context, members: &Configuration, phases: u16) -> Result<EchoRound, Status> {
    let (asked, ours) = (context.epoch(), members.epoch());
    if asked != ours && asked != 0 {
        let text =
            format!("the request is for epoch {asked}, and this node echoes in epoch {ours}");
        return Err(Status::new(Code::FailedPrecondition, text));
    }
    let plan = EchoPlan::majority(members.len(), phases).map_err(EchoError::from)?;
    Ok(EchoRound::join(context, members, plan)?)
}

/// The same method, of requests that come with their digests.
fn digested<Req, Resp>(method: Method<Req, Resp>) -> Method<Digested<Req>, Resp> {
    let same = Method::new(method.name());
    if method.is_ordered() { same.ordered() } else { same }
}

/// Digest of a request to a method: else members that were asked for different methods with the
/// same message would agree.
fn digest_with(method: &str, request: Digest) -> Digest {
    digest_of(&[method.as_bytes(), &request.0].concat())
}

/// A message and the digest of the bytes it was decoded from. Encoding it anew need not give these
/// bytes: what a newer initiator adds is not known here, and members of all versions must vote for
/// the same.
#[derive(Debug)]
struct Digested<M> {
    message: M,
    digest: Digest,
}

impl<M: Payload> Payload for Digested<M> {
    fn encode(&self, out: &mut BytesMut) {
        self.message.encode(out);
    }

    fn decode(bytes: impl Buf) -> Result<Self, DecodeError> {
        let bytes = RawMessage::decode(bytes)?.into_bytes();
        let digest = digest_of(&bytes);
        Ok(Self { message: M::decode(bytes)?, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Old {
        #[prost(string, tag = "1")]
        value: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct New {
        #[prost(string, tag = "1")]
        value: String,
        #[prost(uint64, tag = "2")]
        version: u64,
    }

    #[test]
    fn members_that_know_fewer_fields_have_the_same_digest() {
        let bytes = New { value: "heron".to_owned(), version: 7 }.to_bytes();
        let old = Digested::<Old>::decode(&bytes[..]).unwrap();
        let new = Digested::<New>::decode(&bytes[..]).unwrap();
        assert_eq!((old.digest, new.digest), (digest_of(&bytes), digest_of(&bytes)));
        assert_eq!(old.message.value, new.message.value);
        assert_ne!(old.to_bytes(), bytes, "what the old one does not know is gone");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let error = Digested::<Old>::decode(&b"\xff"[..]).unwrap_err();
        assert_eq!(error, <Old as Payload>::decode(&b"\xff"[..]).unwrap_err());
    }

    #[test]
    fn a_method_stays_ordered() {
        const METHOD: Method<Old, New> = Method::new("test.Test/Write");
        assert!(digested(METHOD.ordered()).is_ordered() && !digested(METHOD).is_ordered());
        assert_eq!(digested(METHOD).id(), METHOD.id());
    }
}
