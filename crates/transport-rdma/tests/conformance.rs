//! The suite every transport runs, over simulated verbs.
//!
//! Without probes of idle peers: their completions would get a connection going again that has
//! stalled, and hide it.

use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::{self, Setup};
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric, SimDevice};
use convoke_transport_rdma::{RdmaTransport, RdmaTransportBuilder};

/// Two devices of a fabric, and transports over them that `set` sets up.
fn setup(
    fabric: &Fabric,
    settings: DeviceSettings,
    set: impl Fn(RdmaTransportBuilder<SimDevice>) -> RdmaTransportBuilder<SimDevice>,
) -> Setup {
    let hour = Duration::from_secs(3_600);
    let [listening, dialling] = [(), ()].map(|()| {
        let builder = RdmaTransport::builder(fabric.device_with(settings));
        let builder = set(builder.keep_alive_interval(hour).keep_alive_timeout(3 * hour));
        Arc::new(builder.build().expect("the settings are legal"))
    });
    let listen = "rdma://127.0.0.1:0".parse().expect("it is an address");
    Setup { listening, dialling, listen }
}

fn check(fabric: &Fabric) {
    let counters = fabric.counters();
    let bad = (counters.receiver_not_ready, counters.overflows, counters.violations);
    assert_eq!(bad, (0, 0, 0), "{counters:?}");
    assert!(counters.delivered > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rdma_keeps_the_promises_of_a_transport() {
    let fabric = Fabric::new();
    let one = setup(&fabric, DeviceSettings::default(), |builder| builder);
    conformance::all(|| one.clone()).await;
    check(&fabric);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rdma_keeps_them_with_one_slot_of_the_smallest_size_and_nothing_inline() {
    for send_slots in [1, 2] {
        let fabric = Fabric::new();
        let settings = DeviceSettings { inline_bytes_max: 0, ..DeviceSettings::default() };
        let one = setup(&fabric, settings, |builder| {
            builder.slots(1).control_slots(1).slot_bytes(1 << 10).send_slots(send_slots)
        });
        conformance::all(|| one.clone()).await;
        check(&fabric);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rdma_keeps_them_when_queue_pairs_are_reordered() {
    for seed in 0..2 {
        println!("seed {seed}");
        let fabric = Fabric::seeded(seed);
        let one = setup(&fabric, DeviceSettings::default(), |builder| builder.slots(4));
        conformance::all(|| one.clone()).await;
        check(&fabric);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_hang_or_end_are_noticed_though_their_adapter_answers() {
    let fabric = Fabric::new();
    let short = |builder: RdmaTransportBuilder<SimDevice>| {
        let builder = builder.keep_alive_interval(Duration::from_millis(100));
        builder.keep_alive_timeout(Duration::from_millis(500))
    };
    let setup = || setup(&fabric, DeviceSettings::default(), short);
    conformance::processes(setup).await;
    check(&fabric);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_never_read_leave_others_alone() {
    const ROOM: usize = 32 << 20;
    let fabric = Fabric::new();
    let crowded = |builder: RdmaTransportBuilder<SimDevice>| {
        let builder = builder.slots(8).slot_bytes(4 << 10).send_slots(4);
        builder.frame_bytes_max(1 << 20).send_bytes_total_max(ROOM)
    };
    let setup = || setup(&fabric, DeviceSettings::default(), crowded);
    // A peer may have half of the room; slots of both ends, and the first bytes, are besides.
    let bound = (ROOM / 2, ((8 + 4) * 4 + 16) << 10);
    conformance::peers_that_never_read_leave_others_alone(setup, 500, bound).await;
    check(&fabric);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_share_of_the_room_is_woken() {
    let fabric = Fabric::new();
    let narrow = |builder: RdmaTransportBuilder<SimDevice>| {
        builder.frame_bytes_max(64 << 10).send_bytes_total_max(256 << 10)
    };
    let setup = setup(&fabric, DeviceSettings::default(), narrow);
    conformance::who_waits_for_a_share_of_the_room_is_woken(setup).await;
    check(&fabric);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_has_its_share_of_the_connections() {
    let fabric = Fabric::new();
    let setup = setup(&fabric, DeviceSettings::default(), |builder| builder.connections_max(4));
    conformance::a_peer_has_its_share_of_the_connections(setup).await;
    check(&fabric);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_of_what_is_not_sent_may_look_at_the_connection() {
    let fabric = Fabric::new();
    let setup = setup(&fabric, DeviceSettings::default(), |builder| builder);
    conformance::an_owner_of_what_is_not_sent_may_look_at_the_connection(setup).await;
    check(&fabric);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_of_what_was_sent_may_look_at_the_connection() {
    let fabric = Fabric::new();
    let setup = setup(&fabric, DeviceSettings::default(), |builder| builder);
    conformance::an_owner_of_what_was_sent_may_look_at_the_connection(setup).await;
    check(&fabric);
}
