//! Rules that the direct shape rests on, each alone.

mod rules {
    use std::time::Duration;

    use bytes::Bytes;
    use convoke::NodeId;
    use convoke_sim::random::Random;
    use node_kit::durable::{Durable, Position};
    use node_kit::sessions::Limits;
    use paxos::client::votes::chosen;
    use paxos::core::{Answer, Ballot, Effect, Member, Membership, Replica, Settings, Slot, Value};
    use paxos::kv::{Foresight, Machine};
    use paxos::proto::{
        self, Batch, Cas, Command, Entry, Pair, Reply, SessionName, Vote, command, entry, reply,
    };
    use prost::Message as _;

    const NOW: Duration = Duration::from_secs(1);

    fn vote(slot: u64, round: u64, voters: u64) -> Reply {
        let ballot = Some(proto::Ballot { round, node: 1 });
        reply::Result::Vote(Vote { slot, ballot, voters }).into()
    }

    pub(super) fn votes_of_one_slot_and_one_ballot_are_counted() -> Result<(), String> {
        let cases = [
            (vec![vote(5, 1, 3)], false),
            (vec![vote(5, 1, 3), vote(5, 1, 3)], true),
            (vec![vote(5, 1, 3), vote(5, 2, 3)], false),
            (vec![vote(5, 1, 3), vote(6, 1, 3)], false),
            (vec![vote(5, 1, 5), vote(5, 2, 5), vote(5, 1, 5)], false),
            (vec![vote(5, 1, 5), vote(5, 2, 5), vote(5, 1, 5), vote(5, 1, 5)], true),
            (vec![vote(5, 1, 4), vote(5, 1, 4)], false),
            (vec![vote(5, 1, 1)], true),
        ];
        for (votes, is_chosen) in cases {
            if chosen(&votes).is_some() != is_chosen {
                return Err(format!("{votes:?}"));
            }
        }
        Ok(())
    }

    /// Sessions that expire and make room, writers that repeat, three batches under way: each reply
    /// that was certain is that it is done.
    pub(super) fn votes_answer_what_is_certain_to_be_done() -> Result<(), String> {
        let mut certain = 0;
        for seed in 0..40 {
            certain += foresee(&mut Random::of(seed, 1))?;
        }
        if certain > 1_000 { Ok(()) } else { Err(format!("{certain} were certain")) }
    }

    fn foresee(random: &mut Random) -> Result<usize, String> {
        let sessions = 3.try_into().expect("not 0");
        let limits = Limits { sessions, idle: 12, ..Limits::default() };
        let (mut machine, mut foresight) = (Machine::with(limits), Foresight::default());
        let mut open = std::collections::VecDeque::new();
        let mut names = vec![SessionName { opened_at: 1, nonce: 9 }];
        let (mut slot, mut certain) = (0, 0);
        for _ in 0..200 {
            slot += 1;
            let entries: Vec<Entry> =
                (0..random.within(1..4)).map(|_| draw(random, &names)).collect();
            let is_certain =
                foresight.foresee(&machine, Slot(slot), entries.iter().map(|entry| (entry, true)));
            open.push_back((slot, entries, is_certain));
            while open.len() as u64 > random.within(0..4) {
                let Some((slot, entries, is_certain)) = open.pop_front() else { break };
                let batch = Batch { entries };
                let value = Value::Commands(batch.encode_to_vec().into());
                let replies = machine.apply(Slot(slot), &value);
                for ((reply, entry), is_certain) in
                    replies.iter().zip(batch.entries).zip(is_certain)
                {
                    if let Some(reply::Result::Opened(name)) = reply.result {
                        names.push(name);
                    }
                    let is_done = matches!(reply.result, Some(reply::Result::Done(_)));
                    if is_certain && !is_done {
                        return Err(format!("{entry:?} in slot {slot}: {reply:?}"));
                    }
                    certain += usize::from(is_certain);
                }
            }
        }
        Ok(certain)
    }

    fn draw(random: &mut Random, names: &[SessionName]) -> Entry {
        let late = names.len().saturating_sub(4);
        let session = names[late + random.index(names.len() - late)];
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        let action = match random.within(0..12) {
            0 => return Entry { what: Some(entry::What::Open(random.draw())) },
            1 => return Entry { what: Some(entry::What::Close(session)) },
            2 => command::Action::Delete(key),
            3 => command::Action::Cas(Cas { key, expected: None, value }),
            _ => command::Action::Put(Pair { key, value }),
        };
        let number = random.within(1..40);
        Command { session: Some(session), number, action: Some(action) }.into()
    }

    /// A node that leads three, with the formation chosen in slot 1.
    struct Leader {
        replica: Replica,
        ballot: Ballot,
        beat: u64,
    }

    impl Leader {
        fn new() -> Self {
            let settings = Settings::new(NodeId::new(1), (1..=3).map(NodeId::new));
            let mut replica = Replica::new(Settings { window: 4, ..settings }, 1);
            replica.start(Duration::ZERO);
            replica.handle_timeout(Duration::from_secs(2));
            let (ballot, promised, chosen) =
                (Ballot { round: 1, node: 1 }, Ballot::NONE, Slot::default());
            let canvassed = Answer::Canvassed { ballot, supports: true, promised, chosen };
            replica.handle_answer(NOW, NodeId::new(2), canvassed);
            let mut leader = Self { replica, ballot, beat: 1_000 };
            leader.work();
            for life in [2, 3] {
                let promise =
                    Answer::Promise { ballot, life, chosen, accepted: Vec::new(), more: None };
                leader.replica.handle_answer(NOW, NodeId::new(life), promise);
            }
            leader.work();
            leader.hear(2, 1, 1);
            leader
        }

        /// Its ledger makes all durable. Gives what else it wants done.
        fn work(&mut self) -> Vec<Effect> {
            let mut effects = Vec::new();
            while let Some(effect) = self.replica.poll_effect() {
                let Effect::Own(own) = effect else {
                    effects.push(effect);
                    continue;
                };
                let (place, node) = (Position::new(0), NodeId::new(1));
                let own = own.after(place).release(&Durable::in_memory(place));
                self.replica.handle_answer(NOW, node, own.expect("it waits for nothing"));
            }
            effects
        }

        /// A node answers a round: it has accepted all up to here.
        fn hear(&mut self, node: u64, accepted: u64, chosen: u64) -> Vec<Effect> {
            self.beat += 1;
            let Self { ballot, beat, .. } = *self;
            let (first, accepted, chosen) = (Slot(accepted + 1), Slot(accepted), Slot(chosen));
            let life = node;
            let answer = Answer::Accepted { ballot, life, first, count: 0, accepted, chosen, beat };
            self.replica.handle_answer(NOW, NodeId::new(node), answer);
            self.work()
        }

        fn propose(&mut self, text: &'static str) -> Result<Slot, String> {
            let value = Value::Commands(Bytes::from_static(text.as_bytes()));
            let proposed = self.replica.propose(NOW, value);
            self.work();
            proposed.map(|(_, slot)| slot).map_err(|error| error.to_string())
        }
    }

    /// A client may have counted votes that are lost on their way to the leader.
    pub(super) fn a_read_waits_for_the_last_slot_proposed() -> Result<(), String> {
        let mut leader = Leader::new();
        let slot = leader.propose("a")?;
        leader.replica.read(9).map_err(|error| error.to_string())?;
        let is_ready =
            |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Ready(9)));
        if is_ready(&leader.hear(2, slot.0 - 1, slot.0 - 1)) {
            return Err("it reads below a slot that may be chosen".to_owned());
        }
        let effects = leader.hear(3, slot.0, slot.0 - 1);
        if is_ready(&effects) { Ok(()) } else { Err(format!("{effects:?}")) }
    }

    /// Votes of one configuration prove nothing of slots before, whose voters are others.
    pub(super) fn voters_are_named_where_those_of_all_open_slots_are_the_same() -> Result<(), String>
    {
        let mut leader = Leader::new();
        let Some(Membership { mut now, window, .. }) = leader.replica.membership().cloned() else {
            return Err("it knows no members".to_owned());
        };
        now.epoch += 1;
        now.nodes.insert(NodeId::new(4), Member::voter(4));
        let (_, changed) = leader.replica.change(NOW, now).map_err(|error| error.to_string())?;
        leader.work();
        leader.hear(2, changed.0, 1);
        let first = changed.0 + window;
        let counts = [first - 1, first].map(|slot| {
            let voters = leader.replica.electorate(Slot(slot));
            voters.map(|voters| voters.len())
        });
        if counts == [Some(3), None] { Ok(()) } else { Err(format!("{counts:?}")) }
    }
}

node_kit::rule_tests! {
    rules:
    a_read_waits_for_the_last_slot_proposed
    votes_of_one_slot_and_one_ballot_are_counted
    votes_answer_what_is_certain_to_be_done
    voters_are_named_where_those_of_all_open_slots_are_the_same
}

/// The rules find what breaks them.
#[test]
fn each_broken_rule_is_found() {
    use node_kit::mutant::{Rule, each_is_found};
    use paxos::mutant::{Mutant, set};

    let rules: [(Mutant, Rule); 3] = [
        (Mutant::ReadsBelowProposed, rules::a_read_waits_for_the_last_slot_proposed),
        (Mutant::CountsPerSlot, rules::votes_of_one_slot_and_one_ballot_are_counted),
        (Mutant::ResultFromVotes, rules::votes_answer_what_is_certain_to_be_done),
    ];
    assert_eq!(rules.map(|(mutant, _)| mutant), Mutant::OF_DIRECT);
    each_is_found(set, &rules);
}
