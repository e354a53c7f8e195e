//! Settings that transports have in common, their defaults, their setters, and the relations
//! between them.

use std::time::Duration;

pub use convoke_proto::limits::TIME_MAX;

use super::hello::KEEP_ALIVE_TIMEOUT_MIN;
use super::life::LifeTerms;
use super::send_account::{LaneLimits, SendLimits};
use super::{Admission, Seats, SendPool};

/// Settings that do not go together; says which and what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings of the {transport} transport do not go together: {message}")]
pub struct SettingsError {
    transport: &'static str,
    message: &'static str,
}

/// Settings that transports have in common. [`setters`](crate::setters) makes the methods of a
/// builder by which users set them, and says what each means.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the setters say what each means")]
pub struct Settings {
    pub dial_timeout: Duration,
    pub handshake_timeout: Duration,
    pub frame_bytes_max: Option<u32>,
    pub send_buffer_bytes_soft: usize,
    pub send_buffer_bytes_hard: usize,
    pub control_reserve_bytes: usize,
    pub send_bytes_total_max: usize,
    pub keep_alive_interval: Duration,
    pub keep_alive_timeout: Duration,
    pub handshakes_max: usize,
    pub connections_max: usize,
    pub listen_backlog: u16,
    pub close_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dial_timeout: Duration::from_secs(3),
            handshake_timeout: Duration::from_secs(5),
            frame_bytes_max: None,
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
        }
    }
}

impl Settings {
    /// Checks the relations: the transport's own `rules`, each a condition that must not hold and
    /// the text that names the settings, and then those of these settings. So it has its own word
    /// for what it sets otherwise.
    ///
    /// # Errors
    /// [`SettingsError`] for the first that is broken.
    pub fn check(
        &self,
        transport: &'static str,
        rules: &[(bool, &'static str)],
    ) -> Result<(), SettingsError> {
        let broken = rules.iter().copied().chain(self.rules()).find(|rule| rule.0);
        broken.map_or(Ok(()), |(_, message)| Err(SettingsError { transport, message }))
    }

    /// The largest frame to take or send for a sink that takes frames of so many bytes: the
    /// setting, else the default, or what the sink takes if that is more.
    pub fn frame_bytes_max_for(&self, sink_frame_bytes_max: u32) -> u32 {
        self.frame_bytes_max.unwrap_or_else(|| {
            // What takes more of the room of all would not leave while others have some of it.
            let room = u32::try_from(self.send_bytes_total_max / 4).unwrap_or(u32::MAX);
            sink_frame_bytes_max.min(room).clamp(FRAME_BYTES_MAX, FRAME_BYTES_GROWN_MAX)
        })
    }

    /// Bounds of a connection whose ends have said that they take frames of so many bytes, this end
    /// first.
    pub fn send_limits(&self, frame_bytes_max: u32, peer_frame_bytes_max: u32) -> SendLimits {
        let frame_bytes_max = self.frame_bytes_max_for(frame_bytes_max).min(peer_frame_bytes_max);
        let frame_bytes_max = frame_bytes_max as usize;
        let reserve = self.control_reserve_bytes;
        let control = LaneLimits { soft_bytes: reserve / 2, hard_bytes: reserve };
        let data = LaneLimits {
            soft_bytes: self.send_buffer_bytes_soft,
            // A lane that is writable takes any frame, as long as all connections leave room.
            hard_bytes: self
                .send_buffer_bytes_hard
                .max(self.send_buffer_bytes_soft.saturating_add(frame_bytes_max)),
        };
        SendLimits { frame_bytes_max, lanes: [control, data] }
    }

    /// Bounds of all connections together.
    pub fn admission(&self) -> Admission {
        Admission {
            handshakes: Seats::new(self.handshakes_max),
            connections: Seats::new(self.connections_max),
            send: SendPool::new(self.send_bytes_total_max),
        }
    }

    /// Times after which a connection ends.
    pub fn life_terms(&self) -> LifeTerms {
        LifeTerms { keep_alive_timeout: self.keep_alive_timeout, close_grace: self.close_grace }
    }

    fn rules(&self) -> [(bool, &'static str); 18] {
        let frame_bytes_max = self.frame_bytes_max.unwrap_or(FRAME_BYTES_MAX) as usize;
        let hard_bytes_min = self.send_buffer_bytes_soft.saturating_add(frame_bytes_max);
        [
            (self.dial_timeout.is_zero(), "dial_timeout is zero"),
            (self.handshake_timeout.is_zero(), "handshake_timeout is zero"),
            (frame_bytes_max < FRAME_BYTES_MIN as usize, "frame_bytes_max is below 32 KiB"),
            (self.send_buffer_bytes_soft == 0, "send_buffer_bytes_soft is zero"),
            (
                self.send_buffer_bytes_hard < hard_bytes_min,
                "send_buffer_bytes_hard is below send_buffer_bytes_soft + frame_bytes_max",
            ),
            (self.control_reserve_bytes < 2, "control_reserve_bytes is below 2"),
            (
                self.send_bytes_total_max / 4 < frame_bytes_max,
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
            (self.dial_timeout > TIME_MAX, "dial_timeout is above a year"),
            (self.handshake_timeout > TIME_MAX, "handshake_timeout is above a year"),
            (self.keep_alive_interval > TIME_MAX, "keep_alive_interval is above a year"),
            (self.keep_alive_timeout > TIME_MAX, "keep_alive_timeout is above a year"),
            (self.close_grace > TIME_MAX, "close_grace is above a year"),
        ]
    }
}

/// The least that a largest frame may be: a part of a message, and what goes with it, of which 16
/// KB may be metadata.
pub const FRAME_BYTES_MIN: u32 = 32 << 10;
/// Default of the largest frame: a message of 4 MiB and its headers.
const FRAME_BYTES_MAX: u32 = (4 << 20) + (64 << 10);
/// The largest frame of a sink that a transport takes without being told: QUIC has no larger ones.
const FRAME_BYTES_GROWN_MAX: u32 = (1 << 30) - 1;

/// Makes the setters of a transport's builder for settings of
/// [`Settings`](crate::parts::Settings), named one by one or all, which it has at
/// `self.config.common`.
#[macro_export]
macro_rules! setters {
    (..) => {
        $crate::setters! {
            dial_timeout, handshake_timeout, frame_bytes_max, send_buffer_bytes_soft,
            send_buffer_bytes_hard, control_reserve_bytes, send_bytes_total_max,
            keep_alive_interval, keep_alive_timeout, handshakes_max, connections_max,
            listen_backlog, close_grace,
        }
    };
    ($($setting:ident),* $(,)?) => { $($crate::setter!($setting);)* };
}

/// One setter, with its words; for [`setters`].
#[doc(hidden)]
#[macro_export]
macro_rules! setter {
    (dial_timeout) => {
        $crate::setter! {
            /// Longest time of a dial until the other end has accepted the connection, resolving a
            /// name included. Default 3 s.
            @ dial_timeout: ::std::time::Duration
        }
    };
    (handshake_timeout) => {
        $crate::setter! {
            /// Longest time for the hello of either end once connected. Default 5 s. A connection
            /// that says nothing is kept for this long.
            @ handshake_timeout: ::std::time::Duration
        }
    };
    (frame_bytes_max) => {
        $crate::setter! {
            /// The largest frame this end takes or sends, in bytes. Default 4 MiB and 64 KiB, a
            /// message of 4 MiB and its headers; or as much as the endpoint takes where that is
            /// more, up to a quarter of `send_bytes_total_max`. So to raise `message_bytes_max` of
            /// the endpoint's limits is enough. The smaller of this and what the endpoint takes is
            /// told to peers. A connection may hold this much per lane while a frame arrives. A
            /// request above it fails; replies, and items of streams, leave in several frames. At
            /// least 32 KiB.
            @ frame_bytes_max: u32 => Some(frame_bytes_max)
        }
    };
    (send_buffer_bytes_soft) => {
        $crate::setter! {
            /// From how many queued bytes on the data lane is
            /// [`Full`](convoke_transport::Appended::Full). Default 1 MiB.
            @ send_buffer_bytes_soft: usize
        }
    };
    (send_buffer_bytes_hard) => {
        $crate::setter! {
            /// At how many queued bytes the data lane takes no more frames. Default 16 MiB. At
            /// least the soft bound and the largest frame, so that a writable lane takes any frame,
            /// unless all connections together leave no room for it: where the endpoint makes that
            /// larger, the bound is raised with it.
            @ send_buffer_bytes_hard: usize
        }
    };
    (control_reserve_bytes) => {
        $crate::setter! {
            /// Bytes that the control lane may queue beside the data lane. Default 1 MiB. It is
            /// `Full` at half of it. At all of it the endpoint lets cancels wait beside it and asks
            /// questions after tasks again later; any other frame closes the connection as
            /// overloaded.
            @ control_reserve_bytes: usize
        }
    };
    (send_bytes_total_max) => {
        $crate::setter! {
            /// Bytes that all connections of the transport may queue together. Default 256 MiB; at
            /// least four times the largest frame. A connection may have a quarter of what is free,
            /// or one frame as large as what is free, all of one peer as much as is free, and each
            /// 16 KiB besides. A connection above its share is full, as at the bounds of its own:
            /// callers wait, requests to it fail, a reply that finds no room closes it.
            @ send_bytes_total_max: usize
        }
    };
    (keep_alive_interval) => {
        $crate::setter! {
            /// After how long without sending a keep-alive is sent. Default 3 s; sooner when the
            /// peer's timeout asks for it. The peer's process must send it, not its system or a
            /// proxy.
            @ keep_alive_interval: ::std::time::Duration
        }
    };
    (keep_alive_timeout) => {
        $crate::setter! {
            /// After how long without anything from the peer's process the connection is closed.
            /// Default 10 s. At least three intervals, and at least 100 ms.
            @ keep_alive_timeout: ::std::time::Duration
        }
    };
    (handshakes_max) => {
        $crate::setter! {
            /// Number of accepted connections that may be in their handshake. Default 256; further
            /// ones are refused at once. One address, of IPv6 its first 64 bits, may have as many
            /// as are free: half, if it is the only one.
            @ handshakes_max: usize
        }
    };
    (connections_max) => {
        $crate::setter! {
            /// Number of accepted connections that may be open, over all listeners of the
            /// transport. Default 4,096; further ones are refused. One peer may have as many as are
            /// free: half, if it is the only one. A peer is the node that a certificate proves,
            /// else the address that it connects from, of IPv6 its first 64 bits. Dialled
            /// connections do not count.
            @ connections_max: usize
        }
    };
    (listen_backlog) => {
        $crate::setter! {
            /// Number of connections that the operating system queues until they are accepted.
            /// Default 1,024.
            @ listen_backlog: u16
        }
    };
    (close_grace) => {
        $crate::setter! {
            /// Longest time of a close to send what was appended and the reason. Default 1 s.
            @ close_grace: ::std::time::Duration
        }
    };
    ($(#[$doc:meta])* @ $setting:ident: $of:ty) => {
        $crate::setter! { $(#[$doc])* @ $setting: $of => $setting }
    };
    ($(#[$doc:meta])* @ $setting:ident: $of:ty => $value:expr) => {
        $(#[$doc])*
        pub fn $setting(mut self, $setting: $of) -> Self {
            self.config.common.$setting = $value;
            self
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(settings: &Settings, rules: &[(bool, &'static str)]) -> String {
        settings.check("test", rules).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_go_together() {
        assert_eq!(Settings::default().check("test", &[(false, "nothing")]), Ok(()));
    }

    #[test]
    fn a_broken_relation_names_the_settings() {
        let mut settings = Settings::default();
        assert!(message(&settings, &[(true, "mine is zero")]).ends_with("mine is zero"));
        settings.keep_alive_interval = Duration::from_secs(4);
        assert!(message(&settings, &[]).contains("three times keep_alive_interval"));
        let settings = Settings { frame_bytes_max: Some(16 << 20), ..Settings::default() };
        assert!(message(&settings, &[]).contains("send_buffer_bytes_hard"));
        let settings = Settings { frame_bytes_max: Some((32 << 10) - 1), ..Settings::default() };
        assert!(message(&settings, &[]).ends_with("frame_bytes_max is below 32 KiB"));
        let settings = Settings { frame_bytes_max: Some(32 << 10), ..Settings::default() };
        assert_eq!(settings.check("test", &[]), Ok(()));
        let settings = Settings { send_bytes_total_max: 16 << 20, ..Settings::default() };
        assert!(message(&settings, &[]).contains("four times frame_bytes_max"));
    }

    #[test]
    fn the_largest_frame_is_what_was_set_else_grows_with_what_the_sink_takes() {
        const MIB: u32 = 1 << 20;
        let unset = Settings::default();
        let grown = [(MIB, FRAME_BYTES_MAX), (17 * MIB, 17 * MIB), (u32::MAX, 64 * MIB)];
        for (sink, expected) in grown {
            assert_eq!(unset.frame_bytes_max_for(sink), expected);
        }
        let set = Settings { frame_bytes_max: Some(5 * MIB), ..unset.clone() };
        assert_eq!(set.frame_bytes_max_for(17 * MIB), 5 * MIB);
        let limits = unset.send_limits(17 * MIB, 16 * MIB);
        let [_, data] = limits.lanes;
        assert_eq!(limits.frame_bytes_max, 16 << 20);
        assert_eq!(data.hard_bytes, unset.send_buffer_bytes_soft + limits.frame_bytes_max);
        assert_eq!(
            unset.send_limits(MIB, 2 * MIB).lanes[1].hard_bytes,
            unset.send_buffer_bytes_hard
        );
    }
}
