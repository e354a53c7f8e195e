//! Lines that an endpoint logs for the one who operates it.

#![cfg(feature = "tcp")]

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke::{NodeId, Service};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Lines of the level `INFO`, each as its message and fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == Level::INFO {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().expect("nobody panics with it").push(line.0);
        }
    }
}

#[tokio::test]
async fn an_endpoint_says_once_where_it_listens() -> Result {
    let lines = Lines::default();
    let layers = tracing_subscriber::registry().with(lines.clone());
    let _guard = tracing::subscriber::set_default(layers);
    let builder = convoke::endpoint().node(NodeId::new(7)).serve(Service::new());
    let builder = builder.listen("tcp://127.0.0.1:0").listen("tcp://[::1]:0");
    let node = builder.start().await?;
    let client = convoke::endpoint().start().await?;

    let said = lines.0.lock().expect("nobody panics with it").clone();
    let listening: Vec<_> = said.iter().filter(|line| line.contains("listening")).collect();
    let [line] = &listening[..] else { panic!("one of them listens: {said:?}") };
    assert!(line.contains("node=n7"), "{line}");
    for address in node.addresses() {
        assert!(line.contains(&address.to_string()), "{address} is not in {line}");
    }
    for endpoint in [client, node] {
        endpoint.shutdown(Duration::from_secs(60)).await;
    }
    Ok(())
}
