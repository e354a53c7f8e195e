//! Metrics: a recorder that prints, and a server that counts.
//!
//! ```sh
//! cargo run --example metrics --features metrics
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::{Context, Method, Service, Status};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello");

async fn hello(name: String, _: Context) -> Result<String, Status> {
    Ok(format!("hello, {name}"))
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // In earnest an exporter, installed for the whole program, such as that of
    // metrics-exporter-prometheus. This one keeps what it is told, for this thread.
    let recorder = DebuggingRecorder::new();
    let recorded = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);

    let greeter = Service::new().unary(HELLO, hello);
    // The recorder comes first: an endpoint registers with the one it finds when it starts.
    let server =
        convoke::endpoint().listen("tcp://127.0.0.1:0").serve(greeter).metrics().start().await?;
    let client = convoke::endpoint().start().await?;
    let peer = client.connect(server.addresses()).await?;
    for name in ["Ada", "Grace", "Barbara"] {
        client.call(HELLO, name.into()).to(peer).await?;
    }

    server.sample_metrics(); // what is open and what was carried, as of now
    let mut finished = 0;
    for (key, _, _, value) in recorded.snapshot().into_vec() {
        println!("{} {value:?}", key.key());
        let is_finished = key.key().labels().any(|label| label.value() == "finished");
        if let (DebugValue::Counter(count), true) = (&value, is_finished) {
            finished += count;
        }
    }
    assert_eq!(finished, 3);

    client.shutdown(Duration::from_secs(1)).await;
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
