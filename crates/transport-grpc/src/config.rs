//! The knobs of the transport, their defaults, and the relations between them.

use std::time::Duration;

use crate::GrpcTransport;
use crate::hello::{Greeting, KEEP_ALIVE_TIMEOUT_MIN};
use crate::send_queue::{LaneLimits, Limits, MESSAGE_BYTES_MIN};

/// Largest window of an HTTP/2 stream or connection (RFC 9113, section 6.9.1).
const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;
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
/// | [`keep_alive_interval`](Self::keep_alive_interval), [`keep_alive_timeout`](Self::keep_alive_timeout) | 3 s, 10 s |
/// | [`connections_max`](Self::connections_max), [`streams_max`](Self::streams_max) | 4,096, 64 |
/// | [`close_grace`](Self::close_grace) | 1 s |
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build"]
pub struct GrpcTransportBuilder {
    config: Config,
}

/// Settings that do not go together; says which and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings of the gRPC transport do not go together: {message}")]
pub struct ConfigError {
    message: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) dial_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) frame_bytes_max: u32,
    pub(crate) message_bytes_max: u32,
    pub(crate) window_bytes: u32,
    pub(crate) send_buffer_bytes_soft: usize,
    pub(crate) send_buffer_bytes_hard: usize,
    pub(crate) control_reserve_bytes: usize,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) connections_max: usize,
    pub(crate) streams_max: u32,
    pub(crate) close_grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dial_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(5),
            frame_bytes_max: (4 << 20) + (64 << 10),
            message_bytes_max: 256 << 10,
            window_bytes: 1 << 20,
            send_buffer_bytes_soft: 1 << 20,
            send_buffer_bytes_hard: 16 << 20,
            control_reserve_bytes: 1 << 20,
            keep_alive_interval: Duration::from_secs(3),
            keep_alive_timeout: Duration::from_secs(10),
            connections_max: 4_096,
            streams_max: 64,
            close_grace: Duration::from_secs(1),
        }
    }
}

impl GrpcTransportBuilder {
    pub(crate) fn new() -> Self {
        Self { config: Config::default() }
    }

    /// Time for a dial until the other end has accepted the connection, resolving a name
    /// included. Default 3 s.
    pub fn dial_timeout(mut self, timeout: Duration) -> Self {
        self.config.dial_timeout = timeout;
        self
    }

    /// Time for the hello of either end once connected, HTTP/2's own included. Default 5 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.config.handshake_timeout = timeout;
        self
    }

    /// The largest frame this end takes or sends, in bytes. Default 4 MiB and 64 KiB: a message of
    /// 4 MiB and its headers. The smaller of this and what the sink's hello says is told to peers.
    pub fn frame_bytes_max(mut self, bytes: u32) -> Self {
        self.config.frame_bytes_max = bytes;
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

    /// From how many queued bytes on the data lane is
    /// [`Full`](convoke_transport::Appended::Full). Default 1 MiB.
    pub fn send_buffer_bytes_soft(mut self, bytes: usize) -> Self {
        self.config.send_buffer_bytes_soft = bytes;
        self
    }

    /// At how many queued bytes the data lane takes no more frames. Default 16 MiB. At least the
    /// soft bound and the largest frame, so that a writable lane takes any frame.
    pub fn send_buffer_bytes_hard(mut self, bytes: usize) -> Self {
        self.config.send_buffer_bytes_hard = bytes;
        self
    }

    /// Bytes that the control lane may queue beside the data lane. Default 1 MiB. It is `Full`
    /// at half of it.
    pub fn control_reserve_bytes(mut self, bytes: usize) -> Self {
        self.config.control_reserve_bytes = bytes;
        self
    }

    /// After how long without sending a keep-alive is sent. Default 3 s; sooner when the peer's
    /// timeout asks for it. It passes through proxies, which answer HTTP/2's own pings themselves.
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.config.keep_alive_interval = interval;
        self
    }

    /// After how long without a message from the peer the connection is closed. Default 10 s. At
    /// least three intervals, and at least 100 ms.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.config.keep_alive_timeout = timeout;
        self
    }

    /// Most accepted TCP connections, over all listeners of the transport. Default 4,096; further
    /// ones are closed at once. One address may have as many as are free: half, if it is the only
    /// one. Dialled ones do not count.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.config.connections_max = count;
        self
    }

    /// Most streams of one accepted TCP connection at a time. Default 64. A dialled connection
    /// has one; a proxy may put those of several nodes into one.
    pub fn streams_max(mut self, count: u32) -> Self {
        self.config.streams_max = count;
        self
    }

    /// Time for a close to send what was appended and the reason. Default 1 s.
    pub fn close_grace(mut self, grace: Duration) -> Self {
        self.config.close_grace = grace;
        self
    }

    /// Checks the relations and makes the transport.
    ///
    /// # Errors
    /// [`ConfigError`] says which settings do not go together.
    pub fn build(self) -> Result<GrpcTransport, ConfigError> {
        match self.config.fault() {
            Some(message) => Err(ConfigError { message }),
            None => Ok(GrpcTransport::from_config(self.config)),
        }
    }
}

impl Config {
    /// The bounds of what is sent to a peer that said this.
    pub(crate) fn limits(&self, theirs: &Greeting) -> Limits {
        let reserve = self.control_reserve_bytes;
        Limits {
            frame_bytes_max: self.frame_bytes_max.min(theirs.hello.frame_bytes_max) as usize,
            message_bytes_max: self.message_bytes_max.min(theirs.message_bytes_max) as usize,
            control: LaneLimits { soft_bytes: reserve / 2, hard_bytes: reserve },
            data: LaneLimits {
                soft_bytes: self.send_buffer_bytes_soft,
                hard_bytes: self.send_buffer_bytes_hard,
            },
        }
    }

    /// The window of a TCP connection: room for every stream, so that none that is not read can
    /// stop another.
    pub(crate) fn connection_window_bytes(&self, streams: u32) -> u32 {
        self.window_bytes.saturating_mul(streams).min(WINDOW_BYTES_MAX)
    }

    /// The first relation that does not hold.
    fn fault(&self) -> Option<&'static str> {
        let hard_bytes_min =
            self.send_buffer_bytes_soft.saturating_add(self.frame_bytes_max as usize);
        let rules = [
            (self.dial_timeout.is_zero(), "dial_timeout is zero"),
            (self.handshake_timeout.is_zero(), "handshake_timeout is zero"),
            (self.frame_bytes_max == 0, "frame_bytes_max is zero"),
            (self.message_bytes_max < MESSAGE_BYTES_MIN, "message_bytes_max is below 4 KiB"),
            (self.message_bytes_max > MESSAGE_BYTES_MAX, "message_bytes_max is above 16 MiB"),
            (self.window_bytes < WINDOW_BYTES_MIN, "window_bytes is below 65,535"),
            (
                self.connection_window_bytes(self.streams_max) == WINDOW_BYTES_MAX,
                "window_bytes times streams_max is above 2 GiB",
            ),
            (self.send_buffer_bytes_soft == 0, "send_buffer_bytes_soft is zero"),
            (
                self.send_buffer_bytes_hard < hard_bytes_min,
                "send_buffer_bytes_hard is below send_buffer_bytes_soft + frame_bytes_max",
            ),
            (self.control_reserve_bytes < 2, "control_reserve_bytes is below 2"),
            (self.keep_alive_interval.is_zero(), "keep_alive_interval is zero"),
            (
                self.keep_alive_timeout < self.keep_alive_interval.saturating_mul(3),
                "keep_alive_timeout is below three times keep_alive_interval",
            ),
            (
                self.keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN,
                "keep_alive_timeout is below 100 ms",
            ),
            (self.connections_max == 0, "connections_max is zero"),
            (self.streams_max == 0, "streams_max is zero"),
        ];
        rules.iter().find(|(is_broken, _)| *is_broken).map(|(_, message)| *message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_go_together() {
        assert_eq!(Config::default().fault(), None);
    }

    #[test]
    fn a_broken_relation_names_the_settings() {
        let builder = GrpcTransport::builder().keep_alive_interval(Duration::from_secs(4));
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains("three times keep_alive_interval"), "{message}");
        let builder = GrpcTransport::builder().streams_max(4_000);
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains("window_bytes times streams_max"), "{message}");
        assert!(GrpcTransport::builder().message_bytes_max(100).build().is_err());
    }
}
