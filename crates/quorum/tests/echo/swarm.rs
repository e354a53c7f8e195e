//! Many seeds: members that crash, repeat themselves, lie, cast nonsense and ask others for something
//! else in the same call, on links that reorder.
//! After each run correct members agree, have decided what the client wrote, have evidence against
//! liars alone, and keep nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke_core::{CastBody, Context, Digest, Finish, NodeId, Service, Status, Task};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoPlan, EchoRound, Phase, Rule, byzantine_quorum, digest_of};
use convoke_sim::random::Random;
use convoke_sim::transport::Conditions;
use tokio::time::sleep;

use crate::support::{Cluster, WRITE, node};

const WRITES: u64 = 6;

/// Role of a member in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Correct,
    Crashes,
    Lies,
}

/// Plan of a run: all from its seed.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    roles: BTreeMap<NodeId, Role>,
    jitter: Duration,
    crash_after: Duration,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let members = [4, 7][index(&mut random, 2)];
        let faulty = (members - 1) / 3;
        let mut roles: BTreeMap<_, _> = (1..=members).map(|id| (node(id), Role::Correct)).collect();
        for _ in 0..faulty {
            let role =
                [Role::Crashes, Role::Lies, Role::Lies, Role::Correct][index(&mut random, 4)];
            roles.insert(node(1 + random.draw() % members), role);
        }
        let millis = |random: &mut Random, most| Duration::from_millis(random.draw() % most);
        let (jitter, crash_after) = (millis(&mut random, 10), millis(&mut random, 40));
        Self { seed, roles, jitter, crash_after }
    }

    fn of(&self, role: Role) -> Vec<NodeId> {
        let of_role = self.roles.iter().filter(|(_, of)| **of == role);
        of_role.map(|(node, _)| *node).collect()
    }
}

fn index(random: &mut Random, below: u64) -> usize {
    usize::try_from(random.draw() % below).expect("a small number")
}

/// Decisions of the members in each write, and who has evidence against whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log {
    decisions: BTreeMap<(String, NodeId), Digest>,
    evidence: Vec<(NodeId, NodeId)>,
    refused: u64,
    failures: Vec<(NodeId, String)>,
}

type SharedLog = Arc<Mutex<Log>>;

fn bracha(members: &Configuration) -> EchoPlan {
    let (n, f) = (members.len(), (members.len() - 1) / 3);
    let ready = Rule::on(0, byzantine_quorum(n, f)).or(Rule::on(1, f + 1));
    let phases =
        [Phase::new("echo", byzantine_quorum(n, f)), Phase::new("ready", 2 * f + 1).cast_on(ready)];
    EchoPlan::new(n, phases).expect("it is a plan")
}

async fn decide(
    log: SharedLog,
    members: Configuration,
    context: Context,
    text: String,
) -> Result<String, Status> {
    let mut round = EchoRound::join(&context, &members, bracha(&members))?;
    round.cast(0, digest_of(text.as_bytes()), "")?;
    let reached = round.quorum(1).await;
    let me = context.task().call; // One call is one write.
    let node = round.core().members().members()[usize::from(round.core().index())].node();
    let mut log = log.lock().expect("nobody panics with it");
    log.evidence.extend(round.evidence().iter().map(|evidence| (node, evidence.node)));
    let refused = round.refused();
    log.refused += u64::from(refused.unknown_phase) + u64::from(refused.wrong_index);
    match reached {
        Ok(reached) => {
            let before = log.decisions.insert((format!("{me:?}"), node), reached.digest);
            assert_eq!(before, None, "{node} decides once in a call");
            Ok(text)
        }
        Err(error) => {
            log.failures.push((node, error.to_string()));
            Err(error.into())
        }
    }
}

/// Tells some members one thing and some another, several times, about phases that exist and
/// others, and in the name of others.
async fn lie(mut random: Random, members: Configuration, context: Context) {
    // Another liar may have asked it, too.
    let Ok(port) = context.casts_for_parent() else { return };
    let me = members.index_of(port.node()).expect("a member");
    let others: Vec<NodeId> = members.nodes().filter(|node| *node != port.node()).collect();
    for _ in 0..40 {
        let to = others[index(&mut random, others.len() as u64)];
        let phase = u16::try_from(random.draw() % 3).expect("a small number");
        let sender = if index(&mut random, 8) == 0 { me + 1 } else { me };
        let value = [b"lie 1", b"lie 2"][index(&mut random, 2)];
        let (epoch, payload) = (0, bytes::Bytes::new());
        let digest = digest_of(value);
        port.send([to], CastBody { phase, sender, epoch, digest, payload });
        if index(&mut random, 4) == 0 {
            sleep(Duration::from_millis(random.draw() % 4)).await;
        }
    }
}

fn service(plan: Plan, log: SharedLog) -> impl Fn(NodeId, Configuration) -> Service {
    move |me, members| {
        let (log, role) = (log.clone(), plan.roles[&me]);
        let random = Random::new(plan.seed ^ me.get());
        if role == Role::Lies {
            return Service::new().tree(WRITE, move |_, task: Task<String>| {
                mislead(random.clone(), members.without([me]), members.clone(), task)
            });
        }
        Service::new().unary(WRITE, move |text: String, context: Context| {
            decide(log.clone(), members.clone(), context, text)
        })
    }
}

/// Has the others write something else in the same call, before or after it lies to them.
async fn mislead(
    mut random: Random,
    others: Configuration,
    members: Configuration,
    task: Task<String>,
) -> Result<Finish, Status> {
    let is_first = index(&mut random, 2) == 0;
    if is_first {
        for other in others.nodes() {
            task.delegate(other, WRITE.request("a lie".into())).await?;
        }
    }
    lie(random, members, task.context().clone()).await;
    match is_first {
        true => Ok(task.finish()),
        false => {
            let lies = others.nodes().map(|other| (other, WRITE.request("a lie".into())));
            task.fan_out(lies).await
        }
    }
}

async fn run(seed: u64) -> (Plan, Log, u64) {
    let plan = Plan::draw(seed);
    let log = SharedLog::default();
    let count = plan.roles.len() as u64;
    let mut cluster = Cluster::start(seed, count, service(plan.clone(), log.clone())).await;
    let latency = Duration::from_millis(2);
    let (loss, bandwidth) = (0.0, None);
    let conditions = Conditions { latency, jitter: plan.jitter, loss, bandwidth };
    cluster.network.default_conditions(conditions);
    let crash = async {
        sleep(plan.crash_after).await;
        plan.of(Role::Crashes).into_iter().for_each(|node| cluster.network.crash(node));
    };
    let writes = async {
        for number in 0..WRITES {
            cluster.write(&format!("write {number}")).await;
        }
    };
    tokio::join!(crash, writes);
    for node in plan.of(Role::Crashes) {
        cluster.crash(node.get());
    }
    // Past the deadlines of what a crash has left unfinished.
    sleep(Duration::from_secs(30)).await;
    let kept = cluster.servers.iter().flatten().map(|server| server.load().mailboxes as u64).sum();
    let log = log.lock().expect("nobody panics with it").clone();
    (plan, log, kept)
}

fn check(plan: &Plan, log: &Log, kept: u64) {
    let (liars, correct) = (plan.of(Role::Lies), plan.of(Role::Correct));
    assert!(log.failures.iter().all(|(node, _)| !correct.contains(node)), "{plan:?}: {log:?}");
    let mut by_write: BTreeMap<&str, Vec<(NodeId, Digest)>> = BTreeMap::new();
    for ((write, node), digest) in &log.decisions {
        by_write.entry(write).or_default().push((*node, *digest));
    }
    assert_eq!(by_write.len() as u64, WRITES, "{plan:?}: {log:?}");
    let written: Vec<Digest> =
        (0..WRITES).map(|number| digest_of(format!("write {number}").as_bytes())).collect();
    for decisions in by_write.values() {
        let (_, first) = decisions[0];
        assert!(written.contains(&first), "integrity: {plan:?}: {log:?}");
        assert!(decisions.iter().all(|(_, digest)| *digest == first), "consistency: {plan:?}");
        let all = correct.iter().all(|node| decisions.iter().any(|(of, _)| of == node));
        assert!(all, "totality: {plan:?}: {log:?}");
    }
    let slandered = log.evidence.iter().find(|(_, against)| !liars.contains(against));
    assert_eq!(slandered, None, "{plan:?}");
    assert_eq!(kept, 0, "mailboxes are left: {plan:?}");
}

#[tokio::test(start_paused = true)]
async fn correct_members_agree_whatever_the_others_do() {
    let (mut evidence, mut refused, mut crashes, mut liars) = (0, 0, 0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let (plan, log, kept) = run(seed).await;
        check(&plan, &log, kept);
        evidence += log.evidence.len();
        refused += log.refused;
        crashes += plan.of(Role::Crashes).len();
        liars += plan.of(Role::Lies).len();
    }
    // The runs are worth something.
    assert!(evidence > 100 && refused > 100, "{evidence} {refused}");
    assert!(crashes > 10 && liars > 20, "{crashes} {liars}");
}

#[tokio::test(start_paused = true)]
async fn a_seed_replays() {
    let mut logs = Vec::new();
    for seed in 0..5 {
        let (_, first, _) = run(seed).await;
        let (_, again, _) = run(seed).await;
        assert_eq!(first, again, "seed {seed}");
        logs.push(first);
    }
    logs.dedup();
    assert_eq!(logs.len(), 5, "seeds differ");
}
