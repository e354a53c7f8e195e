//! `graph trace`: the request tree that a query really executed, as the initiator learnt of it.

use std::collections::BTreeMap;

use convoke::telemetry::{EntryBy, TraceEvent, Traced};
use convoke::{NodeId, Path};

/// One branch of the executed tree.
#[derive(Clone, Debug, Default)]
pub struct Branch {
    /// The node that served it, at its last hop.
    pub node: Option<NodeId>,
    /// Tail transfers on it.
    pub tails: u32,
    /// Each reply: when it came, in microseconds since the call began, and its bytes.
    pub replies: Vec<(u64, usize)>,
    /// How its manifest came, once it did, and when.
    pub manifest: Option<(u64, EntryBy)>,
    /// Cause of its failure, if it failed.
    pub failure: Option<String>,
}

/// The executed tree by path: parents before children.
pub type Tree = BTreeMap<Path, Branch>;

/// Builds the tree from what the initiator learnt.
pub fn tree(events: &[TraceEvent]) -> Tree {
    let mut tree = Tree::new();
    let Some(start) = events.first().map(|event| event.at) else { return tree };
    for event in events {
        let at = u64::try_from(event.at.since(start).as_micros()).unwrap_or(u64::MAX);
        let branch = tree.entry(event.task.path.clone()).or_default();
        branch.tails = branch.tails.max(event.task.hop);
        match &event.what {
            Traced::Opened { node } => branch.node = Some(*node),
            Traced::Reply { from, bytes } => {
                branch.node = Some(*from);
                branch.replies.push((at, *bytes));
            }
            Traced::Failed { cause } => branch.failure = Some(cause.to_string()),
            Traced::Ended { entry, by } => {
                branch.manifest = Some((at, *by));
                for (holder, index) in entry.holders.iter().zip(0..) {
                    if let Ok(path) = event.task.path.child(index) {
                        let child = tree.entry(path).or_default();
                        child.node = child.node.or(*holder);
                    }
                }
            }
        }
    }
    tree
}

/// Cost of a manifest, in words.
pub fn manifest(by: EntryBy) -> &'static str {
    match by {
        EntryBy::Elided => "manifest elided",
        EntryBy::Reply => "manifest on its reply",
        EntryBy::Descendant => "manifest carried by a branch",
        EntryBy::Manifest => "manifest sent",
        EntryBy::Recovered => "manifest asked for",
    }
}

fn describe(branch: &Branch) -> String {
    let mut text =
        branch.node.map_or("unknown node".to_owned(), |node| format!("shard {}", node.get() - 1));
    if branch.tails > 0 {
        let plural = if branch.tails == 1 { "" } else { "s" };
        text += &format!(" (after {} tail transfer{plural})", branch.tails);
    }
    for (at, bytes) in &branch.replies {
        text += &format!(", reply of {bytes} B at {at} µs");
    }
    if let Some((_, by)) = branch.manifest {
        text += &format!(", {}", manifest(by));
    }
    if let Some(failure) = &branch.failure {
        text += &format!(", FAILED: {failure}");
    }
    text
}

/// The tree as text.
pub fn text(tree: &Tree) -> String {
    let mut lines = String::from("client\n");
    for (path, branch) in tree {
        let indent = "  ".repeat(path.level_count());
        lines += &format!("{indent}└─ {path} {}\n", describe(branch));
    }
    lines
}

/// Height of a line and width of a level in the picture, in pixels.
const LINE: usize = 30;
const LEVEL: usize = 90;

/// The tree as a picture: requests solid, replies to the client dashed.
pub fn svg(tree: &Tree, title: &str) -> String {
    let rows: BTreeMap<&Path, usize> = tree.keys().zip(1..).collect();
    let at = |path: &Path| {
        let row = rows.get(path).copied().unwrap_or(0);
        (20 + path.level_count() * LEVEL, 70 + row * LINE)
    };
    let deepest = tree.keys().map(Path::level_count).max().unwrap_or(0);
    let (width, height) = (deepest * LEVEL + 760, 110 + tree.len() * LINE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"20\" y=\"28\" font-size=\"16\">{}</text>\n\
         <text x=\"20\" y=\"48\" fill=\"#666\">solid: request; dashed: reply, straight to the client</text>\n",
        escape(title)
    );
    for (path, branch) in tree {
        let (x, y) = at(path);
        let parent = path.parent().map_or_else(Path::root, |(parent, _)| parent);
        let (px, py) = at(&parent);
        svg += &format!(
            "<path d=\"M {px} {py} V {y} H {x}\" fill=\"none\" stroke=\"#1f77b4\" \
             stroke-width=\"1.5\"/>\n"
        );
        if !branch.replies.is_empty() {
            svg += &format!(
                "<path d=\"M {x} {y} H 8 V 74\" fill=\"none\" stroke=\"#2ca02c\" \
                 stroke-opacity=\"0.5\" stroke-dasharray=\"4 3\"/>\n"
            );
        }
        let fill = if branch.failure.is_some() { "#d62728" } else { "#1f77b4" };
        let (tx, ty) = (x + 10, y + 4);
        svg += &format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"{fill}\"/>\
             <text x=\"{tx}\" y=\"{ty}\">{path} {}</text>\n",
            escape(&describe(branch))
        );
    }
    svg + "<circle cx=\"20\" cy=\"70\" r=\"6\" fill=\"#2ca02c\"/><text x=\"32\" y=\"74\">client</text>\n</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
