//! A plan as a picture: the sites on a map with a line for each edge of each tree, in the colour of
//! its root and as wide as its rate, and beside it what fills each uplink.

use charts::{Place, Way};
use convoke_overlay::{Site, Tree};

use crate::explain::mbit;
use crate::report::Report;

/// The text of an SVG file.
pub(crate) fn draw(report: &Report<'_>) -> String {
    let title = format!(
        "{} of {} Mbit/s are broadcast; all direct, {} would fit",
        mbit(report.planned),
        mbit(report.demand),
        mbit(report.direct),
    );
    let mean = report.mean_ms.map(|[planned, direct]| {
        format!("; mean delivery {planned:.1} ms, all direct {direct:.1} ms")
    });
    let lines =
        "colour: whose data; strong lines: to a relay; faint lines: to the receivers; width: rate";
    let words =
        [&(lines.to_owned() + &mean.unwrap_or_default()), "uplinks: own, relayed; mark: usable"];
    let places: Vec<Place> = report.sites().map(|site| place(report, site)).collect();
    let ways: Vec<Way> = report.sites().flat_map(|root| ways(report, root)).collect();
    charts::map(&title, words, &places, &ways)
}

fn place(report: &Report<'_>, site: Site) -> Place {
    let own = (site.index(), report.plan.own_use(site) as f64);
    let relayed = report.relayed(site).into_iter().map(|one| (one.root.index(), one.sent as f64));
    let (usable, all) = (report.usable[site.index()], report.model().uplink[site.index()]);
    Place {
        name: report.name(site).to_owned(),
        at: report.network.places[site.index()],
        fill: std::iter::once(own).chain(relayed).collect(),
        room: (usable as f64, all as f64),
        note: load(report, site),
    }
}

fn ways(report: &Report<'_>, root: Site) -> Vec<Way> {
    let mut ways = Vec::new();
    for tree in report.plan.trees(root) {
        let way = |from: Site, to: Site, is_strong| Way {
            ends: (from.index(), to.index()),
            of: root.index(),
            rate: tree.rate as f64,
            is_strong,
        };
        ways.extend(to_receivers(report, root, tree).map(|(from, to)| way(from, to, false)));
        ways.extend(tree.relay.map(|relay| way(root, relay, true)));
    }
    ways
}

fn to_receivers(
    report: &Report<'_>,
    root: Site,
    tree: &Tree,
) -> impl Iterator<Item = (Site, Site)> {
    let others = report.sites().filter(move |site| *site != root && Some(*site) != tree.relay);
    let parent =
        move |site: Site| tree.relay.filter(|_| tree.forward.contains(site)).unwrap_or(root);
    others.map(move |site| (parent(site), site))
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
