//! From two greetings to a connection that the sink has taken.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::hello::{ADDRESSES_MAX, Greeting};
use super::{Ends, Lifetime, Seat, Settings};
use crate::id::LinkNonce;
use crate::{CloseReason, Link, Principal, Remote, Sink, sockets};

/// Both greetings and the ends they are of.
#[derive(Debug)]
pub struct Opening<'a> {
    /// Greeting of this end.
    pub mine: &'a Greeting,
    /// Greeting of the other end.
    pub theirs: &'a Greeting,
    /// True at the end that dialled.
    pub is_dialler: bool,
    /// Scheme of the connection.
    pub scheme: &'static str,
    /// Principal that the other end has proven to be.
    pub principal: Option<Principal>,
    /// Place that the other end connects from.
    pub remote: Option<Remote>,
}

/// Text with which the sink of this end refused a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedHere(pub String);

impl Greeting {
    /// Greeting of this end, for a peer that reaches it at, or is dialled from, `local`. `random`
    /// is this end's half of the connection's name. The limits of chunks and windows are those that
    /// this end grants, control first.
    pub fn of(
        sink: &dyn Sink,
        settings: &Settings,
        local: IpAddr,
        random: u64,
        (chunk_bytes_max, [control_window, data_window]): (u32, [u32; 2]),
    ) -> Self {
        let mut hello = sink.hello();
        hello.advertised = sockets::advertised(&hello.advertised, local);
        hello.advertised.truncate(ADDRESSES_MAX);
        let frame_bytes_max = settings.frame_bytes_max_for(hello.frame_bytes_max);
        hello.frame_bytes_max = hello.frame_bytes_max.min(frame_bytes_max);
        let keep_alive_timeout = settings.keep_alive_timeout;
        Self {
            hello,
            random,
            chunk_bytes_max,
            control_window,
            data_window,
            keep_alive_timeout,
            flow: None,
        }
    }
}

impl Opening<'_> {
    /// Description of the connection.
    pub fn link(&self) -> Link {
        let (dialler, acceptor) =
            if self.is_dialler { (self.mine, self.theirs) } else { (self.theirs, self.mine) };
        Link {
            peer: self.theirs.hello.clone(),
            nonce: LinkNonce::of(dialler.random, acceptor.random),
            is_dialler: self.is_dialler,
            scheme: self.scheme,
            principal: self.principal.clone(),
            remote: self.remote.clone(),
        }
    }

    /// Shows the connection to the sink.
    ///
    /// # Errors
    /// [`RefusedHere`] when the sink does not want it; it is then ended with that text.
    pub fn show<C: Ends>(
        &self,
        connection: C,
        sink: &Arc<dyn Sink>,
        seat: Option<Seat>,
    ) -> Result<Lifetime<C>, RefusedHere> {
        let connection = Arc::new(connection);
        if let Err(text) = sink.on_open(Arc::clone(&connection) as _) {
            // A handle the sink kept must not wait for ever.
            connection.end(CloseReason::Fault(text.clone()));
            return Err(RefusedHere(text));
        }
        let Self { theirs, is_dialler, .. } = self;
        tracing::debug!(peer = %theirs.hello.node, is_dialler, "connection open");
        Ok(Lifetime::new(connection, Arc::clone(sink), seat))
    }
}

/// Longest time between sends of this end, so that neither the setting nor the peer's timeout is
/// missed.
pub fn keep_alive_interval(settings: &Settings, theirs: &Greeting) -> Duration {
    settings.keep_alive_interval.min(theirs.keep_alive_timeout / 3)
}
