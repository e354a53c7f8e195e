//! P12: a relay that dies at any time costs no live receiver anything.

use std::time::Duration;

use convoke_overlay::{PlanOptions, Site, contingency, plan};

use crate::tables::row;
use crate::wan::{OP_BYTES, Wan};

/// Time until the others are told of a death, and time until what is in flight and due is over.
const SILENCE: Duration = Duration::from_millis(300);
const SETTLED: Duration = Duration::from_secs(6);

#[test]
fn every_live_receiver_gets_everything_when_a_relay_is_killed() {
    let mut model = row(5, 1.0).model();
    // A fifth of the network again, for shorter runs.
    for rates in [&mut model.uplink, &mut model.downlink, &mut model.demand] {
        rates.iter_mut().for_each(|rate| *rate /= 5);
    }
    let options = PlanOptions::new();
    let made = plan(&model, &options).expect("it is sustainable");
    let root = Site(0);
    let relay = made.trees(root).iter().rev().find_map(|tree| tree.relay);
    let relay = relay.expect("the root needs relays");
    let without = contingency(&model, &options, relay).expect("it is, too");
    for step in 0..12 {
        let mut wan = Wan::new(&model, Some(&made));
        (0..5).for_each(|site| wan.prepare(site, relay, without.clone()));
        // Not a multiple of anything that happens.
        wan.run_until(wan.now + Duration::from_micros(500_003 + step * 13_577));
        let unacked: usize = wan.nodes.iter().map(|node| node.load().unacked_bytes).sum();
        wan.kill(relay, Some(SILENCE));
        wan.run_until(wan.now + Duration::from_millis(700));
        wan.stop();
        wan.run_until(wan.now + SETTLED);
        let sent = wan.sent();
        for receiver in (0..5).filter(|site| *site != relay.index()) {
            for source in (0..5).filter(|site| *site != receiver && *site != relay.index()) {
                let got = &wan.received[receiver][source];
                assert!(
                    got.iter().copied().eq(0..sent[source]),
                    "step {step}: {receiver} misses some of {source}"
                );
            }
        }
        let live = wan.nodes.iter().filter(|node| node.me() != relay);
        let resent: u64 = live.map(|node| node.counters().resent_bytes).sum();
        // What was sent over the relay until the others noticed, too, to four receivers at most.
        let until_noticed = model.demand.iter().sum::<u64>() * 300 / 8;
        let bound = (unacked as u64 + until_noticed + 10 * OP_BYTES as u64) * 4;
        assert!(resent <= bound, "step {step}: {resent} bytes sent again, {bound} unacknowledged");
    }
}
