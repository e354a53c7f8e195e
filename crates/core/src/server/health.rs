//! The service that answers with the health of its node.

use tokio::sync::watch;

use crate::error::Status;
use crate::health::{Board, CHECK, Health, HealthReply, HealthRequest, ServingState, WATCH};

use super::{Context, Finish, Service, Task};

impl Health {
    /// The methods [`CHECK`] and [`WATCH`].
    pub(crate) fn service(&self) -> Service {
        let (check, watch) = (self.clone(), self.clone());
        Service::new()
            .unary(CHECK, move |request, _: Context| {
                let reply = check.check(&request.service);
                async move { reply }
            })
            .tree(WATCH, move |request, task| watch_service(watch.subscribe(), request, task))
    }
}

async fn watch_service(
    mut board: watch::Receiver<Board>,
    request: HealthRequest,
    task: Task<HealthReply>,
) -> Result<Finish, Status> {
    let mut stream = task.stream()?;
    let mut told = None;
    loop {
        let (state, is_stopping) = {
            let board = board.borrow_and_update();
            let state = board.state(&request.service).unwrap_or(ServingState::ServiceUnknown);
            (state, board.is_stopping)
        };
        if told != Some(state) {
            stream.send(&HealthReply { state: state.into() }).await?;
            told = Some(state);
        }
        // The sender is gone with the endpoint, which no handler outlives.
        if is_stopping || board.changed().await.is_err() {
            break;
        }
    }
    drop(stream);
    Ok(task.finish())
}
