//! The knobs, their defaults, and the relations between them.

use std::time::Duration;

use convoke_transport::parts::{
    CHUNK_BYTES_MIN, KEEP_ALIVE_TIMEOUT_MIN, Settings, SettingsError as QuicConfigError,
    WINDOW_BYTES_MIN,
};

use crate::quic::framing;
use crate::{Identity, QuicTransport};

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

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: Settings,
    pub(crate) lane_frame_bytes_max: u32,
    pub(crate) window_bytes: u32,
    pub(crate) large_frames_max: u16,
    pub(crate) large_bytes_max: usize,
}

/// Bytes of one handshake that are kept before it is accepted: the first flight of a dialler.
pub(crate) const INCOMING_BYTES_MAX: u64 = 64 << 10;
/// Windows end here, so that sums of a few stay within what QUIC can say.
const BYTES_MAX: u32 = 1 << 30;
/// Longer timeouts cannot be told to peers.
const KEEP_ALIVE_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Default for Config {
    fn default() -> Self {
        Self {
            common: Settings::default(),
            lane_frame_bytes_max: 64 << 10,
            window_bytes: 1 << 20,
            large_frames_max: 8,
            large_bytes_max: 16 << 20,
        }
    }
}

impl QuicTransportBuilder {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, config: Config::default() }
    }

    convoke_transport::setters! {
        dial_timeout, handshake_timeout, frame_bytes_max, send_buffer_bytes_soft,
        send_buffer_bytes_hard, control_reserve_bytes, send_bytes_total_max, handshakes_max,
        connections_max, close_grace,
    }

    /// After how long without a packet from the peer the connection is closed; the smaller setting
    /// of both ends counts. Default 10 s, at least 100 ms. A keep-alive goes out after a third of
    /// it.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.config.common.keep_alive_timeout = timeout;
        self.config.common.keep_alive_interval = timeout / 3;
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
    /// each of [`large_frames_max`](Self::large_frames_max). QUIC keeps no more than that of what
    /// this end sends until the peer has acknowledged it, beside
    /// [`send_bytes_total_max`](Self::send_bytes_total_max).
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

    /// Checks the relations and makes the transport.
    ///
    /// # Errors
    /// [`QuicConfigError`] says which settings do not go together.
    pub fn build(self) -> Result<QuicTransport, QuicConfigError> {
        self.config.check()?;
        Ok(QuicTransport::from_config(self.identity, self.config))
    }
}

impl Config {
    /// For both lanes and all large frames at once: so a lane never waits for credit that another
    /// stream holds.
    pub(crate) fn connection_window_bytes(&self) -> u64 {
        u64::from(self.window_bytes) * (2 + u64::from(self.large_frames_max))
    }

    /// For all handshakes.
    pub(crate) fn incoming_bytes_total(&self) -> u64 {
        INCOMING_BYTES_MAX.saturating_mul(self.common.handshakes_max as u64)
    }

    fn check(&self) -> Result<(), QuicConfigError> {
        let lane_max = self.lane_frame_bytes_max;
        let rules = [
            (
                self.common.frame_bytes_max > Some(framing::LENGTH_MAX),
                "frame_bytes_max is 1 GiB or more",
            ),
            (lane_max < CHUNK_BYTES_MIN, "lane_frame_bytes_max is below 1 KiB"),
            (self.window_bytes < WINDOW_BYTES_MIN, "window_bytes is below 4 KiB"),
            (self.window_bytes > BYTES_MAX, "window_bytes is above 1 GiB"),
            (self.large_frames_max == 0, "large_frames_max is zero"),
            (self.large_bytes_max == 0, "large_bytes_max is zero"),
            // The interval is no setting here, but a part of the timeout.
            (
                self.common.keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN,
                "keep_alive_timeout is below 100 ms",
            ),
            (
                self.common.keep_alive_timeout > KEEP_ALIVE_TIMEOUT_MAX,
                "keep_alive_timeout is above a day",
            ),
        ];
        self.common.check("QUIC", &rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_go_together_and_a_broken_relation_names_the_settings() {
        assert_eq!(Config::default().check(), Ok(()));
        let small = Config { lane_frame_bytes_max: 100, ..Config::default() };
        let text = small.check().unwrap_err().to_string();
        assert!(text.contains("QUIC") && text.contains("lane_frame_bytes_max"), "{text}");
    }

    /// The interval of keep-alives is no setting of QUIC.
    #[test]
    fn a_keep_alive_timeout_out_of_bounds_is_named() {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        let cases = [(Duration::ZERO, "below 100 ms"), (4 * YEAR, "above a day")];
        for (keep_alive_timeout, bound) in cases {
            let keep_alive_interval = keep_alive_timeout / 3;
            let default = Settings::default();
            let common = Settings { keep_alive_timeout, keep_alive_interval, ..default };
            let text = Config { common, ..Config::default() }.check().unwrap_err().to_string();
            assert!(text.ends_with(&format!("keep_alive_timeout is {bound}")), "{text}");
        }
    }

    #[test]
    fn any_number_of_handshakes_has_room() {
        let mut config = Config::default();
        assert_eq!(config.incoming_bytes_total(), 256 * INCOMING_BYTES_MAX);
        config.common.handshakes_max = usize::MAX;
        assert_eq!((config.check(), config.incoming_bytes_total()), (Ok(()), u64::MAX));
    }

    #[test]
    fn no_frame_is_longer_than_its_word_can_say() {
        let mut config = Config::default();
        config.common.send_bytes_total_max = 8 << 30;
        let largest = config.common.frame_bytes_max_for(u32::MAX);
        assert_eq!(largest, framing::LENGTH_MAX);
        config.common.send_buffer_bytes_hard = 2 << 30;
        config.common.frame_bytes_max = Some(largest);
        assert_eq!(config.check(), Ok(()));
        config.common.frame_bytes_max = Some(largest + 1);
        let text = config.check().unwrap_err().to_string();
        assert!(text.ends_with("frame_bytes_max is 1 GiB or more"), "{text}");
    }

    #[test]
    fn the_window_of_a_connection_has_room_for_every_stream() {
        let config =
            Config { window_bytes: BYTES_MAX, large_frames_max: u16::MAX, ..Config::default() };
        assert_eq!(config.check(), Ok(()));
        assert!(config.connection_window_bytes() < 1 << 62, "QUIC can say it");
    }
}
