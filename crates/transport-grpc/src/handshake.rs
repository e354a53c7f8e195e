//! From a stream to a connection: the parts both ends share, and the accepting end's.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::id::LinkNonce;
use convoke_transport::{CloseReason, Link, Sink};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::SCHEME;
use crate::config::Config;
use crate::connection::{Answering, GrpcConnection, Pipe};
use crate::hello::Greeting;
use crate::reader::{Lifetime, Terms};
use crate::serve::Ends;
use convoke_transport::sockets;

/// The hello of this end, reached at or dialling from `local`.
pub(crate) fn greeting(config: &Config, sink: &dyn Sink, local: IpAddr) -> Greeting {
    let mut hello = sink.hello();
    hello.advertised = sockets::advertised(&hello.advertised, local);
    hello.frame_bytes_max = hello.frame_bytes_max.min(config.frame_bytes_max);
    Greeting {
        hello,
        random: rand::random(),
        message_bytes_max: config.message_bytes_max,
        keep_alive_timeout: config.keep_alive_timeout,
    }
}

/// Makes the connection and asks the sink whether it wants it.
pub(crate) fn open(
    config: &Config,
    mine: &Greeting,
    theirs: &Greeting,
    (is_dialler, remote): (bool, IpAddr),
    pipe: &Arc<Pipe>,
    sink: &Arc<dyn Sink>,
) -> Result<Arc<GrpcConnection>, String> {
    let (dialler, acceptor) = if is_dialler { (mine, theirs) } else { (theirs, mine) };
    let link = Link {
        peer: theirs.hello.clone(),
        nonce: LinkNonce::of(dialler.random, acceptor.random),
        is_dialler,
        scheme: SCHEME,
        principal: None,
        remote: Some(remote.to_string().into()),
    };
    let connection = Arc::new(GrpcConnection::new(link, Arc::clone(pipe), &config.limits(theirs)));
    sink.on_open(Arc::clone(&connection) as _).inspect_err(|text| {
        // A handle the sink kept must not wait for ever, and the other end may hear why.
        connection.end(CloseReason::Fault(text.clone()));
    })?;
    tracing::debug!(peer = %theirs.hello.node, is_dialler, "connection open");
    Ok(connection)
}

pub(crate) fn terms(config: &Config, mine: &Greeting, theirs: &Greeting) -> Terms {
    Terms {
        frame_bytes_max: mine.hello.frame_bytes_max,
        keep_alive_timeout: config.keep_alive_timeout,
        keep_alive_interval: config.keep_alive_interval.min(theirs.keep_alive_timeout / 3),
        close_grace: config.close_grace,
    }
}

/// The accepting end: the dialler's hello, `on_open`, hello. A refusal is a gRPC status.
pub(crate) async fn accept(
    config: &Config,
    mut incoming: Streaming<Bytes>,
    ends: Ends,
    sink: Arc<dyn Sink>,
) -> Result<Answering, Status> {
    let first = timeout(config.handshake_timeout, incoming.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello came in time"))??;
    let first = first.ok_or_else(|| Status::invalid_argument("the stream has no hello"))?;
    let theirs =
        Greeting::decode(first).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let mine = greeting(config, &*sink, ends.local.ip());
    let pipe = Pipe::greeting(mine.encode());
    let role = (false, ends.remote.ip());
    let connection =
        open(config, &mine, &theirs, role, &pipe, &sink).map_err(Status::failed_precondition)?;
    Lifetime::new(connection, sink).start(incoming, terms(config, &mine, &theirs), ());
    Ok(Answering(pipe.outgoing()))
}
