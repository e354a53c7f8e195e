//! The knobs, their defaults, and the relations between them.

use std::time::Duration;

use crate::TcpTransport;
use crate::framing;
use crate::hello::{CHUNK_BYTES_MIN, KEEP_ALIVE_TIMEOUT_MIN, WINDOW_BYTES_MIN};
use crate::send_queue::LaneLimits;
use crate::socket::Security;

/// Sets up a [`TcpTransport`]; made by [`TcpTransport::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`dial_timeout`](Self::dial_timeout), [`handshake_timeout`](Self::handshake_timeout) | 3 s, 5 s |
/// | [`frame_bytes_max`](Self::frame_bytes_max), [`chunk_bytes`](Self::chunk_bytes) | 4 MiB + 64 KiB, 64 KiB |
/// | [`data_window_bytes`](Self::data_window_bytes), [`control_window_bytes`](Self::control_window_bytes) | 1 MiB, 64 KiB |
/// | [`send_buffer_bytes_soft`](Self::send_buffer_bytes_soft), [`send_buffer_bytes_hard`](Self::send_buffer_bytes_hard) | 1 MiB, 16 MiB |
/// | [`control_reserve_bytes`](Self::control_reserve_bytes) | 1 MiB |
/// | [`send_bytes_total_max`](Self::send_bytes_total_max) | 256 MiB |
/// | [`keep_alive_interval`](Self::keep_alive_interval), [`keep_alive_timeout`](Self::keep_alive_timeout) | 3 s, 10 s |
/// | [`handshakes_max`](Self::handshakes_max), [`connections_max`](Self::connections_max) | 256, 4,096 |
/// | [`listen_backlog`](Self::listen_backlog), [`close_grace`](Self::close_grace) | 1,024, 1 s |
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build"]
pub struct TcpTransportBuilder {
    config: Config,
}

/// Settings that do not go together; says which and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings of the TCP transport do not go together: {message}")]
pub struct ConfigError {
    message: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) dial_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) frame_bytes_max: u32,
    pub(crate) chunk_bytes: u32,
    pub(crate) data_window_bytes: u32,
    pub(crate) control_window_bytes: u32,
    pub(crate) send_buffer_bytes_soft: usize,
    pub(crate) send_buffer_bytes_hard: usize,
    pub(crate) control_reserve_bytes: usize,
    pub(crate) send_bytes_total_max: usize,
    pub(crate) keep_alive_interval: Duration,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) handshakes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) listen_backlog: u16,
    pub(crate) close_grace: Duration,
    pub(crate) security: Security,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dial_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(5),
            frame_bytes_max: (4 << 20) + (64 << 10),
            chunk_bytes: 64 << 10,
            data_window_bytes: 1 << 20,
            control_window_bytes: 64 << 10,
            send_buffer_bytes_soft: 1 << 20,
            send_buffer_bytes_hard: 16 << 20,
            control_reserve_bytes: 1 << 20,
            send_bytes_total_max: 256 << 20,
            keep_alive_interval: Duration::from_secs(3),
            keep_alive_timeout: Duration::from_secs(10),
            handshakes_max: 256,
            connections_max: 4_096,
            listen_backlog: 1_024,
            close_grace: Duration::from_secs(1),
            security: Security::Plain,
        }
    }
}

impl TcpTransportBuilder {
    pub(crate) fn new() -> Self {
        Self { config: Config::default() }
    }

    /// Speaks TLS 1.3, with certificates of both ends, at addresses `tls://host:port` and no
    /// others. The endpoint must have a node id that `identity` proves. Default: plain `tcp://`,
    /// where a peer is who it says it is.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, identity: crate::Identity) -> Self {
        self.config.security = Security::Tls(Box::new(crate::tls::Tls::new(identity)));
        self
    }

    /// Longest time of a dial until the other end has accepted the connection, resolving a name
    /// included. Default 3 s.
    pub fn dial_timeout(mut self, timeout: Duration) -> Self {
        self.config.dial_timeout = timeout;
        self
    }

    /// Longest time for the hello of either end once connected. Default 5 s. A connection that
    /// says nothing holds one of [`handshakes_max`](Self::handshakes_max) for this long.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.config.handshake_timeout = timeout;
        self
    }

    /// The largest frame this end takes or sends, in bytes. Default 4 MiB and 64 KiB: a message of
    /// 4 MiB and its headers. The smaller of this and what the sink's hello says is told to peers.
    /// A connection may hold this much per lane while a frame arrives.
    pub fn frame_bytes_max(mut self, bytes: u32) -> Self {
        self.config.frame_bytes_max = bytes;
        self
    }

    /// The largest chunk, in bytes. Default 64 KiB. A larger frame is cut, and a control frame can
    /// go in between.
    pub fn chunk_bytes(mut self, bytes: u32) -> Self {
        self.config.chunk_bytes = bytes;
        self
    }

    /// Bytes that a peer may send on the data lane before the sink has taken them. Default 1 MiB;
    /// on a path with a large product of bandwidth and delay, this over the round trip is the most
    /// one connection carries.
    pub fn data_window_bytes(mut self, bytes: u32) -> Self {
        self.config.data_window_bytes = bytes;
        self
    }

    /// The same for the control lane, in bytes. Default 64 KiB.
    pub fn control_window_bytes(mut self, bytes: u32) -> Self {
        self.config.control_window_bytes = bytes;
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
    /// at half of it. At all of it the endpoint lets cancels wait beside it and asks questions
    /// after tasks again later; any other frame closes the connection as overloaded.
    pub fn control_reserve_bytes(mut self, bytes: usize) -> Self {
        self.config.control_reserve_bytes = bytes;
        self
    }

    /// Bytes that all connections of the transport may queue together. Default 256 MiB; at least
    /// four times the largest frame. A connection may have a quarter of what is free, all of one
    /// peer as much as is free, and each 16 KiB besides. A connection above its share is full, as
    /// at the bounds of its own: callers wait, requests to it fail, a reply that finds no room
    /// closes it.
    pub fn send_bytes_total_max(mut self, bytes: usize) -> Self {
        self.config.send_bytes_total_max = bytes;
        self
    }

    /// After how long without sending a keep-alive is sent. Default 3 s; sooner when the peer's
    /// timeout asks for it.
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.config.keep_alive_interval = interval;
        self
    }

    /// After how long without a byte from the peer the connection is closed. Default 10 s. At least
    /// three intervals, and at least 100 ms.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.config.keep_alive_timeout = timeout;
        self
    }

    /// Number of accepted connections that may be in their handshake. Default 256; further ones are
    /// refused at once. One address may have as many as are free: half, if it is the only one.
    pub fn handshakes_max(mut self, count: usize) -> Self {
        self.config.handshakes_max = count;
        self
    }

    /// Number of accepted connections that may be open, over all listeners of the transport.
    /// Default 4,096; further ones are refused after their hello. One peer may have as many as are
    /// free: half, if it is the only one. A peer is the node that a certificate proves, else the
    /// address that it connects from. Dialled connections do not count.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.config.connections_max = count;
        self
    }

    /// Number of connections that the operating system queues until they are accepted. Default
    /// 1,024.
    pub fn listen_backlog(mut self, count: u16) -> Self {
        self.config.listen_backlog = count;
        self
    }

    /// Longest time of a close to send what was appended and the reason. Default 1 s.
    pub fn close_grace(mut self, grace: Duration) -> Self {
        self.config.close_grace = grace;
        self
    }

    /// Checks the relations and makes the transport.
    ///
    /// # Errors
    /// [`ConfigError`] says which settings do not go together.
    pub fn build(self) -> Result<TcpTransport, ConfigError> {
        match self.config.fault() {
            Some(message) => Err(ConfigError { message }),
            None => Ok(TcpTransport::from_config(self.config)),
        }
    }
}

impl Config {
    /// The bounds of the control lane to a peer that granted `window`.
    pub(crate) fn control_limits(&self, window: u32) -> LaneLimits {
        let hard_bytes = self.control_reserve_bytes;
        LaneLimits { window, soft_bytes: hard_bytes / 2, hard_bytes }
    }

    /// The bounds of the data lane to a peer that granted `window`.
    pub(crate) fn data_limits(&self, window: u32) -> LaneLimits {
        let soft_bytes = self.send_buffer_bytes_soft;
        LaneLimits { window, soft_bytes, hard_bytes: self.send_buffer_bytes_hard }
    }

    /// The first relation that does not hold.
    fn fault(&self) -> Option<&'static str> {
        let hard_bytes_min =
            self.send_buffer_bytes_soft.saturating_add(self.frame_bytes_max as usize);
        let rules = [
            (self.dial_timeout.is_zero(), "dial_timeout is zero"),
            (self.handshake_timeout.is_zero(), "handshake_timeout is zero"),
            (self.frame_bytes_max == 0, "frame_bytes_max is zero"),
            (self.chunk_bytes < CHUNK_BYTES_MIN, "chunk_bytes is below 1 KiB"),
            (self.chunk_bytes > framing::LENGTH_MAX, "chunk_bytes is above 256 MiB"),
            (self.data_window_bytes < WINDOW_BYTES_MIN, "data_window_bytes is below 4 KiB"),
            (self.control_window_bytes < WINDOW_BYTES_MIN, "control_window_bytes is below 4 KiB"),
            (self.send_buffer_bytes_soft == 0, "send_buffer_bytes_soft is zero"),
            (
                self.send_buffer_bytes_hard < hard_bytes_min,
                "send_buffer_bytes_hard is below send_buffer_bytes_soft + frame_bytes_max",
            ),
            (self.control_reserve_bytes < 2, "control_reserve_bytes is below 2"),
            (
                self.send_bytes_total_max / 4 < self.frame_bytes_max as usize,
                "send_bytes_total_max is below four times frame_bytes_max",
            ),
            (self.keep_alive_interval.is_zero(), "keep_alive_interval is zero"),
            (
                self.keep_alive_timeout < self.keep_alive_interval.saturating_mul(3),
                "keep_alive_timeout is below three times keep_alive_interval",
            ),
            (
                self.keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN,
                "keep_alive_timeout is below 100 ms",
            ),
            (self.handshakes_max == 0, "handshakes_max is zero"),
            (self.connections_max == 0, "connections_max is zero"),
            (self.listen_backlog == 0, "listen_backlog is zero"),
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
        let builder = TcpTransport::builder().keep_alive_interval(Duration::from_secs(4));
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains("three times keep_alive_interval"), "{message}");
        let builder = TcpTransport::builder().frame_bytes_max(16 << 20);
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains("send_buffer_bytes_hard"), "{message}");
        assert!(TcpTransport::builder().chunk_bytes(100).build().is_err());
    }
}
