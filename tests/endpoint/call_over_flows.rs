//! Calls over connections of several flows: what is in order over one socket is so over four.

use std::sync::{Arc, Mutex, PoisonError};

use convoke::transport::TcpTransport;
use convoke::{Context, End, Endpoint, Method, NodeId, Service, Status};

use crate::support::{self, Ask, ECHO, LARGE, STREAM, ask, peer};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Neither says that it is ordered: only the service does, at the other end.
const LEFT: Method<Ask, u64> = Method::new("test.Flows/Left");
const RIGHT: Method<Ask, u64> = Method::new("test.Flows/Right");

fn builder(node: u64) -> convoke::EndpointBuilder {
    let transport = TcpTransport::builder().flows(4).build().expect("it is legal");
    Endpoint::builder().transport(transport).node(NodeId::new(node))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_an_ordered_service_begin_in_the_order_of_submission() -> Result {
    const COUNT: u64 = 2_000;
    let begun = Arc::new(Mutex::new(Vec::new()));
    let note = |begun: &Arc<Mutex<Vec<u64>>>| {
        let begun = Arc::clone(begun);
        move |ask: Ask, _: Context| {
            begun.lock().unwrap_or_else(PoisonError::into_inner).push(ask.number);
            async move { Ok::<_, Status>(ask.number) }
        }
    };
    let service = Service::new()
        .ordered("left and right")
        .unary(LEFT, note(&begun))
        .unary(RIGHT, note(&begun));
    let server = builder(1).listen("tcp://127.0.0.1:0").serve(service).start().await?;
    let client = builder(2).start().await?;
    let to = peer(&client, &server);
    let mut calls = Vec::new();
    for number in 0..COUNT {
        // Of all sizes, so that the flows are not equally far.
        let text = "x".repeat(usize::try_from(number * 7_919 % 9_000)?);
        let method = if number % 3 == 0 { LEFT } else { RIGHT };
        calls.push(client.call(method, Ask { number, ..ask(&text) }).to(to).open()?);
        if number % 100 == 99 {
            for call in calls.drain(..) {
                call.first().await?;
            }
        }
    }
    let begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(begun.iter().copied().eq(0..COUNT), "out of order: {begun:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn frames_of_each_call_keep_their_order() -> Result {
    let server = support::start(builder(1).listen("tcp://127.0.0.1:0")).await;
    let client = support::start(builder(2)).await;
    let to = peer(&client, &server);
    let streams = (0..16).map(|_| {
        let request = Ask { number: 200, ..ask("x") };
        client.call(STREAM, request).to(to).open()
    });
    let streams = streams.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut others = Vec::new();
    for number in 0..200 {
        others.push(client.call(ECHO, ask(&number.to_string())).to(to).open()?);
    }
    let large = client.call(LARGE, Ask { number: 3 << 20, ..ask("x") }).to(to).open()?;
    for (number, call) in others.into_iter().enumerate() {
        assert_eq!(call.first().await?.into_inner().text, number.to_string());
    }
    for stream in streams {
        let (replies, outcome) = stream.collect().await?;
        assert_eq!((replies.len(), outcome.end), (200, End::Complete));
        assert!(replies.iter().zip(0..).all(|(reply, item)| reply.item() == Some(item)));
    }
    assert_eq!(large.first().await?.into_inner().filling.len(), 3 << 20);
    Ok(())
}
