//! Serves a router at a listener until it is told to stop, and leaves no connection behind.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Serves until `stop` says how long requests that are under way may take to end. Then their
/// connections end, and all others.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    mut stop: oneshot::Receiver<Duration>,
) {
    let (http, graceful) = (Builder::new(TokioExecutor::new()), GracefulShutdown::new());
    let mut connections = JoinSet::new();
    let grace = loop {
        tokio::select! {
            grace = &mut stop => break grace.unwrap_or_default(),
            // How one ended is the concern of its client.
            Some(_) = connections.join_next() => {}
            socket = accept(&listener) => {
                let service = TowerToHyperService::new(app.clone());
                let connection = http.serve_connection(TokioIo::new(socket), service);
                connections.spawn(graceful.watch(connection.into_owned()));
            }
        }
    };
    drop(listener);
    // Somebody may keep a connection open for as long as it likes.
    let _ = timeout(grace, graceful.shutdown()).await;
    connections.shutdown().await;
}

/// The next connection. Where there is none to be had, for want of file descriptors, later.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return socket,
            Err(error) if is_of_connection(&error) => {}
            Err(_) => sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// True of the failure of a connection that was on its way.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Time after which a descriptor may be free again.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
