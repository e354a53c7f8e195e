use super::*;

const NODES: [u64; 3] = [9, 1, 2];

/// Three nodes on a network, of which each direction and each end is moved by hand.
#[derive(Clone, Default)]
struct World {
    sent: BTreeMap<(u64, u64), u64>,
    received: BTreeMap<(u64, u64), u64>,
    ended: BTreeMap<u64, Frames>,
}

impl World {
    fn after_some_traffic() -> Self {
        let mut world = Self::default();
        for (from, to) in ways() {
            for _ in 0..from + to {
                world.send(from, to);
                world.come(from, to);
            }
        }
        world
    }

    fn send(&mut self, from: u64, to: u64) {
        *self.sent.entry((from, to)).or_default() += 1;
    }

    fn come(&mut self, from: u64, to: u64) {
        *self.received.entry((from, to)).or_default() += 1;
    }

    fn end(&mut self, node: u64, frames: Frames) {
        self.ended.insert(node, frames);
    }

    /// Reads one node after the other; before each, something may happen.
    fn look(&mut self, mut before: impl FnMut(&mut Self, u64)) -> Look {
        let read = |node| {
            before(self, node);
            let count = |of: &BTreeMap<_, u64>, way| of.get(&way).copied().unwrap_or_default();
            let with = |peer: u64| Frames {
                sent: count(&self.sent, (node, peer)),
                received: count(&self.received, (peer, node)),
            };
            let peers = NODES.into_iter().filter(|peer| *peer != node);
            let open = peers.map(|peer| (NodeId::new(peer), with(peer))).collect();
            let ended = self.ended.get(&node).copied().unwrap_or_default();
            (NodeId::new(node), Traffic { open, ended })
        };
        NODES.into_iter().map(read).collect()
    }

    fn two_looks(&mut self, mut before: impl FnMut(&mut Self, u64)) -> [Look; 2] {
        [self.look(&mut before), self.look(&mut before)]
    }
}

fn ways() -> impl Iterator<Item = (u64, u64)> {
    NODES.into_iter().flat_map(|from| NODES.map(|to| (from, to))).filter(|(from, to)| from != to)
}

fn carried(missing: Missing) -> Carried {
    Carried { sent: 0, missing }
}

fn lost(missing: Missing) -> u64 {
    carried(missing).lost_since(&carried(Missing::default()))
}

#[test]
fn nothing_is_missing_of_nodes_that_stand_still() {
    let mut missing = Missing::default();
    missing.see(&World::after_some_traffic().two_looks(|_, _| {}));
    assert!(missing.is_nothing(), "{missing:?}");
}

#[test]
fn nothing_is_missing_of_nodes_of_which_one_always_speaks() {
    let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
    for (from, to) in ways() {
        // It speaks before each reading: no two readings of all nodes are alike.
        missing.see(&world.two_looks(|world, _| {
            world.send(from, to);
            world.come(from, to);
        }));
    }
    missing.ensure_known().unwrap();
    assert!(missing.is_nothing(), "{missing:?}");
}

#[test]
fn one_frame_that_was_lost_is_found_on_each_way_however_much_follows_it() {
    for (from, to) in ways() {
        let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
        world.send(from, to);
        for talking in NODES {
            for peer in NODES.into_iter().filter(|peer| *peer != talking) {
                missing.see(&world.two_looks(|world, reading| {
                    if reading == talking {
                        world.send(talking, peer);
                        world.come(talking, peer);
                    }
                }));
            }
        }
        missing.ensure_known().unwrap();
        assert!(!missing.is_nothing());
        assert_eq!(lost(missing), 1, "from {from} to {to}");
    }
}

#[test]
fn a_frame_that_came_from_nowhere_is_found() {
    let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
    world.come(1, 2);
    missing.see(&world.two_looks(|_, _| {}));
    assert_eq!(lost(missing), 1);
}

#[test]
fn a_frame_under_way_is_missing_until_it_comes() {
    let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
    world.send(1, 9);
    missing.see(&world.two_looks(|_, _| {}));
    assert_eq!(lost(missing.clone()), 1);
    world.come(1, 9);
    missing.see(&world.two_looks(|_, _| {}));
    assert!(missing.is_nothing(), "{missing:?}");
}

#[test]
fn losses_of_two_ways_do_not_make_up_for_each_other() {
    let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
    world.send(1, 9);
    world.come(2, 1);
    missing.see(&world.two_looks(|_, _| {}));
    assert_eq!(lost(missing), 2);
}

#[test]
fn ends_of_a_connection_that_has_ended_are_compared_once_both_know() {
    let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
    world.end(1, Frames { sent: 7, received: 5 });
    missing.see(&world.two_looks(|_, _| {}));
    assert!(!missing.is_nothing());
    world.end(2, Frames { sent: 5, received: 7 });
    missing.see(&world.two_looks(|_, _| {}));
    assert!(missing.is_nothing(), "{missing:?}");

    let mut missing = Missing::default();
    world.end(2, Frames { sent: 5, received: 6 });
    missing.see(&world.two_looks(|_, _| {}));
    assert_eq!(lost(missing), 1);
}

#[test]
fn who_never_stops_sending_is_named() {
    let (mut world, mut missing) = (World::after_some_traffic(), Missing::default());
    for _ in 0..10 {
        missing.see(&world.two_looks(|world, _| world.send(1, 9)));
    }
    let refused = missing.ensure_known().unwrap_err().to_string();
    assert!(refused.contains("n1 never stopped sending to n9"), "{refused}");
}

#[test]
fn what_was_missing_before_is_not_lost_since() {
    let mut world = World::after_some_traffic();
    world.send(1, 2);
    let mut seen = || {
        let mut missing = Missing::default();
        missing.see(&world.two_looks(|_, _| {}));
        carried(missing)
    };
    assert_eq!(seen().lost_since(&seen()), 0);
}
