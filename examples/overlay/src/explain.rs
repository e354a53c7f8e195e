//! A plan in words.

use std::fmt::Write as _;

use convoke_overlay::{Site, Tree};

use crate::report::Report;

/// Relays of a plan, how much they carry for whom, and the uplinks that are full.
pub(crate) fn text(report: &Report<'_>) -> String {
    if report.plan.sites() == 1 {
        return "With one site there is nobody to broadcast to.\n".to_owned();
    }
    let mut text = summary(report);
    for site in report.sites() {
        text += &about(report, site);
    }
    text + &limits(report)
}

fn summary(report: &Report<'_>) -> String {
    let mut text = format!(
        "{} sites want to broadcast {} Mbit/s. The plan carries {}; all direct, {} would fit.\n",
        report.plan.sites(),
        mbit(report.demand),
        mbit(report.planned),
        mbit(report.direct),
    );
    let headroom = f64::from(report.network.headroom_permille) / 10.0;
    let _ = writeln!(text, "Plans use up to {headroom:.1} % of each uplink.");
    if let Some(scale) = report.scale {
        let _ = writeln!(text, "The load could be {scale:.2} times what it is before it is cut.");
    }
    if let Some([planned, direct]) = report.mean_ms {
        let _ = writeln!(
            text,
            "Mean delivery without queues: {planned:.1} ms; {direct:.1} ms if all were direct."
        );
    }
    if report.plan.relays().is_empty() {
        text += "Nobody relays: an overlay does not help here.\n";
    }
    text
}

fn about(report: &Report<'_>, site: Site) -> String {
    let (rate, wanted) = (report.plan.rate(site), report.model().demand[site.index()]);
    let mut text = format!("\n{} broadcasts {} Mbit/s", report.name(site), mbit(rate));
    if rate < wanted {
        let _ = write!(text, ", cut from {}", mbit(wanted));
    }
    text += "\n";
    for tree in report.plan.trees(site) {
        let share = 100.0 * tree.rate as f64 / rate as f64;
        let _ = writeln!(text, "  {:>9} ({share:.0} %) {}", mbit(tree.rate), way(report, tree));
    }
    let relayed = report.relayed(site);
    if !relayed.is_empty() {
        let each =
            relayed.iter().map(|one| format!("{} of {}", mbit(one.rate), report.name(one.root)));
        let _ = writeln!(text, "  relays {}", each.collect::<Vec<_>>().join(", "));
    }
    let _ = writeln!(
        text,
        "  uplink: {} of its own + {} relayed = {} of {} Mbit/s{}",
        mbit(report.plan.own_use(site)),
        mbit(report.plan.relayed_use(site)),
        mbit(report.plan.uplink_use(site)),
        mbit(report.usable[site.index()]),
        if report.is_full(site) { ", full" } else { "" },
    );
    text
}

fn way(report: &Report<'_>, tree: &Tree) -> String {
    let Some(relay) = tree.relay else {
        return "directly".to_owned();
    };
    let others = report.plan.sites() - 2;
    if tree.forward.len() == others {
        return format!("through {}", report.name(relay));
    }
    let served: Vec<&str> = tree.forward.iter().map(|site| report.name(site)).collect();
    format!("through {} to {}, directly to the others", report.name(relay), served.join(", "))
}

/// Limits that stand in the way of more.
fn limits(report: &Report<'_>) -> String {
    let full: Vec<&str> =
        report.sites().filter(|site| report.is_full(*site)).map(|site| report.name(site)).collect();
    let mut text = match full.len() {
        0 => "\nNo uplink binds.\n".to_owned(),
        count if count == report.plan.sites() => {
            "\nAll uplinks bind: no plan carries more.\n".to_owned()
        }
        _ => format!(
            "\nUplinks that bind: {}. More there would let more data take shorter ways.\n",
            full.join(", ")
        ),
    };
    let downlinks = report
        .sites()
        .filter(|site| report.plan.downlink_use(*site) == report.model().downlink[site.index()]);
    let downlinks: Vec<&str> = downlinks.map(|site| report.name(site)).collect();
    if !downlinks.is_empty() {
        let _ = writeln!(text, "Downlinks that bind: {}.", downlinks.join(", "));
    }
    text
}

/// kbit/s as Mbit/s.
pub(crate) fn mbit(kbit: u64) -> String {
    format!("{:.1}", kbit as f64 / 1e3)
}
