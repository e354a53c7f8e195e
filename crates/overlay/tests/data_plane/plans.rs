//! Plans made by hand.

use convoke_overlay::{Plan, SITES_MAX, Site, SiteSet, Tree};

pub(crate) fn site(index: usize) -> Site {
    Site(u16::try_from(index % SITES_MAX).unwrap())
}

/// By way of a relay to all others.
pub(crate) fn through(sites: usize, root: usize, relay: usize, rate: u64) -> Tree {
    let forward = SiteSet::first(sites).without(site(root)).without(site(relay));
    Tree { relay: Some(site(relay)), forward, rate }
}

pub(crate) fn direct(rate: u64) -> Tree {
    Tree { relay: None, forward: SiteSet::EMPTY, rate }
}

/// Every site sends everything by way of the next: a cycle of relays.
pub(crate) fn cycle(sites: usize, epoch: u32, rate: u64) -> Plan {
    let tree = |root: usize| vec![through(sites, root, (root + 1) % sites, rate)];
    Plan::fixed(epoch, (0..sites).map(tree).collect()).unwrap()
}

/// Every site sends by way of every other, and directly, the same shares.
pub(crate) fn spread(sites: usize, epoch: u32, rate: u64) -> Plan {
    let trees = |root: usize| {
        let relays = (0..sites).filter(move |relay| *relay != root);
        let relayed = relays.map(move |relay| through(sites, root, relay, rate));
        relayed.chain([direct(rate)]).collect()
    };
    Plan::fixed(epoch, (0..sites).map(trees).collect()).unwrap()
}

/// One-relay trees: the root serves some itself, the relay the rest.
pub(crate) fn mixed(sites: usize, epoch: u32, rate: u64) -> Plan {
    let trees = |root: usize| {
        let tree = |step: usize| {
            let relay = (root + step) % sites;
            let all = through(sites, root, relay, rate);
            let forward = all.forward.iter().skip(1).collect();
            Tree { forward, ..all }
        };
        (1..sites).map(tree).filter(|tree| !tree.forward.is_empty()).collect()
    };
    Plan::fixed(epoch, (0..sites).map(trees).collect()).unwrap()
}
