//! A small HTTP listener on the loopback, for the one who operates the node and for his tools.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the [`Page`] of the node, where it was given one |
//! | `/metrics` | Prometheus text |
//! | `/traffic` | frames by peer: [`Traffic`](super::Traffic) |
//! | `/healthz` | 200 while the node works; 503 and a reason once it should be started again |
//! | `/readyz` | 200 while it takes requests; 503 and a reason while it does not |

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{interval, timeout};

use super::answers::Answers;
use super::{Metrics, NodeHealth, Page};

/// Connections at once: a scraper and a few probes are all that is expected. For another the oldest
/// one without a request makes room; where all have one, it waits in the backlog of the socket.
const CONNECTIONS_MAX: usize = 16;

/// Longest time of a connection, which carries one request.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);

/// Longest time until the head of its request is here: who asks is near, and has it ready.
const HEAD_WITHIN: Duration = Duration::from_secs(1);

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
    /// program was asked for one. Without an address none is bound, and the metrics are
    /// [settled](Metrics::settle) for as long as the runtime runs.
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
            if page.is_some() {
                return Err(ListenError::NowhereForPage);
            }
            tokio::spawn(async move {
                let mut settle = interval(SETTLE_EVERY);
                loop {
                    settle.tick().await;
                    metrics.settle();
                }
            });
            return Ok(None);
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
    let mut connections = Connections::default();
    let mut settle = interval(SETTLE_EVERY);
    loop {
        tokio::select! {
            biased;
            _ = settle.tick() => answers.metrics.settle(),
            Some(_) = connections.tasks.join_next() => {}
            accepted = socket.accept(), if connections.can_have_room() => match accepted {
                Ok((stream, _)) => connections.add(stream, &answers).await,
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
            },
        }
    }
}

/// Connections of a listener. Dropped, it takes them along.
#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// The oldest first.
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    has_request: Arc<AtomicBool>,
}

impl Connections {
    fn can_have_room(&mut self) -> bool {
        self.open.retain(|one| !one.task.is_finished());
        self.tasks.len() < CONNECTIONS_MAX || self.open.iter().any(Open::is_silent)
    }

    async fn add(&mut self, stream: TcpStream, answers: &Arc<Answers>) {
        if self.tasks.len() >= CONNECTIONS_MAX {
            if let Some(at) = self.open.iter().position(Open::is_silent)
                && let Some(silent) = self.open.remove(at)
            {
                silent.task.abort();
            }
            self.tasks.join_next().await;
        }
        let has_request = Arc::new(AtomicBool::new(false));
        let (asked, answers) = (Arc::clone(&has_request), Arc::clone(answers));
        let task = self.tasks.spawn(async move {
            // One that is too slow, or speaks no HTTP, is nobody's loss.
            let _ = timeout(CONNECTION_WITHIN, serve(stream, &answers, &asked)).await;
        });
        self.open.push_back(Open { task, has_request });
    }
}

impl Open {
    fn is_silent(&self) -> bool {
        !self.has_request.load(Ordering::Relaxed)
    }
}

async fn serve(stream: TcpStream, answers: &Answers, asked: &AtomicBool) -> hyper::Result<()> {
    let service = service_fn(|request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let answer = answers.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).max_buf_size(HEAD_BYTES_MAX);
    connection.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    connection.serve_connection(TokioIo::new(stream), service).await
}
