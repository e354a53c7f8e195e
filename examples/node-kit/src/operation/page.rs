//! A web page of a running node: its health, what it holds, its connections, what is open, and
//! recent traces.

#[cfg(test)]
mod tests;
mod traces;

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use charts::escaped;
use convoke::Endpoint;
use convoke::transport::{OpenConnection, Remote};
use tokio::time::Instant;

use super::State;
use super::spans::{Seen, Span, Spans};

/// Rows of a table.
const ROWS_MAX: usize = 200;

/// Page of a node, for a [`Listener`](super::Listener). Clones are the same.
///
/// It shows what is safe for the one who operates the node to see, and nothing can be changed by it.
/// It has no script, so a browser shows it as of when it was asked.
#[derive(Clone, Debug)]
pub struct Page(Arc<Shown>);

#[derive(Debug)]
struct Shown {
    spans: Spans,
    endpoint: OnceLock<Endpoint>,
}

impl Page {
    /// The page of a node whose endpoint has not started yet.
    pub fn new(spans: &Spans) -> Self {
        Self(Arc::new(Shown { spans: spans.clone(), endpoint: OnceLock::new() }))
    }

    /// Shows this endpoint from now on. It does not show another: the first one stays.
    pub fn show(&self, endpoint: &Endpoint) {
        self.0.endpoint.get_or_init(|| endpoint.clone());
    }

    /// The whole page as HTML.
    pub(super) fn html(&self, state: &State) -> String {
        let (now, seen) = (Instant::now(), self.0.spans.seen());
        let mut body = String::new();
        match self.0.endpoint.get() {
            Some(endpoint) => body += &of_endpoint(endpoint, state),
            None => {
                let _ = writeln!(body, "<h1>A node that starts</h1>\n{}", of_state(state));
            }
        }
        body += &of_open(&seen, now);
        body += &of_traces(seen, now);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>\
             <style>{}{STYLE}</style></head>\n<body>{body}</body></html>\n",
            self.title(),
            charts::variables(),
        )
    }

    fn title(&self) -> String {
        let name = |endpoint: &Endpoint| format!("Node {}", endpoint.node());
        self.0.endpoint.get().map_or_else(|| "A node that starts".to_owned(), name)
    }
}

fn of_endpoint(endpoint: &Endpoint, state: &State) -> String {
    let addresses: Vec<_> = endpoint.addresses().iter().map(ToString::to_string).collect();
    let listens = if addresses.is_empty() { "nowhere".to_owned() } else { addresses.join(", ") };
    let mut html = format!(
        "<h1>Node {}</h1>\n{}<p>It listens at {}. For programs: <a href=\"/metrics\">metrics</a>, \
         <a href=\"/healthz\">health</a>, <a href=\"/readyz\">readiness</a>. \
         <a href=\"/\">Look again</a></p>\n",
        endpoint.node(),
        of_state(state),
        escaped(&listens),
    );
    let load = endpoint.load();
    let held = [
        ("calls", load.calls),
        ("tasks", load.tasks),
        ("waiting", load.waiting),
        ("unsettled", load.unsettled),
        ("remembered", load.remembered),
        ("connections", load.connections),
        ("nodes known", load.nodes),
    ];
    html += "<h2>What it holds</h2>\n<dl>";
    for (name, count) in held {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{count}</dd></div>");
    }
    html += "</dl>\n";
    let mut connections = endpoint.connections();
    connections.sort_by_key(|connection| (connection.peer, connection.scheme));
    let rows: Vec<_> = connections.iter().map(row).collect();
    let head = ["peer", "over", "from", "is", "sent", "received"];
    html + &table("Connections", "connections", head, &rows)
}

fn of_state(state: &State) -> String {
    let (class, said) = match state {
        State::Ready => ("good", "Ready: it takes requests.".to_owned()),
        State::NotReady(why) => ("waits", format!("Not ready: {why}.")),
        State::Stopping => ("waits", "Stopping.".to_owned()),
        State::Broken(why) => ("bad", format!("Broken: {why}. Start it again.")),
    };
    format!("<p class=\"state {class}\" id=\"state\">{}</p>\n", escaped(&said))
}

fn row(connection: &OpenConnection) -> [String; 6] {
    let remote = match &connection.remote {
        Some(Remote::Host(host)) => host.to_string(),
        Some(Remote::Process(process)) => format!("user {} of this host", process.uid),
        None => String::new(),
    };
    let proven = connection.principal.as_ref().map_or("unproven", |principal| principal.as_str());
    let carried = |frames, amount| format!("{frames} frames, {}", bytes(amount));
    let counters = &connection.counters;
    let way = if connection.is_dialler { "dialled" } else { "accepted" };
    [
        connection.peer.to_string(),
        format!("{}, {way}", connection.scheme),
        remote,
        proven.to_owned(),
        carried(counters.frames_sent, counters.bytes_sent),
        carried(counters.frames_received, counters.bytes_received),
    ]
}

fn of_open(seen: &Seen, now: Instant) -> String {
    let row = |span: &Span| {
        let what = if span.is_task { "handler" } else { "call" };
        [
            traces::time(now - span.begun),
            what.to_owned(),
            span.field("method").to_owned(),
            span.field("peer").to_owned(),
        ]
    };
    let rows: Vec<_> = seen.open.iter().map(row).collect();
    let mut html = table("Open now", "open", ["for", "what", "method", "peer"], &rows);
    if seen.left_out > 0 {
        let _ = writeln!(html, "<p>{} more were open and are not shown.</p>", seen.left_out);
    }
    html
}

fn of_traces(seen: Seen, now: Instant) -> String {
    let mut html = String::from("<h2>Recent traces</h2>\n");
    let traces = traces::recent(seen);
    if traces.is_empty() {
        html += "<p>None.</p>\n";
    }
    for trace in &traces {
        let (svg, id) = (traces::drawn(trace, now), escaped(&trace.id));
        let _ = write!(html, "<figure>{svg}<figcaption>trace {id}");
        if trace.left_out > 0 {
            let _ = write!(html, ", and {} spans more", trace.left_out);
        }
        html += "</figcaption></figure>\n";
    }
    html
}

/// A table with its title, or a word in its place where it has no row.
fn table<const N: usize>(title: &str, id: &str, head: [&str; N], rows: &[[String; N]]) -> String {
    let mut html = format!("<h2>{title}</h2>\n");
    if rows.is_empty() {
        return html + "<p>None.</p>\n";
    }
    let _ = write!(html, "<table id=\"{id}\"><tr>");
    for name in head {
        let _ = write!(html, "<th>{name}</th>");
    }
    html += "</tr>\n";
    for row in rows.iter().take(ROWS_MAX) {
        html += "<tr>";
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escaped(cell));
        }
        html += "</tr>\n";
    }
    html += "</table>\n";
    if let Some(more) = rows.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        let _ = writeln!(html, "<p>And {more} more.</p>");
    }
    html
}

/// An amount with the unit that fits it.
#[allow(clippy::cast_precision_loss, reason = "three digits of it are shown")]
fn bytes(amount: u64) -> String {
    match amount {
        0..10_000 => format!("{amount} B"),
        10_000..10_000_000 => format!("{:.0} kB", amount as f64 / 1e3),
        _ => format!("{:.0} MB", amount as f64 / 1e6),
    }
}

/// Style beside the colours, which are those of charts.
const STYLE: &str = "\
body { background: var(--page); color: var(--text); font: 15px/1.45 sans-serif; margin: 2rem auto; \
max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
a { color: var(--colour2); }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: 0.25rem 0.5rem; \
border-bottom: 1px solid var(--mark); overflow-wrap: anywhere; }
th { color: var(--axis); font-weight: normal; }
dl { display: flex; flex-wrap: wrap; gap: 0.5rem 2rem; margin: 0; } dt { color: var(--axis); } \
dd { margin: 0; font-size: 1.3rem; }
.state { border-left: 0.4rem solid; padding-left: 0.6rem; } .state.good { border-color: var(--colour3); } \
.state.waits { border-color: var(--axis); } .state.bad { border-color: var(--colour0); }
figure { margin: 1rem 0 1.5rem; border: 1px solid var(--mark); padding: 0.5rem; } \
figcaption { color: var(--axis); font-size: 0.8rem; }
svg { width: 100%; display: block; } svg text { fill: var(--text); font: 12px sans-serif; } \
svg path { fill: none; stroke: var(--axis); }
.call rect { fill: var(--colour2); } .task rect { fill: var(--colour3); } .bad rect { fill: var(--colour0); } \
.open rect { fill: var(--axis); }
";
