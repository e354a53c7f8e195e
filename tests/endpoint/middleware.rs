//! Middleware of tower around handlers and around calls, over real sockets.

#![cfg(all(feature = "tcp", feature = "tower"))]

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke::middleware::{Handled, Incoming};
use convoke::transport::TcpTransport;
use convoke::{
    CallError, Code, Context, Endpoint, Executed, Method, NodeId, Peer, Request, Service, Status,
};
use tower::retry::Policy;
use tower::{BoxError, Service as _, ServiceBuilder, ServiceExt as _};

type Result<T = ()> = std::result::Result<T, BoxError>;

const ECHO: Method<String, String> = Method::new("test.Test/Echo");
const FAIL: Method<String, String> = Method::new("test.Test/Fail");
const TREE: Method<String, String> = Method::new("test.Test/Tree");

async fn echo(text: String, _: Context) -> std::result::Result<String, Status> {
    Ok(text)
}

async fn never(_: String, _: Context) -> std::result::Result<String, Status> {
    std::future::pending().await
}

/// A server of one service, a client, and the server as its peer.
async fn pair(service: Service) -> Result<(Endpoint, Endpoint, Peer)> {
    let tcp = || Endpoint::builder().transport(TcpTransport::new());
    let server = tcp().listen("tcp://127.0.0.1:0").serve(service).start().await?;
    let client = tcp().start().await?;
    let peer = client.connect(server.addresses()).await?;
    Ok((server, client, peer))
}

fn status(code: Code, text: &str) -> BoxError {
    Status::new(code, text).into()
}

#[tokio::test]
async fn layers_see_requests_from_the_last_added_to_the_first_and_replies_the_other_way() -> Result
{
    let log = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let log = log.clone();
        move || log.lock().expect("nobody panics with it").push(what)
    };
    let (outer_in, outer_out) = (note("outer request"), note("outer reply"));
    let (inner_in, inner_out) = (note("inner request"), note("inner reply"));
    let layer = |on_in: Box<dyn Fn() + Send + Sync>, on_out: Box<dyn Fn() + Send + Sync>| {
        let (on_in, on_out) = (Arc::new(on_in), Arc::new(on_out));
        ServiceBuilder::new()
            .map_request(move |request: Incoming| {
                on_in();
                request
            })
            .map_response(move |handled: Handled| {
                on_out();
                handled
            })
    };
    let service = Service::new()
        .unary(ECHO, echo)
        .layer(layer(Box::new(inner_in), Box::new(inner_out)))
        .layer(layer(Box::new(outer_in), Box::new(outer_out)))
        .unary(FAIL, echo);
    let (_server, client, peer) = pair(service).await?;

    // Added behind the layers, it is not wrapped.
    client.call(FAIL, "plain".into()).to(peer).await?;
    assert!(log.lock().expect("nobody panics with it").is_empty());

    let answer = client.call(ECHO, "hello".into()).to(peer).await?;
    assert_eq!(answer, "hello");
    let seen = log.lock().expect("nobody panics with it").clone();
    assert_eq!(seen, ["outer request", "inner request", "inner reply", "outer reply"]);
    Ok(())
}

#[tokio::test]
async fn middleware_sees_method_and_payload_and_may_change_both_directions() -> Result {
    let layer = ServiceBuilder::new()
        .map_request(|request: Incoming| {
            assert_eq!(request.method(), "test.Test/Echo");
            let text: String =
                prost::Message::decode(request.payload().clone()).expect("it is one");
            request.with_payload(prost::Message::encode_to_vec(&text.to_uppercase()))
        })
        .map_response(|handled: Handled| {
            let bytes = handled.payload().cloned().expect("a unary handler replies");
            let text: String = prost::Message::decode(bytes).expect("it is one");
            Handled::reply(&(text + "!"))
        });
    let (_server, client, peer) = pair(Service::new().unary(ECHO, echo).layer(layer)).await?;
    let answer = client.call(ECHO, "hello".into()).to(peer).await?;
    assert_eq!(answer, "HELLO!");
    Ok(())
}

#[tokio::test]
async fn what_middleware_keeps_in_the_context_the_handler_finds() -> Result {
    #[derive(Debug, PartialEq)]
    struct User(&'static str);
    let layer = ServiceBuilder::new().map_request(|request: Incoming| {
        assert_eq!(request.context().insert(User("nobody")), None);
        assert_eq!(request.context().insert(User("Ada")).as_deref(), Some(&User("nobody")));
        request
    });
    let service = Service::new().unary(ECHO, |_, context: Context| async move {
        assert!(context.get::<String>().is_none());
        let user = context.get::<User>().map_or("", |user| user.0);
        Ok(user.to_owned())
    });
    let (_server, client, peer) = pair(service.layer(layer)).await?;
    let answer = client.call(ECHO, String::new()).to(peer).await?;
    assert_eq!(answer, "Ada");
    Ok(())
}

/// A value whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a value that was kept with a task goes");
    }
}

/// One call of a batch keeps such a value with its task.
#[tokio::test]
async fn a_kept_value_that_panics_as_it_goes_harms_no_other_call() -> Result {
    let service = Service::new().unary(ECHO, |text: String, context: Context| {
        if text == "3" {
            context.insert(Bomb);
        }
        echo(text, context)
    });
    let (_server, client, peer) = pair(service).await?;
    let branches = (0..8).map(|number: u64| (peer, ECHO.request(number.to_string())));
    let (replies, outcome) = client.fan_out(branches).open()?.collect().await?;
    assert_eq!(replies.len(), 8, "{outcome:?}");
    assert_eq!(client.call(ECHO, "9".into()).to(peer).await?, "9");
    Ok(())
}

/// Buffers of small replies are used again, those that middleware keeps are not.
#[tokio::test]
async fn replies_that_middleware_keeps_stay_what_they_were() -> Result {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let layer = ServiceBuilder::new().map_response(move |handled: Handled| {
        let reply = handled.payload().cloned().expect("a unary handler replies");
        keep.lock().expect("nobody panics with it").push(reply);
        handled
    });
    let (_server, client, peer) = pair(Service::new().unary(ECHO, echo).layer(layer)).await?;
    for number in 0..300 {
        let text = number.to_string().repeat(number);
        assert_eq!(client.call(ECHO, text.clone()).to(peer).await?, text);
    }
    for (number, reply) in kept.lock().expect("nobody panics with it").iter().enumerate() {
        let text: String = prost::Message::decode(reply.clone()).expect("it is one");
        assert_eq!(text, number.to_string().repeat(number));
    }
    Ok(())
}

#[tokio::test]
async fn a_refusal_of_middleware_says_that_the_task_did_not_run() -> Result {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let service = Service::new().unary(ECHO, move |ask, context| {
        counted.fetch_add(1, Ordering::SeqCst);
        echo(ask, context)
    });
    let guard = ServiceBuilder::new().filter(|request: Incoming| match request.payload().len() {
        0..=10 => Ok(request),
        size => Err(status(Code::OutOfRange, &format!("{size} bytes are too many"))),
    });
    let (_server, client, peer) = pair(service.layer(guard)).await?;
    let call = client.call(ECHO, "much longer than that".into()).to(peer);
    let error = call.await.expect_err("it is refused");
    let refused = error.status().expect("it is an answer of the service");
    assert_eq!((refused.code(), refused.message()), (Code::OutOfRange, "23 bytes are too many"));
    assert_eq!(error.failure().map(|failure| failure.executed), Some(Executed::No));
    assert!(error.is_safe_to_repeat());
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    Ok(())
}

#[tokio::test]
async fn an_error_of_the_handler_passes_through_layers_as_it_is() -> Result {
    let service = Service::new().unary(FAIL, |_: String, _| async {
        let status = Status::new(Code::NotFound, "nothing here").with_details(&b"why"[..]);
        Err::<String, _>(status)
    });
    let service = service.layer(ServiceBuilder::new().buffer(4).timeout(Duration::from_secs(60)));
    let (_server, client, peer) = pair(service).await?;
    let call = client.call(FAIL, String::new()).to(peer);
    let error = call.await.expect_err("it fails");
    let failed = error.status().expect("it is an answer of the service");
    assert_eq!((failed.code(), failed.message()), (Code::NotFound, "nothing here"));
    assert_eq!(&failed.details()[..], b"why");
    assert_eq!(error.failure().map(|failure| failure.executed), Some(Executed::Yes));
    Ok(())
}

#[tokio::test]
async fn a_request_that_cannot_be_decoded_is_still_a_bad_request_behind_layers() -> Result {
    let service = Service::new().unary(ECHO, echo).layer(ServiceBuilder::new().map_request(
        // Field 1 with a length beyond the end.
        |request: Incoming| request.with_payload(&b"\x0a\x7f"[..]),
    ));
    let (_server, client, peer) = pair(service).await?;
    let call = client.call(ECHO, String::new()).to(peer);
    let error = call.await.expect_err("it is no message");
    let failure = error.failure().expect("the branch failed");
    assert_eq!((failure.cause, failure.executed), (convoke::Cause::BadRequest, Executed::No));
    Ok(())
}

#[tokio::test]
async fn a_timeout_layer_drops_the_handler_and_says_that_it_may_have_run() -> Result {
    let timeout = ServiceBuilder::new().timeout(Duration::from_millis(1));
    let service = Service::new().unary(FAIL, never).layer(timeout);
    let (_server, client, peer) = pair(service).await?;
    let call = client.call(FAIL, String::new()).to(peer);
    let error = call.await.expect_err("it takes too long");
    // Without a `map_err` it is an error that the library does not know.
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Unavailable));
    assert_eq!(error.failure().map(|failure| failure.executed), Some(Executed::Maybe));
    Ok(())
}

#[tokio::test]
async fn a_limit_counts_the_methods_of_a_service_together() -> Result {
    let limit = ServiceBuilder::new().load_shed().concurrency_limit(1);
    let service = Service::new().unary(FAIL, never).unary(ECHO, echo).layer(limit);
    let (_server, client, peer) = pair(service).await?;
    let held = client.call(FAIL, String::new()).to(peer).open()?;
    let error = client.call(ECHO, String::new()).to(peer).await;
    assert!(error.expect_err("the limit is reached").is_safe_to_repeat());
    drop(held);
    // The cancelled handler gives its place back.
    while client.call(ECHO, String::new()).to(peer).await.is_err() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_an_inner_layer_refuses_did_not_run() -> Result {
    let limit = ServiceBuilder::new().load_shed().concurrency_limit(1);
    let service = Service::new().unary(FAIL, never).unary(ECHO, echo).layer(limit);
    let around = ServiceBuilder::new().map_request(|request: Incoming| request);
    let (_server, client, peer) = pair(service.layer(around)).await?;
    let _held = client.call(FAIL, String::new()).to(peer).open()?;
    let error = client.call(ECHO, String::new()).to(peer).await;
    assert!(error.expect_err("the limit is reached").is_safe_to_repeat());
    Ok(())
}

#[tokio::test]
async fn an_outer_timeout_knows_whether_the_handler_behind_an_inner_layer_was_reached() -> Result {
    let inner = ServiceBuilder::new().filter_async(|request: Incoming| async {
        if request.method() == ECHO.name() {
            std::future::pending::<()>().await;
        }
        Ok::<_, BoxError>(request)
    });
    let timeout = ServiceBuilder::new().timeout(Duration::from_millis(1));
    let service = Service::new().unary(FAIL, never).unary(ECHO, echo).layer(inner).layer(timeout);
    let (_server, client, peer) = pair(service).await?;
    for (method, expected) in [(FAIL, Executed::Maybe), (ECHO, Executed::No)] {
        let error = client.call(method, String::new()).to(peer).await;
        let failure = error.expect_err("it takes too long").failure().map(|one| one.executed);
        assert_eq!(failure, Some(expected), "{}", method.name());
    }
    Ok(())
}

#[tokio::test]
async fn middleware_sees_why_a_handler_cannot_delegate() -> Result {
    let seen = Arc::new(Mutex::new(None));
    let sees = seen.clone();
    let layer = ServiceBuilder::new().map_err(move |status: Status| {
        *sees.lock().expect("nobody panics with it") = Some(status.code());
        status
    });
    let service = Service::new().tree(TREE, |text: String, task| async move {
        task.delegate(NodeId::new(u64::MAX), ECHO.request(text)).await?;
        Ok(task.finish())
    });
    let (_server, client, peer) = pair(service.layer(layer)).await?;
    let call = client.call(TREE, String::new()).to(peer);
    call.await.expect_err("nobody knows where that node is");
    assert_eq!(*seen.lock().expect("nobody panics with it"), Some(Code::Unavailable));
    Ok(())
}

#[tokio::test]
async fn trees_pass_through_layers_with_their_replies() -> Result {
    let finished = Arc::new(AtomicUsize::new(0));
    let counted = finished.clone();
    let layer = ServiceBuilder::new().map_response(move |handled: Handled| {
        assert!(handled.payload().is_none(), "a tree has replied by itself");
        counted.fetch_add(1, Ordering::SeqCst);
        handled
    });
    let service = Service::new()
        .tree(TREE, |text: String, task| async move {
            let me = task.context().parent();
            task.reply(&text)?;
            Ok(task.tail(me, ECHO.request(text)).await?)
        })
        .layer(layer);
    let (_server, client, peer) = pair(service).await?;
    let call = client.call(TREE, String::new()).to(peer).open()?;
    let (replies, outcome) = call.collect().await?;
    // The second branch goes to the client, which serves nothing.
    assert_eq!((replies.len(), outcome.failures.len()), (1, 1));
    assert_eq!(outcome.failures[0].cause, convoke::Cause::UnknownMethod);
    assert_eq!(finished.load(Ordering::SeqCst), 1);
    Ok(())
}

/// Repeats what cannot have run, so often.
#[derive(Clone)]
struct Patience(usize);

impl<Resp> Policy<Request<Resp>, Resp, CallError> for Patience {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Resp>,
        result: &mut std::result::Result<Resp, CallError>,
    ) -> Option<Ready<()>> {
        let is_safe = result.as_ref().is_err_and(CallError::is_safe_to_repeat);
        self.0 = self.0.checked_sub(1).filter(|_| is_safe)?;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<Resp>) -> Option<Request<Resp>> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn calls_stack_retry_limits_and_buffer() -> Result {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let sheds = ServiceBuilder::new().filter(move |request: Incoming| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(status(Code::ResourceExhausted, "try again")),
            _ => Ok(request),
        }
    });
    let (_server, client, peer) = pair(Service::new().unary(ECHO, echo).layer(sheds)).await?;
    let mut calls = ServiceBuilder::new()
        .buffer(8)
        .rate_limit(1000, Duration::from_secs(1))
        .concurrency_limit(4)
        .timeout(Duration::from_secs(60))
        .retry(Patience(2))
        .service(client.service(peer));
    let answer = calls.ready().await?.call(ECHO.request("at last".into())).await?;
    assert_eq!(answer, "at last");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    Ok(())
}

#[tokio::test]
async fn one_service_calls_all_methods_of_a_peer() -> Result {
    let service = Service::new()
        .unary(ECHO, echo)
        .unary(FAIL, |_: String, _| async { Err::<String, _>(Status::new(Code::Aborted, "no")) });
    let (_server, client, peer) = pair(service).await?;
    let calls = client.service(peer);
    assert_eq!(calls.clone().oneshot(ECHO.request("a".into())).await?, "a");
    let error = calls.oneshot(FAIL.request("b".into())).await.expect_err("it fails");
    assert_eq!(error.status().map(|status| status.code()), Some(Code::Aborted));
    Ok(())
}

#[tokio::test]
async fn a_timeout_around_a_call_cancels_it() -> Result {
    let (server, client, peer) = pair(Service::new().unary(FAIL, never)).await?;
    let service = ServiceBuilder::new().timeout(Duration::from_millis(1));
    let calls = service.service(client.service(peer));
    let error = calls.oneshot(FAIL.request(String::new())).await.expect_err("it takes too long");
    assert!(error.is::<tower::timeout::error::Elapsed>(), "{error}");
    // Nothing runs any more, so that the server stops by itself.
    assert!(server.shutdown(Duration::from_secs(60)).await);
    Ok(())
}

/// Something that middleware keeps with a task and that uses the endpoint when it goes, as a call
/// does.
struct Kept(Endpoint, Arc<AtomicUsize>);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.load();
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn what_is_kept_with_tasks_that_answer_together_may_use_the_endpoint_when_it_goes() -> Result
{
    let here: Arc<std::sync::OnceLock<Endpoint>> = Arc::default();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (of_handler, counted) = (here.clone(), dropped.clone());
    let keeping = move |text: String, context: Context| {
        let endpoint = of_handler.get().expect("it has started").clone();
        context.insert(Arc::new(Kept(endpoint, counted.clone())));
        std::future::ready(Ok::<_, Status>(text))
    };
    let (server, client, peer) = pair(Service::new().unary(ECHO, keeping)).await?;
    let _ = here.set(server.clone());
    let branches = (0..8).map(|number: u8| (peer, ECHO.request(number.to_string())));
    let branches = client.fan_out(branches);
    // In time, or the server stands still with its lock held.
    let outcome = tokio::time::timeout(Duration::from_secs(60), branches.open()?.outcome()).await?;
    assert!(outcome.is_complete());
    client.shutdown(Duration::from_secs(60)).await;
    assert_eq!(dropped.load(Ordering::SeqCst), 8);
    Ok(())
}
