//! The standard health service, `grpc.health.v1`, by what an application says of its services.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use convoke_core::health::{Health, HealthWatch, ServingState};
use futures_core::Stream;
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_server;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Health as clients of an edge see it. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct EdgeHealth {
    said: Health,
    /// The edge shuts down: nothing is served by it, whatever was said.
    is_draining: Arc<watch::Sender<bool>>,
}

impl EdgeHealth {
    /// Says what the application says.
    pub(super) fn of(said: Health) -> Self {
        Self { said, is_draining: Arc::new(watch::Sender::new(false)) }
    }

    pub(super) fn set_serving(&self, service: &str, is_serving: bool) {
        let state = if is_serving { ServingState::Serving } else { ServingState::NotServing };
        self.said.set(service, state);
    }

    /// From now on nothing is served. Streams of those who watch say so and end.
    pub(super) fn drain(&self) {
        self.is_draining.send_replace(true);
    }
}

#[tonic::async_trait]
impl health_server::Health for EdgeHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let said = self.said.state(&request.get_ref().service);
        let said = said.ok_or_else(|| Status::not_found("nothing is known of this service"))?;
        let state = if *self.is_draining.borrow() { ServingState::NotServing } else { said };
        Ok(Response::new(answer(state)))
    }

    type WatchStream = States;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<States>, Status> {
        let states = self.said.watch(request.into_inner().service);
        let (told, heard) = mpsc::channel(1);
        tokio::spawn(tell(states, self.is_draining.subscribe(), told));
        Ok(Response::new(States(heard)))
    }
}

type Told = Result<HealthCheckResponse, Status>;

/// Passes states on until there is no other, the edge drains, or the client has gone.
async fn tell(
    mut states: HealthWatch,
    mut is_draining: watch::Receiver<bool>,
    told: mpsc::Sender<Told>,
) {
    let mut last = None;
    loop {
        let next = tokio::select! {
            biased;
            () = told.closed() => return,
            _ = is_draining.wait_for(|is_draining| *is_draining) => None,
            next = states.next() => next,
        };
        let state = next.unwrap_or(ServingState::NotServing);
        if last.replace(state) != Some(state) && told.send(Ok(answer(state))).await.is_err() {
            return;
        }
        if next.is_none() {
            return;
        }
    }
}

/// States of a service, as a client gets them.
#[derive(Debug)]
pub(super) struct States(mpsc::Receiver<Told>);

impl Stream for States {
    type Item = Told;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Told>> {
        self.0.poll_recv(cx)
    }
}

/// The numbers of both are the same.
fn answer(state: ServingState) -> HealthCheckResponse {
    HealthCheckResponse { status: state.into() }
}
