//! The generated code of `testdata/names.proto`, whose names Rust has for itself, compiled and run,
//! by the file that includes it.

#[deny(
    clippy::nursery,
    clippy::cargo,
    clippy::allow_attributes,
    reason = "generated code is quiet under these, too"
)]
mod generated {
    include!("../../testdata/all.rs");
}

use std::time::Duration;

use convoke::{Context, Endpoint, Finish, Items, Status, Task};

use self::generated::names::{Option, Self_, Send, SendClient, SendServer, T, TClient, TServer};

struct Node;

impl T for Node {
    async fn result(&self, request: Option, _: Context) -> Result<Self_, Status> {
        Ok(request.self_.unwrap_or_default())
    }
}

impl Send for Node {
    async fn self_(&self, request: Self_, _: Context) -> Result<Option, Status> {
        Ok(Option { self_: Some(request) })
    }

    async fn crate_(&self, request: Self_, context: Context) -> Result<Option, Status> {
        self.self_(request, context).await
    }

    async fn super_(&self, request: Self_, task: Task<Option>) -> Result<Finish, Status> {
        task.answer(&Option { self_: Some(request) })
    }

    async fn extern_(&self, mut items: Items<Self_>, _: Context) -> Result<Option, Status> {
        let item = items.next().await.transpose()?;
        Ok(Option { self_: item })
    }

    async fn r#type(&self, request: Self_, context: Context) -> Result<Option, Status> {
        self.self_(request, context).await
    }

    async fn new_(&self, request: Self_, context: Context) -> Result<Option, Status> {
        self.self_(request, context).await
    }

    async fn clone_(&self, request: Self_, context: Context) -> Result<Option, Status> {
        self.self_(request, context).await
    }

    async fn on_(&self, request: Self_, context: Context) -> Result<Option, Status> {
        self.self_(request, context).await
    }

    async fn _1(&self, request: Self_, context: Context) -> Result<Option, Status> {
        self.self_(request, context).await
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_rust_has_for_itself_are_served_and_called() {
    let builder = Endpoint::builder().serve(TServer::new(Node)).serve(SendServer::new(Node));
    let endpoint = builder.start().await.unwrap();
    let here = endpoint.me();
    let item = Self_ { r#type: 7 };
    let t = TClient::new(&endpoint);
    let reply = t.result(Option { self_: Some(item) }).to(here).await.unwrap();
    assert_eq!(reply, item);
    let send = SendClient::new(&endpoint);
    for call in [
        send.self_(item),
        send.crate_(item),
        send.r#type(item),
        send.new_(item),
        send.clone_(item),
        send._1(item),
    ] {
        assert_eq!(call.to(here).await.unwrap().self_, Some(item));
    }
    endpoint.shutdown(Duration::from_secs(1)).await;
}
