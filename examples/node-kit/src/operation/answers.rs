//! Answers of the listener, by path.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};

use super::{Metrics, NodeHealth, Page, State};

/// All that it answers with.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) metrics: Metrics,
    pub(super) health: NodeHealth,
    pub(super) page: Option<Page>,
    /// It is for others than those of this host, too.
    pub(super) is_open: bool,
}

impl Answers {
    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method(), request.uri().path());
        let is_known = matches!(path, "/metrics" | "/traffic" | "/healthz" | "/readyz");
        if (is_known || self.page_at(path).is_some())
            && !matches!(*method, Method::GET | Method::HEAD)
        {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
        }
        match (path, self.health.state()) {
            ("/metrics", _) => text(StatusCode::OK, self.metrics.text()),
            ("/traffic", _) => match self.metrics.traffic() {
                Some(traffic) => text(StatusCode::OK, traffic.to_string()),
                None => {
                    let words = "no endpoint is sampled yet\n";
                    text(StatusCode::SERVICE_UNAVAILABLE, words.to_owned())
                }
            },
            ("/healthz" | "/readyz", State::Broken(why)) => {
                text(StatusCode::SERVICE_UNAVAILABLE, format!("broken: {why}\n"))
            }
            ("/healthz", _) => text(StatusCode::OK, "works\n".to_owned()),
            ("/readyz", State::Ready) => text(StatusCode::OK, "ready\n".to_owned()),
            ("/readyz", State::NotReady(why)) => {
                text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n"))
            }
            ("/readyz", State::Stopping) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned())
            }
            (path, state) => match self.page_at(path) {
                Some(_) if !self.is_open && !names_this_host(request) => {
                    let words = "this page is for this host: ask for it at its loopback address\n";
                    text(StatusCode::MISDIRECTED_REQUEST, words.to_owned())
                }
                Some(page) => html(page.html(&state)),
                None => {
                    let known = "here are /metrics, /traffic, /healthz and /readyz\n";
                    text(StatusCode::NOT_FOUND, known.to_owned())
                }
            },
        }
    }

    fn page_at(&self, path: &str) -> Option<&Page> {
        self.page.as_ref().filter(|_| path == "/")
    }
}

/// True where the request was meant for the loopback. A page of somebody else in a browser of this
/// host can have its own name point here, and would read the answer as its own.
fn names_this_host<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else { return false };
    let host = host.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A page without a script, which takes nothing from elsewhere.
fn html(body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
