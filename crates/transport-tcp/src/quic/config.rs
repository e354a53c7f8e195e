//! The knobs, their defaults, and the relations between them.

use std::time::Duration;

use crate::QuicTransport;
use crate::hello::{CHUNK_BYTES_MIN, KEEP_ALIVE_TIMEOUT_MIN, WINDOW_BYTES_MIN};
use crate::identity::Identity;
use crate::quic::framing;
use crate::quic::send_lane::LaneLimits;

/// Sets up a [`QuicTransport`]; made by [`QuicTransport::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`dial_timeout`](Self::dial_timeout), [`handshake_timeout`](Self::handshake_timeout) | 3 s, 5 s |
/// | [`frame_bytes_max`](Self::frame_bytes_max), [`lane_frame_bytes_max`](Self::lane_frame_bytes_max) | 4 MiB + 64 KiB, 64 KiB |
/// | [`window_bytes`](Self::window_bytes) | 1 MiB |
/// | [`large_frames_max`](Self::large_frames_max), [`large_bytes_max`](Self::large_bytes_max) | 8, 16 MiB |
/// | [`send_buffer_bytes_soft`](Self::send_buffer_bytes_soft), [`send_buffer_bytes_hard`](Self::send_buffer_bytes_hard) | 1 MiB, 16 MiB |
/// | [`control_reserve_bytes`](Self::control_reserve_bytes) | 1 MiB |
/// | [`send_bytes_total_max`](Self::send_bytes_total_max) | 256 MiB |
/// | [`keep_alive_timeout`](Self::keep_alive_timeout) | 10 s |
/// | [`handshakes_max`](Self::handshakes_max), [`connections_max`](Self::connections_max) | 256, 4,096 |
/// | [`close_grace`](Self::close_grace) | 1 s |
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build"]
pub struct QuicTransportBuilder {
    identity: Identity,
    config: Config,
}

/// Settings that do not go together; says which and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings of the QUIC transport do not go together: {message}")]
pub struct QuicConfigError {
    message: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) dial_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) frame_bytes_max: u32,
    pub(crate) lane_frame_bytes_max: u32,
    pub(crate) window_bytes: u32,
    pub(crate) large_frames_max: u16,
    pub(crate) large_bytes_max: usize,
    pub(crate) send_buffer_bytes_soft: usize,
    pub(crate) send_buffer_bytes_hard: usize,
    pub(crate) control_reserve_bytes: usize,
    pub(crate) send_bytes_total_max: usize,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) handshakes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) close_grace: Duration,
}

/// Windows and frames end here, so that sums of a few stay within what QUIC can say.
const BYTES_MAX: u32 = 1 << 30;
/// Longer timeouts cannot be told to peers.
const KEEP_ALIVE_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Default for Config {
    fn default() -> Self {
        Self {
            dial_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(5),
            frame_bytes_max: (4 << 20) + (64 << 10),
            lane_frame_bytes_max: 64 << 10,
            window_bytes: 1 << 20,
            large_frames_max: 8,
            large_bytes_max: 16 << 20,
            send_buffer_bytes_soft: 1 << 20,
            send_buffer_bytes_hard: 16 << 20,
            control_reserve_bytes: 1 << 20,
            send_bytes_total_max: 256 << 20,
            keep_alive_timeout: Duration::from_secs(10),
            handshakes_max: 256,
            connections_max: 4_096,
            close_grace: Duration::from_secs(1),
        }
    }
}

impl QuicTransportBuilder {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, config: Config::default() }
    }

    /// Longest time of a dial until the other end has accepted the QUIC connection, resolving a
    /// name included. Default 3 s. Over UDP, nobody listening looks the same as no answer, so that
    /// is how long it takes to find out.
    pub fn dial_timeout(mut self, timeout: Duration) -> Self {
        self.config.dial_timeout = timeout;
        self
    }

    /// Longest time of the handshake on the accepting end, and of the hello on either. Default 5 s.
    /// A connection that says nothing holds one of [`handshakes_max`](Self::handshakes_max) for
    /// this long.
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

    /// The largest frame of the data lane that goes over the lane's own stream, in bytes. Default
    /// 64 KiB. A larger one gets a stream of its own, so that frames of other calls pass it; a
    /// stream costs some microseconds of processor time.
    pub fn lane_frame_bytes_max(mut self, bytes: u32) -> Self {
        self.config.lane_frame_bytes_max = bytes;
        self
    }

    /// Bytes that a peer may send on one stream before they were read. Default 1 MiB. On a path
    /// with a large product of bandwidth and delay, this over the round trip is the most one lane,
    /// or one large frame, carries. The window of the whole connection is this for each lane and
    /// each of [`large_frames_max`](Self::large_frames_max).
    pub fn window_bytes(mut self, bytes: u32) -> Self {
        self.config.window_bytes = bytes;
        self
    }

    /// Number of large frames that may be on their way from a peer at once. Default 8. The next
    /// waits at the peer until one is complete.
    pub fn large_frames_max(mut self, count: u16) -> Self {
        self.config.large_frames_max = count;
        self
    }

    /// Bytes of large frames that a connection puts together at once. Default 16 MiB; one frame
    /// always, however large.
    pub fn large_bytes_max(mut self, bytes: usize) -> Self {
        self.config.large_bytes_max = bytes;
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

    /// Bytes that all connections of the transport may queue together. Default 256 MiB; at least
    /// four times the largest frame. A connection may have a quarter of what is free, all of one
    /// peer as much as is free, and each lane 16 KiB besides. A connection above its share is full,
    /// as at the bounds of its own: callers wait, requests to it fail, a reply that finds no room
    /// closes it.
    pub fn send_bytes_total_max(mut self, bytes: usize) -> Self {
        self.config.send_bytes_total_max = bytes;
        self
    }

    /// After how long without a packet from the peer the connection is closed; the smaller setting
    /// of both ends counts. Default 10 s, at least 100 ms. A keep-alive goes out after a third of
    /// it.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.config.keep_alive_timeout = timeout;
        self
    }

    /// Number of accepted connections that may be in their handshake. Default 256; further ones are
    /// refused at once. One address may have as many as are free: half, if it is the only one. From
    /// half of it on, a peer must first prove that it is at its address.
    pub fn handshakes_max(mut self, count: usize) -> Self {
        self.config.handshakes_max = count;
        self
    }

    /// Number of accepted connections that may be open, over all listeners of the transport.
    /// Default 4,096; further ones are refused after their hello. One node may have as many as are
    /// free: half, if it is the only one. Dialled ones do not count.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.config.connections_max = count;
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
    /// [`QuicConfigError`] says which settings do not go together.
    pub fn build(self) -> Result<QuicTransport, QuicConfigError> {
        match self.config.fault() {
            Some(message) => Err(QuicConfigError { message }),
            None => Ok(QuicTransport::from_config(self.identity, self.config)),
        }
    }
}

impl Config {
    /// The bounds of the control lane to a peer that takes frames of `frame_bytes_max`.
    pub(crate) fn control_limits(&self, frame_bytes_max: usize) -> LaneLimits {
        let hard_bytes = self.control_reserve_bytes;
        let inline_bytes_max = frame_bytes_max;
        LaneLimits { frame_bytes_max, inline_bytes_max, soft_bytes: hard_bytes / 2, hard_bytes }
    }

    /// The bounds of the data lane.
    pub(crate) fn data_limits(&self, frame_bytes_max: usize, inline: usize) -> LaneLimits {
        LaneLimits {
            frame_bytes_max,
            inline_bytes_max: inline,
            soft_bytes: self.send_buffer_bytes_soft,
            hard_bytes: self.send_buffer_bytes_hard,
        }
    }

    /// For both lanes and all large frames at once: so a lane never waits for credit that another
    /// stream holds.
    pub(crate) fn connection_window_bytes(&self) -> u64 {
        u64::from(self.window_bytes) * (2 + u64::from(self.large_frames_max))
    }

    /// The first relation that does not hold.
    fn fault(&self) -> Option<&'static str> {
        let hard_bytes_min =
            self.send_buffer_bytes_soft.saturating_add(self.frame_bytes_max as usize);
        let lane_max = self.lane_frame_bytes_max;
        let rules = [
            (self.dial_timeout.is_zero(), "dial_timeout is zero"),
            (self.handshake_timeout.is_zero(), "handshake_timeout is zero"),
            (self.frame_bytes_max == 0, "frame_bytes_max is zero"),
            (
                self.frame_bytes_max > framing::LENGTH_MAX.min(BYTES_MAX),
                "frame_bytes_max is above 1 GiB",
            ),
            (lane_max < CHUNK_BYTES_MIN, "lane_frame_bytes_max is below 1 KiB"),
            (self.window_bytes < WINDOW_BYTES_MIN, "window_bytes is below 4 KiB"),
            (self.window_bytes > BYTES_MAX, "window_bytes is above 1 GiB"),
            (self.large_frames_max == 0, "large_frames_max is zero"),
            (self.large_bytes_max == 0, "large_bytes_max is zero"),
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
            (
                self.keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN,
                "keep_alive_timeout is below 100 ms",
            ),
            (self.keep_alive_timeout > KEEP_ALIVE_TIMEOUT_MAX, "keep_alive_timeout is above a day"),
            (self.handshakes_max == 0, "handshakes_max is zero"),
            (self.connections_max == 0, "connections_max is zero"),
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
        let large = Config { frame_bytes_max: 16 << 20, ..Config::default() };
        assert!(large.fault().is_some_and(|text| text.contains("send_buffer_bytes_hard")));
        let short = Config { keep_alive_timeout: Duration::from_millis(99), ..Config::default() };
        assert!(short.fault().is_some_and(|text| text.contains("keep_alive_timeout")));
        let small = Config { lane_frame_bytes_max: 100, ..Config::default() };
        assert!(small.fault().is_some_and(|text| text.contains("lane_frame_bytes_max")));
    }

    #[test]
    fn the_window_of_a_connection_has_room_for_every_stream() {
        let config =
            Config { window_bytes: BYTES_MAX, large_frames_max: u16::MAX, ..Config::default() };
        assert_eq!(config.fault(), None);
        assert!(config.connection_window_bytes() < 1 << 62, "QUIC can say it");
    }
}
