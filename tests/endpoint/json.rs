//! Messages in JSON between two endpoints.

#![cfg(all(feature = "tcp", feature = "json"))]

use std::collections::BTreeMap;

use convoke::transport::TcpTransport;
use convoke::{
    CallError, Cause, Context, Endpoint, Executed, Json, Method, Request, Service, Status,
};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
type Stock = BTreeMap<String, u64>;

const SUM: Method<Json<Stock>, Json<u64>> = Method::new("json.Test/Sum");

async fn pair() -> Result<(Endpoint, Endpoint)> {
    let service = Service::new().unary(SUM, |Json(stock): Json<Stock>, _: Context| async move {
        Ok::<_, Status>(Json(stock.values().sum()))
    });
    let server = convoke::endpoint().listen("tcp://127.0.0.1:0").serve(service).start().await?;
    Ok((server, Endpoint::builder().transport(TcpTransport::new()).start().await?))
}

#[tokio::test]
async fn types_of_serde_are_messages() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    // One frame, and parts behind a credit.
    for count in [2, 20_000] {
        let stock: Stock = (0..count).map(|item| (format!("item {item}"), item)).collect();
        let expected = stock.values().sum();
        assert_eq!(client.call(SUM, Json(stock)).to(to).await?, Json(expected));
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_the_type_in_json_does_not_run() -> Result {
    let (server, client) = pair().await?;
    let to = client.connect(server.addresses()).await?;
    for wrong in ["", "{", "[1]", "{\"lamp\":-1}"] {
        let request = Request::raw(SUM.name(), wrong.as_bytes().into());
        let error = client.invoke(request).to(to).await.expect_err("it is not the type");
        let CallError::Branch(failure) = &error else { panic!("{error}") };
        assert_eq!((failure.cause, failure.executed), (Cause::BadRequest, Executed::No), "{wrong}");
    }
    Ok(())
}
