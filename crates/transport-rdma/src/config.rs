//! The knobs, their defaults, and the relations between them.

use std::time::Duration;

use convoke_transport::parts::{Settings, SettingsError as ConfigError};

use crate::defect::Defects;
use crate::hello::{CONTROL_SLOT_COUNT_MAX, SLOT_BYTES_MAX, SLOT_BYTES_MIN, SLOT_COUNT_MAX, Terms};
use crate::provider::{Provider, QueuePairSettings};
use crate::transport::RdmaTransport;

/// Way in which the engine waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollMode {
    /// Polls for so long after the last traffic, then sleeps until the device wakes it.
    Adaptive {
        /// Zero never polls without need.
        spin: Duration,
    },
    /// Polls as long as there is a connection or a listener: the shortest round trip, for one core
    /// of the machine.
    Busy,
}

/// Sets up an [`RdmaTransport`]; made by [`RdmaTransport::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`slots`](Self::slots), [`control_slots`](Self::control_slots), [`slot_bytes`](Self::slot_bytes) | 32, 2, 8 KiB |
/// | [`send_slots`](Self::send_slots), [`inline_bytes`](Self::inline_bytes) | 16, 220 |
/// | [`frame_bytes_max`](Self::frame_bytes_max) | 4 MiB + 64 KiB |
/// | [`send_buffer_bytes_soft`](Self::send_buffer_bytes_soft), [`send_buffer_bytes_hard`](Self::send_buffer_bytes_hard) | 1 MiB, 16 MiB |
/// | [`control_reserve_bytes`](Self::control_reserve_bytes) | 1 MiB |
/// | [`send_bytes_total_max`](Self::send_bytes_total_max) | 256 MiB |
/// | [`dial_timeout`](Self::dial_timeout), [`handshake_timeout`](Self::handshake_timeout) | 3 s, 5 s |
/// | [`keep_alive_interval`](Self::keep_alive_interval), [`keep_alive_timeout`](Self::keep_alive_timeout) | 3 s, 10 s |
/// | [`handshakes_max`](Self::handshakes_max), [`connections_max`](Self::connections_max) | 256, 1,024 |
/// | [`listen_backlog`](Self::listen_backlog) | 256 |
/// | [`close_grace`](Self::close_grace) | 1 s |
/// | [`poll_mode`](Self::poll_mode) | adaptive: 50 us, or zero with fewer than two cores per engine |
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build"]
pub struct RdmaTransportBuilder<P> {
    provider: P,
    config: Config,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: Settings,
    pub(crate) slots: u16,
    pub(crate) control_slots: u8,
    pub(crate) slot_bytes: u32,
    pub(crate) send_slots: u16,
    pub(crate) inline_bytes: u32,
    /// `None` leaves it to the machine.
    pub(crate) poll_mode: Option<PollMode>,
    pub(crate) retry_count: u8,
    pub(crate) ack_timeout_exponent: u8,
    pub(crate) defects: Defects,
}

impl Default for Config {
    fn default() -> Self {
        let common =
            Settings { connections_max: 1_024, listen_backlog: 256, ..Settings::default() };
        Self {
            common,
            slots: 32,
            control_slots: 2,
            slot_bytes: 8 << 10,
            send_slots: 16,
            inline_bytes: 220,
            poll_mode: None,
            // Seven would be for ever on soft-RoCE; six times about 67 ms is noticed within half a
            // second.
            retry_count: 6,
            ack_timeout_exponent: 14,
            defects: Defects::default(),
        }
    }
}

impl<P: Provider> RdmaTransportBuilder<P> {
    pub(crate) fn new(provider: P) -> Self {
        Self { provider, config: Config::default() }
    }

    /// Number of receives posted for a peer's messages, 1 to 16,384. Default 32. A peer may have as
    /// many messages under way; each costs [`slot_bytes`](Self::slot_bytes) of registered memory
    /// per connection.
    pub fn slots(mut self, count: u16) -> Self {
        self.config.slots = count;
        self
    }

    /// Receives posted beside them for messages that only give credit, 1 to 64. Default 2.
    pub fn control_slots(mut self, count: u8) -> Self {
        self.config.control_slots = count;
        self
    }

    /// The largest message, header included, 1 KiB to 1 MiB. Default 8 KiB. A larger frame is cut.
    pub fn slot_bytes(mut self, bytes: u32) -> Self {
        self.config.slot_bytes = bytes;
        self
    }

    /// Number of messages under way that are too large to be sent inline, at least 1. Default 16.
    /// Each costs this end's [`slot_bytes`](Self::slot_bytes) of registered memory per connection.
    /// There are two even for 1: where the device sends nothing inline, one is kept for credit.
    pub fn send_slots(mut self, count: u16) -> Self {
        self.config.send_slots = count;
        self
    }

    /// Messages up to this size are sent inline, as far as the device grants it. Default 220. Zero
    /// never does. From a device that refuses so many half as many are asked, until it takes them.
    pub fn inline_bytes(mut self, bytes: u32) -> Self {
        self.config.inline_bytes = bytes;
        self
    }

    convoke_transport::setters! {
        frame_bytes_max, send_buffer_bytes_soft, send_buffer_bytes_hard, control_reserve_bytes,
        send_bytes_total_max, dial_timeout, handshake_timeout, handshakes_max,
    }

    /// After how long without sending a keep-alive is sent. Default 3 s; sooner when the peer's
    /// timeout asks for it. A peer that is quiet is probed as often, by a write of nothing, which
    /// its adapter answers by itself: so a machine that is gone is noticed before its timeout.
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.config.common.keep_alive_interval = interval;
        self
    }

    /// After how long without a message from the peer's process the connection is closed, if the
    /// device has not given it up before. Default 10 s. At least three intervals, and at least 100
    /// ms. From a peer that has no credit, because what it sent before was not taken, nothing is
    /// expected.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.config.common.keep_alive_timeout = timeout;
        self
    }

    /// Most connections at this device, dialled and accepted. Default 1,024; further ones are
    /// refused. Of the accepted ones an address may have as many as are free: half, if it is the
    /// only one.
    pub fn connections_max(mut self, count: usize) -> Self {
        self.config.common.connections_max = count;
        self
    }

    /// Number of requests that the system queues until they are accepted. Default 256.
    pub fn listen_backlog(mut self, count: u16) -> Self {
        self.config.common.listen_backlog = count;
        self
    }

    /// Time that a close may take to send what was appended and the reason, and as long again for
    /// the device to give back what was posted. Default 1 s.
    pub fn close_grace(mut self, grace: Duration) -> Self {
        self.config.common.close_grace = grace;
        self
    }

    /// Way in which the engine waits for completions. Default: adaptive with 50 us, or without
    /// polling when the machine has fewer than two cores for each engine of the process.
    pub fn poll_mode(mut self, mode: PollMode) -> Self {
        self.config.poll_mode = Some(mode);
        self
    }

    /// Makes the transport do something wrong, for tests and measurements.
    #[cfg(feature = "mutants")]
    pub fn defect(mut self, defect: crate::defect::Defect) -> Self {
        self.config.defects.insert(defect);
        self
    }

    /// Checks the relations and makes the transport. Nothing runs until it first listens or dials.
    ///
    /// # Errors
    /// [`ConfigError`] names settings that do not go together.
    pub fn build(self) -> Result<RdmaTransport, ConfigError> {
        self.config.check()?;
        Ok(RdmaTransport::from_config(self.provider, self.config))
    }
}

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (!(1..=SLOT_COUNT_MAX).contains(&self.slots), "slots is not within 1 and 16,384"),
            (
                !(1..=CONTROL_SLOT_COUNT_MAX).contains(&self.control_slots),
                "control_slots is not within 1 and 64",
            ),
            (
                !(SLOT_BYTES_MIN..=SLOT_BYTES_MAX).contains(&self.slot_bytes),
                "slot_bytes is not within 1 KiB and 1 MiB",
            ),
            (self.send_slots == 0, "send_slots is zero"),
        ];
        self.common.check("RDMA", &rules)
    }

    /// Terms that this end tells a peer of its slots, for a sink that takes frames of so many
    /// bytes.
    pub(crate) fn terms(&self, frame_bytes_max: u32) -> Terms {
        Terms {
            slot_count: self.slots,
            control_slot_count: self.control_slots,
            slot_bytes: self.slot_bytes,
            frame_bytes_max: self
                .common
                .frame_bytes_max_for(frame_bytes_max)
                .min(frame_bytes_max)
                .max(1),
        }
    }

    pub(crate) fn receive_slots(&self) -> u32 {
        self.terms(u32::MAX).receive_count()
    }

    /// Slots to send from, one of which stays for credit where nothing goes inline.
    pub(crate) fn send_slot_count(&self) -> u32 {
        u32::from(self.send_slots).max(2)
    }

    /// Work requests that may wait in the send queue: messages inline and in slots, and credit.
    pub(crate) fn send_queue_depth(&self) -> u32 {
        (2 * u32::from(self.slots)).clamp(32, 512) + self.send_slot_count()
    }

    pub(crate) fn queue_pair(&self) -> QueuePairSettings {
        QueuePairSettings {
            receives_max: self.receive_slots(),
            // One more for a probe.
            sends_max: self.send_queue_depth() + 1,
            inline_bytes: self.inline_bytes,
            retry_count: self.retry_count,
            ack_timeout_exponent: self.ack_timeout_exponent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::simulated::Fabric;

    #[test]
    fn the_defaults_go_together() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn a_broken_relation_names_the_settings() {
        let builder = || RdmaTransport::builder(Fabric::new().device());
        let error = builder().keep_alive_interval(Duration::from_secs(4)).build().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("RDMA") && text.contains("keep_alive_interval"), "{text}");
        assert!(builder().slots(0).build().is_err() && builder().slot_bytes(100).build().is_err());
    }
}
