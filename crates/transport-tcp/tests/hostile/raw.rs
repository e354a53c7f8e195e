//! A peer that can send anything, and a node it sends it to.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use convoke_transport::conformance::{self, PATIENCE, Recorder, Setup};
use convoke_transport::{Address, Connection, Listener, Transport};
use convoke_transport_tcp::{TcpTransport, TcpTransportBuilder};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::places::{Kind, Place};
pub(crate) use crate::wire::{
    CREDIT, GOODBYE, HELLO_BYTES, KEEP_ALIVE, LAST, envelope, frame, frames, hello, hello_with,
};

/// The node under attack, at a place of its own.
pub(crate) struct Victim {
    victim: conformance::Victim,
    _place: Place,
}

impl Deref for Victim {
    type Target = conformance::Victim;

    fn deref(&self) -> &conformance::Victim {
        &self.victim
    }
}

impl Victim {
    pub(crate) async fn new(kind: Kind, builder: TcpTransportBuilder) -> Self {
        Self::with(kind, builder, Recorder::new(1)).await
    }

    pub(crate) async fn with(kind: Kind, builder: TcpTransportBuilder, sink: Recorder) -> Self {
        let place = kind.place();
        let setup = Setup {
            listening: Arc::new(builder.build().expect("the settings of the test are legal")),
            dialling: Arc::new(TcpTransport::new()),
            listen: place.address.clone(),
        };
        Self { victim: conformance::Victim::with(setup, sink).await, _place: place }
    }

    /// A raw connection that has said nothing yet.
    pub(crate) async fn attack(&self) -> Raw {
        Raw::connect(&self.listener.local_address()).await
    }

    /// A raw connection that has said hello, and what the victim has of it.
    pub(crate) async fn attack_after_hello(&self) -> (Raw, Arc<dyn Connection>) {
        let mut raw = self.attack().await;
        let index = self.sink.opened_count();
        raw.send(&hello(66)).await;
        let (kind, _) = raw.envelope().await.expect("the victim says hello");
        assert_eq!(kind, 0, "the victim says hello");
        (raw, self.sink.opened(index).await)
    }

    pub(crate) async fn lives_on(self) {
        self.victim.lives_on().await;
    }
}

pub(crate) async fn dial(
    listener: &dyn Listener,
    sink: &Arc<Recorder>,
) -> Result<Arc<dyn Connection>, convoke_transport::DialError> {
    TcpTransport::new().dial(&listener.local_address(), None, Arc::clone(sink) as _).await
}

/// Short timeouts, for tests that wait for them.
pub(crate) fn hasty() -> TcpTransportBuilder {
    TcpTransport::builder().handshake_timeout(Duration::from_millis(100))
}

/// A stream of bytes, of whichever socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A socket without manners.
pub(crate) struct Raw(pub(crate) Box<dyn Stream>);

/// A socket that such connect to.
pub(crate) struct RawListener {
    pub(crate) address: Address,
    socket: RawSocket,
    _place: Place,
}

enum RawSocket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl RawListener {
    pub(crate) async fn bind(kind: Kind) -> Self {
        let place = kind.place();
        let (address, socket) = match kind {
            Kind::Tcp => {
                let listener = TcpListener::bind(place.address.rest()).await.expect("it binds");
                let at = listener.local_addr().expect("it is bound");
                let address = format!("tcp://{at}").parse().expect("it is an address");
                (address, RawSocket::Tcp(listener))
            }
            #[cfg(unix)]
            _ => {
                let listener = UnixListener::bind(path(&place.address)).expect("it binds");
                (place.address.clone(), RawSocket::Unix(listener))
            }
        };
        Self { address, socket, _place: place }
    }

    pub(crate) async fn accept(&self) -> Raw {
        const DIALLED: &str = "it is dialled";
        match &self.socket {
            RawSocket::Tcp(listener) => Raw(Box::new(listener.accept().await.expect(DIALLED).0)),
            #[cfg(unix)]
            RawSocket::Unix(listener) => Raw(Box::new(listener.accept().await.expect(DIALLED).0)),
        }
    }
}

/// The path of an address, or its abstract name as the system has it.
#[cfg(unix)]
fn path(address: &Address) -> String {
    address.rest().replacen('@', "\0", 1)
}

impl Raw {
    pub(crate) async fn connect(address: &Address) -> Self {
        const LISTENS: &str = "somebody listens there";
        match address.scheme() {
            #[cfg(unix)]
            "unix" => Self(Box::new(UnixStream::connect(path(address)).await.expect(LISTENS))),
            _ => Self(Box::new(TcpStream::connect(address.rest()).await.expect(LISTENS))),
        }
    }

    /// Sends bytes while nothing else of this runtime runs.
    pub(crate) fn send_at_once(&mut self, bytes: &[u8]) {
        let mut cx = Context::from_waker(Waker::noop());
        let written = Pin::new(&mut self.0).poll_write(&mut cx, bytes);
        let is_whole = matches!(written, Poll::Ready(Ok(count)) if count == bytes.len());
        assert!(is_whole, "the socket has room: {written:?}");
    }

    /// Sends bytes; the victim may have closed already.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = timeout(PATIENCE, self.0.write_all(bytes)).await.expect("the victim reads");
    }

    /// The kind and body of a hello or refusal; `None` when the victim just closes.
    pub(crate) async fn envelope(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let mut head = [0; 14];
            self.0.read_exact(&mut head).await.ok()?;
            assert_eq!((&head[..8], &head[8..10]), (&b"\x93convoke"[..], &[1, 0][..]));
            let mut body = vec![0; usize::from(u16::from_le_bytes([head[12], head[13]]))];
            self.0.read_exact(&mut body).await.ok()?;
            Some((head[10], body))
        };
        timeout(PATIENCE, read).await.expect("the victim answers or closes")
    }

    /// The text of the refusal that must come.
    pub(crate) async fn refusal(&mut self) -> String {
        let (kind, body) = self.envelope().await.expect("the victim says why");
        assert_eq!(kind, 1, "the victim refuses");
        String::from_utf8(body).expect("it is a text")
    }

    /// The next frame that is no keep-alive, as (kind, body).
    pub(crate) async fn frame(&mut self) -> (u32, Vec<u8>) {
        let read = async {
            loop {
                let word = self.0.read_u32_le().await.expect("the victim stays");
                let mut body = vec![0; (word & 0xfff_ffff) as usize];
                self.0.read_exact(&mut body).await.expect("the victim stays");
                if word >> 29 != KEEP_ALIVE {
                    return (word >> 29, body);
                }
            }
        };
        timeout(PATIENCE, read).await.expect("the victim sends")
    }

    /// Everything the victim sends until it closes.
    pub(crate) async fn heard(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = self.0.read_to_end(&mut bytes);
        // Reset or closed in order: either is an end.
        let _ = timeout(PATIENCE, read).await.expect("the victim closes");
        bytes
    }

    /// The same, as (kind, body).
    pub(crate) async fn frames_to_the_end(self) -> Vec<(u32, Vec<u8>)> {
        frames(&self.heard().await)
    }

    /// The text of the goodbye that must come last.
    pub(crate) async fn goodbye(self) -> String {
        let (kind, body) = self.frames_to_the_end().await.pop().expect("the victim says why");
        assert_eq!(kind, GOODBYE);
        String::from_utf8(body).expect("it is a text")
    }
}
