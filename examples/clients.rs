//! Clients: what their calls have in common, and a handler that makes calls of its own.
//!
//! ```sh
//! cargo run --example clients
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::details::RetryInfo;
use convoke::{CallError, Code, Context, Endpoint, Method, Peer, Service, Status};

const ORDER: Method<String, String> = Method::new("shop.Shop/Order");
const TAKE: Method<String, u64> = Method::new("shop.Store/Take");

/// At the shop: a call of its own, as part of the one it answers.
async fn order(goods: String, context: Context, store: Peer) -> Result<String, Status> {
    let user = context.metadata().text("user").unwrap_or("nobody").to_owned();
    // It has the deadline of the order. Should it fail, the order fails with the same code and
    // text.
    let left = context.call(TAKE, goods.clone()).metadata("for", &user).to(store).await?;
    Ok(format!("{goods} for {user}, {left} left"))
}

/// At the store.
async fn take(goods: String, context: Context) -> Result<u64, Status> {
    // Travels beside what comes next, the reply or the failure.
    context.reply_metadata("counted", "today")?;
    match goods.as_str() {
        "lamp" => Ok(2),
        // Nothing was changed, so whoever asks may ask again, or somebody else.
        "desk" => {
            let later = RetryInfo::after(Duration::from_secs(30));
            Err(Status::new(Code::Unavailable, "being counted")
                .with_detail(&later)
                .without_effect())
        }
        _ => {
            let user = context.metadata().text("for").unwrap_or("nobody");
            Err(Status::new(Code::NotFound, format!("no {goods} for {user}")))
        }
    }
}

async fn start(service: Service) -> Result<Endpoint, Box<dyn Error>> {
    Ok(convoke::endpoint().listen("tcp://127.0.0.1:0").serve(service).start().await?)
}

fn code(error: &CallError) -> Option<Code> {
    error.status().map(|status| status.code())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let store = start(Service::new().unary(TAKE, take)).await?;
    let to_store = Peer::from(store.node());
    let service =
        Service::new().unary(ORDER, move |goods, context| order(goods, context, to_store));
    let shop = convoke::endpoint()
        .peer(store.node(), store.addresses())
        .listen("tcp://127.0.0.1:0")
        .serve(service)
        .start()
        .await?;

    let endpoint = convoke::endpoint().start().await?;
    let peer = endpoint.connect(shop.addresses()).await?;

    // What all calls of a client have in common.
    let client = endpoint.client().deadline(Duration::from_secs(2)).metadata("user", "Ada");
    let answer = client.call(ORDER, "lamp".into()).to(peer).await?;
    println!("{answer}");
    assert_eq!(answer, "lamp for Ada, 2 left");

    // What a call says itself comes behind it, and counts.
    let call = client.call(ORDER, "lamp".into()).metadata("user", "Eve");
    assert_eq!(call.to(peer).await?, "lamp for Eve, 2 left");

    // A failure that a handler passes on with `?` keeps its code, but the handler has run.
    let error = client.call(ORDER, "ship".into()).to(peer).await.expect_err("there is none");
    println!("{error}");
    assert_eq!((code(&error), error.is_safe_to_repeat()), (Some(Code::NotFound), false));
    let to_store = endpoint.connect(store.addresses()).await?;
    let error = client.call(TAKE, "desk".into()).to(to_store).await.expect_err("not now");
    assert_eq!((code(&error), error.is_safe_to_repeat()), (Some(Code::Unavailable), true));

    // What the service says for programs.
    let status = error.status().ok_or("it is the service's own error")?;
    let later = status.detail::<RetryInfo>().ok_or("it says when to ask again")?;
    assert_eq!(later.delay(), Some(Duration::from_secs(30)));

    // Beside a reply, and beside a failure.
    let reply = client.call(TAKE, "lamp".into()).to(to_store).open()?.first().await?;
    assert_eq!((reply.metadata().text("counted"), reply.message()), (Some("today"), &2));
    let failure = error.failure().ok_or("the store refused it")?;
    assert_eq!(failure.metadata().text("counted"), Some("today"));

    // A hook sees every request before it leaves. An error of it ends the call unsent.
    let client = endpoint.client().before_each(|request| {
        let token = Some("token").filter(|_| request.method() == ORDER.name());
        let token = token.ok_or_else(|| Status::new(Code::Unauthenticated, "no token for this"))?;
        request.metadata("token", token);
        Ok(())
    });
    client.call(ORDER, "lamp".into()).to(peer).await?;
    let error = client.call(TAKE, "lamp".into()).to(to_store).await.expect_err("the hook fails");
    assert_eq!((code(&error), error.is_safe_to_repeat()), (Some(Code::Unauthenticated), true));

    for endpoint in [endpoint, shop, store] {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}
