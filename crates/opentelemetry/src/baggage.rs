//! Baggage, in the metadata of calls.

use convoke_core::{Metadata, Outgoing, Status};
use opentelemetry::Context;
use opentelemetry::global::get_text_map_propagator;
use opentelemetry::propagation::{Extractor, Injector};

/// The header that a request has in a form of its own.
const TRACE_PARENT: &str = "traceparent";

/// Hook of a client that gives each request what the global propagator of OpenTelemetry says of the
/// current context, such as baggage. The place in the trace travels by itself.
///
/// ```
/// use opentelemetry_sdk::propagation::BaggagePropagator;
/// # use convoke_core::{Client, Endpoint};
///
/// # fn set_up(endpoint: &Endpoint) -> Client {
/// opentelemetry::global::set_text_map_propagator(BaggagePropagator::new());
/// endpoint.client().before_each(convoke_opentelemetry::inject)
/// # }
/// ```
///
/// # Errors
/// Never: it is a result because hooks are.
#[allow(clippy::unnecessary_wraps, reason = "it is the signature of a hook")]
pub fn inject(outgoing: &mut Outgoing<'_>) -> Result<(), Status> {
    get_text_map_propagator(|propagator| propagator.inject(&mut Request(outgoing)));
    Ok(())
}

/// The current context of OpenTelemetry, with the baggage that the request of a task brought.
///
/// ```
/// # use convoke_core::{Context, Status};
/// use opentelemetry::baggage::BaggageExt as _;
///
/// async fn tenant(_: String, context: Context) -> Result<String, Status> {
///     let came = convoke_opentelemetry::extract(context.metadata());
///     Ok(came.baggage().get("tenant").map(ToString::to_string).unwrap_or_default())
/// }
/// ```
pub fn extract(metadata: Metadata<'_>) -> Context {
    get_text_map_propagator(|propagator| propagator.extract(&Received(metadata)))
}

/// A request that takes headers as metadata.
struct Request<'a, 'b>(&'a mut Outgoing<'b>);

impl Injector for Request<'_, '_> {
    fn set(&mut self, key: &str, value: String) {
        if key != TRACE_PARENT {
            self.0.metadata(key, value);
        }
    }
}

/// Metadata that gives headers.
struct Received<'a>(Metadata<'a>);

impl Extractor for Received<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.text(key)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.iter().map(|(key, _)| key).collect()
    }
}
