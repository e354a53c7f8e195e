//! Lies that a member can tell the others about a round.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{CastBody, CastPort, Digest, NodeId};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoCore, EchoPlan, EchoVote, digest_of};
use convoke_sim::random::Random;

use super::sign;

/// The others, as a liar knows them.
pub(super) fn others(members: &Configuration, me: NodeId) -> Vec<NodeId> {
    members.nodes().filter(|node| *node != me).collect()
}

/// A vote for one of two lies, in any phase, maybe in the name of another or of another epoch.
pub(super) fn nonsense(random: &mut Random, members: &Configuration, me: NodeId) -> CastBody {
    let phase = u16::try_from(random.within(0..3)).expect("small");
    let sender = match random.chance(25) {
        true => u16::try_from(random.index(members.len() + 1)).expect("small"),
        false => vote(members, me).sender,
    };
    let (epoch, digest) = (u64::from(random.chance(5)), lie(random.index(2)));
    // Where signatures are looked at, what is forged leaves room for what is not.
    let payload = if random.chance(70) { sign(me, digest) } else { Bytes::from_static(b"forged") };
    CastBody { phase, sender, epoch, digest, payload }
}

/// A signed vote in the first phase, for a lie.
pub(super) fn vote(members: &Configuration, me: NodeId) -> CastBody {
    let sender = members.index_of(me).expect("a member");
    let (digest, payload) = (lie(0), sign(me, lie(0)));
    CastBody { phase: 0, sender, epoch: members.epoch(), digest, payload }
}

/// One of two values that nobody has asked for.
pub(super) fn lie(at: usize) -> Digest {
    digest_of([&b"lie 1"[..], b"lie 2"][at])
}

/// Two members behind one name, each as correct as can be, that see one half of the others each and
/// want another value: nothing that one of them says is wrong (Bano and others, *Twins*, 2020).
/// Those who belong to the second are the bits of `halves`.
pub(super) async fn twins(
    port: CastPort,
    members: Configuration,
    plan: EchoPlan,
    wanted: [Digest; 2],
    halves: u64,
) {
    let me = port.node();
    let sender = members.index_of(me).expect("a member");
    let half = |node: NodeId| {
        let at = members.index_of(node).expect("a member");
        usize::from(halves >> at & 1 == 1)
    };
    let mut twins = wanted.map(|value| {
        let mut twin = EchoCore::new(me, &members, plan.clone()).expect("a member");
        twin.cast(0, value).expect("it is the first");
        twin
    });
    let mut casts = Vec::new();
    loop {
        for (at, twin) in twins.iter_mut().enumerate() {
            while let Some(EchoVote { phase, digest }) = twin.poll_transmit() {
                let to = others(&members, me).into_iter().filter(|node| half(*node) == at);
                let (epoch, payload) = (members.epoch(), sign(me, digest));
                port.send(to, CastBody { phase, sender, epoch, digest, payload });
            }
        }
        poll_fn(|cx| match port.poll_waiting(cx, 1).is_ready {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        port.take(&mut casts);
        for cast in casts.drain(..) {
            // What other liars say may be refused.
            let _ = twins[half(cast.from)].handle_cast(cast.from, cast.body);
        }
    }
}

/// A pause between two lies, or none.
pub(super) async fn pause(random: &mut Random) {
    if random.chance(25) {
        tokio::time::sleep(Duration::from_millis(random.within(0..4))).await;
    }
}
