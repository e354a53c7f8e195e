//! The knobs of the transport, their defaults, and the relations between them.

use convoke_transport::parts::{
    Greeting, QueueLimits, Settings, SettingsError as ConfigError, TEXT_BYTES_MAX, WORD_BYTES,
};

use crate::GrpcTransport;
use convoke_transport::security::Security;

/// Smallest message limit: below, chunks would be all words.
pub(crate) const MESSAGE_BYTES_MIN: u32 = 4 * 1024;
/// Kept free in every message for the transport's own chunks.
const OWN_BYTES_MAX: usize = TEXT_BYTES_MAX + 2 * WORD_BYTES;

/// Largest window of an HTTP/2 stream or connection (RFC 9113, section 6.9.1).
pub(crate) const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
/// Windows of a stream that make that of a connection, at least. `h2` reckons 256 bytes for an
/// unread DATA frame that has fewer, and ends the connection where it has reckoned more than half
/// of the connection's window beyond what came: for one stream full of frames of 16 bytes, and ours
/// are longer, that is 15 times the stream's window.
const WINDOWS_MIN: u32 = 32;
/// Smallest window of a stream: HTTP/2's default.
const WINDOW_BYTES_MIN: u32 = 65_535;
/// Largest message; far below what a length can say.
const MESSAGE_BYTES_MAX: u32 = 16 << 20;

/// Sets up a [`GrpcTransport`]; made by [`GrpcTransport::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`dial_timeout`](Self::dial_timeout), [`handshake_timeout`](Self::handshake_timeout) | 3 s, 5 s |
/// | [`frame_bytes_max`](Self::frame_bytes_max), [`message_bytes_max`](Self::message_bytes_max) | 4 MiB + 64 KiB, 256 KiB |
/// | [`window_bytes`](Self::window_bytes) | 1 MiB |
/// | [`send_buffer_bytes_soft`](Self::send_buffer_bytes_soft), [`send_buffer_bytes_hard`](Self::send_buffer_bytes_hard) | 1 MiB, 16 MiB |
/// | [`control_reserve_bytes`](Self::control_reserve_bytes) | 1 MiB |
/// | [`send_bytes_total_max`](Self::send_bytes_total_max) | 256 MiB |
/// | [`keep_alive_interval`](Self::keep_alive_interval), [`keep_alive_timeout`](Self::keep_alive_timeout) | 3 s, 10 s |
/// | [`handshakes_max`](Self::handshakes_max) | 256 |
/// | [`connections_max`](Self::connections_max), [`streams_max`](Self::streams_max) | 4,096, 64 |
/// | [`listen_backlog`](Self::listen_backlog), [`close_grace`](Self::close_grace) | 1,024, 1 s |
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build"]
pub struct GrpcTransportBuilder {
    config: Config,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: Settings,
    pub(crate) message_bytes_max: u32,
    pub(crate) window_bytes: u32,
    pub(crate) streams_max: u32,
    pub(crate) security: Security,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            common: Settings::default(),
            message_bytes_max: 256 << 10,
            window_bytes: 1 << 20,
            streams_max: 64,
            security: Security::default(),
        }
    }
}

impl GrpcTransportBuilder {
    convoke_transport::setters!(..);

    /// Speaks TLS 1.3, with certificates of both ends, at addresses `grpcs://host:port` and no
    /// others. The endpoint must have a node id that `identity` proves. Default: plain `grpc://`,
    /// where a peer is who it says it is.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, identity: crate::Identity) -> Self {
        self.config.security = Security::tls(identity, crate::tls::PROTOCOL);
        self
    }

    /// The largest gRPC message this end takes or sends, in bytes. Default 256 KiB. Many small
    /// frames share one; a frame above a quarter of it is cut, and a control frame can go in
    /// between.
    pub fn message_bytes_max(mut self, bytes: u32) -> Self {
        self.config.message_bytes_max = bytes;
        self
    }

    /// The window of an HTTP/2 stream: what a peer may send before this end has read it, in bytes.
    /// Default 1 MiB; this over the round trip is the most one connection carries.
    pub fn window_bytes(mut self, bytes: u32) -> Self {
        self.config.window_bytes = bytes;
        self
    }

    /// Most streams of one accepted TCP connection at a time. Default 64. A dialled connection
    /// has one; a proxy may put those of several nodes into one. Each has a place among
    /// `connections_max`, from before its hello.
    pub fn streams_max(mut self, count: u32) -> Self {
        self.config.streams_max = count;
        self
    }

    /// Checks the relations and makes the transport.
    ///
    /// # Errors
    /// [`ConfigError`] says which settings do not go together.
    pub fn build(self) -> Result<GrpcTransport, ConfigError> {
        self.config.check()?;
        Ok(GrpcTransport::from_config(self.config))
    }
}

impl Config {
    /// The schemes of the addresses.
    pub(crate) fn schemes(&self) -> &'static [&'static str] {
        self.security.choose(&["grpc"], &["grpcs"])
    }

    /// The one that there is.
    pub(crate) fn scheme(&self) -> &'static str {
        self.schemes()[0]
    }

    /// Bounds of what is sent to a peer, after both greetings.
    pub(crate) fn limits(&self, mine: &Greeting, theirs: &Greeting) -> QueueLimits {
        let message_bytes_max = self.message_bytes_max.min(theirs.chunk_bytes_max) as usize;
        let chunk_bytes_max = message_bytes_max / 4;
        QueueLimits {
            send: self.common.send_limits(mine.hello.frame_bytes_max, theirs.hello.frame_bytes_max),
            chunk_bytes_max,
            windows: None,
            // So that what goes beyond it, and the transport's own chunks, still fit the message.
            batch_bytes: message_bytes_max - 2 * (chunk_bytes_max + WORD_BYTES) - OWN_BYTES_MAX,
        }
    }

    /// Grants of this end: the largest message, and the window for both lanes.
    pub(crate) fn grants(&self) -> (u32, [u32; 2]) {
        (self.message_bytes_max, [self.window_bytes; 2])
    }

    /// The window of a TCP connection: room for every stream, so that none that is not read can
    /// stop another. Their own windows bound what is unread.
    pub(crate) fn connection_window_bytes(&self, streams: u32) -> u32 {
        self.window_bytes.saturating_mul(streams.max(WINDOWS_MIN)).min(WINDOW_BYTES_MAX)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (self.message_bytes_max < MESSAGE_BYTES_MIN, "message_bytes_max is below 4 KiB"),
            (self.message_bytes_max > MESSAGE_BYTES_MAX, "message_bytes_max is above 16 MiB"),
            (self.window_bytes < WINDOW_BYTES_MIN, "window_bytes is below 65,535"),
            (
                self.window_bytes.saturating_mul(self.streams_max) >= WINDOW_BYTES_MAX,
                "window_bytes times streams_max is above 2 GiB",
            ),
            (self.streams_max == 0, "streams_max is zero"),
        ];
        self.common.check("gRPC", &rules)
    }
}

#[cfg(test)]
mod tests {
    use convoke_transport::Hello;
    use convoke_transport::id::{Incarnation, NodeId};

    use super::*;

    #[test]
    fn the_defaults_go_together_and_a_broken_relation_names_the_settings() {
        assert_eq!(Config::default().check(), Ok(()));
        let builder = GrpcTransport::builder().streams_max(4_000);
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains("gRPC") && message.contains("window_bytes"), "{message}");
        assert!(GrpcTransport::builder().message_bytes_max(100).build().is_err());
    }

    /// The largest batch is checked by the queue's own tests.
    #[test]
    fn a_message_of_the_smallest_limit_has_room_for_two_blocks_and_more() {
        let config = Config { message_bytes_max: MESSAGE_BYTES_MIN, ..Config::default() };
        let (chunk_bytes_max, [control_window, data_window]) = config.grants();
        let hello = Hello {
            node: NodeId::new(1),
            incarnation: Incarnation(1),
            advertised: Vec::new(),
            frame_bytes_max: 1 << 20,
        };
        let (random, keep_alive_timeout) = (1, config.common.keep_alive_timeout);
        let theirs = Greeting {
            hello,
            random,
            chunk_bytes_max,
            control_window,
            data_window,
            keep_alive_timeout,
            flow: None,
        };
        let limits = config.limits(&theirs, &theirs);
        assert!(limits.batch_bytes > limits.chunk_bytes_max);
    }
}
