//! Wakers that panic: of whoever polls what an endpoint gives by an executor of its own. The
//! endpoint goes on.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Polling, Wake, Waker};
use std::time::Duration;

use convoke_core::{Context, Endpoint, Method, Service, Status};

const ECHO: Method<u64, u64> = Method::new("test.Test/Echo");
const HOLD: Method<u64, u64> = Method::new("test.Test/Hold");

const DEADLINE: Duration = Duration::from_secs(1);

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

async fn start() -> Endpoint {
    let service = Service::new()
        .unary(ECHO, async |number: u64, _: Context| Ok::<_, Status>(number))
        .unary(HOLD, |_: u64, _: Context| pending::<Result<u64, Status>>());
    Endpoint::builder().serve(service).start().await.expect("nothing to bind")
}

#[tokio::test(start_paused = true)]
async fn the_timer_goes_on_though_who_it_wakes_panics() {
    let endpoint = start().await;
    let waker = Waker::from(Arc::new(Panics));
    let held = |deadline| endpoint.call(HOLD, 0).deadline(deadline).to(endpoint.me()).into_future();
    let mut panics = pin!(held(DEADLINE));
    assert!(panics.as_mut().poll(&mut Polling::from_waker(&waker)).is_pending());
    // Woken after it, at the same time and later.
    let others = [DEADLINE, 2 * DEADLINE].map(|deadline| tokio::spawn(held(deadline)));
    for other in others {
        let ended = tokio::time::timeout(4 * DEADLINE, other).await.expect("it is woken");
        assert!(ended.expect("it runs to its end").is_err(), "its deadline has passed");
    }
    assert_eq!(endpoint.call(ECHO, 7).to(endpoint.me()).await.expect("it is open"), 7);
}

#[tokio::test]
async fn an_endpoint_closes_though_who_it_wakes_panics() {
    let endpoint = start().await;
    let waker = Waker::from(Arc::new(Panics));
    let [mut one, mut other] = [0, 1].map(|number| {
        let call = endpoint.call(HOLD, number).to(endpoint.me());
        Box::pin(call.into_future())
    });
    for call in [&mut one, &mut other] {
        assert!(call.as_mut().poll(&mut Polling::from_waker(&waker)).is_pending());
    }
    endpoint.clone().shutdown(Duration::ZERO).await;
    assert!(one.await.is_err() && other.await.is_err(), "they are stopped");
}
