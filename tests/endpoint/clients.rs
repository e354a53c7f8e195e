//! Clients: what their calls have in common, and those of handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke::{
    CallError, Client, Code, Context, Endpoint, Executed, Finish, Method, Service, Status, Task,
    Way,
};
use tokio::sync::mpsc;

/// Gives the metadata back, as `key=value` one behind the other.
const ECHO: Method<(), String> = Method::new("clients.Test/Echo");
/// Calls `ECHO` at itself.
const CALL_ECHO: Method<(), String> = Method::new("clients.Test/CallEcho");
/// Fails as it is told.
const FAIL: Method<u32, String> = Method::new("clients.Test/Fail");
/// Calls `FAIL` at itself, or with 0 a method that nobody serves.
const CALL_FAIL: Method<u32, String> = Method::new("clients.Test/CallFail");
/// Gives its context away and never ends.
const HANG: Method<(), ()> = Method::new("clients.Test/Hang");
const NOWHERE: Method<(), String> = Method::new("clients.Test/Nowhere");

async fn echo((): (), context: Context) -> Result<String, Status> {
    let pairs = context.metadata().iter().map(|(key, value)| (key, value.escape_ascii()));
    Ok(pairs.map(|(key, value)| format!("{key}={value} ")).collect())
}

async fn call_echo((): (), context: Context) -> Result<String, Status> {
    let me = context.parent();
    let plain = context.call(ECHO, ()).to(me).await?;
    assert_eq!(plain, "", "a call is a new question of trust");
    Ok(context.client().metadata("by", "handler").call(ECHO, ()).to(me).await?)
}

async fn fail(code: u32, _: Context) -> Result<String, Status> {
    Err(Status::new(Code::from_number(code), "no").with_details(Bytes::from_static(b"why")))
}

async fn call_fail(code: u32, task: Task<String>) -> Result<Finish, Status> {
    let me = task.context().parent();
    let answer = match code {
        0 => task.call(NOWHERE, ()).to(me).await?,
        code => task.call(FAIL, code).to(me).await?,
    };
    task.answer(&answer)
}

async fn start() -> (Endpoint, mpsc::UnboundedReceiver<Context>) {
    let (given, contexts) = mpsc::unbounded_channel();
    let service = Service::new()
        .unary(ECHO, echo)
        .unary(CALL_ECHO, call_echo)
        .unary(FAIL, fail)
        .tree(CALL_FAIL, call_fail)
        .unary(HANG, move |(), context: Context| {
            let given = given.clone();
            async move {
                given.send(context).expect("the test listens");
                std::future::pending().await
            }
        });
    (Endpoint::builder().serve(service).start().await.expect("it listens nowhere"), contexts)
}

#[tokio::test]
async fn what_is_set_at_a_client_is_set_for_all_its_calls() -> Result<(), CallError> {
    let (endpoint, _) = start().await;
    let me = endpoint.me();
    let client = endpoint.client().metadata("user", "ada").metadata("raw", [0xff]);
    assert_eq!(client.call(ECHO, ()).to(me).await?, "user=ada raw=\\xff ");
    // What a request says itself comes behind it, and so overrules it.
    let own = client.call(ECHO, ()).metadata("user", "eve");
    assert_eq!(own.to(me).await?, "user=ada raw=\\xff user=eve ");
    let branches = [(me, ECHO.request(())), (me, ECHO.request(()).metadata("n", "2"))];
    let (mut replies, _) = client.fan_out(branches).open()?.collect().await?;
    replies.sort_by_key(|reply| reply.message().len());
    let texts = replies.iter().map(|reply| reply.message().as_str());
    assert!(texts.eq(["user=ada raw=\\xff ", "user=ada raw=\\xff n=2 "]));
    assert!(replies.iter().all(|reply| reply.way() == Way::Local));
    // Clients made of it do not change it.
    let _other = client.clone().metadata("other", "x");
    assert_eq!(endpoint.call(ECHO, ()).to(me).await?, "");
    assert_eq!(client.call(ECHO, ()).to(me).await?, "user=ada raw=\\xff ");
    Ok(())
}

#[tokio::test]
async fn too_much_metadata_of_a_client_is_an_error_of_its_calls() {
    let (endpoint, _) = start().await;
    let client = endpoint.client().metadata("a", [0; 9_000]);
    let both = client.call(ECHO, ()).metadata("b", [0; 9_000]).to(endpoint.me());
    assert!(matches!(both.await, Err(CallError::MetadataTooLarge { limit: 16_000, .. })));
    let client = client.metadata("b", [0; 9_000]);
    let alone = client.call(ECHO, ()).to(endpoint.me());
    assert!(matches!(alone.await, Err(CallError::MetadataTooLarge { limit: 16_000, .. })));
}

#[tokio::test]
async fn a_hook_sees_each_request_and_can_end_the_call_unsent() -> Result<(), CallError> {
    let (endpoint, _) = start().await;
    let me = endpoint.me();
    let seen = Arc::<AtomicUsize>::default();
    let counted = seen.clone();
    let client = endpoint.client().before_each(move |request| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        if number == 3 {
            return Err(Status::new(Code::Unauthenticated, "no token"));
        }
        request.metadata("to", format!("{}:{}", request.method(), number));
        Ok(())
    });
    assert_eq!(client.call(ECHO, ()).to(me).await?, "to=clients.Test/Echo:0 ");
    client.call(ECHO, ()).to_all([me, me]).await?;
    let error = client.call(ECHO, ()).to(me).await.expect_err("the hook says no");
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Unauthenticated));
    assert!(error.is_safe_to_repeat() && matches!(error, CallError::Hook(_)));
    assert_eq!(client.call(ECHO, ()).to(me).await?, "to=clients.Test/Echo:4 ");
    Ok(())
}

#[tokio::test]
async fn a_handler_is_a_client_without_the_metadata_it_was_given() -> Result<(), CallError> {
    let (endpoint, _) = start().await;
    let call = endpoint.call(CALL_ECHO, ()).metadata("secret", "x").to(endpoint.me());
    assert_eq!(call.await?, "by=handler ");
    Ok(())
}

#[tokio::test]
async fn a_failure_of_a_handlers_call_is_its_own_with_code_text_and_details() {
    let (endpoint, _) = start().await;
    let call = endpoint.call(CALL_FAIL, Code::NotFound as u32).to(endpoint.me());
    let error = call.await.expect_err("it fails");
    let status = error.status().expect("it is the service's own");
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no"));
    assert_eq!(status.details().as_ref(), b"why");
    assert_eq!(error.failure().map(|failure| failure.executed), Some(Executed::Yes));
    let error = endpoint.call(CALL_FAIL, 0).to(endpoint.me()).await.expect_err("nobody serves it");
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Unimplemented));
    assert!(!error.is_safe_to_repeat(), "the handler has run");
}

#[tokio::test]
async fn an_endpoint_that_only_handlers_hold_is_closed() {
    let (endpoint, mut contexts) = start().await;
    let call = endpoint.call(HANG, ()).to(endpoint.me()).open().expect("there is room");
    let context = contexts.recv().await.expect("the handler runs");
    let of_handler = context.endpoint();
    assert_eq!(of_handler.node(), endpoint.node());
    let me = endpoint.me();
    drop((call, endpoint));
    for client in [Client::from(&of_handler), Client::from(&context)] {
        let error = client.call(ECHO, ()).to(me).await.expect_err("it is closed");
        assert!(matches!(error, CallError::Stopped) && error.is_safe_to_repeat());
        let opened = client.call(ECHO, ()).to(me).open();
        assert!(matches!(opened, Err(CallError::Stopped)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_handler_ends_with_its_task() {
    const OUTER: Method<(), ()> = Method::new("clients.Test/Outer");
    let (given, mut hanging) = mpsc::unbounded_channel();
    let service = Service::new()
        .unary(OUTER, |(), context: Context| async move {
            Ok::<_, Status>(context.call(HANG, ()).to(context.parent()).await?)
        })
        .unary(HANG, move |(), context: Context| {
            given.send(context.remaining()).expect("the test listens");
            std::future::pending::<Result<(), Status>>()
        });
    let endpoint = Endpoint::builder().serve(service).start().await.expect("it listens nowhere");
    let call = endpoint.call(OUTER, ()).deadline(Duration::from_secs(3)).to(endpoint.me());
    let call = call.open().expect("there is room");
    let remaining = hanging.recv().await.expect("the inner handler runs");
    assert_eq!(remaining, Duration::from_secs(3));
    drop(call);
    // Nothing runs any more, so nothing has to be waited for.
    assert!(endpoint.shutdown(Duration::from_secs(1)).await);
}

/// Values that spawned tasks hold must be `Send`.
#[tokio::test]
async fn calls_can_be_spawned() {
    let (endpoint, _) = start().await;
    let (client, me) = (endpoint.client(), endpoint.me());
    let awaited = tokio::spawn({
        let client = client.clone();
        async move { client.call(ECHO, ()).to(me).await }
    });
    let opened = tokio::spawn(async move {
        let call = client.fan_out([(me, ECHO.request(())), (me, ECHO.request(()))]).open()?;
        Ok::<_, CallError>(call.collect().await?.0.len())
    });
    assert_eq!(awaited.await.expect("it does not panic").expect("it answers"), "");
    assert_eq!(opened.await.expect("it does not panic").expect("it opens"), 2);
}
