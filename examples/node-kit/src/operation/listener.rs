//! A small HTTP listener on the loopback, for the one who operates the node and for his tools.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | Prometheus text |
//! | `/healthz` | 200 while the node works; 503 and a reason once it should be started again |
//! | `/readyz` | 200 while it takes requests; 503 and a reason while it does not |

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};

use super::{Metrics, NodeHealth, State};

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
    /// The system does not let it listen there.
    #[error("cannot listen at {address} for metrics and health")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
}

/// A listener that answers until it is dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    /// Starts one. Port 0 takes a free one.
    ///
    /// # Errors
    /// [`ListenError`].
    pub async fn start(
        address: SocketAddr,
        metrics: Metrics,
        health: NodeHealth,
    ) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let refused = |source| ListenError::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        let task = tokio::spawn(answer_all(socket, metrics, health));
        Ok(Self { address, task })
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

async fn answer_all(socket: TcpListener, metrics: Metrics, health: NodeHealth) {
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
            _ = settle.tick() => metrics.settle(),
            Some(_) = connections.join_next() => {}
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let (metrics, health) = (metrics.clone(), health.clone());
                    connections.spawn(async move {
                        // One that is too slow, or speaks no HTTP, is nobody's loss.
                        let _ = timeout(CONNECTION_WITHIN, serve(stream, metrics, health)).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
            },
        }
    }
}

async fn serve(stream: TcpStream, metrics: Metrics, health: NodeHealth) -> hyper::Result<()> {
    let answers = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &metrics, &health);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).max_buf_size(HEAD_BYTES_MAX).timer(TokioTimer::new());
    connection.serve_connection(TokioIo::new(stream), answers).await
}

fn answer(
    method: &Method,
    path: &str,
    metrics: &Metrics,
    health: &NodeHealth,
) -> Response<Full<Bytes>> {
    let is_known = matches!(path, "/metrics" | "/healthz" | "/readyz");
    if is_known && !matches!(*method, Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    match (path, health.state()) {
        ("/metrics", _) => text(StatusCode::OK, metrics.text()),
        ("/healthz" | "/readyz", State::Broken(why)) => {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("broken: {why}\n"))
        }
        ("/healthz", _) => text(StatusCode::OK, "works\n".to_owned()),
        ("/readyz", State::Ready) => text(StatusCode::OK, "ready\n".to_owned()),
        ("/readyz", State::NotReady(why)) => {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n"))
        }
        ("/readyz", State::Stopping) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned())
        }
        _ => {
            let known = "here are /metrics, /healthz and /readyz\n";
            text(StatusCode::NOT_FOUND, known.to_owned())
        }
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
