//! Cost of echo phases: frames and one-way delays, exactly, next to nested quorum calls.

use convoke_core::{Context, Method, NodeId, Service, Status};
use convoke_quorum::Configuration;
use convoke_quorum::echo::majority;

use crate::support::{Cluster, DELAY, WRITE, storage};

const ECHO: Method<String, String> = Method::new("test.Storage/Echo");

/// Frames of one write to all, and after how many delays the last answer came.
async fn cost(cluster: &Cluster) -> (u64, u32) {
    cluster.settle().await;
    let before = cluster.network.total_traffic().frames();
    let written = cluster.write("heron").await;
    assert_eq!(written.replies.len(), cluster.members.len(), "{written:?}");
    let delays: Vec<u32> = written.replies.iter().map(|(_, after)| in_delays(*after)).collect();
    assert!(delays.windows(2).all(|two| two[0] == two[1]), "{delays:?}");
    cluster.settle().await;
    (cluster.network.total_traffic().frames() - before, delays[0])
}

fn in_delays(time: std::time::Duration) -> u32 {
    let delays = time.as_nanos() / DELAY.as_nanos();
    assert_eq!(DELAY * u32::try_from(delays).unwrap(), time, "a whole number of delays");
    u32::try_from(delays).unwrap()
}

#[tokio::test(start_paused = true)]
async fn echo_phases_cost_2n_and_p_n_n_1_messages_and_2_and_p_delays() {
    for members in [1, 3, 4, 7] {
        for phases in 1..=3_u16 {
            let cluster = Cluster::start(members, members, storage(phases)).await;
            let p = u64::from(phases);
            // Twice: a second call has its casts before the first has left nothing behind.
            for _ in 0..2 {
                let (frames, delays) = cost(&cluster).await;
                assert_eq!(frames, 2 * members + p * members * (members - 1), "n {members} p {p}");
                let expected = if members == 1 { 2 } else { 2 + u32::from(phases) };
                assert_eq!(delays, expected, "n {members} p {p}");
            }
            assert_nothing_is_kept(&cluster);
        }
    }
}

fn assert_nothing_is_kept(cluster: &Cluster) {
    for server in cluster.servers.iter().flatten() {
        let load = server.load();
        assert_eq!((load.mailboxes, load.tasks, load.waiting), (0, 0, 0), "{load:?}");
    }
}

/// The paper's form: each server calls all servers in its handler, once for each phase.
fn nested(phases: u16) -> impl Fn(NodeId, Configuration) -> Service {
    move |_, members| {
        let echoed = |text: String, _: Context| async move { Ok::<_, Status>(text) };
        Service::new().unary(ECHO, echoed).unary(WRITE, move |text: String, context: Context| {
            let members = members.clone();
            async move {
                for _ in 0..phases {
                    ask_all(&context, &members, &text).await;
                }
                Ok::<_, Status>(text)
            }
        })
    }
}

async fn ask_all(context: &Context, members: &Configuration, text: &str) {
    let needed = majority(members.len());
    let call = context.call(ECHO, text.into()).to_all(members.members());
    let mut call = call.open().expect("one call");
    for _ in 0..needed {
        call.next().await.expect("a majority answers").expect("a reply");
    }
    call.let_run();
}

#[tokio::test(start_paused = true)]
async fn nested_quorum_calls_cost_2n_and_2_p_n_n_1_messages_and_2_and_2_p_delays() {
    for members in [3, 4, 7] {
        for phases in 1..=2_u16 {
            let cluster = Cluster::start(members, members, nested(phases)).await;
            let (frames, delays) = cost(&cluster).await;
            let p = u64::from(phases);
            assert_eq!(frames, 2 * members + 2 * p * members * (members - 1), "n {members} p {p}");
            assert_eq!(delays, 2 + 2 * u32::from(phases), "n {members} p {p}");
        }
    }
}
