//! Single rules of the core, each on a replica or a few: what a simulation meets seldom.

mod mesh;

mod rules {
    use std::time::Duration;

    use bytes::Bytes;
    use convoke::NodeId;
    use node_kit::durable::{Durable, Held, Position};
    use paxos::core::{
        Accepted, Answer, Ask, Ballot, Effect, Kept, Lives, Member, Members, Membership,
        NotProposed, Part, Recipients, Record, Replica, Settings, Slot, Standing, Value,
    };

    use super::mesh::{Body, Mesh, is_accept};

    const NOW: Duration = Duration::from_secs(1);

    fn effects(replica: &mut Replica) -> Vec<Effect> {
        std::iter::from_fn(|| replica.poll_effect()).collect()
    }

    pub(crate) fn release(answer: Held<Answer>) -> Answer {
        let waiting = answer.after(Position::new(0));
        waiting.release(&Durable::in_memory(Position::new(0))).expect("it waits for nothing")
    }

    fn replica(node: u64) -> Replica {
        let mut replica =
            Replica::new(Settings::new(NodeId::new(node), (1..=3).map(NodeId::new)), node);
        replica.start(Duration::ZERO);
        replica
    }

    fn ballot(round: u64, node: u64) -> Ballot {
        Ballot { round, node }
    }

    fn command(text: &'static str) -> Value {
        Value::Commands(Bytes::from_static(text.as_bytes()))
    }

    /// So many nodes, whose ledgers have their numbers.
    fn members(count: u64) -> Membership {
        let lives: Lives = (1..=count).map(|node| (NodeId::new(node), node)).collect();
        Membership::new(4, Members::formed(&lives))
    }

    /// The formation of three nodes.
    fn formation() -> Value {
        Value::Formation(members(3).into())
    }

    fn accept(ballot: Ballot, value: Value) -> Ask {
        Ask::Accept { ballot, first: Slot(1), values: vec![value], chosen: Slot(0), beat: 1 }
    }

    /// Misses a leader, and is told that others do, too: all that it wants done.
    fn canvassed(replica: &mut Replica) -> Vec<Effect> {
        replica.handle_timeout(Duration::from_secs(2));
        let mut found = effects(replica);
        let asked = found.iter().find_map(|effect| match effect {
            Effect::Ask { ask: Ask::Canvass { ballot }, .. } => Some(*ballot),
            _ => None,
        });
        let ballot = asked.expect("it asks if others miss a leader");
        let answer =
            Answer::Canvassed { ballot, supports: true, promised: Ballot::NONE, chosen: Slot(0) };
        replica.handle_answer(NOW, NodeId::new(2), answer);
        found.extend(effects(replica));
        found
    }

    /// A node that leads, with its formation proposed in slot 1, and the ballot.
    fn leader() -> (Replica, Ballot) {
        let mut replica = replica(1);
        let mut own = Vec::new();
        for effect in canvassed(&mut replica) {
            if let Effect::Own(answer) = effect {
                own.push(release(answer));
            }
        }
        for answer in own {
            replica.handle_answer(NOW, NodeId::new(1), answer);
        }
        let ballot = replica.promised();
        for node in [2, 3] {
            let (life, chosen, accepted, more) = (node, Slot(0), Vec::new(), None);
            let promise = Answer::Promise { ballot, life, chosen, accepted, more };
            replica.handle_answer(NOW, NodeId::new(node), promise);
        }
        (replica, ballot)
    }

    fn vote(ballot: Ballot, beat: u64) -> Answer {
        let (first, accepted, chosen) = (Slot(1), Slot(1), Slot(0));
        Answer::Accepted { ballot, life: 2, first, count: 1, accepted, chosen, beat }
    }

    fn is_applied(replica: &mut Replica) -> bool {
        effects(replica).iter().any(|effect| matches!(effect, Effect::Apply { .. }))
    }

    pub(super) fn a_promise_waits_for_its_record() -> Result<(), String> {
        let mut replica = replica(1);
        let ask = Ask::Prepare { ballot: ballot(1, 2), from: Slot(1) };
        replica.handle_ask(NOW, NodeId::new(2), 7, (0, ask));
        match &effects(&mut replica)[..] {
            [Effect::Append(Record::Promised(_)), Effect::AnswerDurable { token: 7, .. }] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    pub(super) fn a_ballot_is_durable_before_others_hear_of_it() -> Result<(), String> {
        let found = canvassed(&mut replica(1));
        let asks = |effect: &Effect| matches!(effect, Effect::Ask { ask: Ask::Prepare { .. }, .. });
        let is_kept = |effect: &Effect| matches!(effect, Effect::Append(Record::Promised(_)));
        if found.iter().any(is_kept) && !found.iter().any(asks) {
            return Ok(());
        }
        Err(format!("{found:?}"))
    }

    pub(super) fn what_accepts_a_ballot_refuses_earlier_ones() -> Result<(), String> {
        let mut replica = replica(1);
        replica.handle_ask(NOW, NodeId::new(3), 1, (0, accept(ballot(2, 3), command("late"))));
        let early = accept(ballot(1, 2), command("early"));
        replica.handle_ask(NOW, NodeId::new(2), 2, (0, early));
        let refused = |effect: &Effect| {
            matches!(effect, Effect::Answer { token: 2, answer: Answer::Refused { .. } })
        };
        let found = effects(&mut replica);
        if found.iter().any(refused) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    pub(super) fn votes_of_other_ballots_do_not_count() -> Result<(), String> {
        let (mut replica, own) = leader();
        for effect in effects(&mut replica) {
            if let Effect::Own(answer) = effect {
                replica.handle_answer(NOW, NodeId::new(1), release(answer));
            }
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(ballot(own.round - 1, 2), 1));
        if is_applied(&mut replica) {
            return Err("a vote of an earlier ballot was counted".to_owned());
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(own, 1));
        if is_applied(&mut replica) { Ok(()) } else { Err("its own do not count".to_owned()) }
    }

    pub(super) fn a_read_asks_if_the_leader_still_leads() -> Result<(), String> {
        let (mut replica, own) = leader();
        for effect in effects(&mut replica) {
            if let Effect::Own(answer) = effect {
                replica.handle_answer(NOW, NodeId::new(1), release(answer));
            }
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(own, 2));
        effects(&mut replica);
        replica.read(9).map_err(|error| error.to_string())?;
        let is_ready = |effect: &Effect| matches!(effect, Effect::Ready(9));
        if effects(&mut replica).iter().any(is_ready) {
            return Err("nobody else was asked".to_owned());
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(own, 1_000));
        let found = effects(&mut replica);
        if found.iter().any(is_ready) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// The new ledger of a node has not promised what the old one had, so what it answers says
    /// nothing of that; nor does a late answer of the old one say anything of a later round.
    pub(super) fn an_answer_of_a_lost_ledger_confirms_no_later_round() -> Result<(), String> {
        let (mut replica, own) = leader();
        for effect in effects(&mut replica) {
            if let Effect::Own(answer) = effect {
                replica.handle_answer(NOW, NodeId::new(1), release(answer));
            }
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(own, 2));
        replica.read(9).map_err(|error| error.to_string())?;
        let Answer::Accepted { ballot, first, count, accepted, chosen, beat, .. } =
            vote(own, 1_000)
        else {
            return Err("it is a vote".to_owned());
        };
        let of_new = Answer::Accepted { ballot, life: 22, first, count, accepted, chosen, beat };
        replica.handle_answer(NOW, NodeId::new(2), of_new);
        replica.handle_answer(NOW, NodeId::new(2), vote(own, 2));
        let is_ready = |effect: &Effect| matches!(effect, Effect::Ready(9));
        if effects(&mut replica).iter().any(is_ready) {
            return Err("no ledger has answered its round".to_owned());
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(own, 1_000));
        let found = effects(&mut replica);
        if found.iter().any(is_ready) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Knows the formation alone, is told that others know more, and leads.
    pub(super) fn a_new_leader_catches_up_before_it_proposes() -> Result<(), String> {
        let mut replica = replica(1);
        let values = vec![formation()];
        let first = Ask::Accept {
            ballot: ballot(2, 3),
            first: Slot(1),
            values: values.clone(),
            chosen: Slot(1),
            beat: 1,
        };
        replica.handle_ask(Duration::ZERO, NodeId::new(3), 1, (0, first));
        effects(&mut replica);
        let mut own = Vec::new();
        for effect in canvassed(&mut replica) {
            if let Effect::Own(answer) = effect {
                own.push(release(answer));
            }
        }
        for answer in own {
            replica.handle_answer(NOW, NodeId::new(1), answer);
        }
        let (ballot, life, chosen) = (replica.promised(), 2, Slot(3));
        let slot = Accepted { slot: Slot(4), ballot: self::ballot(2, 3), value: command("4") };
        let promise = Answer::Promise { ballot, life, chosen, accepted: vec![slot], more: None };
        replica.handle_answer(NOW, NodeId::new(2), promise);
        let asked = effects(&mut replica);
        let proposes = |effect: &Effect| match effect {
            Effect::Ask { ask: Ask::Accept { values, .. }, .. } => !values.is_empty(),
            _ => false,
        };
        if asked.iter().any(proposes) || replica.propose(NOW, command("new")).is_ok() {
            return Err("it proposes though others know more".to_owned());
        }
        let values = vec![command("2"), command("3")];
        let told = Answer::Chosen { first: Slot(2), values, chosen: Slot(3) };
        replica.handle_answer(NOW, NodeId::new(2), told);
        let asked = effects(&mut replica);
        if !asked.iter().any(proposes) || replica.propose(NOW, command("new")).is_ok() {
            return Err("slot 4 may be chosen: it comes first, and alone".to_owned());
        }
        for effect in asked {
            if let Effect::Own(answer) = effect {
                replica.handle_answer(NOW, NodeId::new(1), release(answer));
            }
        }
        let (first, accepted, chosen) = (Slot(4), Slot(4), Slot(3));
        let vote = Answer::Accepted { ballot, life, first, count: 1, accepted, chosen, beat: 1 };
        replica.handle_answer(NOW, NodeId::new(2), vote);
        let proposed = replica.propose(NOW, command("new"));
        if proposed == Ok((ballot, Slot(5))) { Ok(()) } else { Err(format!("{proposed:?}")) }
    }

    pub(super) fn a_follower_that_misses_its_leader_knows_of_none() -> Result<(), String> {
        let mut replica = replica(1);
        let hear = |replica: &mut Replica, ask| {
            replica.handle_ask(NOW, NodeId::new(2), 7, (0, ask));
            let found = effects(replica);
            (replica.standing(), found.iter().any(|effect| matches!(effect, Effect::Own(_))))
        };
        let beat = || accept(ballot(1, 2), formation());
        let mut found = Vec::new();
        for missed_at in [5, 9].map(Duration::from_secs) {
            found.push(hear(&mut replica, beat()).0);
            replica.handle_timeout(missed_at);
            found.push(replica.standing());
        }
        let follows = Standing::Following(NodeId::new(2));
        let wanted = [follows, Standing::Leaderless].repeat(2);
        // Still its last leader: it does as that one says.
        let takes_over = hear(&mut replica, Ask::TakeOver { ballot: ballot(1, 2) }).1;
        let (found, wanted) = ((found, takes_over), (wanted, true));
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Node 3 promises late, and says in the first of two parts what node 1 has proposed already.
    pub(super) fn a_leader_fills_no_slots_behind_what_promises_tell() -> Result<(), String> {
        let (mut replica, ballot) = leader();
        for effect in effects(&mut replica) {
            if let Effect::Own(answer) = effect {
                replica.handle_answer(NOW, NodeId::new(1), release(answer));
            }
        }
        replica.handle_answer(NOW, NodeId::new(2), vote(ballot, 1));
        let proposed = replica.propose(NOW, command("new"));
        let old = Accepted { slot: Slot(2), ballot: self::ballot(1, 3), value: command("old") };
        let (life, chosen, accepted, more) = (3, Slot(1), vec![old], Some(Slot(3)));
        let promise = Answer::Promise { ballot, life, chosen, accepted, more };
        replica.handle_answer(NOW, NodeId::new(3), promise);
        replica.handle_answer(NOW, NodeId::new(2), vote(ballot, 2));
        let found = (proposed, replica.in_flight());
        if found == (Ok((ballot, Slot(2))), 1) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Knows its formation, and is asked by others.
    pub(super) fn who_is_no_member_or_late_is_refused() -> Result<(), String> {
        let mut settings = Settings::new(NodeId::new(1), (1..=3).map(NodeId::new));
        settings.peers.insert(NodeId::new(4));
        let mut replica = Replica::new(settings, 1);
        replica.start(Duration::ZERO);
        let ask = |from, epoch, replica: &mut Replica| {
            let ask = Ask::Prepare { ballot: ballot(9, from), from: Slot(1) };
            replica.handle_ask(NOW, NodeId::new(from), from, (epoch, ask));
            let is_refused = |effect: &Effect| {
                matches!(effect, Effect::Answer { answer: Answer::OtherEpoch { .. }, .. })
            };
            effects(replica).iter().any(is_refused)
        };
        let unformed = [(4, 0), (5, 0)].map(|(from, epoch)| ask(from, epoch, &mut replica));
        let formed = accept(ballot(10, 3), formation());
        replica.handle_ask(NOW, NodeId::new(3), 1, (0, formed));
        let first = Ask::Accept {
            ballot: ballot(10, 3),
            first: Slot(2),
            values: Vec::new(),
            chosen: Slot(1),
            beat: 2,
        };
        replica.handle_ask(NOW, NodeId::new(3), 1, (0, first));
        effects(&mut replica);
        let cases = [(2, 1), (2, 0), (4, 1), (4, 2), (5, 2)];
        let formed = cases.map(|(from, epoch)| ask(from, epoch, &mut replica));
        let wanted = ([false, true], [false, true, true, false, true]);
        let found = (unformed, formed);
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }

    pub(super) fn a_checkpoint_brings_back_what_was_promised() -> Result<(), String> {
        let mut replica = replica(1);
        let formed = accept(ballot(2, 3), formation());
        replica.handle_ask(NOW, NodeId::new(3), 1, (0, formed));
        let beat = |chosen| {
            let (first, values) = (Slot(2), vec![command("second")]);
            Ask::Accept { ballot: ballot(2, 3), first, values, chosen, beat: 2 }
        };
        replica.handle_ask(NOW, NodeId::new(3), 2, (0, beat(Slot(1))));
        let mut again = Replica::new(Settings::new(NodeId::new(1), (1..=3).map(NodeId::new)), 0);
        for record in replica.checkpoint() {
            again.replay(record);
        }
        let state = |replica: &Replica| {
            (replica.life(), replica.chosen(), replica.promised(), replica.checkpoint())
        };
        let (before, after) = (state(&replica), state(&again));
        if before == after { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
    }

    /// Slots up to which it says that its ledger has them, asked by its leader.
    fn says_chosen(replica: &mut Replica) -> Option<Slot> {
        let (ballot, first, values) = (ballot(9, 3), Slot(8), Vec::new());
        let ask = Ask::Accept { ballot, first, values, chosen: Slot(7), beat: 1 };
        replica.handle_ask(NOW, NodeId::new(3), 1, (replica.epoch(), ask));
        effects(replica).into_iter().find_map(|effect| match effect {
            Effect::AnswerDurable { answer, .. } => match release(answer) {
                Answer::Accepted { chosen, .. } => Some(chosen),
                _ => None,
            },
            _ => None,
        })
    }

    pub(super) fn a_snapshot_counts_for_others_once_it_is_durable() -> Result<(), String> {
        let mut replica = replica(1);
        replica.handle_installed(NOW, Slot(5), members(3));
        let installed = says_chosen(&mut replica);
        replica.handle_installed(NOW, Slot(7), members(3));
        replica.handle_saved(Slot(5));
        let saved_before = says_chosen(&mut replica);
        replica.handle_saved(Slot(7));
        let found = [installed, saved_before, says_chosen(&mut replica)];
        let wanted = [Slot(0), Slot(0), Slot(7)].map(Some);
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Node 1 leads and is heard by node 2 alone. Nodes 3 to 5 decide the slot in a later ballot.
    /// Then node 1 hears of that, by the answer to what it had asked before it led.
    pub(super) fn a_leader_that_learns_another_value_leads_no_more() -> Result<(), String> {
        let mut mesh = Mesh::formed(5, &Value::Formation(members(5).into()));
        mesh.now = Duration::from_secs(2);
        mesh.elect(1, [2, 3]);
        mesh.propose(1, command("early"), &[2]);
        mesh.elect(5, [3, 4]);
        mesh.propose(5, command("late"), &[3, 4]);
        mesh.deliver(|packet| match (packet.from, packet.to) {
            (1, 5) => {
                matches!(packet.body, Body::Ask(_, Ask::Canvass { .. } | Ask::CatchUp { .. }))
            }
            (5, 1) => matches!(packet.body, Body::Answer(_)),
            _ => false,
        });
        mesh.now += Duration::from_millis(50);
        mesh.with(1, |replica, now| replica.handle_timeout(now));
        mesh.deliver(|packet| is_accept(packet) && (packet.from, packet.to) == (1, 2));
        let applied = mesh.applied(Slot(2));
        let both = [5, 1].map(|node| (node, command("late")));
        if applied == both { Ok(()) } else { Err(format!("{applied:?}")) }
    }

    /// Node 1 was away while nodes 2 and 3 were replaced. Its file names node 4, of which its log
    /// knows nothing.
    pub(super) fn a_voter_in_whose_place_others_are_is_told_so() -> Result<(), String> {
        let mut settings = Settings::new(NodeId::new(1), (1..=3).map(NodeId::new));
        settings.peers.insert(NodeId::new(4));
        let mut replica = Replica::new(settings, 1);
        replica.replay(Record::Learned { first: Slot::FIRST, values: vec![formation()] });
        replica.start(Duration::ZERO);
        let mut asked = Vec::new();
        for attempt in 1..=4 {
            replica.handle_timeout(attempt * Duration::from_secs(2));
            let of_four = |effect: &Effect| match effect {
                Effect::Ask { to: Recipients::One(node), ask: Ask::CatchUp { from }, .. } => {
                    Some((node.get(), *from))
                }
                _ => None,
            };
            asked.extend(effects(&mut replica).iter().filter_map(of_four));
        }
        let told = Answer::OtherEpoch { epoch: 4, is_member: false, chosen: Slot(300) };
        replica.handle_answer(Duration::from_secs(8), NodeId::new(4), told);
        let found = (asked, replica.standing());
        let wanted = (vec![(4, Slot(2))], Standing::Outside);
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Node 1 knows that it has left, and that nobody else has joined or left since.
    pub(super) fn a_node_that_has_left_is_outside() -> Result<(), String> {
        let mut replica = replica(1);
        let left = Members { epoch: 2, nodes: [(NodeId::new(3), Member::voter(3))].into() };
        let mut values = vec![formation(), Value::Change(left)];
        values.resize(5, Value::Noop); // a window behind the change
        replica.replay(Record::Learned { first: Slot::FIRST, values });
        let told = Answer::OtherEpoch { epoch: 2, is_member: false, chosen: Slot(5) };
        replica.handle_answer(NOW, NodeId::new(3), told);
        let found = (replica.epoch(), replica.standing());
        if found == (2, Standing::Outside) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Node 1 learns, of node 2 alone, which refuses it: it knows of later members. Those have
    /// taken node 1 in again, as node 3 knows.
    pub(super) fn a_learner_whose_members_refuse_it_asks_others() -> Result<(), String> {
        let mut settings = Settings::new(NodeId::new(1), [NodeId::new(2)]);
        settings.peers = (1..=4).map(NodeId::new).collect();
        let mut replica = Replica::new(settings, 1);
        let learner = Member { part: Part::Learner, addresses: Vec::new() };
        let nodes = [(1, learner), (2, Member::voter(2))];
        let nodes = nodes.map(|(node, member)| (NodeId::new(node), member)).into();
        let formation = Value::Formation(Membership::new(4, Members { epoch: 1, nodes }).into());
        replica.replay(Record::Learned { first: Slot::FIRST, values: vec![formation] });
        replica.start(Duration::ZERO);
        let mut asked = Vec::new();
        for attempt in 1..=6 {
            let now = attempt * Duration::from_secs(2);
            replica.handle_timeout(now);
            for effect in effects(&mut replica) {
                let Effect::Ask { to: Recipients::One(node), .. } = effect else { continue };
                asked.push(node.get());
                let (epoch, chosen) = (2, Slot(30));
                let refusal = Answer::OtherEpoch { epoch, is_member: false, chosen };
                let known = Answer::Chosen { first: Slot(2), values: vec![command("a")], chosen };
                let answer = if node.get() == 3 { known } else { refusal };
                replica.handle_answer(now, node, answer);
            }
            if replica.chosen() == Slot(2) {
                break;
            }
        }
        if asked == [2, 2, 2, 3] { Ok(()) } else { Err(format!("{asked:?}")) }
    }

    /// Node 1 is the only voter, and node 2 learns.
    pub(super) fn a_sole_voter_beside_a_learner_has_nobody_to_hand_over_to() -> Result<(), String> {
        let mut replica = replica(1);
        let learner = Member { part: Part::Learner, addresses: Vec::new() };
        let nodes = [(1, Member::voter(1)), (2, learner)];
        let nodes = nodes.map(|(node, member)| (NodeId::new(node), member)).into();
        let formation = Value::Formation(Membership::new(4, Members { epoch: 1, nodes }).into());
        let before = replica.has_other_voters();
        replica.replay(Record::Learned { first: Slot::FIRST, values: vec![formation] });
        let found = (before, replica.has_other_voters(), replica.others().len());
        if found == (true, false, 1) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Node 3 removes the others, which have accepted all slots before that is in force, and never
    /// hear that the last is decided. They miss a leader, and node 1 has what it needs of node 2
    /// before node 3 refuses it.
    pub(super) fn removed_voters_that_elect_one_of_them_learn_of_it() -> Result<(), String> {
        let formed = Membership { window: 2, ..members(3) };
        let mut mesh = Mesh::formed(3, &Value::Formation(formed.into()));
        mesh.now = Duration::from_secs(2);
        mesh.elect(3, [1, 2]);
        let left = Members { epoch: 2, nodes: [(NodeId::new(3), Member::voter(3))].into() };
        mesh.propose(3, Value::Change(left), &[1, 2]);
        mesh.propose(3, command("last"), &[1, 2]);
        mesh.propose(3, command("later"), &[]);
        mesh.lose(|_| true);
        mesh.now += Duration::from_secs(2);
        mesh.elect(1, [2, 2]);
        let mut proposed = Ok((Ballot::NONE, Slot(0)));
        mesh.with(1, |replica, now| {
            replica.read(7).expect("it leads");
            proposed = replica.propose(now, command("lost"));
        });
        mesh.deliver(|packet| packet.from == 3 || packet.to == 3);
        let led = mesh.leads(1);
        mesh.deliver(|_| true);
        for _ in 0..4 {
            mesh.now += Duration::from_millis(1_500);
            for node in [1, 2, 3] {
                mesh.with(node, |replica, now| replica.handle_timeout(now));
            }
            mesh.deliver(|_| true);
        }
        let standing = [1, 2].map(|node| mesh.standing(node));
        let found = (led, proposed, mesh.read.len(), standing);
        let wanted = (true, Err(NotProposed::NoRoom), 0, [Standing::Outside; 2]);
        if found != wanted {
            return Err(format!("{found:?}"));
        }
        let applied = [3, 4].map(|slot| mesh.applied(Slot(slot)));
        let last = [3, 1, 2].map(|node| (node, command("last")));
        let later = [(3, command("later"))];
        if applied == [&last[..], &later] { Ok(()) } else { Err(format!("{applied:?}")) }
    }

    /// Node 3 takes node 1 for no member, when node 2 gives it a snapshot: a second one that is
    /// fetched meanwhile has the first begin anew.
    pub(super) fn a_refusal_does_not_end_what_another_gives() -> Result<(), String> {
        let mut replica = replica(1);
        replica.replay(Record::Learned { first: Slot::FIRST, values: vec![formation()] });
        let refusal = Answer::OtherEpoch { epoch: 3, is_member: false, chosen: Slot(20) };
        let trimmed = |trimmed| Answer::Trimmed { trimmed: Slot(trimmed) };
        for (node, answer) in [(2, trimmed(30)), (3, refusal), (2, trimmed(40))] {
            replica.handle_answer(NOW, NodeId::new(node), answer);
        }
        let is_fetch = |effect: &&Effect| matches!(effect, Effect::FetchSnapshot { .. });
        let count = effects(&mut replica).iter().filter(is_fetch).count();
        if count == 1 { Ok(()) } else { Err(format!("{count} snapshots are fetched")) }
    }

    /// Node 1 was away, and others have trimmed what it has missed, when it comes to lead.
    pub(super) fn a_leader_that_needs_a_snapshot_gives_way() -> Result<(), String> {
        let mut mesh = Mesh::formed(3, &formation());
        mesh.now = Duration::from_secs(2);
        mesh.elect(2, [3, 3]);
        for text in ["a", "b"] {
            mesh.propose(2, command(text), &[3]);
        }
        mesh.now += Duration::from_millis(50);
        mesh.with(2, |replica, now| replica.handle_timeout(now));
        mesh.deliver(|packet| packet.from != 1 && packet.to != 1);
        for node in [2, 3] {
            mesh.with(node, |replica, now| replica.trim(now, Slot(3), Kept::NOTHING));
        }
        mesh.lose(|_| true);
        for _ in 0..2 {
            mesh.now += Duration::from_secs(2);
            mesh.elect(1, [2, 3]); // its first ballot is one that others have promised already
        }
        let led = mesh.leads(1);
        mesh.deliver(|_| true);
        mesh.now += Duration::from_millis(50);
        mesh.with(1, |replica, now| replica.handle_timeout(now));
        mesh.deliver(|_| true);
        let found = (led, [1, 2, 3].map(|node| mesh.leads(node)).iter().filter(|is| **is).count());
        if found == (true, 1) && !mesh.leads(1) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Node 2 keeps what follows its snapshot, and node 3, which has trimmed that, only answers
    /// sooner. When node 2 has not answered for long, the snapshot of node 3 is fetched.
    pub(super) fn what_follows_a_snapshot_is_had_of_whose_it_was() -> Result<(), String> {
        let mut replica = replica(1);
        replica.replay(Record::Learned { first: Slot::FIRST, values: vec![formation()] });
        let mut now = NOW;
        let hear = |replica: &mut Replica, now, node, answer| {
            replica.handle_answer(now, NodeId::new(node), answer);
            let fetched = |effect: &Effect| match effect {
                Effect::FetchSnapshot { from, .. } => Some(from.get()),
                _ => None,
            };
            effects(replica).iter().find_map(fetched)
        };
        let trimmed = |trimmed| Answer::Trimmed { trimmed: Slot(trimmed) };
        let known = Answer::Chosen { first: Slot(2), values: Vec::new(), chosen: Slot(90) };
        let mut fetched = vec![hear(&mut replica, now, 3, known)];
        fetched.push(hear(&mut replica, now, 2, trimmed(10)));
        replica.handle_installed(now, Slot(10), members(3));
        fetched.push(hear(&mut replica, now, 3, trimmed(20)));
        while now < NOW + Duration::from_secs(4) {
            now += Duration::from_millis(100);
            replica.handle_timeout(now);
        }
        fetched.push(hear(&mut replica, now, 3, trimmed(30)));
        let wanted = [None, Some(2), None, Some(3)];
        if fetched == wanted { Ok(()) } else { Err(format!("{fetched:?}")) }
    }

    pub(super) fn a_leader_that_skips_what_it_proposed_leads_no_more() -> Result<(), String> {
        let (mut replica, _) = leader();
        replica.handle_installed(NOW, Slot(1), members(3));
        match replica.standing() {
            Standing::Leading(ballot) => Err(format!("it leads {ballot}")),
            _ => Ok(()),
        }
    }
}

node_kit::rule_tests! {
    rules:
    a_promise_waits_for_its_record
    a_ballot_is_durable_before_others_hear_of_it
    what_accepts_a_ballot_refuses_earlier_ones
    votes_of_other_ballots_do_not_count
    a_read_asks_if_the_leader_still_leads
    an_answer_of_a_lost_ledger_confirms_no_later_round
    a_new_leader_catches_up_before_it_proposes
    a_follower_that_misses_its_leader_knows_of_none
    a_leader_fills_no_slots_behind_what_promises_tell
    who_is_no_member_or_late_is_refused
    a_checkpoint_brings_back_what_was_promised
    a_snapshot_counts_for_others_once_it_is_durable
    a_leader_that_learns_another_value_leads_no_more
    a_voter_in_whose_place_others_are_is_told_so
    a_node_that_has_left_is_outside
    a_learner_whose_members_refuse_it_asks_others
    a_sole_voter_beside_a_learner_has_nobody_to_hand_over_to
    removed_voters_that_elect_one_of_them_learn_of_it
    a_refusal_does_not_end_what_another_gives
    a_leader_that_needs_a_snapshot_gives_way
    what_follows_a_snapshot_is_had_of_whose_it_was
    a_leader_that_skips_what_it_proposed_leads_no_more
}

/// The rules find what breaks them.
#[test]
fn each_broken_rule_is_found() {
    use node_kit::mutant::{Rule, each_is_found};
    use paxos::mutant::{Mutant, set};

    let rules: [(Mutant, Rule); 6] = [
        (Mutant::PromiseNotDurable, rules::a_promise_waits_for_its_record),
        (Mutant::BallotNotPersisted, rules::a_ballot_is_durable_before_others_hear_of_it),
        (Mutant::AcceptPromisesNothing, rules::what_accepts_a_ballot_refuses_earlier_ones),
        (Mutant::VotesOfAllBallots, rules::votes_of_other_ballots_do_not_count),
        (Mutant::ReadUnconfirmed, rules::a_read_asks_if_the_leader_still_leads),
        (Mutant::LeadsOutvoted, rules::a_leader_that_learns_another_value_leads_no_more),
    ];
    assert_eq!(rules.map(|(mutant, _)| mutant), Mutant::BY_RULES);
    each_is_found(set, &rules);
}
