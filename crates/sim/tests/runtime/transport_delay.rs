//! The suite every transport runs, over a delay line around the simulated one.

use std::time::Duration;

use convoke_sim::delay::DelayLine;
use convoke_sim::transport::SimNetwork;
use convoke_transport::conformance::{self, Setup};

fn setup(one_way: Duration) -> impl Fn() -> Setup {
    let network = SimNetwork::new(3);
    let transport = DelayLine::wrap(network.transport(), one_way);
    move || Setup {
        listening: transport.clone(),
        dialling: transport.clone(),
        listen: "sim://node:0".parse().expect("it is an address"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_line_without_delay_keeps_the_promises_of_a_transport() {
    conformance::all(setup(Duration::ZERO)).await;
}

/// Every part but `control_overtakes_data`: its control frame is in the line while data that was
/// handed over before may arrive, as it would on a long way.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_line_with_delay_keeps_them() {
    let setup = setup(Duration::from_micros(300));
    conformance::hello_is_the_same_at_both_ends(setup()).await;
    conformance::another_node_than_expected_is_refused(setup()).await;
    conformance::nobody_listening_is_unreachable(setup()).await;
    conformance::a_listener_refuses_by_its_sink(setup()).await;
    conformance::a_dialler_refuses_by_its_sink(setup()).await;
    conformance::many_connections_at_once(setup()).await;
    conformance::a_closed_listener_keeps_its_connections(setup()).await;
    conformance::frames_of_a_lane_keep_their_order(setup()).await;
    conformance::frames_appended_together_keep_their_order(setup()).await;
    conformance::frames_of_every_size_arrive_whole(setup()).await;
    conformance::both_directions_at_once(setup()).await;
    conformance::frames_appended_while_opening_arrive(setup()).await;
    conformance::too_large_a_frame_is_refused(setup()).await;
    conformance::counters_of_both_ends_add_up(setup()).await;
    conformance::a_slow_sink_stops_the_sender_and_nothing_is_lost(setup()).await;
    conformance::a_slow_sink_holds_up_no_other_connection(setup()).await;
    conformance::a_close_reaches_both_ends_once(setup()).await;
    conformance::what_was_appended_before_a_close_arrives(setup()).await;
    conformance::a_fault_found_by_the_sink_closes(setup()).await;
    conformance::a_close_in_the_middle_of_a_frame_delivers_no_part_of_it(setup()).await;
    conformance::both_ends_may_close_at_once(setup()).await;
}
