use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use convoke::{Call, Code, Context, Endpoint, Method, NodeId, Service, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::Notify;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::operation::{Listener, Metrics, NodeHealth};

const ECHO: Method<String, String> = Method::new("page.Page/Echo");
const ASK: Method<String, String> = Method::new("page.Page/Ask");
const FAIL: Method<String, String> = Method::new("page.Page/Fail");
const HANG: Method<String, String> = Method::new("page.Page/Hang");

/// A node with a page, a client of it, and a call that hangs.
struct World {
    listener: Listener,
    health: NodeHealth,
    node: Endpoint,
    client: Endpoint,
    hanging: Call<String>,
    _guard: DefaultGuard,
}

impl World {
    async fn new() -> Self {
        let spans = Spans::new();
        let subscriber = tracing_subscriber::registry().with(spans.layer());
        let guard = tracing::subscriber::set_default(subscriber);
        let (page, health) = (Page::new(&spans), NodeHealth::new("replaying <the ledger>"));
        let (_, metrics) = Metrics::recorder().unwrap();
        let listener = Listener::builder(metrics, health.clone()).page(&page);
        let listener = listener.start("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let before = page_of(&listener).await;
        assert!(before.contains("A node that starts"), "{before}");
        assert!(before.contains("Not ready: replaying &lt;the ledger&gt;."), "{before}");

        let hangs = Arc::new(Notify::new());
        let node = convoke::endpoint().node(NodeId::new(7)).serve(service(&hangs));
        let node = node.listen("tcp://127.0.0.1:0").start().await.unwrap();
        page.show(&node);
        health.ready();
        let client = convoke::endpoint().node(NodeId::new(9)).start().await.unwrap();
        let peer = client.connect(node.addresses()).await.unwrap();
        assert_eq!(client.call(ASK, "a".to_owned()).to(peer).await.unwrap(), "a");
        client.call(FAIL, String::new()).to(peer).await.unwrap_err();
        let hanging = client.call(HANG, String::new()).to(peer).open().unwrap();
        hangs.notified().await;
        Self { listener, health, node, client, hanging, _guard: guard }
    }

    async fn stop(self) {
        drop(self.hanging);
        for endpoint in [self.client, self.node] {
            endpoint.shutdown(Duration::from_secs(60)).await;
        }
    }
}

fn service(hangs: &Arc<Notify>) -> Service {
    let hangs = hangs.clone();
    let ask = |text, context: Context| async move {
        Ok::<_, Status>(context.call(ECHO, text).to(context.endpoint().me()).await?)
    };
    let fail = |_: String, _: Context| async move {
        Err::<String, _>(Status::new(Code::NotFound, "nothing here"))
    };
    Service::new()
        .unary(ECHO, |text: String, _: Context| async move { Ok::<_, Status>(text) })
        .unary(ASK, ask)
        .unary(FAIL, fail)
        .unary(HANG, move |_: String, _: Context| {
            let hangs = hangs.clone();
            async move {
                hangs.notify_one();
                std::future::pending::<Result<String, Status>>().await
            }
        })
}

/// The whole answer to a request for the page under this name of the host.
async fn answer(address: SocketAddr, request: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn page_of(listener: &Listener) -> String {
    let address = listener.address();
    answer(address, "GET /", &address.to_string()).await
}

#[tokio::test]
async fn the_page_shows_health_connections_what_is_open_and_traces() {
    let world = World::new().await;
    let page = page_of(&world.listener).await;
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    for part in [
        "content-security-policy: default-src 'none'",
        "<h1>Node n7</h1>",
        "Ready: it takes requests.",
        &world.node.addresses()[0].to_string(),
        "<td>n9</td><td>tcp, accepted</td><td>127.0.0.1</td><td>unproven</td>",
        "<td>handler</td><td>page.Page/Hang</td><td>n9</td>",
        "<td>call</td><td>page.Page/Hang</td><td>n7</td>",
        "handler of page.Page/Fail at n7, from n9: failed after",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!page.contains("<script"), "{page}");

    // The handler's own call is below it, two steps below the call of the client.
    let trace = page.split("<figure>").find(|figure| figure.contains("Ask n9 → n7")).unwrap();
    let x = |label: &str| {
        let (before, _) =
            trace.split_once(&format!(">{label}")).unwrap_or_else(|| panic!("{label}: {trace}"));
        let (_, x) = before.rsplit_once("<text x=\"").unwrap();
        x.split('"').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!([x("Ask n9"), x("Ask at n7"), x("Echo n7"), x("Echo at n7")], [8, 24, 40, 56]);

    world.health.broken("the disk is full");
    let page = page_of(&world.listener).await;
    assert!(page.contains("Broken: the disk is full. Start it again."), "{page}");
    world.stop().await;
}

#[tokio::test]
async fn the_page_is_for_this_host_unless_it_was_told_otherwise() {
    let (page, health) = (Page::new(&Spans::new()), NodeHealth::new("starting"));
    let (_, metrics) = Metrics::recorder().unwrap();
    let builder = || Listener::builder(metrics.clone(), health.clone()).page(&page);
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let refused = builder().start(everywhere).await.unwrap_err().to_string();
    assert!(refused.contains("is not on the loopback"), "{refused}");

    let listener = builder().start("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let status = async |request: &str, host: &str| {
        let answer = answer(listener.address(), request, host).await;
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    for host in ["127.0.0.1", "127.0.0.1:80", "127.0.0.2:9001", "localhost:9001", "[::1]:9001"] {
        assert_eq!(status("GET /", host).await, 200, "{host}");
    }
    for host in ["evil.example", "127.0.0.2.evil.example", "10.0.0.1", "localhost.evil", ""] {
        assert_eq!(status("GET /", host).await, 421, "{host}");
    }
    assert_eq!(status("POST /", "localhost").await, 405);
    assert_eq!(status("GET /page", "localhost").await, 404);
    assert_eq!(status("GET /healthz", "anything").await, 200, "probes have names of their own");

    let open = builder().open_to_others().start(everywhere).await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], open.address().port()));
    assert!(answer(address, "GET /", "node-7.internal").await.starts_with("HTTP/1.1 200"));
}

/// A Chromium of this system.
fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// Options with which it asks nobody but the page.
const ALONE: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--dump-dom",
];

#[tokio::test]
async fn a_browser_shows_the_page() {
    let Some(chromium) = chromium() else {
        eprintln!("\n!!! SKIPPED, NOTHING WAS TESTED: there is no Chromium\n");
        return;
    };
    let world = World::new().await;
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Command::new(chromium);
    browser.args(ALONE).arg(format!("--user-data-dir={}", profile.path().display()));
    browser.arg(format!("http://{}/", world.listener.address())).kill_on_drop(true);
    let shown = tokio::time::timeout(Duration::from_secs(300), browser.output());
    let shown = shown.await.expect("it ends").unwrap();
    let document = String::from_utf8_lossy(&shown.stdout);
    let said = String::from_utf8_lossy(&shown.stderr);
    assert!(shown.status.success(), "{said}");
    // What the browser made of it: it adds a `tbody` to each table, and closes what was left open.
    assert!(document.contains("<table id=\"connections\"><tbody>"), "{document}\n{said}");
    assert!(
        document.contains("<p class=\"state good\" id=\"state\">Ready: it takes requests.</p>")
    );
    assert_eq!(document.matches("<svg").count(), document.matches("</svg>").count());
    assert!(document.matches("<figure>").count() >= 3, "{document}");
    world.stop().await;
}
