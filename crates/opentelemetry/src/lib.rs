//! OpenTelemetry for Convoke: one trace over all nodes of a call.
//!
//! An endpoint makes a span of the crate `tracing` for each call and each handler, and sends its
//! W3C trace context in every request. [`OpenTelemetry`] gives these spans the ids and parents of
//! OpenTelemetry and the attributes of its conventions for RPC.
//!
//! ```text
//!   tracing span ──▶ layer of tracing-opentelemetry ──▶ exporter of yours
//!        │                      ▲
//!        └── Propagator ────────┘  ids, parents, rpc.* attributes
//! ```
//! ```
//! use convoke_core::Endpoint;
//! use convoke_opentelemetry::OpenTelemetry;
//! use opentelemetry::trace::TracerProvider as _;
//! use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let exporter = InMemorySpanExporter::default(); // in earnest that of opentelemetry-otlp
//! let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
//! let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
//! tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
//!
//! let endpoint = Endpoint::builder().propagator(OpenTelemetry).start().await?;
//! # Ok(())
//! # }
//! ```
//! # Attributes
//!
//! Those of the [conventions for RPC](https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/),
//! in their stable form:
//!
//! | attribute | value |
//! |---|---|
//! | `rpc.system.name` | `convoke` |
//! | `rpc.method` | the full name, `package.Service/Method` |
//! | `rpc.response.status_code` | `OK`, or the service's code, such as `NOT_FOUND`; none of a call that its owner gave up |
//! | `error.type` | of a failure: the service's code, or the cause in lower case, such as `node_down` |
//! | `server.address` | of a call: the node it asks, such as `n7`, since peers are asked by name and not by address |
//!
//! The fields of Convoke's own spans are exported beside them, among these `outcome`, `branches` and
//! `path`.
//!
//! # Baggage
//!
//! A trace context travels by itself. Baggage does so where a client has the hook [`inject`] and a
//! handler asks for it with [`extract`]. Both use the global propagator of OpenTelemetry. The
//! `tracestate` comes as metadata of that name, of which [`extract`] makes nothing.
//!
//! It exports nothing and makes no metrics.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod baggage;
mod propagator;

pub use baggage::{extract, inject};
pub use propagator::OpenTelemetry;
