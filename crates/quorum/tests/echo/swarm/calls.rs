//! Rounds about calls, of a client that tells the truth and of one that lies.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::{
    Announce, CastBody, Context, Endpoint, Finish, NodeId, Peer, Service, Status, Task,
};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{EchoPlan, EchoRound, TaggedCast, digest_of};
use convoke_sim::random::Random;
use convoke_sim::transport::Conditions;
use tokio::time::{sleep, timeout};

use super::liars::{lie, nonsense, others, pause, twins};
use super::{Log, SharedLog, bracha, is_signed, sign, tight};
use crate::support::{CLIENT, Cluster, WRITE, node};

const WRITES: u64 = 6;

/// A client that tells each member something else.
const LIAR: u64 = 2_000;

/// Casts of who is no member.
const STRANGE: u64 = 20;

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
    /// Liars may begin rounds, too, by the plan of these.
    leaders_lie: bool,
    /// The plan says how many may lie.
    is_bearing: bool,
    /// Votes are looked at before they count.
    is_signed: bool,
    /// The twin that each member sees.
    halves: u64,
    jitter: Duration,
    crash_after: Duration,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let members = [4, 7][random.index(2)];
        let mut roles: BTreeMap<_, _> = (1..=members).map(|id| (node(id), Role::Correct)).collect();
        for _ in 0..(members - 1) / 3 {
            let role = [Role::Crashes, Role::Lies, Role::Lies, Role::Correct][random.index(4)];
            roles.insert(node(random.within(1..members + 1)), role);
        }
        let millis = |random: &mut Random, most| Duration::from_millis(random.within(0..most));
        Self {
            seed,
            roles,
            leaders_lie: random.chance(25),
            is_bearing: random.chance(50),
            is_signed: random.chance(25),
            halves: random.draw(),
            jitter: millis(&mut random, 10),
            crash_after: millis(&mut random, 40),
        }
    }

    fn of(&self, role: Role) -> Vec<NodeId> {
        let of_role = self.roles.iter().filter(|(_, of)| **of == role);
        of_role.map(|(node, _)| *node).collect()
    }

    fn phases(&self, members: &Configuration) -> EchoPlan {
        let plan = match self.is_bearing {
            true => bracha(members).bearing((members.len() - 1) / 3),
            false => bracha(members),
        };
        if self.leaders_lie { plan.asked_by(self.of(Role::Lies)) } else { plan }
    }
}

async fn decide(
    plan: Plan,
    log: SharedLog,
    members: Configuration,
    context: Context,
    text: String,
) -> Result<String, Status> {
    let mut round = EchoRound::join(&context, &members, plan.phases(&members))?;
    let (me, digest) = (context.node(), digest_of(text.as_bytes()));
    if plan.is_signed {
        let initiator = Some(context.initiator());
        round = round.verify(move |cast: &TaggedCast| match cast.initiator == initiator {
            true => is_signed(cast),
            false => Err("initiator"),
        });
        round.hold();
    }
    round.cast(0, digest, sign(me, digest))?;
    for _ in 0..if plan.is_signed { 2 } else { 0 } {
        let vote = round.held().await?;
        round.release(vote, sign(me, vote.digest))?;
    }
    let reached = round.quorum(1).await;
    let about = format!("{} {:?}", context.initiator(), context.task().call);
    log.note_round(context.node(), &round);
    match reached {
        Ok(reached) => {
            log.note_decision(&about, context.node(), reached.digest);
            Ok(text)
        }
        Err(error) => {
            log.lock().failures.push((about, context.node(), error.to_string()));
            Err(error.into())
        }
    }
}

/// Acts of a liar that is asked: any of these, at times that its seed decides.
async fn mislead(
    plan: Plan,
    mut random: Random,
    members: Configuration,
    task: Task<String>,
) -> Result<Finish, Status> {
    let (me, context) = (task.context().node(), task.context());
    // Two that ask each other would do so for ever.
    if context.parent() != context.initiator() {
        return Ok(task.finish());
    }
    if random.chance(20) {
        flood(&mut random, &members, task.context());
    }
    let is_first = random.chance(50);
    if is_first {
        for other in others(&members, me) {
            task.delegate(other, WRITE.request("a lie".into())).await?;
        }
    }
    // Another liar may have asked it, too.
    if let Ok(port) = task.context().casts_for_parent() {
        if random.chance(50) {
            let wanted = [digest_of(b"a lie"), lie(0)];
            let twins = twins(port, members.clone(), bracha(&members), wanted, plan.halves);
            let _ = timeout(Duration::from_millis(200), twins).await;
        } else {
            // Some hear nothing of it.
            let told: Vec<NodeId> =
                others(&members, me).into_iter().filter(|_| random.chance(70)).collect();
            for _ in 0..40 {
                let body = nonsense(&mut random, &members, me);
                port.send(random.pick(&told).copied(), body);
                pause(&mut random).await;
            }
        }
    }
    match is_first {
        true => Ok(task.finish()),
        false => {
            let lies = others(&members, me).into_iter();
            task.fan_out(lies.map(|other| (other, WRITE.request("a lie".into())))).await
        }
    }
}

/// Casts large values, or many small ones, about names that nobody else knows.
fn flood(random: &mut Random, members: &Configuration, context: &Context) {
    let announce = Announce { senders_min: usize::MAX, source: None };
    let Ok(casts) = context.endpoint().cast_space(7, 1, announce, None) else { return };
    let (count, size) = [(16, 8 << 10), (150, 0)][random.index(2)];
    for sequence in 0..count {
        let to = others(members, context.node());
        let payload = vec![7; size + random.index(1 + size)].into();
        let body = CastBody { payload, ..nonsense(random, members, context.node()) };
        casts.send((0, sequence), Duration::from_secs(5), to, body);
    }
}

fn service(plan: Plan, log: SharedLog) -> impl Fn(NodeId, Configuration) -> Service {
    move |me, members| {
        let (plan, log) = (plan.clone(), log.clone());
        if plan.roles[&me] == Role::Lies {
            return Service::new().tree(WRITE, move |text: String, task: Task<String>| {
                let random = Random::of(plan.seed ^ me.get(), text.len() as u64);
                mislead(plan.clone(), random, members.clone(), task)
            });
        }
        Service::new().unary(WRITE, move |text: String, context: Context| {
            decide(plan.clone(), log.clone(), members.clone(), context, text)
        })
    }
}

/// Tells members different things in one call, some nothing and some two things.
async fn write_lies(random: &mut Random, client: &Endpoint, members: &Configuration) {
    let mut branches: Vec<(Peer, _)> = Vec::new();
    for peer in members.members() {
        for _ in 0..random.within(0..3) {
            let text = ["heron", "crane"][random.index(2)];
            let request = WRITE.request(text.into()).deadline(Duration::from_millis(500));
            branches.push((*peer, request));
        }
    }
    if branches.is_empty() {
        return;
    }
    let mut call = client.fan_out(branches).open().expect("a call");
    let patience = Duration::from_millis(random.within(1..300));
    let answers = async { while call.next().await.is_some() {} };
    // It may lose interest, and so cancel what runs.
    let _ = timeout(patience, answers).await;
}

/// Casts about what it has no part in.
fn cast_as_stranger(client: &Endpoint, members: &Configuration) {
    let announce = Announce { senders_min: usize::MAX, source: None };
    let casts = client.cast_space(9, 1, announce, None).expect("once");
    for sequence in 0..STRANGE {
        let body = CastBody {
            phase: 0,
            sender: 0,
            epoch: 0,
            digest: lie(0),
            payload: vec![7; 1_000].into(),
        };
        casts.send((0, sequence), Duration::from_secs(5), members.nodes(), body);
    }
}

async fn run(seed: u64) -> (Plan, Log, u64) {
    let plan = Plan::draw(seed);
    let log = SharedLog::default();
    let count = plan.roles.len() as u64;
    let service = service(plan.clone(), log.clone());
    let mut cluster = Cluster::start_within(seed, count, tight(), service).await;
    let liar = cluster.caller(LIAR).await;
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
    let lies = async {
        cast_as_stranger(&liar, &cluster.members);
        let mut random = Random::of(seed, LIAR);
        for _ in 0..WRITES {
            write_lies(&mut random, &liar, &cluster.members).await;
        }
    };
    tokio::join!(crash, writes, lies);
    for node in plan.of(Role::Crashes) {
        cluster.crash(node.get());
    }
    // Past the deadlines of what a crash has left unfinished.
    sleep(Duration::from_secs(30)).await;
    for server in cluster.servers.iter().flatten() {
        let strangers = server.casts_dropped().strangers;
        if strangers != STRANGE {
            log.lock().broken.push(format!("strangers: {strangers} casts dropped"));
        }
    }
    let kept = cluster.servers.iter().flatten().map(|server| server.load().mailboxes as u64).sum();
    let log = log.lock().clone();
    (plan, log, kept)
}

fn check(plan: &Plan, log: &Log, kept: u64) {
    let (liars, correct) = (plan.of(Role::Lies), plan.of(Role::Correct));
    log.check_safety(true, |node| liars.contains(&node), &format!("{plan:?}"));
    assert_eq!(kept, 0, "kept: mailboxes are left: {plan:?}");
    let of_client = format!("{} ", node(CLIENT));
    if plan.leaders_lie {
        // Whoever may begin a round may begin it with a lie.
        return;
    }
    let failed = |(about, node, _): &&(String, NodeId, String)| {
        about.starts_with(&of_client) && correct.contains(node)
    };
    assert_eq!(log.failures.iter().find(failed), None, "liveness: {plan:?}: {log:?}");
    let mut decided = log.by_subject();
    decided.retain(|about, _| about.starts_with(&of_client));
    assert_eq!(decided.len() as u64, WRITES, "liveness: {plan:?}: {log:?}");
    let written = (0..WRITES).map(|number| digest_of(format!("write {number}").as_bytes()));
    for (decisions, written) in decided.values().zip(written) {
        let as_written = decisions.iter().all(|(_, digest)| *digest == written);
        assert!(as_written, "integrity: {plan:?}: {log:?}");
        let all = correct.iter().all(|node| decisions.iter().any(|(of, _)| of == node));
        assert!(all, "liveness: {plan:?}: {log:?}");
    }
}

#[tokio::test(start_paused = true)]
pub(crate) async fn correct_members_agree_on_calls_whatever_the_others_do() {
    let (mut evidence, mut refused, mut forged) = (0, 0, 0);
    let (mut crashes, mut liars, mut lies) = (0, 0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let (plan, log, kept) = run(seed).await;
        check(&plan, &log, kept);
        evidence += log.evidence.len();
        (refused, forged) = (refused + log.refused, forged + log.forged);
        crashes += plan.of(Role::Crashes).len();
        liars += plan.of(Role::Lies).len();
        lies += log.by_subject().keys().filter(|about| !about.starts_with("n1000 ")).count();
    }
    // The runs are worth something.
    assert!(evidence > 50 && refused > 100 && forged > 20, "{evidence} {refused} {forged}");
    assert!(crashes > 10 && liars > 20 && lies > 20, "{crashes} {liars} {lies}");
}

#[tokio::test(start_paused = true)]
async fn a_seed_of_calls_replays() {
    let mut logs = Vec::new();
    // The threads of a verifier run in real time.
    for seed in (0..).filter(|seed| !Plan::draw(*seed).is_signed).take(5) {
        let (_, first, _) = run(seed).await;
        let (_, again, _) = run(seed).await;
        assert_eq!(first, again, "seed {seed}");
        logs.push(first);
    }
    logs.dedup();
    assert_eq!(logs.len(), 5, "seeds differ");
}
