//! A plan as a picture: on the left the sites in a ring, with a line for each edge of each tree in
//! the colour of its root, as wide as its rate; on the right what fills each uplink.

use std::f64::consts::{FRAC_PI_2, TAU};
use std::fmt::Write as _;

use convoke_overlay::{Site, Tree};

use crate::explain::mbit;
use crate::report::Report;

const WIDTH: f64 = 1000.0;
/// Of the ring.
const RING: f64 = 450.0;
const CENTRE: (f64, f64) = (290.0, 290.0);
const RADIUS: f64 = 180.0;
/// Of a site.
const DOT: f64 = 9.0;
/// Width of the line of the largest rate.
const LINE: f64 = 14.0;
/// Of the bars.
const TOP: f64 = 110.0;
const LEFT: f64 = 690.0;
const RIGHT: f64 = 980.0;
const BAR: f64 = 16.0;
const PITCH: f64 = 40.0;
/// Letters of a name.
const NAME: usize = 14;

const COLOURS: [&str; 9] = [
    "#c2410c", "#2563eb", "#0f766e", "#a16207", "#7c3aed", "#be185d", "#4d7c0f", "#334155",
    "#0891b2",
];

/// The text of an SVG file.
pub(crate) fn draw(report: &Report<'_>) -> String {
    let height = (RING + 70.0).max(TOP + PITCH * report.plan.sites() as f64 + 60.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text += &label((16.0, 28.0), "start", 16, &title(report));
    text += &label((16.0, 50.0), "start", 12, &subtitle(report));
    text += &trees(report);
    text += &report.sites().map(|site| dot(report, site)).collect::<String>();
    text += &bars(report);
    text + "</svg>\n"
}

fn title(report: &Report<'_>) -> String {
    format!(
        "{} of {} Mbit/s are broadcast; all direct, {} would fit",
        mbit(report.planned),
        mbit(report.demand),
        mbit(report.direct),
    )
}

fn subtitle(report: &Report<'_>) -> String {
    let ring =
        "colour: whose data; strong lines: to a relay; faint lines: to the receivers; width: rate";
    let mean = report.mean_ms.map(|[planned, direct]| {
        format!("; mean delivery {planned:.1} ms, all direct {direct:.1} ms")
    });
    ring.to_owned() + &mean.unwrap_or_default()
}

/// Edges to receivers first, so that those to relays are on top.
fn trees(report: &Report<'_>) -> String {
    let rates = report.sites().flat_map(|root| report.plan.trees(root)).map(|tree| tree.rate);
    let widest = rates.max().unwrap_or(1) as f64;
    let (mut faint, mut strong) = (String::new(), String::new());
    for root in report.sites() {
        for tree in report.plan.trees(root) {
            let width = (LINE * tree.rate as f64 / widest).max(0.7);
            for (from, to) in to_receivers(report, root, tree) {
                faint += &edge(report, (from, to), root, (width, 0.18), "receiver");
            }
            if let Some(relay) = tree.relay {
                strong += &edge(report, (root, relay), root, (width, 0.9), "relay");
            }
        }
    }
    faint + &strong
}

fn to_receivers(report: &Report<'_>, root: Site, tree: &Tree) -> Vec<(Site, Site)> {
    let others = report.sites().filter(|site| *site != root && Some(*site) != tree.relay);
    let parent = |site: Site| tree.relay.filter(|_| tree.forward.contains(site)).unwrap_or(root);
    others.map(|site| (parent(site), site)).collect()
}

/// A line bent to its right, so that the two directions lie beside each other.
fn edge(
    report: &Report<'_>,
    (from, to): (Site, Site),
    root: Site,
    (width, opacity): (f64, f64),
    class: &str,
) -> String {
    let ((x1, y1), (x2, y2)) = (place(report, from), place(report, to));
    let (dx, dy) = (x2 - x1, y2 - y1);
    let (x, y) = ((x1 + x2) / 2.0 - dy * 0.14, (y1 + y2) / 2.0 + dx * 0.14);
    format!(
        "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}Q{x:.1} {y:.1} {x2:.1} {y2:.1}\" fill=\"none\" \
         stroke=\"{}\" stroke-width=\"{width:.1}\" stroke-opacity=\"{opacity}\"/>\n",
        colour(root)
    )
}

fn dot(report: &Report<'_>, site: Site) -> String {
    let (x, y) = place(report, site);
    let (dx, dy) = (x - CENTRE.0, y - CENTRE.1);
    let far = (RADIUS + DOT + 8.0) / RADIUS;
    let anchor = match dx {
        dx if dx > 20.0 => "start",
        dx if dx < -20.0 => "end",
        _ => "middle",
    };
    let at = (CENTRE.0 + dx * far, CENTRE.1 + dy * far + 4.0 + 6.0 * dy / RADIUS);
    let mut text = format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT}\" fill=\"{}\" stroke=\"white\" \
         stroke-width=\"2\"/>\n",
        colour(site)
    );
    text += &label(at, anchor, 13, &name(report, site));
    text
}

/// As much of the name of a site as there is room for.
fn name(report: &Report<'_>, site: Site) -> String {
    let name = report.name(site);
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

fn place(report: &Report<'_>, site: Site) -> (f64, f64) {
    let angle = TAU * site.index() as f64 / report.plan.sites() as f64 - FRAC_PI_2;
    (CENTRE.0 + RADIUS * angle.cos(), CENTRE.1 + RADIUS * angle.sin())
}

/// Bars of what fills each uplink: what a site sends of its own, and what for which other.
fn bars(report: &Report<'_>) -> String {
    let title = "uplinks, Mbit/s: own data, then relayed; line: usable";
    let mut text = label((RIGHT, TOP - 20.0), "end", 12, title);
    let widest = report.model().uplink.iter().copied().max().unwrap_or(1).max(1) as f64;
    let scale = (RIGHT - LEFT) / widest;
    for site in report.sites() {
        let y = TOP + PITCH * site.index() as f64;
        text += &label((LEFT - 10.0, y + BAR - 3.0), "end", 13, &name(report, site));
        let uplink = report.model().uplink[site.index()] as f64 * scale;
        text += &rectangle("uplink", (LEFT, y), uplink, "#e2e8f0");
        text += &fill(report, site, y, scale);
        let usable = LEFT + report.usable[site.index()] as f64 * scale;
        let _ = writeln!(
            text,
            "<path class=\"usable\" d=\"M{usable:.1} {:.1}v{:.1}\" stroke=\"black\"/>",
            y - 3.0,
            BAR + 6.0
        );
        text += &label((LEFT, y + BAR + 13.0), "start", 11, &load(report, site));
    }
    text
}

fn fill(report: &Report<'_>, site: Site, y: f64, scale: f64) -> String {
    let mut x = LEFT;
    let own = (site, report.plan.own_use(site));
    let relayed = report.relayed(site).into_iter().map(|one| (one.root, one.sent));
    let mut text = String::new();
    for (root, rate) in std::iter::once(own).chain(relayed) {
        let width = rate as f64 * scale;
        text += &rectangle("load", (x, y), width, colour(root));
        x += width;
    }
    text
}

fn load(report: &Report<'_>, site: Site) -> String {
    let sum = format!(
        "{} own + {} relayed of {}",
        mbit(report.plan.own_use(site)),
        mbit(report.plan.relayed_use(site)),
        mbit(report.usable[site.index()]),
    );
    if report.is_full(site) { sum + ", full" } else { sum }
}

fn rectangle(class: &str, (x, y): (f64, f64), width: f64, colour: &str) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
         fill=\"{colour}\"/>\n"
    )
}

fn label((x, y): (f64, f64), anchor: &str, size: u32, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>\n"
    )
}

fn colour(site: Site) -> &'static str {
    COLOURS[site.index() % COLOURS.len()]
}
