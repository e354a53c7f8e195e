//! The knobs, their defaults, and the relations between them.

use convoke_transport::parts::{
    CHUNK_BYTES_MIN, FLOWS_MAX, Greeting, LENGTH_MAX, PREFIX_BYTES_MAX, QueueLimits, Settings,
    SettingsError as ConfigError, WINDOW_BYTES_MIN,
};

use crate::TcpTransport;
use convoke_transport::security::Security;

/// Bytes that go into one batch, about. A control frame waits behind no more than this and two
/// blocks; larger batches gain nothing, since a write of this size hardly notices the system call.
const BATCH_BYTES: usize = 128 * 1024;

/// Sets up a [`TcpTransport`]; made by [`TcpTransport::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`dial_timeout`](Self::dial_timeout), [`handshake_timeout`](Self::handshake_timeout) | 3 s, 5 s |
/// | [`frame_bytes_max`](Self::frame_bytes_max), [`chunk_bytes`](Self::chunk_bytes) | 4 MiB + 64 KiB, 64 KiB |
/// | [`data_window_bytes`](Self::data_window_bytes), [`control_window_bytes`](Self::control_window_bytes) | 1 MiB, 64 KiB |
/// | [`flows`](Self::flows) | 1 |
/// | [`send_buffer_bytes_soft`](Self::send_buffer_bytes_soft), [`send_buffer_bytes_hard`](Self::send_buffer_bytes_hard) | 1 MiB, 16 MiB |
/// | [`control_reserve_bytes`](Self::control_reserve_bytes) | 1 MiB |
/// | [`send_bytes_total_max`](Self::send_bytes_total_max) | 256 MiB |
/// | [`keep_alive_interval`](Self::keep_alive_interval), [`keep_alive_timeout`](Self::keep_alive_timeout) | 3 s, 10 s |
/// | [`handshakes_max`](Self::handshakes_max), [`connections_max`](Self::connections_max) | 256, 4,096 |
/// | [`listen_backlog`](Self::listen_backlog), [`close_grace`](Self::close_grace) | 1,024, 1 s |
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build"]
pub struct TcpTransportBuilder {
    config: Config,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: Settings,
    pub(crate) chunk_bytes: u32,
    pub(crate) data_window_bytes: u32,
    pub(crate) control_window_bytes: u32,
    pub(crate) flows: u8,
    pub(crate) security: Security,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            common: Settings::default(),
            chunk_bytes: 64 << 10,
            data_window_bytes: 1 << 20,
            control_window_bytes: 64 << 10,
            flows: 1,
            security: Security::default(),
        }
    }
}

impl TcpTransportBuilder {
    convoke_transport::setters!(..);

    /// Speaks TLS 1.3, with certificates of both ends, at addresses `tls://host:port` and no
    /// others. The endpoint must have a node id that `identity` proves. Default: plain `tcp://`
    /// and `unix://`, where a peer is who it says it is.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, identity: crate::Identity) -> Self {
        self.config.security = Security::tls(identity, crate::tls::PROTOCOL);
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

    /// Number of sockets of a connection, at most 32. Default 1. Two ends agree on the smaller of
    /// their numbers; connections within this host always have one. More than one is for networks
    /// that cap each flow, or lose packets: calls spread over the flows, and those of ordered
    /// methods are put back in order where they arrive. Each flow has the windows, and the read
    /// buffer, of a connection; the send buffer is that of all flows together. A frame costs a few
    /// bytes more, about one for each other flow, and a copy of its head.
    pub fn flows(mut self, count: u8) -> Self {
        self.config.flows = count;
        self
    }

    /// Checks the relations and makes the transport.
    ///
    /// # Errors
    /// [`ConfigError`] says which settings do not go together.
    pub fn build(self) -> Result<TcpTransport, ConfigError> {
        self.config.check()?;
        Ok(TcpTransport::from_config(self.config))
    }
}

impl Config {
    /// The schemes of the addresses. Within this host there is nobody to hide from, so there is no
    /// TLS over its sockets.
    pub(crate) fn schemes(&self) -> &'static [&'static str] {
        #[cfg(unix)]
        const PLAIN: &[&str] = &["tcp", crate::unix::SCHEME];
        #[cfg(not(unix))]
        const PLAIN: &[&str] = &["tcp"];
        self.security.choose(PLAIN, &["tls"])
    }

    /// Bounds of what is sent to a peer, after both greetings.
    pub(crate) fn limits(&self, mine: &Greeting, theirs: &Greeting) -> QueueLimits {
        QueueLimits {
            send: self.common.send_limits(mine.hello.frame_bytes_max, theirs.hello.frame_bytes_max),
            chunk_bytes_max: self.chunk_bytes.min(theirs.chunk_bytes_max) as usize,
            windows: Some([theirs.control_window, theirs.data_window]),
            batch_bytes: BATCH_BYTES,
        }
    }

    /// The same for one of so many flows: what waits is bounded for all of them together, and a
    /// frame has more before it.
    pub(crate) fn limits_of_flow(
        &self,
        (mine, theirs): (&Greeting, &Greeting),
        flows: usize,
    ) -> QueueLimits {
        let mut limits = self.limits(mine, theirs);
        limits.send.frame_bytes_max += PREFIX_BYTES_MAX as usize;
        for lane in &mut limits.send.lanes {
            lane.soft_bytes = (lane.soft_bytes / flows).max(1);
            let hard_bytes_min = lane.soft_bytes + limits.send.frame_bytes_max;
            lane.hard_bytes = (lane.hard_bytes / flows).max(hard_bytes_min.min(lane.hard_bytes));
        }
        limits
    }

    /// Grants of this end: the largest chunk, and the windows of the lanes.
    pub(crate) fn grants(&self) -> (u32, [u32; 2]) {
        (self.chunk_bytes, [self.control_window_bytes, self.data_window_bytes])
    }

    fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (self.chunk_bytes < CHUNK_BYTES_MIN, "chunk_bytes is below 1 KiB"),
            (self.chunk_bytes > LENGTH_MAX, "chunk_bytes is above 256 MiB"),
            (self.data_window_bytes < WINDOW_BYTES_MIN, "data_window_bytes is below 4 KiB"),
            (self.control_window_bytes < WINDOW_BYTES_MIN, "control_window_bytes is below 4 KiB"),
            (self.flows == 0, "flows is zero"),
            (self.flows > FLOWS_MAX, "flows is above 32"),
        ];
        self.common.check("TCP", &rules)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_defaults_go_together() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_broken_relation_names_the_settings() {
        let builder = TcpTransport::builder().keep_alive_interval(Duration::from_secs(4));
        let message = builder.build().unwrap_err().to_string();
        assert!(message.contains("TCP") && message.contains("keep_alive_interval"), "{message}");
        assert!(TcpTransport::builder().chunk_bytes(100).build().is_err());
        assert!(TcpTransport::builder().flows(0).build().is_err());
        assert!(TcpTransport::builder().flows(33).build().is_err());
    }

    #[test]
    fn what_is_meant_to_never_end_is_told_to_be_shorter() {
        let message = TcpTransport::builder().handshake_timeout(Duration::MAX).build();
        let message = message.unwrap_err().to_string();
        assert!(message.contains("handshake_timeout is above a year"), "{message}");
        assert!(TcpTransport::builder().dial_timeout(Duration::MAX).build().is_err());
    }
}
