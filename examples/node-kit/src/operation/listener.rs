//! A small HTTP listener on the loopback, for the one who operates the node and for his tools.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the [`Page`] of the node, where it was given one |
//! | `/metrics` | Prometheus text |
//! | `/traffic` | frames by peer: [`Traffic`](super::Traffic) |
//! | `/healthz` | 200 while the node works; 503 and a reason once it should be started again |
//! | `/readyz` | 200 while it takes requests; 503 and a reason while it does not |

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};

use super::answers::Answers;
use super::{Metrics, NodeHealth, Page};

/// Connections at once. More wait in the backlog of the socket: a scraper and a few probes are all
/// that is expected.
const CONNECTIONS_MAX: usize = 16;

/// Longest time of a connection, which carries one request.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);

/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Time between two rounds of putting samples into buckets.
const SETTLE_EVERY: Duration = Duration::from_secs(5);

/// Rest after the system had no descriptor for a connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Reason why nobody can read metrics and health.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// It would be open to whoever comes: there is no TLS here and no question who asks.
    #[error("{0} is not on the loopback: metrics and health are for this host alone")]
    NotLoopback(SocketAddr),
    /// The cluster file does not say where the page of the node is to be.
    #[error("there is no address for a page: give the node an `operation` in the cluster file")]
    NowhereForPage,
    /// The system does not let it listen there.
    #[error("cannot listen at {address} for metrics and health{}", remedy(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
}

/// Advice against this error, where there is some.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            ": another socket has this port, so end its program, or give the node another \
             `operation` in the cluster file"
        }
        io::ErrorKind::PermissionDenied => ": take a port from 1024 on",
        _ => "",
    }
}

/// Sets up a [`Listener`]; made by [`Listener::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct ListenerBuilder(Answers);

impl ListenerBuilder {
    /// Serves the page of the node at `/`. Default: there is none.
    pub fn page(mut self, page: &Page) -> Self {
        self.0.page = Some(page.clone());
        self
    }

    /// Answers whoever comes, at an address beyond the loopback, too. There is no TLS here and no
    /// question who asks: for a network of those who operate the node. Default: the loopback alone.
    pub fn open_to_others(mut self) -> Self {
        self.0.is_open = true;
        self
    }

    /// Listens. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn start(self, address: SocketAddr) -> Result<Listener, ListenError> {
        if !address.ip().is_loopback() && !self.0.is_open {
            return Err(ListenError::NotLoopback(address));
        }
        let refused = |source| ListenError::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        let task = tokio::spawn(answer_all(socket, self.0));
        Ok(Listener { address, task })
    }
}

/// A listener that answers until it is dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    /// One of these metrics and this health, to be started.
    pub fn builder(metrics: Metrics, health: NodeHealth) -> ListenerBuilder {
        ListenerBuilder(Answers { metrics, health, page: None, is_open: false })
    }

    /// Starts one without a page, on the loopback. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn start(
        address: SocketAddr,
        metrics: Metrics,
        health: NodeHealth,
    ) -> Result<Self, ListenError> {
        Self::builder(metrics, health).start(address).await
    }

    /// Starts that of a node at its address of operation in the cluster file, with a page if the
    /// program was asked for one. Without an address none is bound.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn of_node(
        address: Option<SocketAddr>,
        metrics: Metrics,
        health: &NodeHealth,
        page: Option<&Page>,
    ) -> Result<Option<Self>, ListenError> {
        let Some(address) = address else {
            return if page.is_some() { Err(ListenError::NowhereForPage) } else { Ok(None) };
        };
        let builder = Self::builder(metrics, health.clone());
        let builder = page.into_iter().fold(builder, ListenerBuilder::page);
        Ok(Some(builder.start(address).await?))
    }

    /// Address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer_all(socket: TcpListener, answers: Answers) {
    let answers = Arc::new(answers);
    // It owns its connections: dropped, it takes them along.
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut settle = interval(SETTLE_EVERY);
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place.expect("it is never closed"), socket.accept().await)
        };
        tokio::select! {
            biased;
            _ = settle.tick() => answers.metrics.settle(),
            Some(_) = connections.join_next() => {}
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let answers = answers.clone();
                    connections.spawn(async move {
                        // One that is too slow, or speaks no HTTP, is nobody's loss.
                        let _ = timeout(CONNECTION_WITHIN, serve(stream, answers)).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
            },
        }
    }
}

async fn serve(stream: TcpStream, answers: Arc<Answers>) -> hyper::Result<()> {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answers.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).timer(TokioTimer::new());
    connection.serve_connection(TokioIo::new(stream), service).await
}
