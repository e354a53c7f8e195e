//! A plan as JSON.

use convoke_overlay::{Site, Tree};
use serde_json::{Value, json};

use crate::report::Report;

/// Rates are kbit/s.
pub(crate) fn value(report: &Report<'_>) -> Value {
    json!({
        "demand_kbit": report.demand,
        "planned_kbit": report.planned,
        "direct_kbit": report.direct,
        "largest_scale": report.scale,
        "mean_delivery_ms": report.mean_ms.map(|[planned, _]| planned),
        "mean_delivery_direct_ms": report.mean_ms.map(|[_, direct]| direct),
        "sites": report.sites().map(|site| of_site(report, site)).collect::<Vec<Value>>(),
    })
}

fn of_site(report: &Report<'_>, site: Site) -> Value {
    let trees = report.plan.trees(site).iter().map(|tree| of_tree(report, tree));
    json!({
        "name": report.name(site),
        "demand_kbit": report.model().demand[site.index()],
        "rate_kbit": report.plan.rate(site),
        "uplink_usable_kbit": report.usable[site.index()],
        "own_kbit": report.plan.own_use(site),
        "relayed_kbit": report.plan.relayed_use(site),
        "received_kbit": report.plan.downlink_use(site),
        "is_full": report.is_full(site),
        "trees": trees.collect::<Vec<Value>>(),
    })
}

fn of_tree(report: &Report<'_>, tree: &Tree) -> Value {
    json!({
        "relay": tree.relay.map(|relay| report.name(relay)),
        "forward": tree.forward.iter().map(|site| report.name(site)).collect::<Vec<&str>>(),
        "rate_kbit": tree.rate,
    })
}
