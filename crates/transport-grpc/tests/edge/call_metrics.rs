//! The names that the edge's calls have in metrics: those of the operator, never those of clients.

use std::collections::BTreeMap;

use convoke_transport_grpc::GrpcEdge;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use crate::client::{Client, text};
use crate::echo::{Stage, descriptor_set};

/// Number of calls of each method that were opened since the last time.
fn opened(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let mut opened = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        let method = key.labels().find(|label| label.key() == "method");
        if let (Some(method), DebugValue::Counter(count @ 1..)) = (method, value)
            && key.name() == "convoke_calls_opened_total"
        {
            *opened.entry(method.value().to_owned()).or_default() += count;
        }
    }
    opened
}

#[tokio::test]
async fn calls_are_counted_by_method_where_a_file_or_a_local_service_names_it() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let stage = Stage::with(|builder, _| builder).await;
    let mut client = Client::connect(stage.edge.local_addr()).await;
    client.unary("Say", text("a")).await.unwrap();
    for made_up in ["Shout", "Whisper"] {
        let status = client.unary(made_up, text("a")).await.unwrap_err();
        let said = format!("edge.test.Echo/{made_up} is not served by the endpoint of this edge");
        assert!(status.message().starts_with(&said), "{status}");
        assert!(status.message().contains("give the edge a `route`"), "{status}");
    }
    // What it does not serve becomes no call.
    assert_eq!(opened(&snapshotter), [("edge.test.Echo/Say".to_owned(), 1)].into());

    // A gateway that serves nothing itself knows them by the file.
    let gateway = convoke_core::Endpoint::builder()
        .transport(convoke_transport_grpc::GrpcTransport::new())
        .metrics()
        .start()
        .await
        .unwrap();
    let far = gateway.connect(stage.far.addresses()[0].as_str()).await.unwrap();
    let blind = GrpcEdge::builder(&gateway).route(move |_| far).start("127.0.0.1:0").await.unwrap();
    let mut client = Client::connect(blind.local_addr()).await;
    client.unary("Say", text("a")).await.unwrap();
    for made_up in ["Shout", "Whisper"] {
        client.unary(made_up, text("a")).await.unwrap_err();
    }
    assert_eq!(opened(&snapshotter), [("(other)".to_owned(), 3)].into());
    blind.shutdown(std::time::Duration::from_secs(5)).await;

    let edge = GrpcEdge::builder(&gateway).descriptor_set(descriptor_set()).route(move |_| far);
    let edge = edge.start("127.0.0.1:0").await.unwrap();
    let mut client = Client::connect(edge.local_addr()).await;
    client.unary("Say", text("a")).await.unwrap();
    assert_eq!(opened(&snapshotter), [("edge.test.Echo/Say".to_owned(), 1)].into());
    edge.shutdown(std::time::Duration::from_secs(5)).await;
    gateway.shutdown(std::time::Duration::from_secs(5)).await;
    stage.stop().await;
}
