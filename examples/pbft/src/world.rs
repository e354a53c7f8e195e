//! A world of replicas and clients without I/O: a seed decides who lies and how, what is late,
//! lost, doubled and cut, and who crashes; after every step the safety of the order is checked.
//!
//! ```
//! let report = pbft::world::run(7)?;
//! assert!(report.accepted > 0);
//! # Ok::<(), pbft::world::Violation>(())
//! ```
//!
//! Disks are simulated by their contract alone: what was appended is durable after a while, and a
//! crash leaves what is durable and a seeded part of the rest. A run has two phases: faults as the
//! seed draws them, then a time in which all heals but the liars and those that stay away, at most
//! f together, and in which every request has to be executed and views have to stop changing.

mod changes;
mod clients;
mod faults;
mod host;
mod liar;
mod machine;
mod menu;
mod outages;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use convoke::NodeId;
use convoke_sim::random::{DIGEST_START, Random, digest};
use node_kit::world::Schedule;

use self::clients::Client;
use self::host::Host;
use self::liar::Liar;
pub use self::menu::{Habits, Menu};
pub use self::outages::{Replaced, lose_backup, silence_primary};
use self::truth::Truth;
pub use self::truth::Violation;
use crate::core::{
    Checker, ClientId, Effect, Forgotten, Group, Handover, Keys, Message, Refused, Replica, Scope,
    Settings, Signed, SignedReply, SignedRequest, Signer, Trust, Unproven, View,
};

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that clients made.
    pub asked: u64,
    /// Of these, those of which the outcome was accepted.
    pub accepted: u64,
    /// Batches that replicas executed that do not lie.
    pub executed: u64,
    /// The last view, of the last epoch.
    pub view: u64,
    /// The last epoch: one more than changes of the members that came into force.
    pub epoch: u64,
    /// Crashes.
    pub crashes: u64,
    /// Words of liars that contradict each other, as correct replicas saw them.
    pub lies: u64,
    /// Views that a liar has begun with other proposals for some than for others.
    pub parted: u64,
    /// Words that were refused, by cause.
    pub refused: BTreeMap<Refused, u64>,
    /// Messages.
    pub messages: u64,
    /// Folds all that happened: the same seed gives the same number.
    pub trace: u64,
}

/// Runs a seed with the menu that it draws.
///
/// # Errors
/// [`Violation`].
pub fn run(seed: u64) -> Result<Report, Violation> {
    run_menu(seed, Menu::draw(seed), false)
}

/// Runs a seed in which connections prove names, with the menu that it draws.
///
/// # Errors
/// [`Violation`].
pub fn run_channels(seed: u64) -> Result<Report, Violation> {
    run_menu(seed, Menu::draw_channels(seed), false)
}

/// Runs a seed in which members change, with the menu that it draws.
///
/// # Errors
/// [`Violation`].
pub fn run_members(seed: u64) -> Result<Report, Violation> {
    run_menu(seed, Menu::draw_members(seed), false)
}

/// Runs a seed with this menu; `is_traced` prints every event.
///
/// # Errors
/// [`Violation`].
pub fn run_menu(seed: u64, menu: Menu, is_traced: bool) -> Result<Report, Violation> {
    let mut world = World::new(seed, menu, is_traced);
    world.run_faults()?;
    world.run_healed()?;
    (world.report.epoch, View(world.report.view)) = world.view();
    world.report.parted = world.truth.parted();
    Ok(world.report)
}

/// The node whose connection proves a client.
fn connection_of(client: ClientId) -> NodeId {
    NodeId::new(1_000 + client.0)
}

/// One process: a member, and which of its twins.
type HostId = (NodeId, u8);

/// Something that is to happen.
#[derive(Debug)]
enum Event {
    Message { from: NodeId, to: HostId, message: Signed<Message> },
    HandOver { to: HostId, handover: Handover },
    Request { from: NodeId, to: HostId, request: SignedRequest },
    Reply { from: NodeId, reply: SignedReply },
    Timeout { host: HostId },
    Synced { host: HostId, run: u64, position: usize },
    Restart { host: HostId },
    Client { client: ClientId },
    Fault,
}

/// Replicas, what is under way between them, and what is true.
#[derive(Debug)]
struct World {
    schedule: Schedule<Event>,
    random: Random,
    menu: Menu,
    scope: Scope,
    /// Those of the latest epoch, which clients know of.
    keys: Keys,
    signers: BTreeMap<NodeId, Signer>,
    hosts: BTreeMap<HostId, Host>,
    clients: BTreeMap<ClientId, Client>,
    liars: BTreeMap<NodeId, Liar>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Members that do not come back.
    away: BTreeSet<NodeId>,
    truth: Truth,
    report: Report,
    is_healed: bool,
    /// Clients make no new requests.
    is_closing: bool,
    is_traced: bool,
}

impl World {
    /// As many members and clients as the menu says, all up, and nothing ordered.
    fn new(seed: u64, menu: Menu, is_traced: bool) -> Self {
        let scope = Scope { cluster: seed, epoch: 1 };
        let mut secrets = Random::of(seed, 3);
        let mut signer = || secret(&mut secrets, menu.is_signed);
        let is_by_channels = menu.trust == Trust::Channels;
        let members: Vec<NodeId> = (1..=menu.nodes).map(NodeId::new).collect();
        let mut signers: BTreeMap<_, _> = members.iter().map(|node| (*node, signer())).collect();
        let of_clients: Vec<_> =
            (1..=menu.clients).map(|client| (ClientId(client), signer())).collect();
        let administrator = (menu.spares > 0).then(|| menu.administrator());
        let its = administrator.map(|client| (client, signer()));
        let of_clients: BTreeMap<_, _> = of_clients.into_iter().chain(its).collect();
        let checkers = signers.iter().map(|(node, signer)| (*node, signer.checker())).collect();
        let spares = (1..=menu.spares).map(|spare| NodeId::new(menu.nodes + spare));
        signers.extend(spares.map(|spare| (spare, signer())));
        let checker = |client: &ClientId, signer: &Signer| match menu.trust {
            Trust::Signatures => signer.checker(),
            Trust::Channels => Checker::Connection(connection_of(*client)),
        };
        let group = Group::new(members.clone()).expect("there are members");
        let keys = Keys::new(
            scope,
            group.clone(),
            checkers,
            of_clients.iter().map(|(client, signer)| (*client, checker(client, signer))).collect(),
        )
        .trusting(menu.trust);
        let liars = members.iter().take(usize::try_from(menu.liars).unwrap_or(0));
        let liars: BTreeMap<_, _> = liars
            .map(|node| (*node, Liar::new(*node, signers[node].clone(), keys.clone())))
            .collect();
        let client = |(client, signer)| {
            let signer = if is_by_channels { Signer::Unsigned } else { signer };
            (client, Client::new(client, signer, client.0 <= menu.partial))
        };
        let mut world = Self {
            schedule: Schedule::default(),
            random: Random::of(seed, 2),
            scope,
            keys,
            signers,
            hosts: BTreeMap::new(),
            clients: of_clients.into_iter().map(client).collect(),
            liars,
            cuts: BTreeSet::new(),
            away: BTreeSet::new(),
            truth: Truth::new(2 * menu.checkpoint_every, administrator),
            report: Report { trace: DIGEST_START, ..Report::default() },
            is_healed: false,
            is_closing: false,
            is_traced,
            menu,
        };
        for node in world.signers.keys().copied().collect::<Vec<_>>() {
            world.add_hosts(node, &group);
        }
        for client in world.clients.keys().copied().collect::<Vec<_>>() {
            world.schedule.after(Duration::ZERO, Event::Client { client });
        }
        world
    }

    fn add_hosts(&mut self, node: NodeId, group: &Group) {
        let is_twins = self.liars.contains_key(&node) && self.menu.habits.is_twins;
        for twin in 0..=u8::from(is_twins) {
            let clients = self.clients.keys().copied();
            let mut settings = Settings::new(node, group.clone(), clients);
            settings.members = self.keys.members();
            settings.administrator = (self.menu.spares > 0).then(|| self.menu.administrator());
            settings.checkpoint_every = self.menu.checkpoint_every;
            settings.window = 2 * self.menu.checkpoint_every;
            settings.in_flight = self.menu.in_flight;
            settings.batch_max = self.menu.batch_max;
            settings.each_client_max = clients::WINDOW;
            settings.trust = self.menu.trust;
            settings.is_outlined = self.menu.is_outlined;
            settings.timeout = self.timeout();
            settings.repeat = self.timeout() / 3;
            settings.part_bytes = 200;
            self.hosts.insert((node, twin), Host::new(settings, self.keys.clone()));
            self.schedule.after(Duration::ZERO, Event::Restart { host: (node, twin) });
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.menu.timeout_ms)
    }

    /// Does what is due next. True when there may be more before `end`.
    fn step(&mut self, end: Duration) -> Result<bool, Violation> {
        let Some(event) = self.schedule.next(end) else { return Ok(false) };
        self.trace(&event);
        self.handle(event)?;
        Ok(true)
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        let now = self.schedule.now();
        match event {
            Event::Message { from, to, message } => self.hear(from, to, message),
            Event::HandOver { to, handover } => {
                match self.hosts.get(&to).map(|host| host.keys().open_handover(handover)) {
                    Some(Ok(it)) => {
                        self.remembers(to, |replica| replica.forgotten_in(it.get()))?;
                        self.input(to, |replica| replica.handle_handover(now, it))
                    }
                    Some(Err(refused)) => self.refuse(refused),
                    None => Ok(()),
                }
            }
            Event::Request { from, to, request } => {
                match self.keys.examine_request(from, request).and_then(Unproven::open) {
                    Ok(request) => self.input(to, |replica| replica.handle_request(now, request)),
                    Err(refused) => self.refuse(refused),
                }
            }
            Event::Reply { from, reply } => self.take_reply(from, reply),
            Event::Timeout { host } => {
                if self.hosts.get_mut(&host).is_some_and(|host| host.take_due(now)) {
                    return self.input(host, |replica| replica.handle_timeout(now));
                }
                Ok(())
            }
            Event::Synced { host, run, position } => {
                if let Some(of) = self.hosts.get_mut(&host).filter(|of| of.run() == run) {
                    of.synced(position);
                }
                self.drain(host)
            }
            Event::Restart { host } => {
                if !self.away.contains(&host.0)
                    && let Some(of) = self.hosts.get_mut(&host)
                {
                    of.restart(now);
                }
                self.drain(host)
            }
            Event::Client { client } => {
                self.step_client(client);
                Ok(())
            }
            Event::Fault => {
                self.fault();
                Ok(())
            }
        }
    }

    fn hear(
        &mut self,
        from: NodeId,
        to: HostId,
        message: Signed<Message>,
    ) -> Result<(), Violation> {
        let (now, epoch) = (self.schedule.now(), message.epoch);
        let Some(host) = self.hosts.get(&to) else { return Ok(()) };
        let opened = host.keys().open(from, message);
        self.input(to, |replica| replica.handle_other_epoch(now, from, epoch))?;
        match opened {
            Ok(message) => {
                self.remembers(to, |replica| replica.forgotten(message.get()))?;
                self.input(to, |replica| replica.handle_message(now, message))
            }
            Err(refused) => self.refuse(refused),
        }
    }

    /// Checks that a replica knows whatever it has signed: its ledger keeps what was synced.
    fn remembers(
        &self,
        (node, twin): HostId,
        look: impl FnOnce(&Replica<machine::Tape>) -> Option<Forgotten>,
    ) -> Result<(), Violation> {
        let host = self.hosts.get(&(node, twin)).filter(|_| !self.is_liar(node));
        let forgotten = host.and_then(Host::replica).and_then(look);
        forgotten.map_or(Ok(()), |forgotten| Err(Violation::Forgets { node, forgotten }))
    }

    fn refuse(&mut self, refused: Refused) -> Result<(), Violation> {
        *self.report.refused.entry(refused).or_default() += 1;
        Ok(())
    }

    /// Does something with a replica that is up, and then what it wants done.
    fn input(
        &mut self,
        host: HostId,
        input: impl FnOnce(&mut Replica<machine::Tape>),
    ) -> Result<(), Violation> {
        let replica = self.hosts.get_mut(&host).and_then(Host::replica_mut);
        replica.map(input);
        self.drain(host)
    }

    /// Does what a replica wants done.
    fn drain(&mut self, id: HostId) -> Result<(), Violation> {
        while let Some(effect) = self.hosts.get_mut(&id).and_then(Host::poll_effect) {
            self.perform(id, effect)?;
        }
        self.release(id)?;
        let now = self.schedule.now();
        let Some(host) = self.hosts.get_mut(&id) else { return Ok(()) };
        host.compact();
        if let Some(at) = host.arm() {
            self.schedule.at(at.max(now), Event::Timeout { host: id });
        }
        if let Some((run, position)) = self.hosts.get_mut(&id).and_then(Host::begin_sync) {
            let pause = self.random.micros(self.menu.sync_us.clone());
            self.schedule.after(pause, Event::Synced { host: id, run, position });
        }
        Ok(())
    }

    fn perform(&mut self, id: HostId, effect: Effect) -> Result<(), Violation> {
        let node = id.0;
        let is_honest = !self.liars.contains_key(&node);
        let Some(host) = self.hosts.get_mut(&id) else { return Ok(()) };
        match effect {
            Effect::Append(record) => {
                if let Some(replica) = host.replica().filter(|_| is_honest) {
                    self.truth.appended(node, &record, replica.plan(), replica.epoch())?;
                }
                host.append(record);
            }
            Effect::Say { to, message, epoch } => host.hold((to, epoch), message),
            Effect::HandOver { to, handover } => self.hand_over(node, to, handover),
            Effect::Epoch(handover) => self.begin_epoch(id, handover)?,
            Effect::Relay { to, message } => self.send(id, to, message),
            Effect::Forward { to, request } => self.send_request(node, to, request),
            Effect::Reply(reply) => self.send_reply(node, reply),
            Effect::Executed { sequence, digest, outcomes } if is_honest => {
                self.report.executed += 1;
                self.truth.executed(node, sequence, digest, &outcomes)?;
            }
            Effect::Executed { .. } => {}
            Effect::Lied { .. } => self.report.lies += u64::from(is_honest),
        }
        Ok(())
    }

    /// Signs and sends what waits for nothing any more.
    fn release(&mut self, id: HostId) -> Result<(), Violation> {
        let node = id.0;
        let said = self.hosts.get_mut(&id).map(Host::release).unwrap_or_default();
        for ((to, epoch), message) in said {
            let keys = self.hosts[&id].keys();
            if epoch != keys.scope().epoch {
                continue;
            }
            let keys = keys.clone();
            if let Some(replica) = self.hosts[&id].replica().filter(|_| !self.is_liar(node)) {
                self.truth.said(node, &message, replica.stable().checkpoint.sequence)?;
            }
            let signed = keys.sign(&self.signers[&node], node, message).into_inner();
            for other in to {
                self.send(id, other, signed.clone());
            }
            if self.random.per_mille(self.menu.crash_per_mille) {
                self.crash(node);
                return Ok(());
            }
        }
        Ok(())
    }

    fn is_liar(&self, node: NodeId) -> bool {
        self.liars.contains_key(&node)
    }

    /// The latest epoch and view of a replica that does not lie.
    fn view(&self) -> (u64, View) {
        let honest = self.hosts.iter().filter(|((node, _), _)| !self.is_liar(*node));
        let replicas = honest.filter_map(|(_, host)| host.replica());
        let views = replicas.map(|replica| (replica.epoch(), replica.view().0));
        views.max().unwrap_or_default()
    }

    fn trace(&mut self, event: &Event) {
        let (kind, about) = match event {
            Event::Message { to, message, .. } => (to.0.get(), message.signature.0.to_vec()),
            Event::Request { to, request, .. } => (to.0.get(), request.signature.0.to_vec()),
            Event::Reply { reply, .. } => (0, reply.signature.0.to_vec()),
            other => (0, format!("{other:?}").into_bytes()),
        };
        let now = u64::try_from(self.schedule.now().as_nanos()).unwrap_or(u64::MAX);
        let trace = digest(self.report.trace, &now.to_le_bytes());
        self.report.trace = digest(digest(trace, &kind.to_le_bytes()), &about);
        if self.is_traced {
            // Who reads may have seen enough.
            let _ = console::say(format_args!("{:?} {event:?}", self.schedule.now()));
        }
    }
}

fn secret(random: &mut Random, is_signed: bool) -> Signer {
    let mut seed = [0; 32];
    seed.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.draw().to_le_bytes()));
    if is_signed { Signer::ed25519(seed) } else { Signer::stand_in(seed) }
}
