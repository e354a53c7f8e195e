//! Rounds about tags, which outlive a life of a member.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke_core::{Announce, CastBody, Digest, Endpoint, NodeId, Service};
use convoke_quorum::Configuration;
use convoke_quorum::echo::{
    EchoError, EchoPlan, EchoRound, EchoSpace, EchoVote, Reached, digest_of,
};
use convoke_sim::random::Random;
use convoke_sim::transport::Conditions;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::liars::{lie, nonsense, others, pause, twins, vote};
use super::{Log, SharedLog, bracha, is_signed, sign, tight};
use crate::support::{Cluster, node};

const TAGS: u64 = 6;
const VIEW: u64 = 1;

/// Tags that one member may begin.
const WINDOW: usize = 8;

/// Casts of who is no member.
const STRANGE: u64 = 20;

/// Role of a member in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Correct,
    /// Joins what others speak of.
    Follows,
    /// Leaves each round when it is over, and then tries to vote on something else.
    Leaves,
    /// Comes back with what it has said.
    Restarts,
    /// Comes back without.
    Forgets,
    Crashes,
    Lies,
}

/// Plan of a run: all from its seed.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    roles: BTreeMap<NodeId, Role>,
    /// The plan says how many may lie.
    is_bearing: bool,
    /// There are more liars than can be borne.
    is_hopeless: bool,
    /// Votes are stored before they are said.
    is_holding: bool,
    /// Votes are looked at before they count.
    is_signed: bool,
    /// The twin that each member sees.
    halves: u64,
    jitter: Duration,
}

/// Time after which all who come back are back: what was said is said again.
const HEALED: Duration = Duration::from_millis(400);

/// Time after which those who leave do so.
const LEAVES: Duration = Duration::from_secs(1);

/// Time after which all rounds are over.
const OVER: Duration = Duration::from_secs(3);

/// Votes that a member has stored, by sequence.
type Disk = Arc<Mutex<BTreeMap<u64, Vec<EchoVote>>>>;

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_hopeless = random.chance(15);
        let members = if is_hopeless { 7 } else { [4, 7][random.index(2)] };
        let faulty = (members - 1) / 3;
        let mut ids: Vec<u64> = (1..=members).collect();
        // Fisher and Yates.
        (1..ids.len()).rev().for_each(|at| ids.swap(at, random.index(at + 1)));
        let bad = if is_hopeless { faulty + 1 } else { faulty };
        let roles = (0..).zip(ids).map(|(at, id)| {
            let role = match at {
                _ if is_hopeless && at < bad => Role::Lies,
                _ if at < bad => {
                    [Role::Lies, Role::Lies, Role::Crashes, Role::Forgets][random.index(4)]
                }
                _ if at < bad + faulty => {
                    let roles = [Role::Follows, Role::Restarts, Role::Restarts, Role::Leaves];
                    roles[random.index(4)]
                }
                _ => Role::Correct,
            };
            (node(id), role)
        });
        Self {
            seed,
            roles: roles.collect(),
            is_bearing: random.chance(50),
            is_hopeless,
            is_holding: random.chance(50),
            is_signed: random.chance(25),
            halves: random.draw(),
            jitter: Duration::from_millis(random.within(0..10)),
        }
    }

    fn is(&self, node: NodeId, roles: &[Role]) -> bool {
        roles.contains(&self.roles[&node])
    }

    /// Those of which liveness speaks.
    fn is_correct(&self, node: NodeId) -> bool {
        !self.is(node, &[Role::Crashes, Role::Forgets, Role::Lies])
    }

    fn of(&self, role: Role) -> Vec<NodeId> {
        self.roles.keys().copied().filter(|node| self.is(*node, &[role])).collect()
    }

    fn phases(&self, members: &Configuration) -> EchoPlan {
        match self.is_bearing {
            true => bracha(members).bearing((members.len() - 1) / 3),
            false => bracha(members),
        }
    }

    /// Of some tags members were told different things.
    fn is_split(sequence: u64) -> bool {
        sequence % 3 == 2
    }

    fn value(&self, sequence: u64, node: NodeId) -> Digest {
        let half = Self::is_split(sequence) && self.halves >> (8 + node.get()) & 1 == 1;
        digest_of(format!("{sequence} {half}").as_bytes())
    }
}

/// A correct member, in one of its lives.
#[derive(Clone)]
struct Member {
    plan: Plan,
    members: Configuration,
    space: Arc<EchoSpace>,
    me: NodeId,
    log: SharedLog,
    disk: Disk,
    begun: Instant,
}

impl Member {
    async fn live(self) {
        let mut rounds = JoinSet::new();
        let mut random = Random::of(self.plan.seed, self.me.get());
        if !self.plan.is(self.me, &[Role::Follows]) {
            for sequence in 0..TAGS {
                let pause = Duration::from_millis(random.within(0..40));
                rounds.spawn(self.clone().take_part(sequence, pause));
            }
        }
        let over = sleep_until(self.begun + OVER);
        tokio::pin!(over);
        let is_leaving = self.plan.is(self.me, &[Role::Leaves]);
        let mut has_closed = false;
        loop {
            tokio::select! {
                biased;
                Some(told) = self.space.next() => {
                    if told.0 != VIEW || told.1 >= TAGS {
                        if self.plan.is_hopeless {
                            continue;
                        }
                        let text = format!("announced: {told:?}, of which liars alone speak");
                        self.log.lock().broken.push(text);
                    } else if self.plan.is(self.me, &[Role::Follows]) {
                        rounds.spawn(self.clone().take_part(told.1, Duration::ZERO));
                    }
                }
                Some(ended) = rounds.join_next() => {
                    ended.expect("it does not panic");
                    if is_leaving && !has_closed && rounds.is_empty() {
                        has_closed = true;
                        self.space.close_below(VIEW, TAGS);
                        (0..TAGS).for_each(|sequence| self.vote_again(sequence));
                    }
                }
                () = &mut over => break,
            }
        }
        while rounds.join_next().await.is_some() {}
    }

    async fn take_part(self, sequence: u64, pause: Duration) {
        sleep(pause).await;
        let Some(mut round) = self.join(sequence) else { return };
        self.vote(sequence, &mut round).await;
        if Instant::now() < self.begun + HEALED {
            sleep_until(self.begun + HEALED).await;
            self.repeat(&round);
        }
        let ends = match self.plan.is(self.me, &[Role::Leaves]) {
            true => LEAVES,
            false => OVER,
        };
        tokio::select! {
            biased;
            () = sleep_until(self.begun + ends) => {}
            _ = round.until(|_| None::<()>) => {}
        }
        self.log.note_round(self.me, &round);
        drop(round);
        self.vote_again(sequence);
    }

    /// Votes on their way to members that were away are lost; nothing else is.
    fn repeat(&self, round: &EchoRound) {
        if self.plan.of(Role::Restarts).is_empty() {
            return;
        }
        others(&self.members, self.me).into_iter().for_each(|to| round.repeat_to(to));
    }

    fn join(&self, sequence: u64) -> Option<EchoRound> {
        let phases = self.plan.phases(&self.members);
        let said = self.disk.lock().expect("nobody panics with it").get(&sequence).cloned();
        let joined = match said {
            Some(said) => {
                let said = said.into_iter().map(|vote| (vote, sign(self.me, vote.digest)));
                self.space.restore(VIEW, sequence, phases, said)
            }
            None => self.space.join(VIEW, sequence, phases),
        };
        // Who has forgotten what it said begins above.
        joined.ok()
    }

    /// Until the round has decided, or is over.
    async fn vote(&self, sequence: u64, round: &mut EchoRound) {
        let is_holding =
            self.plan.is_holding || self.plan.is_signed || self.plan.is(self.me, &[Role::Restarts]);
        if is_holding {
            round.hold();
        }
        if round.core().cast_in(0).is_none() {
            let value = self.plan.value(sequence, self.me);
            // A ready that came back from the disk does not speak against it.
            round.cast(0, value, sign(self.me, value)).expect("it is the first");
        }
        let mut left = match is_holding {
            true => 2 - self.said(sequence),
            false => 0,
        };
        let mut is_healed = false;
        let (healed, over) = (sleep_until(self.begun + HEALED), sleep_until(self.begun + OVER));
        tokio::pin!(healed, over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                () = &mut healed, if !is_healed => {
                    is_healed = true;
                    self.repeat(round);
                }
                news = News::of(round, left > 0) => match news {
                    News::Held(vote) => {
                        left -= 1;
                        let mut disk = self.disk.lock().expect("nobody panics with it");
                        disk.entry(sequence).or_default().push(vote);
                        drop(disk);
                        round.release(vote, sign(self.me, vote.digest)).expect("it is small");
                    }
                    // More than can be borne are away, for now: it is awaited again.
                    News::End(Err(EchoError::QuorumNotReached(short)))
                        if !is_healed && !short.missing.is_empty() =>
                    {
                        let is_split = Plan::is_split(sequence);
                        self.log.note_told(is_split || !self.plan.of(Role::Lies).is_empty());
                        sleep_until(self.begun + HEALED).await;
                    }
                    News::End(end) => {
                        return self.note_end(sequence, end);
                    }
                },
            }
        }
    }

    fn note_end(&self, sequence: u64, end: Result<Reached, EchoError>) {
        let about = format!("tag {sequence}");
        match end {
            Ok(reached) => {
                let known = self.log.lock().decisions.get(&(about.clone(), self.me)).copied();
                // In another life it decides the same once more.
                if known != Some(reached.digest) || !self.plan.is(self.me, &[Role::Restarts]) {
                    self.log.note_decision(&about, self.me, reached.digest);
                }
            }
            Err(error) => self.log.lock().failures.push((about, self.me, error.to_string())),
        }
    }

    fn said(&self, sequence: u64) -> usize {
        let disk = self.disk.lock().expect("nobody panics with it");
        disk.get(&sequence).map_or(0, Vec::len)
    }

    /// Votes for something else on what it has voted on, as nobody may.
    fn vote_again(&self, sequence: u64) {
        let phases = self.plan.phases(&self.members);
        if let Ok(mut round) = self.space.join(VIEW, sequence, phases) {
            round.cast(0, digest_of(b"something else"), "").expect("it is the first");
        }
    }
}

/// News of a round.
enum News {
    Held(EchoVote),
    End(Result<Reached, EchoError>),
}

impl News {
    async fn of(round: &mut EchoRound, is_holding: bool) -> Self {
        match is_holding {
            true => round.held().await.map_or_else(|stopped| Self::End(Err(stopped)), Self::Held),
            false => Self::End(round.quorum(1).await),
        }
    }
}

fn name(members: &Configuration) -> u64 {
    EchoSpace::builder("log", members).id()
}

/// All that a liar says.
async fn mislead(plan: Plan, members: Configuration, endpoint: Endpoint) {
    let (me, mut random) = (endpoint.node(), Random::of(plan.seed, endpoint.node().get()));
    let announce = Announce { senders_min: usize::MAX, source: None };
    let casts = endpoint.cast_space(name(&members), 1, announce, None).expect("once");
    let told: Vec<NodeId> =
        others(&members, me).into_iter().filter(|_| random.chance(80)).collect();
    // It speaks first, of what is not there for long.
    for sequence in (0..TAGS).filter(|_| !plan.is_hopeless) {
        let lifetime = Duration::from_millis(random.within(1..20));
        casts.send((VIEW, sequence), lifetime, told.clone(), nonsense(&mut random, &members, me));
    }
    // So many of them have each half believe that the rest is ready.
    for sequence in (0..TAGS).filter(|_| plan.is_hopeless) {
        for to in others(&members, me) {
            let at = members.index_of(to).expect("a member");
            let digest = lie(usize::from(plan.halves >> at & 1 == 1));
            let payload = sign(me, digest);
            let body = CastBody { phase: 1, digest, payload, ..vote(&members, me) };
            casts.send((VIEW, sequence), Duration::from_secs(10), [to], body);
        }
    }
    let mut twins_of = JoinSet::new();
    if random.chance(60) {
        for sequence in 0..TAGS {
            let port = casts.open(VIEW, sequence, Duration::from_secs(10)).expect("it is new");
            let wanted = [plan.value(sequence, me), lie(0)];
            twins_of.spawn(twins(port, members.clone(), bracha(&members), wanted, plan.halves));
        }
    }
    for number in 0..60 {
        let body = nonsense(&mut random, &members, me);
        match random.index(3) {
            0 => {
                let body =
                    CastBody { payload: vec![7; [0, 12 << 10][random.index(2)]].into(), ..body };
                let tag = (VIEW + random.within(0..2), TAGS + number);
                casts.send(tag, Duration::from_secs(5), told.clone(), body);
            }
            _ if plan.is_hopeless => {}
            _ => {
                let tag = (VIEW, random.within(0..TAGS));
                let lifetime = Duration::from_millis(random.within(1..2_000));
                casts.send(tag, lifetime, random.pick(&told).copied(), body);
            }
        }
        pause(&mut random).await;
    }
    while twins_of.join_next().await.is_some() {}
}

/// A run under way.
struct Run {
    plan: Plan,
    log: SharedLog,
    cluster: Cluster,
    disks: BTreeMap<NodeId, Disk>,
    begun: Instant,
}

impl Run {
    /// Lets a member live from now on, or lie.
    fn begin(&self, me: NodeId, life: u64) -> JoinSet<()> {
        let (plan, members) = (self.plan.clone(), self.cluster.members.clone());
        let at = usize::from(members.index_of(me).expect("a member"));
        let endpoint = self.cluster.servers[at].clone().expect("it lives");
        let mut living = JoinSet::new();
        if plan.is(me, &[Role::Lies]) {
            living.spawn(mislead(plan, members, endpoint));
            return living;
        }
        let faulty = (members.len() - 1) / 3;
        let has_forgotten = life > 0 && plan.is(me, &[Role::Forgets]);
        let builder = EchoSpace::builder("log", &members).announce_at(faulty + 1).window(WINDOW);
        let builder = if plan.is_signed { builder.verify(is_signed) } else { builder };
        let builder = if has_forgotten { builder.floor(VIEW, TAGS) } else { builder };
        let (log, disk) = (self.log.clone(), self.disks[&me].clone());
        if has_forgotten {
            disk.lock().expect("nobody panics with it").clear();
        }
        let space = Arc::new(builder.open(&endpoint).expect("once"));
        let begun = self.begun;
        living.spawn(Member { plan, members, space, me, log, disk, begun }.live());
        living
    }

    fn look_at_bounds(&self) {
        let liars = self.plan.of(Role::Lies).len();
        let most = usize::try_from(TAGS).expect("small") + liars * WINDOW;
        for server in self.cluster.servers.iter().flatten() {
            let kept = server.load().mailboxes;
            if kept > most && self.plan.is_correct(server.node()) {
                self.log.lock().broken.push(format!("bounds: {kept} mailboxes, not {most}"));
            }
        }
    }
}

fn cast_as_stranger(cluster: &Cluster) {
    let announce = Announce { senders_min: usize::MAX, source: None };
    let casts = cluster.client.cast_space(name(&cluster.members), 1, announce, None);
    let casts = casts.expect("once");
    for number in 0..STRANGE {
        let (digest, payload) = (lie(0), vec![7; 1_000].into());
        let body = CastBody { phase: 0, sender: 0, epoch: 0, digest, payload };
        let tag = (VIEW, number);
        casts.send(tag, Duration::from_secs(5), cluster.members.nodes(), body);
    }
}

async fn run(seed: u64) -> (Plan, Log, u64) {
    let plan = Plan::draw(seed);
    let count = plan.roles.len() as u64;
    let cluster = Cluster::start_within(seed, count, tight(), |_, _| Service::new()).await;
    let (latency, loss, bandwidth) = (Duration::from_millis(2), 0.0, None);
    cluster.network.default_conditions(Conditions {
        latency,
        jitter: plan.jitter,
        loss,
        bandwidth,
    });
    let disks = plan.roles.keys().map(|node| (*node, Disk::default())).collect();
    let (log, begun) = (SharedLog::default(), Instant::now());
    let mut run = Run { plan, log, cluster, disks, begun };
    let nodes: Vec<NodeId> = run.plan.roles.keys().copied().collect();
    let mut living: BTreeMap<NodeId, JoinSet<()>> =
        nodes.iter().map(|node| (*node, run.begin(*node, 0))).collect();
    cast_as_stranger(&run.cluster);

    let mut random = Random::of(seed, 0);
    for step in 0..60_u64 {
        sleep(Duration::from_millis(2)).await;
        run.look_at_bounds();
        let going = nodes.iter().copied().filter(|node| {
            let roles = [Role::Crashes, Role::Forgets, Role::Restarts];
            run.plan.is(*node, &roles) && living.contains_key(node)
        });
        let going: Vec<NodeId> = going.filter(|_| step > 2 && random.chance(20)).collect();
        for node in going {
            living.remove(&node);
            run.cluster.crash(node.get());
        }
    }
    for node in &nodes {
        if run.plan.is(*node, &[Role::Restarts, Role::Forgets]) && !living.contains_key(node) {
            run.cluster.restart(node.get(), tight()).await;
            living.insert(*node, run.begin(*node, 1));
        }
    }
    assert!(run.begun.elapsed() < HEALED);
    for (node, mut life) in living {
        if !run.plan.is(node, &[Role::Lies]) {
            while let Some(ended) = life.join_next().await {
                ended.expect("it does not panic");
            }
        }
    }
    end(run).await
}

async fn end(run: Run) -> (Plan, Log, u64) {
    sleep(Duration::from_secs(30)).await;
    let mut kept = 0;
    for server in run.cluster.servers.iter().flatten() {
        let of = server.node();
        if !run.plan.is(of, &[Role::Lies]) {
            kept += server.load().mailboxes as u64;
        }
        let strangers = server.casts_dropped().strangers;
        let is_first_life = !run.plan.is(of, &[Role::Restarts, Role::Forgets, Role::Lies]);
        if is_first_life && strangers != STRANGE {
            run.log.lock().broken.push(format!("strangers: {strangers} casts dropped at {of}"));
        }
    }
    let log = run.log.lock().clone();
    (run.plan, log, kept)
}

fn check(plan: &Plan, log: &Log, kept: u64) {
    let is_liar = |node| plan.is(node, &[Role::Lies]);
    log.check_safety(!plan.is_hopeless, is_liar, &format!("{plan:?}"));
    assert_eq!(kept, 0, "kept: mailboxes are left: {plan:?}");
    if plan.is_hopeless {
        return;
    }
    let correct: Vec<NodeId> =
        plan.roles.keys().copied().filter(|node| plan.is_correct(*node)).collect();
    let decided = log.by_subject();
    for sequence in 0..TAGS {
        let about = format!("tag {sequence}");
        let decisions = decided.get(&*about).cloned().unwrap_or_default();
        let of = |node: &NodeId| decisions.iter().find(|(of, _)| of == node).map(|(_, of)| *of);
        let all = correct.iter().all(|node| of(node).is_some());
        let any = correct.iter().any(|node| of(node).is_some());
        assert!(all || !any, "totality: {about}: {plan:?}: {log:?}");
        if !Plan::is_split(sequence) {
            assert!(all, "liveness: {about}: {plan:?}: {log:?}");
            let wanted = plan.value(sequence, correct[0]);
            let as_wanted = decisions.iter().all(|(_, digest)| *digest == wanted);
            assert!(as_wanted, "integrity: {about}: {plan:?}: {log:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
pub(crate) async fn correct_members_agree_on_tags_whatever_the_others_do() {
    let mut roles: BTreeMap<String, usize> = BTreeMap::new();
    let (mut evidence, mut refused, mut told, mut forged) = (0, 0, 0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let (plan, log, kept) = run(seed).await;
        check(&plan, &log, kept);
        (evidence, refused) = (evidence + log.evidence.len(), refused + log.refused);
        (told, forged) = (told + log.told, forged + log.forged);
        for role in plan.roles.values() {
            *roles.entry(format!("{role:?}")).or_default() += 1;
        }
    }
    // The runs are worth something.
    assert!(evidence > 50 && refused > 50, "{evidence} {refused}");
    assert!(told > 10 && forged > 20, "{told} {forged}");
    assert!(roles.values().all(|count| *count > 5), "{roles:?}");
}

#[tokio::test(start_paused = true)]
async fn a_seed_of_tags_replays() {
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
