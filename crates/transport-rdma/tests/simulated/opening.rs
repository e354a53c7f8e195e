//! Obstacles to a connection, and what is said then.

use std::sync::Arc;
use std::time::Duration;

use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, DialError, Transport};
use convoke_transport_rdma::RdmaTransport;
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};

use crate::support::{ends, ends_with};

fn message(error: Option<DialError>) -> String {
    error.expect("the dial fails").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_little_locked_memory_names_the_limit_at_both_ends() {
    let settings = DeviceSettings { registered_bytes_max: 100_000, ..DeviceSettings::default() };
    let ends = ends_with(Fabric::new(), settings, |builder| builder);
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = ends.setup.listen(&b).await;
    let error = message(ends.setup.dial(&*listener, &a).await.err());
    assert!(error.contains("100000 bytes") && error.contains("ulimit -l"), "{error}");
    let able = RdmaTransport::simulated(&ends.fabric);
    let error = message(able.dial(&listener.local_address(), None, a).await.err());
    assert!(error.contains("refused") && error.contains("100000 bytes"), "{error}");
    ends.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_more_than_allowed_is_refused_until_there_is_room() {
    let ends =
        ends_with(Fabric::new(), DeviceSettings::default(), |builder| builder.connections_max(1));
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let link = ends.connect(a.clone(), &b).await;
    let able = RdmaTransport::simulated(&ends.fabric);
    let address = link.listener.local_address();
    let error = message(able.dial(&address, None, a.clone()).await.err());
    assert!(error.contains("open: 1 of 1 are taken"), "{error}");
    let error = message(ends.setup.dialling.dial(&address, None, a.clone()).await.err());
    assert!(error.contains("connections_max"), "{error}");
    link.to_b.close(CloseReason::Local);
    ends.nothing_is_left().await;
    able.dial(&address, None, a).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_that_nobody_answers_ends_in_time_and_leaves_nothing() {
    let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
        builder.dial_timeout(Duration::from_millis(50))
    });
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = ends.setup.listen(&b).await;
    ends.devices[0].cut_off();
    let dialled = ends.setup.dial(&*listener, &a).await;
    assert!(matches!(dialled, Err(DialError::Timeout { .. })), "{dialled:?}");
    ends.nothing_is_left().await;
    assert_eq!(a.opened_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_that_is_dropped_leaves_nothing_whenever_that_is() {
    let ends = ends();
    let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
    let listener = ends.setup.listen(&b).await;
    let address = listener.local_address();
    for polls in 0..12 {
        let mut dial = ends.setup.dialling.dial(&address, None, a.clone());
        for _ in 0..polls {
            if !crate::support::is_ready(|cx| dial.as_mut().poll(cx).map(drop)).await {
                tokio::task::yield_now().await;
            } else {
                // It was faster: then the connection is the caller's.
                a.opened(a.opened_count() - 1).await.close(CloseReason::Local);
                break;
            }
        }
    }
    ends.nothing_is_left().await;
    a.check();
    b.check();
}
