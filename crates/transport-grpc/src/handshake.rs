//! From a stream to a connection: the parts both ends share, and the accepting end's.
//!
//! The first message in either direction is a hello. The dialler speaks first; the other end asks
//! its sink, and answers with its own hello or a gRPC status that says why not.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::parts::{
    Admission, Greeting, Inbound, Lifetime, Opening, Pipe, PipeConnection, RefusedHere,
    keep_alive_interval, random,
};
use convoke_transport::{Principal, Sink};
use tokio::time::{Instant, timeout};
use tonic::{Status, Streaming};

use crate::config::Config;
use crate::connection::{Answering, Outgoing};
use crate::hello;
use crate::reader::{self, Terms};
use crate::serve::{Ends, Unread};

/// The path of the method whose stream carries frames.
pub(crate) const PATH: &str = "/convoke.transport.v1.Transport/Frames";

/// The hello of this end, reached at or dialling from `local`.
pub(crate) fn greeting(config: &Config, sink: &dyn Sink, local: IpAddr) -> Greeting {
    Greeting::of(sink, &config.common, local, random(), config.grants())
}

/// Makes the connection and asks the sink whether it wants it.
pub(crate) fn open(
    (config, admission): (&Config, &Admission),
    (mine, theirs): (&Greeting, &Greeting),
    (is_dialler, remote, principal): (bool, IpAddr, Option<Principal>),
    pipe: &Arc<Pipe>,
    sink: &Arc<dyn Sink>,
) -> Result<Lifetime<PipeConnection>, String> {
    let remote = Some(remote.into());
    let opening = Opening { mine, theirs, is_dialler, scheme: config.scheme(), principal, remote };
    let link = opening.link();
    let share = admission.share(link.peer_name());
    let connection =
        PipeConnection::new(link, Arc::clone(pipe), &config.limits(mine, theirs), share);
    opening.show(connection, sink, None).map_err(|RefusedHere(text)| text)
}

pub(crate) fn terms(config: &Config, mine: &Greeting, theirs: &Greeting) -> Terms {
    Terms {
        inbound: Inbound::new(mine.hello.frame_bytes_max, mine.chunk_bytes_max, None),
        life: config.common.life_terms(),
        keep_alive_interval: keep_alive_interval(&config.common, theirs),
    }
}

/// The accepting end: a place, the dialler's hello, `on_open`, hello. A refusal is a gRPC status.
/// The place is given back when the connection has ended and all that it sent was taken.
pub(crate) async fn accept(
    config: &Config,
    admission: &Admission,
    mut incoming: Streaming<Bytes>,
    ends: Ends,
    sink: Arc<dyn Sink>,
) -> Result<(Answering, Unread), Status> {
    let place = place(admission, &ends).map_err(Status::resource_exhausted)?;
    let first = timeout(config.common.handshake_timeout, incoming.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello came in time"))??;
    let first = first.ok_or_else(|| Status::invalid_argument("the stream has no hello"))?;
    let theirs = hello::decode(first).map_err(|error| {
        Status::invalid_argument(error.refusal_text().unwrap_or_else(|| error.to_string()))
    })?;
    let proven = ends.shown.verify_peer(&config.security, theirs.hello.node);
    let principal =
        proven.map_err(|why| Status::permission_denied(format!("not trusted: {why}")))?;
    let mine = greeting(config, &*sink, ends.local.ip());
    let pipe = Pipe::new(Some(hello::encode(&mine)));
    let role = (false, ends.remote.ip(), principal);
    let opened = open((config, admission), (&mine, &theirs), role, &pipe, &sink);
    let lifetime = opened.map_err(Status::failed_precondition)?;
    reader::start(lifetime, incoming, terms(config, &mine, &theirs), Arc::clone(&place));
    Ok((Answering(Outgoing(pipe)), Unread { read_by: Instant::now(), place }))
}

/// A place among the connections that are open: the one of the TCP connection that carries it, or
/// another where that is in use.
fn place(admission: &Admission, ends: &Ends) -> Result<Arc<dyn Send + Sync>, String> {
    Ok(match Arc::clone(&ends.place).try_acquire_owned() {
        Ok(own) => Arc::new(own),
        Err(_) => Arc::new(admission.accept(ends.name.clone())?),
    })
}
