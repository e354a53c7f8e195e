//! Duties of every transport, as tests it runs.
//!
//! A transport's own tests call [`all`] with a way to make two ends. Each part is a function of its
//! own, so that a transport can run one alone. A part panics when a promise of [the crate](crate) is
//! broken, or when it does not come true within [`PATIENCE`]. To be called beside, with settings of
//! their own:
//!
//! | with | |
//! |---|---|
//! | a short keep-alive timeout | [`processes`] that hang, and that end |
//! | little room to send | [`peers_that_never_read_leave_others_alone`] |
//! | as little | [`who_waits_for_a_share_of_the_room_is_woken`] |
//! | a long grace | [`both_ends_may_close_with_much_to_send`] |
//! | few connections | [`a_peer_has_its_share_of_the_connections`] |
//! | an [`Attacker`], who says in the bytes of the transport what peers without manners do | [`hostile`], [`a_crowd_in_its_handshake_leaves_room_later`] |
//!
//! Needs a multi-thread runtime of at least two workers: a slow sink is one that blocks its thread.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use convoke_transport::{Transport, conformance::{self, Setup}};
//! # fn my_transport() -> Arc<dyn Transport> { panic!("the transport under test") }
//! # #[tokio::main]
//! # async fn main() {
//! conformance::all(|| Setup {
//!     listening: my_transport(),
//!     dialling: my_transport(),
//!     listen: "tcp://127.0.0.1:0".parse().unwrap(),
//! })
//! .await;
//! # }
//! ```
#![allow(clippy::missing_panics_doc, reason = "each part is a test, and panics when it fails")]

mod crowd;
mod ends;
mod flow;
mod frames;
mod hostile;
mod hung;
mod process;
mod recorder;
mod setup;
mod sinks;
mod victim;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Address, Transport};

pub use crate::parts::lock::counted::{lock_waits, locks_taken, note_locks, take_noted_locks};
pub use crowd::*;
pub use ends::*;
pub use flow::*;
pub use frames::*;
pub use hostile::{Attacker, Deed, HARMFUL, VICTIM_FRAME_BYTES_MAX, hostile, noise};
pub use hung::*;
pub use recorder::{Gate, Recorder, Seen};
pub use setup::*;
pub use sinks::*;
pub use victim::Victim;

/// Time that a part waits for what must happen: far longer than it takes, so that only a hang runs
/// into it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout that honest peers keep to on a busy machine, and that a test can wait for: of the
/// handshake and of the keep-alive, for the victims of [`hostile`].
pub const SHORT: Duration = Duration::from_secs(1);

/// Two ends to test.
#[derive(Clone)]
pub struct Setup {
    /// Makes the listening end.
    pub listening: Arc<dyn Transport>,
    /// Makes the dialling end; may be the same.
    pub dialling: Arc<dyn Transport>,
    /// Address to listen at, with the choice of the port left to the system.
    pub listen: Address,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Runs every part, each with ends of its own.
pub async fn all(setup: impl Fn() -> Setup) {
    hello_is_the_same_at_both_ends(setup()).await;
    another_node_than_expected_is_refused(setup()).await;
    nobody_listening_is_unreachable(setup()).await;
    a_listener_refuses_by_its_sink(setup()).await;
    a_dialler_refuses_by_its_sink(setup()).await;
    many_connections_at_once(setup()).await;
    a_closed_listener_keeps_its_connections(setup()).await;
    a_dial_that_is_dropped_leaves_nothing(setup()).await;
    an_address_of_another_scheme_is_refused(setup()).await;
    an_address_has_one_listener(setup()).await;

    frames_of_a_lane_keep_their_order(setup()).await;
    frames_appended_together_keep_their_order(setup()).await;
    frames_of_every_size_arrive_whole(setup()).await;
    both_directions_at_once(setup()).await;
    frames_appended_while_opening_arrive(setup()).await;
    too_large_a_frame_is_refused(setup()).await;
    counters_of_both_ends_add_up(setup()).await;
    threads_that_send_at_once_lose_nothing(setup()).await;

    a_slow_sink_stops_the_sender_and_nothing_is_lost(setup()).await;
    control_overtakes_data(setup()).await;
    a_slow_sink_holds_up_no_other_connection(setup()).await;

    a_close_reaches_both_ends_once(setup()).await;
    what_was_appended_before_a_close_arrives(setup()).await;
    a_fault_found_by_the_sink_closes(setup()).await;
    a_close_in_the_middle_of_a_frame_delivers_no_part_of_it(setup()).await;
    both_ends_may_close_at_once(setup()).await;

    a_sink_that_panics_hears_the_end_and_harms_no_other(setup()).await;
    frames_a_sink_leaves_are_dropped_and_cost_no_credit(setup()).await;
    a_sink_may_use_its_connection_whenever_it_is_called(setup()).await;
    nothing_of_a_closed_connection_stays(setup()).await;
}
