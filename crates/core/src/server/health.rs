//! The service that answers with the health of its node.

use crate::error::Status;
use crate::health::{CHECK, Health, HealthReply, HealthRequest, HealthWatch, WATCH};

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
            .tree(WATCH, move |request: HealthRequest, task| {
                watch_service(watch.watch(request.service), task)
            })
    }
}

async fn watch_service(mut states: HealthWatch, task: Task<HealthReply>) -> Result<Finish, Status> {
    let mut stream = task.stream()?;
    while let Some(state) = states.next().await {
        stream.send(&HealthReply { state: state.into() }).await?;
    }
    drop(stream);
    Ok(task.finish())
}
