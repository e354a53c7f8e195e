//! The reader task of a connection: it owns the connection's life from the first frame to
//! `on_closed`.
//!
//! It reads a message when the sink has taken the last one, and HTTP/2 gives the window back as
//! messages are read; so a sink that is slow stops the sender. Frames are slices of their message.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::parts::{Ends, Inbound, Life, LifeTerms, Lifetime, Verdict, keep_alive};
use convoke_transport::{CloseReason, Connection};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use crate::connection::GrpcConnection;

/// Agreement of the two ends, as far as receiving and keeping alive goes.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) inbound: Inbound,
    pub(crate) life: LifeTerms,
    pub(crate) keep_alive_interval: Duration,
}

/// Carries frames from now on. `kept` lives as long as the connection does.
pub(crate) fn start(
    mut lifetime: Lifetime<GrpcConnection>,
    incoming: Streaming<Bytes>,
    terms: Terms,
    kept: impl Send + 'static,
) -> Arc<dyn Connection> {
    let (connection, handle) = (Arc::clone(lifetime.connection()), Arc::clone(lifetime.handle()));
    let interval = terms.keep_alive_interval;
    let alive = tokio::spawn(async move { keep_alive(&*connection, interval).await });
    lifetime.accompany(alive.abort_handle());
    let life = Life::new(lifetime, terms.life, Instant::now());
    let reader = Reader { life, incoming, inbound: terms.inbound };
    tokio::spawn(async move {
        let incoming = reader.run().await;
        linger(incoming, terms.life.close_grace).await;
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

struct Reader {
    life: Life<GrpcConnection>,
    incoming: Streaming<Bytes>,
    inbound: Inbound,
}

enum Event {
    Signal,
    Message(Result<Option<Bytes>, Status>),
    Timer,
}

impl Reader {
    /// Answers what is left to [`linger`] over.
    async fn run(mut self) -> Streaming<Bytes> {
        let connection = Arc::clone(self.life.lifetime().connection());
        let mut timer = std::pin::pin!(sleep_until(self.life.deadline()));
        let reason = loop {
            let event = tokio::select! {
                biased;
                () = connection.signalled() => Event::Signal,
                message = self.incoming.message() => Event::Message(message),
                () = timer.as_mut() => Event::Timer,
            };
            let end = match event {
                Event::Message(message) => self.on_message(message),
                Event::Signal => {
                    self.life.on_signal(Instant::now());
                    None
                }
                Event::Timer => self.life.on_timer(Instant::now()),
            };
            if let Some(reason) = end {
                break reason;
            }
            if timer.is_elapsed() || self.life.deadline() < timer.deadline() {
                timer.as_mut().reset(self.life.deadline());
            }
        };
        self.life.end(reason);
        self.incoming
    }

    fn on_message(&mut self, message: Result<Option<Bytes>, Status>) -> Option<CloseReason> {
        let lost = match message {
            Ok(Some(message)) => {
                self.life.lifetime().connection().counts().read(message.len());
                return self.on_bytes(message);
            }
            Err(status) if is_fault(&status) => {
                let reason = CloseReason::Fault(status.message().to_owned());
                return Some(self.life.end_at_once(reason));
            }
            Ok(None) => "it was closed without a goodbye".into(),
            Err(status) => describe(&status),
        };
        Some(self.life.end_by_network(lost, Instant::now()))
    }

    fn on_bytes(&mut self, mut message: Bytes) -> Option<CloseReason> {
        let stop = match self.life.on_bytes(Instant::now()) {
            Verdict::End(reason) => return Some(reason),
            Verdict::Drop => None,
            Verdict::Deliver => {
                self.inbound.deliver(&mut message, usize::MAX, self.life.lifetime()).stop
            }
        };
        self.life.delivered(stop, Instant::now())
    }
}

/// True when the peer broke gRPC's own rules: a message above the limit, or one that is none.
fn is_fault(status: &Status) -> bool {
    matches!(status.code(), tonic::Code::OutOfRange | tonic::Code::Internal)
        && std::error::Error::source(status).is_none()
}

/// gRPC's word on a stream that failed.
pub(crate) fn describe(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {source}", status.message()),
        None => status.message().to_owned(),
    }
}
