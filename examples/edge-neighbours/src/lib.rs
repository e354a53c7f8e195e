//! One port for web pages, gRPC, gRPC-Web, metrics and the health checks of a load balancer.
//!
//! [axum](https://docs.rs/axum) routes what comes in at the port. The edge is one of its services,
//! and the layer of `tonic-web` around it takes the gRPC-Web of browsers, over HTTP/1.1 or HTTP/2.
//! A load balancer asks by `grpc.health.v1` or by plain HTTP, and hears what the node itself says
//! of its health.

mod serve;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post_service};
use convoke::grpc::GrpcEdge;
use convoke::health::{Health, ServingState};
use convoke::{Context, Endpoint, Finish, Method, Service, Status, Task};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic_web::GrpcWebLayer;
use tower::ServiceBuilder;

/// Answers once.
pub const HELLO: Method<String, String> = Method::new("greeter.Greeter/Hello").read_only();
/// Answers with each letter.
pub const LETTERS: Method<String, String> = Method::new("greeter.Greeter/Letters").read_only();

async fn hello(name: String, _: Context) -> Result<String, Status> {
    Ok(format!("hello, {name}"))
}

async fn letters(name: String, task: Task<String>) -> Result<Finish, Status> {
    for letter in name.chars() {
        task.reply(&letter.to_string())?;
    }
    Ok(task.finish())
}

/// Installs the recorder that Prometheus reads, for the whole process: before an endpoint starts.
///
/// # Errors
/// There is one already.
pub fn prometheus() -> anyhow::Result<PrometheusHandle> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let recorder = PrometheusBuilder::new()
        .set_buckets(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])?
        .set_buckets_for_metric(seconds, &[0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0])?
        .build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder)?;
    Ok(metrics)
}

/// A node and its port.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    health: Health,
    endpoint: Endpoint,
    stop: oneshot::Sender<Duration>,
    server: JoinHandle<()>,
    upkeep: JoinHandle<()>,
}

impl Port {
    /// Starts both on the loopback, at a port that the system chooses.
    ///
    /// # Errors
    /// The port cannot be had.
    pub async fn start(metrics: PrometheusHandle) -> anyhow::Result<Self> {
        let health = Health::new();
        let greeter = Service::new().unary(HELLO, hello).tree(LETTERS, letters);
        let builder = convoke::endpoint().health(&health).metrics();
        let endpoint = builder.serve(greeter).start().await?;
        let upkeep = upkeep(metrics.clone());

        let edge = GrpcEdge::builder(&endpoint).health(&health).into_service()?;
        let edge = ServiceBuilder::new().layer(GrpcWebLayer::new()).service(edge);
        let (said, counting) = (health.clone(), endpoint.clone());
        let app = Router::new()
            .route("/", get("a page of the greeter\n"))
            .route("/healthz", get(move || async move { healthz(&said) }))
            .route("/metrics", get(move || async move { scrape(&counting, &metrics) }))
            .route("/{service}/{method}", post_service(edge));

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, (stop, stopped)) = (listener.local_addr()?, oneshot::channel());
        let server = tokio::spawn(serve::serve(listener, app, stopped));
        let upkeep = tokio::spawn(upkeep);
        Ok(Self { address, health, endpoint, stop, server, upkeep })
    }

    /// Address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Health of the node, which the load balancer asks after.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Says that nothing is served any more, lets requests end for up to `grace`, ends all
    /// connections, and stops the node, which lets its calls end for as long.
    ///
    /// # Errors
    /// The server of the port panicked.
    pub async fn shutdown(self, grace: Duration) -> anyhow::Result<()> {
        self.health.stop();
        self.upkeep.abort();
        let _ = self.stop.send(grace);
        self.server.await?;
        self.endpoint.shutdown(grace).await;
        Ok(())
    }
}

/// All metrics of the process, as Prometheus reads them.
fn scrape(endpoint: &Endpoint, metrics: &PrometheusHandle) -> String {
    endpoint.sample_metrics(); // what is open and what was carried, as of now
    metrics.render()
}

/// Puts samples into their buckets, so that they do not pile up while nobody scrapes.
async fn upkeep(metrics: PrometheusHandle) {
    let mut next = tokio::time::interval(Duration::from_secs(5));
    loop {
        next.tick().await;
        metrics.run_upkeep();
    }
}

/// The health of the node for those who ask by HTTP.
fn healthz(health: &Health) -> (StatusCode, &'static str) {
    match health.state("") {
        Some(ServingState::Serving) => (StatusCode::OK, "serving\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "not serving\n"),
    }
}
