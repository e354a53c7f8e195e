//! The accepting end: an HTTP/2 server with one method.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use convoke_transport::parts::{Admission, Refusals};
use convoke_transport::{Address, ListenError, Listener, Sink};
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};

use crate::codec::BytesCodec;
use crate::config::Config;
use crate::connection::Answering;
use crate::handshake::{self, PATH};
use crate::serve::{Ends, Handler, Request, Response, Server, Terms};
use convoke_transport::sockets;

/// Resets of streams nobody has looked at yet, after which a connection is closed. A dialler opens
/// one.
const RESETS_MAX: usize = 20;
/// HTTP/2 frames of this size need few headers.
pub(crate) const HTTP2_FRAME_BYTES: u32 = 64 * 1024;

#[derive(Debug)]
struct GrpcListener {
    local: Address,
    server: Server,
}

impl Listener for GrpcListener {
    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        tracing::debug!(address = %self.local, "no longer listening");
        self.server.stop_accepting();
    }
}

/// Binds the first socket address of `address` that can be bound, and accepts there.
pub(crate) async fn listen(
    config: Arc<Config>,
    admission: Arc<Admission>,
    address: Address,
    sink: Arc<dyn Sink>,
) -> Result<Box<dyn Listener>, ListenError> {
    let failed = |error: std::io::Error| ListenError::Bind {
        address: address.clone(),
        message: error.to_string(),
    };
    if let Err(message) = config.security.verify_own(sink.hello().node) {
        return Err(ListenError::Identity { address, message });
    }
    let (scheme, terms) = (config.scheme(), Arc::new(terms(&config)));
    let listener =
        sockets::listen(address.rest(), config.common.listen_backlog).await.map_err(failed)?;
    let refusals = Refusals::new();
    let frames = Arc::new(Frames { config, admission: Arc::clone(&admission), sink, refusals });
    let server = Server::start(listener, frames, terms, admission).map_err(failed)?;
    let local = sockets::of_socket(scheme, server.local_addr());
    tracing::debug!(address = %local, "listening");
    Ok(Box::new(GrpcListener { local, server }))
}

fn terms(config: &Config) -> Terms {
    Terms {
        #[cfg(feature = "tls")]
        tls: config.security.as_tls().map(|tls| crate::tls::Server::of_nodes(tls)),
        streams_max: config.streams_max,
        resets_max: RESETS_MAX,
        stream_window_bytes: config.window_bytes,
        connection_window_bytes: config.connection_window_bytes(config.streams_max),
        frame_bytes_max: HTTP2_FRAME_BYTES,
        handshake_timeout: config.common.handshake_timeout,
        // A dialler opens its stream at once.
        idle_timeout: config.common.handshake_timeout,
        ping_timeout: config.common.keep_alive_timeout,
        grace: config.common.close_grace,
    }
}

/// The one method.
struct Frames {
    config: Arc<Config>,
    admission: Arc<Admission>,
    sink: Arc<dyn Sink>,
    refusals: Refusals,
}

impl Handler for Frames {
    async fn handle(self: Arc<Self>, request: Request, ends: Ends) -> Response {
        let path = request.uri().path();
        if path != PATH {
            let text = format!("this port carries convoke frames at {PATH}, and nothing at {path}");
            let status = Status::unimplemented(text);
            self.refusals.note(&ends.remote, &status.message());
            return status.into_http();
        }
        let limit = self.config.message_bytes_max as usize;
        let mut grpc = Grpc::new(BytesCodec::of_a_connection())
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit);
        grpc.streaming(Accept { frames: self, ends }, request).await
    }
}

struct Accept {
    frames: Arc<Frames>,
    ends: Ends,
}

impl StreamingService<Bytes> for Accept {
    type Response = crate::codec::Parts;
    type ResponseStream = Answering;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Answering>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let (frames, ends) = (Arc::clone(&self.frames), self.ends.clone());
        Box::pin(async move {
            let sink = Arc::clone(&frames.sink);
            let Frames { config, admission, .. } = &*frames;
            let remote = ends.remote;
            let accepted = handshake::accept(config, admission, request.into_inner(), ends, sink);
            let note = |status: &Status| frames.refusals.note(&remote, &status.message());
            let (answering, unread) = accepted.await.inspect_err(note)?;
            let mut response = tonic::Response::new(answering);
            response.extensions_mut().insert(unread);
            Ok(response)
        })
    }
}
