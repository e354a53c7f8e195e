//! The reader task of a connection: it owns the connection's life from the first frame to
//! `on_closed`.
//!
//! It reads a message when the sink has taken the last one, and HTTP/2 gives the window back as
//! messages are read; so a sink that is slow stops the sender. Frames are slices of their message.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::Connection;
use convoke_transport::parts::{
    Inbound, Life, LifeTerms, Lifetime, Lost, Messages, PipeConnection, TEXT_BYTES_MAX, cut_text,
    keep_alive, read_messages,
};
use tokio::time::{Instant, timeout};
use tonic::{Status, Streaming};

/// Agreement of the two ends, as far as receiving and keeping alive goes.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) inbound: Inbound,
    pub(crate) life: LifeTerms,
    pub(crate) keep_alive_interval: Duration,
}

/// Carries frames from now on. `kept` lives as long as the connection does.
pub(crate) fn start(
    mut lifetime: Lifetime<PipeConnection>,
    incoming: Streaming<Bytes>,
    terms: Terms,
    kept: impl Send + 'static,
) -> Arc<dyn Connection> {
    let (connection, handle) = (Arc::clone(lifetime.connection()), Arc::clone(lifetime.handle()));
    let interval = terms.keep_alive_interval;
    let alive = tokio::spawn(async move { keep_alive(&*connection, interval).await });
    lifetime.accompany(alive.abort_handle());
    let life = Life::new(lifetime, terms.life, Instant::now());
    tokio::spawn(async move {
        let mut incoming = Incoming(incoming);
        read_messages(life, terms.inbound, &mut incoming).await;
        linger(incoming.0, terms.life.close_grace).await;
        drop(kept);
    });
    handle
}

/// Reads to the peer's end, so that the last words of this end are not taken back: a stream whose
/// reader is dropped is reset, and what has arrived of it is then lost to the peer.
pub(crate) async fn linger(mut incoming: Streaming<Bytes>, grace: Duration) {
    let drained = async {
        loop {
            match incoming.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return,
                // There is no telling when the peer has read: it gets all of the grace.
                Err(_) => pending().await,
            }
        }
    };
    // The connection is given up either way.
    let _ = timeout(grace, drained).await;
}

/// The messages of the other end.
struct Incoming(Streaming<Bytes>);

impl Messages for Incoming {
    async fn next(&mut self) -> Result<Option<Bytes>, Lost> {
        self.0.message().await.map_err(|status| match is_fault(&status) {
            true => Lost::Fault(status.message().to_owned()),
            false => Lost::Network(describe(&status)),
        })
    }
}

/// True when the peer broke gRPC's own rules: a message above the limit, or one that is none.
fn is_fault(status: &Status) -> bool {
    matches!(status.code(), tonic::Code::OutOfRange | tonic::Code::Internal)
        && std::error::Error::source(status).is_none()
}

/// gRPC's word on a stream that failed, and the first cause, which is HTTP/2's or the system's.
pub(crate) fn describe(status: &Status) -> String {
    let causes = std::iter::successors(std::error::Error::source(status), |error| error.source());
    match causes.last() {
        Some(cause) => cut_text(&format!("{}: {cause}", status.message()), TEXT_BYTES_MAX).into(),
        None => status.message().to_owned(),
    }
}
