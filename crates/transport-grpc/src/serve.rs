//! Accepting TCP connections and speaking HTTP/2 on them: what the transport and the edge have in
//! common.
//!
//! A connection has to show within the handshake timeout that it speaks HTTP/2, may be idle for the
//! idle timeout, and has to take what it asks for in time. How many there are, and how many streams
//! each, is bounded.

mod refused;
mod streams;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_transport::PeerName;
use convoke_transport::parts::{Admission, Foreign, Refusals, Seat, TLS_REFUSAL};
use convoke_transport::sockets::{Accepting, linger, send_promptly};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::http2::in_one_read;
use crate::security::Shown;
pub(crate) use refused::Refused;
use streams::Streams;
pub(crate) use streams::Unread;

/// A request as HTTP/2 brings it.
pub(crate) type Request = http::Request<Incoming>;
/// The answer to it.
pub(crate) type Response = http::Response<tonic::body::Body>;

/// First bytes of every HTTP/2 connection (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Answer to those who speak something else, if it is anything like HTTP.
pub(crate) const REFUSAL: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nConnection: close\r\n\
    Content-Length: 43\r\n\r\nthis port speaks gRPC, which needs HTTP/2.\r\n";
/// Longest list of headers that is read, in bytes. It is more than the edge takes: a request above
/// this one gets no more than an HTTP status, and one above four times of it ends its connection.
const HEADER_BYTES_MAX: u32 = 128 * 1024;

/// Streams this end has had to reset, after which a connection is closed: what HTTP/2 libraries
/// allow. Late frames of streams that were cancelled in good order count, too.
const ERRORS_MAX: usize = 1_024;

/// Manner of serving accepted connections, and their bounds.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// TLS under HTTP/2; plain HTTP/2 without.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Server>,
    pub(crate) streams_max: u32,
    /// Streams that the client has reset before they were looked at.
    pub(crate) resets_max: usize,
    pub(crate) stream_window_bytes: u32,
    pub(crate) connection_window_bytes: u32,
    pub(crate) frame_bytes_max: u32,
    pub(crate) handshake_timeout: Duration,
    /// Without a stream for this long a connection is closed.
    pub(crate) idle_timeout: Duration,
    /// Without an answer to a ping for this long a connection is closed.
    pub(crate) ping_timeout: Duration,
    /// Time for streams to end when the server stops.
    pub(crate) grace: Duration,
}

/// The addresses of an accepted connection, and what the other end has proven.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) shown: Shown,
    /// Name by which the other end has its shares: what it has proven, else its address.
    pub(crate) name: PeerName,
    /// The place that an accepted TCP connection has, for one connection within it at a time.
    pub(crate) place: Arc<Semaphore>,
}

impl Ends {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr, shown: Shown) -> Self {
        let place = || PeerName::from(&remote.into());
        let name = shown.name.clone().unwrap_or_else(place);
        Self { local, remote, shown, name, place: Arc::new(Semaphore::new(1)) }
    }
}

/// Answers requests. One is shared by all connections.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one request, of a connection between these.
    fn handle(
        self: Arc<Self>,
        request: Request,
        ends: Ends,
    ) -> impl Future<Output = Response> + Send + 'static;
}

/// A socket that is being listened on until it is closed or dropped.
#[derive(Debug)]
pub(crate) struct Server {
    local: SocketAddr,
    accepting: Accepting<TcpListener>,
    /// Tells connections to stop, and how long their streams have to end.
    stop: watch::Sender<Option<Duration>>,
}

struct Acceptor<H> {
    handler: Arc<H>,
    terms: Arc<Terms>,
    admission: Arc<Admission>,
    stop: watch::Receiver<Option<Duration>>,
    refusals: Refusals,
}

impl Server {
    /// Accepts at a socket that listens.
    pub(crate) fn start<H: Handler>(
        listener: TcpListener,
        handler: Arc<H>,
        terms: Arc<Terms>,
        admission: Arc<Admission>,
    ) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let (stop, stopped) = watch::channel(None);
        let acceptor = Arc::new(Acceptor {
            handler,
            terms,
            admission,
            stop: stopped,
            refusals: Refusals::new(),
        });
        let accepting = Accepting::start(listener, move |stream| acceptor.admit(stream));
        Ok(Self { local, accepting, stop })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts no further connection; open ones stay.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.close();
    }

    /// Tells every connection to end when its streams have ended, and to drop them after `grace`.
    /// The first time that they are told counts.
    pub(crate) fn stop(&self, grace: Duration) {
        self.stop_accepting();
        self.stop.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert(grace);
            is_first
        });
    }

    /// The same, and waits for that.
    pub(crate) async fn drain(&self, grace: Duration) {
        self.stop(grace);
        self.stop.closed().await;
    }
}

impl<H: Handler> Acceptor<H> {
    /// Gives the connection its own task, so that no peer can hold up another.
    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let Ok(peer) = stream.peer_addr() else { return }; // It is gone again.
        let slot = match self.admission.begin(&peer.into()) {
            Ok(slot) => slot,
            Err(no) => return self.note(peer, &Refused::NoRoom(no)),
        };
        let this = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(refused) = this.serve(stream, peer, slot).await {
                this.note(peer, &refused);
            }
        });
    }

    fn note(&self, peer: SocketAddr, refused: &Refused) {
        if refused.is_noise() {
            self.refusals.note_noise(&peer, refused);
        } else {
            self.refusals.note(&peer, refused);
        }
    }

    /// Shakes hands, in a place among the handshakes, and serves what comes.
    async fn serve(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
        slot: Seat,
    ) -> Result<(), Refused> {
        send_promptly(&stream)?;
        let (local, deadline) =
            (stream.local_addr()?, Instant::now() + self.terms.handshake_timeout);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.terms.tls {
            let accepting = tls.accept(stream, self.terms.grace);
            let (stream, shown) = self.in_time(deadline, accepting).await?;
            return self.carry(stream, Ends::new(local, remote, shown), deadline, slot).await;
        }
        self.carry(stream, Ends::new(local, remote, Shown::default()), deadline, slot).await
    }

    async fn carry(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        ends: Ends,
        deadline: Instant,
        slot: Seat,
    ) -> Result<(), Refused> {
        self.in_time(deadline, expect_preface(&mut stream, self.terms.grace)).await?;
        let (read, write) = tokio::io::split(stream);
        let io = in_one_read(tokio::io::join(PREFACE.chain(read), write));
        let _seat = match self.admission.accept(ends.name.clone()) {
            Ok(seat) => seat,
            Err(text) => {
                // It keeps its place among the handshakes, and no longer than any of them.
                let told = self.in_time(deadline, self.tell(io, &text)).await;
                return Err(told.err().unwrap_or(Refused::NoRoom(text)));
            }
        };
        drop(slot);
        Ok(self.speak(io, ends).await?)
    }

    /// Answers a client for whom there is no room what it first asks, with the reason.
    async fn tell(
        &self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        text: &str,
    ) -> hyper::Result<()> {
        let asked = Notify::new();
        let service = service_fn(|_: Request| {
            asked.notify_one();
            let response = tonic::Status::resource_exhausted(text).into_http();
            async move { Ok::<Response, Infallible>(response) }
        });
        let mut connection = pin!(self.http2().serve_connection(TokioIo::new(io), service));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = asked.notified() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }

    /// A part of a handshake, which the server's stop ends, too.
    async fn in_time<T, E: Into<Refused>>(
        &self,
        deadline: Instant,
        part: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Refused> {
        tokio::select! {
            done = timeout_at(deadline, part) => {
                done.map_err(|_| Refused::Late)?.map_err(Into::into)
            }
            _ = stopped(self.stop.clone()) => Err(Refused::Stopped),
        }
    }

    /// Carries streams until the client goes, is idle or takes nothing for too long, or the server
    /// stops.
    async fn speak(
        &self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        ends: Ends,
    ) -> hyper::Result<()> {
        let (streams, name) = (Arc::new(Streams::default()), ends.name.clone());
        let service = service_fn(|request: Request| {
            let (handler, open) = (Arc::clone(&self.handler), Streams::open(&streams));
            let ends = ends.clone();
            async move {
                let response = handler.handle(request, ends).await;
                Ok::<_, Infallible>(open.until_end_of(response))
            }
        });
        let mut connection = pin!(self.http2().serve_connection(TokioIo::new(io), service));
        let mut stopped = pin!(stopped(self.stop.clone()));
        let mut stuck = pin!(streams.stuck());
        loop {
            let seen = streams.seen();
            let grace = tokio::select! {
                result = connection.as_mut() => return result,
                grace = stopped.as_mut() => Some(grace),
                () = stuck.as_mut() => {
                    tracing::debug!(client = %name, "closed: it does not take what it asks for");
                    Some(self.terms.grace)
                }
                () = sleep(self.terms.idle_timeout) => {
                    streams.has_been_idle_since(seen).then_some(self.terms.grace)
                }
            };
            if let Some(grace) = grace {
                connection.as_mut().graceful_shutdown();
                // What does not end by then is dropped, and its calls cancelled.
                return timeout(grace, connection).await.unwrap_or(Ok(()));
            }
        }
    }

    fn http2(&self) -> http2::Builder<TokioExecutor> {
        let terms = &self.terms;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(terms.streams_max)
            .max_pending_accept_reset_streams(terms.resets_max)
            .max_local_error_reset_streams(ERRORS_MAX)
            .initial_stream_window_size(terms.stream_window_bytes)
            .initial_connection_window_size(terms.connection_window_bytes)
            .max_frame_size(terms.frame_bytes_max)
            .max_header_list_size(HEADER_BYTES_MAX)
            .keep_alive_interval(terms.ping_timeout)
            .keep_alive_timeout(terms.ping_timeout);
        builder
    }
}

/// Resolves to the grace of a stop. When the listener goes without one, connections stay.
async fn stopped(mut stop: watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await.map(|grace| *grace) {
        Ok(Some(grace)) => grace,
        _ => pending().await,
    }
}

/// Reads HTTP/2's preface. Others are told: in HTTP/1.1, which is what they most often speak, or by
/// an alert of TLS.
async fn expect_preface(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    grace: Duration,
) -> Result<(), Refused> {
    let mut found = [0; PREFACE.len()];
    let mut len = 0;
    while len < found.len() {
        match stream.read(&mut found[len..]).await? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => len += count,
        }
        if found[..len] != PREFACE[..len] {
            let is_tls = Foreign::to_tls(&found[..len]).is_none();
            let told: &[u8] = if is_tls { &TLS_REFUSAL } else { REFUSAL };
            if stream.write_all(told).await.is_ok() {
                linger(stream, grace).await;
            }
            return Err(if is_tls { Refused::Tls } else { Refused::NotHttp2 });
        }
    }
    Ok(())
}

/// Frames by which a connection of plain HTTP/2 is told why it is refused: empty settings, and a
/// GOAWAY with "inadequate security" (RFC 9113, sections 6.5, 6.8 and 7).
#[cfg(feature = "tls")]
pub(crate) fn go_away(text: &'static str) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let payload = [&[0; 4], &12_u32.to_be_bytes(), text.as_bytes()].concat();
    let len = u32::try_from(payload.len()).expect("it is a line").to_be_bytes();
    [&SETTINGS[..], &len[1..], &[7, 0, 0, 0, 0, 0], &payload].concat()
}
