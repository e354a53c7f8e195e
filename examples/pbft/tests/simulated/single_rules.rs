//! Single rules of the core, each on one replica: what a simulation meets seldom.

mod rules {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::Range;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use convoke::NodeId;
    use node_kit::durable::{Durable, Position};
    use pbft::core::{
        Batch, Checkpoint, ClientId, Digest, Effect, Fetch, Fetched, Keys, Message, NewView,
        Outcome, Outline, Phase, Prepared, Record, Refused, Replica, Reply, Request, Scope,
        Sequence, Settings, Signed, SignedReply, SignedRequest, Signer, Stable, Status, Unproven,
        View, ViewChange, Vote,
    };

    use crate::replica::{Counter, SCOPE, checkers, effects, group, signer};

    const NOW: Duration = Duration::from_secs(1);
    const VIEW: View = View(0);
    const FROM: NodeId = NodeId::new(1);

    fn keys() -> Keys {
        Keys::new(SCOPE, group(), checkers(), BTreeMap::from([(ClientId(9), signer(9).checker())]))
    }

    /// Member 2 of four: a backup of the first view, of which member 1 is the primary.
    fn backup() -> Replica<Counter> {
        let mut replica = Replica::new(settings(), Counter(0));
        replica.start(Duration::ZERO);
        // Its clients, which are the first record of a ledger.
        let begun = effects(&mut replica);
        assert!(matches!(begun[..], [Effect::Append(Record::Clients(_))]));
        replica
    }

    fn settings() -> Settings {
        Settings {
            checkpoint_every: 4,
            window: 8,
            ..Settings::new(NodeId::new(2), group(), [ClientId(9)])
        }
    }

    fn request(number: u64) -> SignedRequest {
        let request = Request { client: ClientId(9), number, operation: Bytes::new() };
        signer(9).sign_request(SCOPE, request)
    }

    fn batch(number: u64) -> Batch {
        Batch::new([request(number)])
    }

    fn hear(replica: &mut Replica<Counter>, by: u64, body: Message) {
        let signed = signer(by).sign(SCOPE, NodeId::new(by), body);
        replica.handle_message(NOW, keys().open(NodeId::new(by), signed).expect("it is signed"));
    }

    fn vote(phase: Phase, sequence: u64, batch: &Batch) -> Vote {
        Vote { phase, view: VIEW, sequence: Sequence(sequence), digest: batch.digest() }
    }

    fn propose(replica: &mut Replica<Counter>, sequence: u64, batch: &Batch) {
        let vote = vote(Phase::Propose, sequence, batch);
        hear(replica, 1, Message::Propose(vote, Some(batch.clone())));
    }

    /// The primary proposes three requests by their digests.
    fn outline(replica: &mut Replica<Counter>) {
        let batch = Batch::new((0..3).map(request));
        let vote = vote(Phase::Propose, 1, &batch);
        hear(replica, 1, Message::Outline(vote, batch.outline().clone()));
    }

    fn ask(replica: &mut Replica<Counter>, number: u64) {
        let request = keys().examine_request(FROM, request(number)).and_then(Unproven::open);
        replica.handle_request(NOW, request.expect("it is signed"));
    }

    fn answer(replica: &mut Replica<Counter>, numbers: &[u64]) {
        let requests = numbers.iter().copied().map(request).collect();
        hear(replica, 1, Message::Fetched(Fetched::Requests(requests)));
    }

    /// Messages that it says, and to whom.
    fn said(effects: &[Effect]) -> Vec<(Vec<NodeId>, Message)> {
        let said = |effect: &Effect| {
            let Effect::Say { to, message, .. } = effect else { return None };
            let message = message.clone().after(Position::new(0));
            let message = message.release(&Durable::in_memory(Position::new(0))).ok()?;
            Some((to.clone(), message))
        };
        effects.iter().filter_map(said).collect()
    }

    /// Requests that it asks the primary for, each time.
    fn pulled(effects: &[Effect]) -> Vec<Vec<Digest>> {
        let pulled = |(to, message)| match message {
            Message::Pull(digests) if to == [NodeId::new(1)] => Some(digests),
            _ => None,
        };
        said(effects).into_iter().filter_map(pulled).collect()
    }

    fn says(replica: &mut Replica<Counter>, phase: Phase, by: &[u64], batch: &Batch) {
        by.iter().for_each(|by| hear(replica, *by, Message::Vote(vote(phase, 1, batch))));
    }

    fn is_prepared(effects: &[Effect]) -> bool {
        effects.iter().any(|effect| matches!(effect, Effect::Append(Record::Prepared(_))))
    }

    fn is_executed(effects: &[Effect]) -> bool {
        effects.iter().any(|effect| matches!(effect, Effect::Executed { .. }))
    }

    fn accepted(effects: &[Effect]) -> usize {
        let is_vote = |effect: &&Effect| matches!(effect, Effect::Append(Record::Accepted(..)));
        effects.iter().filter(is_vote).count()
    }

    fn expect(is_right: bool, found: &[Effect]) -> Result<(), String> {
        if is_right { Ok(()) } else { Err(format!("{found:?}")) }
    }

    pub(super) fn the_primary_counts_once() -> Result<(), String> {
        let (mut replica, batch) = (backup(), batch(0));
        propose(&mut replica, 1, &batch);
        propose(&mut replica, 1, &batch);
        says(&mut replica, Phase::Prepare, &[1, 1, 3, 3], &batch);
        let found = effects(&mut replica);
        expect(!is_prepared(&found), &found)?;
        says(&mut replica, Phase::Prepare, &[4], &batch);
        let found = effects(&mut replica);
        expect(is_prepared(&found), &found)
    }

    /// Sizes of the batches that it begins.
    fn begun(effects: &[Effect]) -> Vec<usize> {
        let batch = |effect: &Effect| match effect {
            Effect::Append(Record::Batch(batch)) => Some(batch.requests().len()),
            _ => None,
        };
        effects.iter().filter_map(batch).collect()
    }

    /// All agree on what the primary has proposed for a place, of which it is told, too.
    fn decide(replica: &mut Replica<Counter>, sequence: u64, requests: Range<u64>) {
        let batch = Batch::new(requests.map(request));
        propose(replica, sequence, &batch);
        for (phase, by) in [(Phase::Prepare, 2..=3), (Phase::Commit, 1..=3)] {
            by.for_each(|by| hear(replica, by, Message::Vote(vote(phase, sequence, &batch))));
        }
    }

    pub(super) fn a_batch_beside_others_is_as_large_as_they_are() -> Result<(), String> {
        let settings = Settings { node: NodeId::new(1), each_client_max: 64, ..settings() };
        let mut primary = Replica::new(settings, Counter(0));
        primary.start(Duration::ZERO);
        let mut sizes = Vec::new();
        for number in 0..10 {
            ask(&mut primary, number);
            sizes.extend(begun(&effects(&mut primary)));
        }
        // Of ten two wait, as eight are under way.
        expect_sizes(&sizes, &[1, 1, 2, 4])?;
        for (sequence, requests) in [(1, 0..1), (2, 1..2), (3, 2..4)] {
            decide(&mut primary, sequence, requests);
            expect_sizes(&begun(&effects(&mut primary)), &[])?;
        }
        // Nothing is under way any more: what waits has waited long enough.
        decide(&mut primary, 4, 4..8);
        expect_sizes(&begun(&effects(&mut primary)), &[2])
    }

    fn expect_sizes(found: &[usize], expected: &[usize]) -> Result<(), String> {
        if found == expected { Ok(()) } else { Err(format!("{found:?}, not {expected:?}")) }
    }

    pub(super) fn what_a_proposal_names_and_is_lacking_is_pulled() -> Result<(), String> {
        let mut replica = backup();
        ask(&mut replica, 1);
        outline(&mut replica);
        let found = effects(&mut replica);
        let lacking = |of: &[u64]| of.iter().map(|of| request(*of).digest()).collect::<Vec<_>>();
        expect(pulled(&found) == [lacking(&[0, 2])] && accepted(&found) == 0, &found)?;
        answer(&mut replica, &[7, 2]); // the first is not what was asked for
        let found = effects(&mut replica);
        expect(pulled(&found) == [lacking(&[0])] && accepted(&found) == 0, &found)?;
        answer(&mut replica, &[7, 2]); // nothing new: it does not ask again
        let found = effects(&mut replica);
        expect(pulled(&found).is_empty() && accepted(&found) == 0, &found)?;
        answer(&mut replica, &[0]);
        let found = effects(&mut replica);
        expect(pulled(&found).is_empty() && accepted(&found) == 1, &found)
    }

    pub(super) fn a_client_brings_what_a_proposal_names() -> Result<(), String> {
        let mut replica = backup();
        outline(&mut replica);
        (0..3).for_each(|number| ask(&mut replica, number));
        let found = effects(&mut replica);
        expect(accepted(&found) == 1, &found)
    }

    pub(super) fn digests_have_to_come_to_that_of_the_vote() -> Result<(), String> {
        let mut replica = backup();
        let vote = vote(Phase::Propose, 1, &batch(0));
        let other = Outline::new([request(1).digest()]);
        hear(&mut replica, 1, Message::Outline(vote, other));
        let found = effects(&mut replica);
        expect(found.is_empty(), &found)
    }

    pub(super) fn votes_to_commit_may_come_first() -> Result<(), String> {
        let (mut replica, batch) = (backup(), batch(0));
        says(&mut replica, Phase::Commit, &[1, 3, 4], &batch);
        says(&mut replica, Phase::Prepare, &[3, 4], &batch);
        propose(&mut replica, 1, &batch);
        let found = effects(&mut replica);
        expect(is_executed(&found), &found)
    }

    pub(super) fn a_vote_is_said_behind_its_record() -> Result<(), String> {
        let (mut replica, batch) = (backup(), batch(0));
        propose(&mut replica, 1, &batch);
        let found = effects(&mut replica);
        let record =
            found.iter().position(|effect| matches!(effect, Effect::Append(Record::Accepted(..))));
        let said = found.iter().position(|effect| matches!(effect, Effect::Say { .. }));
        expect(record.is_some() && record < said, &found)
    }

    pub(super) fn of_two_proposals_the_first_counts() -> Result<(), String> {
        let mut replica = backup();
        propose(&mut replica, 1, &batch(0));
        propose(&mut replica, 1, &batch(1));
        let found = effects(&mut replica);
        let is_evidence = found.iter().any(|effect| matches!(effect, Effect::Lied { .. }));
        expect(accepted(&found) == 1 && is_evidence, &found)
    }

    pub(super) fn a_member_that_contradicts_itself_is_told_of_once() -> Result<(), String> {
        let mut replica = backup();
        (0..1_000).for_each(|number| says(&mut replica, Phase::Commit, &[3], &batch(number)));
        let found = effects(&mut replica);
        expect(matches!(found[..], [Effect::Lied { .. }]), &found)
    }

    pub(super) fn nothing_is_open_above_the_window() -> Result<(), String> {
        let mut replica = backup();
        propose(&mut replica, 8, &batch(0));
        propose(&mut replica, 9, &batch(1));
        let found = effects(&mut replica);
        expect(accepted(&found) == 1, &found)
    }

    pub(super) fn a_restart_keeps_the_vote() -> Result<(), String> {
        let mut replica = Replica::new(settings(), Counter(0));
        replica.start(Duration::ZERO);
        propose(&mut replica, 1, &batch(0));
        let mut again = Replica::new(settings(), Counter(0));
        for effect in effects(&mut replica) {
            if let Effect::Append(record) = effect {
                again.replay(record).map_err(|error| error.to_string())?;
            }
        }
        let (before, after) = (replica.records(), again.records());
        again.start(NOW);
        effects(&mut again);
        propose(&mut again, 1, &batch(1));
        let found = effects(&mut again);
        expect(before == after && accepted(&found) == 0, &found)
    }

    /// Its client asks for sixteen later numbers elsewhere, which are executed: the session of the
    /// client does not know any more if the first one was.
    pub(super) fn a_request_that_is_too_old_fails_no_view() -> Result<(), String> {
        let mut replica = backup();
        ask(&mut replica, 1);
        decide(&mut replica, 1, 2..18);
        let found = effects(&mut replica);
        expect(is_executed(&found) && replica.waiting() == 1, &found)?;
        replica.handle_timeout(NOW + replica.timeout());
        let found = effects(&mut replica);
        expect(replica.view() == (VIEW, true) && replica.waiting() == 0, &found)
    }

    /// Word that the second view is wanted, with a proof of each of these places.
    fn change(places: u64) -> Arc<ViewChange> {
        let (view, digest) = (VIEW, batch(0).digest());
        let prepared = |place| {
            let signature = |by: u64| {
                let phase = if by == 1 { Phase::Propose } else { Phase::Prepare };
                let vote = Vote { phase, view, sequence: Sequence(place), digest };
                let message = match phase {
                    Phase::Propose => Message::Propose(vote, None),
                    _ => Message::Vote(vote),
                };
                (NodeId::new(by), signer(by).sign(SCOPE, NodeId::new(by), message).signature)
            };
            let signatures = [1, 3, 4].map(signature).into();
            Prepared { view, sequence: Sequence(place), digest, signatures }
        };
        let checkpoint = Checkpoint { sequence: Sequence(0), digest: Digest([0; 32]) };
        let stable = Stable { checkpoint, signatures: BTreeMap::new() };
        let prepared = (1..=places).map(prepared).collect();
        ViewChange { view: view.next(), stable, prepared }.into()
    }

    fn wish(places: u64) -> Message {
        Message::ViewChange(change(places))
    }

    /// A view begins by word of all but member 4, that so many places were prepared.
    fn begin(replica: &mut Replica<Counter>, view: u64, places: u64) {
        let view = View(view);
        let body = Arc::new(ViewChange { view, ..(*change(places)).clone() });
        let change = |by: u64| {
            let signed = signer(by).sign(SCOPE, NodeId::new(by), Message::ViewChange(body.clone()));
            let Signed { epoch, by, signature, .. } = signed;
            Signed { epoch, by, body: body.clone(), signature }
        };
        let changes = (1..=3).map(change).collect();
        hear(replica, view.0 % 4 + 1, Message::NewView(NewView { view, changes }.into()));
    }

    /// Member 4, the primary of none of the first three views, as its ledger has it.
    fn last_member(records: impl IntoIterator<Item = Record>) -> Replica<Counter> {
        let settings = Settings { node: NodeId::new(4), ..settings() };
        let mut replica = Replica::new(settings, Counter(0));
        for record in records {
            replica.replay(record).expect("its machine has no other state");
        }
        replica.start(NOW);
        effects(&mut replica);
        replica
    }

    fn appended(replica: &mut Replica<Counter>) -> Vec<Record> {
        let record = |effect| match effect {
            Effect::Append(record) => Some(record),
            _ => None,
        };
        effects(replica).into_iter().filter_map(record).collect()
    }

    /// A liar takes along places since the first, so many that its word could leave no room in a
    /// message for those of others.
    pub(super) fn a_view_begins_beside_a_word_that_takes_too_much_along() -> Result<(), String> {
        let (mut primary, liar) = (backup(), NodeId::new(1));
        let refused = keys().open(liar, signer(1).sign(SCOPE, liar, wish(10_000))).err();
        if refused != Some(Refused::OverShare) {
            return Err(format!("{refused:?}"));
        }
        propose(&mut primary, 1, &batch(0));
        hear(&mut primary, 3, wish(2));
        hear(&mut primary, 4, wish(2));
        hear(&mut primary, 2, wish(0)); // its own, which it has said
        let found = effects(&mut primary);
        let members = begun_by(&found);
        let wanted = Some([2, 3, 4].map(NodeId::new).to_vec());
        if members == wanted { Ok(()) } else { Err(format!("{members:?}")) }
    }

    /// A batch comes with the proposal, from anybody, or request by request.
    pub(super) fn a_batch_that_is_too_large_is_not_voted_for() -> Result<(), String> {
        let settings = Settings { each_client_max: 300, ..settings() };
        let (most, half) = (1 << 20, 1 << 19);
        for (count, bytes, is_taken) in [
            (256, 0, true),
            (257, 0, false),
            (2, half, true),
            (2, half + 1, false),
            (1, most + 1, true),
        ] {
            let sized = |number| {
                let operation = Bytes::from(vec![0; bytes]);
                let request = Request { client: ClientId(9), number, operation };
                signer(9).sign_request(SCOPE, request)
            };
            let batch = Batch::new((0..count).map(sized));
            let vote = vote(Phase::Propose, 1, &batch);
            let whole = Message::Propose(vote, Some(batch.clone()));
            let without = Message::Propose(vote, None);
            let fetched = Message::Fetched(Fetched::Batch(batch.clone()));
            let outline = Message::Outline(vote, batch.outline().clone());
            let ways =
                [(vec![whole], false), (vec![without, fetched], false), (vec![outline], true)];
            for (way, (words, is_asked)) in ways.into_iter().enumerate() {
                let mut replica = Replica::new(settings.clone(), Counter(0));
                replica.start(Duration::ZERO);
                for request in batch.requests().iter().filter(|_| is_asked) {
                    let request = keys().examine_request(FROM, request.clone());
                    let request = request.and_then(Unproven::open).expect("it is signed");
                    replica.handle_request(NOW, request);
                }
                for body in words {
                    let signed = signer(1).sign(SCOPE, FROM, body);
                    if let Ok(words) = keys().open(FROM, signed) {
                        replica.handle_message(NOW, words);
                    }
                }
                if (accepted(&effects(&mut replica)) == 1) != is_taken {
                    return Err(format!("{count} requests of {bytes} bytes, way {way}"));
                }
            }
        }
        Ok(())
    }

    /// Each answer is signed, and may have all of a part of a state.
    pub(super) fn a_member_that_asks_all_the_time_is_answered_so_often() -> Result<(), String> {
        let (mut replica, batch) = (backup(), batch(0));
        propose(&mut replica, 1, &batch);
        effects(&mut replica);
        let mut answered = |by: u64, now: Duration| {
            for _ in 0..100 {
                let fetch = Message::Fetch(Fetch::Batch(batch.digest()));
                let signed = signer(by).sign(SCOPE, NodeId::new(by), fetch);
                let words = keys().open(NodeId::new(by), signed).expect("it is signed");
                replica.handle_message(now, words);
            }
            said(&effects(&mut replica)).len()
        };
        let pause = settings().repeat / 2;
        let found = [(3, NOW), (4, NOW), (3, NOW + pause / 2), (3, NOW + pause)];
        let found = found.map(|(by, now)| answered(by, now));
        // A question of another, which it passes on to use up what that may ask.
        let fetch = Message::Fetch(Fetch::Batch(batch.digest()));
        let passed_on = keys().open(NodeId::new(3), signer(4).sign(SCOPE, NodeId::new(4), fetch));
        if passed_on.err() != Some(Refused::Connection) {
            return Err("a question that another has brought is taken for its own".to_owned());
        }
        if found == [32, 32, 0, 32] { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Bytes of what it sends to a member.
    fn sent(effects: &[Effect], to: u64) -> usize {
        let relayed = effects.iter().filter_map(|effect| match effect {
            Effect::Relay { to, message } => Some((vec![*to], message.body.clone())),
            _ => None,
        });
        let to = vec![NodeId::new(to)];
        let its = said(effects).into_iter().chain(relayed).filter(|(of, _)| *of == to);
        let of = |batch: &Batch| batch.requests().iter().map(|of| of.request.operation.len()).sum();
        let bytes = its.map(|(_, message)| match message {
            Message::Fetched(Fetched::Batch(batch)) => of(&batch),
            Message::Propose(_, batch) => batch.as_ref().map_or(0, of),
            _ => 0,
        });
        bytes.sum()
    }

    fn large(number: u64) -> SignedRequest {
        let operation = Bytes::from(vec![0; 1 << 20]);
        signer(9).sign_request(SCOPE, Request { client: ClientId(9), number, operation })
    }

    pub(super) fn answers_to_a_member_that_asks_all_the_time_have_so_many_bytes()
    -> Result<(), String> {
        let (mut replica, batch) = (backup(), Batch::new([large(0)]));
        propose(&mut replica, 1, &batch);
        effects(&mut replica);
        (0..100).for_each(|_| hear(&mut replica, 3, Message::Fetch(Fetch::Batch(batch.digest()))));
        let bytes = sent(&effects(&mut replica), 3);
        if bytes == 8 << 20 { Ok(()) } else { Err(format!("{bytes}")) }
    }

    /// A backup says again and again that it has none of the primary's proposals.
    pub(super) fn proposals_that_are_repeated_have_the_bytes_of_one_batch() -> Result<(), String> {
        let settings = Settings { node: NodeId::new(1), batch_max: 1, ..settings() };
        let mut primary = Replica::new(settings, Counter(0));
        primary.start(Duration::ZERO);
        for number in 0..8 {
            let request = keys().examine_request(FROM, large(number)).and_then(Unproven::open);
            primary.handle_request(NOW, request.expect("it is signed"));
        }
        for (_, message) in said(&effects(&mut primary)) {
            if let Message::Propose(..) = message {
                hear(&mut primary, 1, message);
            }
        }
        effects(&mut primary);
        let nothing = Sequence(0);
        let status = Status { view: VIEW, is_changing: false, stable: nothing, done: nothing };
        hear(&mut primary, 3, Message::Status(status));
        let found = effects(&mut primary);
        let repeated = found.iter().filter(|effect| {
            matches!(effect, Effect::Relay { message, .. }
                if matches!(message.body, Message::Propose(..)))
        });
        let found = (repeated.count(), sent(&found, 3));
        if found == (5, 1 << 20) { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// The primary names requests in all places, and brings one of them at a time.
    pub(super) fn an_answer_is_followed_by_one_question() -> Result<(), String> {
        let mut replica = backup();
        for sequence in 1..=8 {
            let batch = Batch::new([request(0), request(sequence), request(20 + sequence)]);
            let vote = vote(Phase::Propose, sequence, &batch);
            hear(&mut replica, 1, Message::Outline(vote, batch.outline().clone()));
        }
        effects(&mut replica);
        let questions = [0, 1, 2].map(|number| {
            answer(&mut replica, &[number]);
            pulled(&effects(&mut replica)).len()
        });
        if questions == [1, 1, 1] { Ok(()) } else { Err(format!("{questions:?}")) }
    }

    /// A batch that is named may not be proposed: the rest of it is not asked for, and nothing of
    /// it kept.
    pub(super) fn what_an_outline_names_is_pulled_while_it_may_be_a_batch() -> Result<(), String> {
        let mut replica = backup();
        let batch = Batch::new([large(0), large(1), large(2)]);
        let vote = vote(Phase::Propose, 1, &batch);
        hear(&mut replica, 1, Message::Outline(vote, batch.outline().clone()));
        effects(&mut replica);
        for number in 0..2 {
            hear(&mut replica, 1, Message::Fetched(Fetched::Requests(vec![large(number)])));
        }
        let questions: Vec<_> = pulled(&effects(&mut replica)).iter().map(Vec::len).collect();
        if questions == [2] { Ok(()) } else { Err(format!("{questions:?}")) }
    }

    /// Each request of an answer is looked for in all that proposals name.
    pub(super) fn no_word_has_more_requests_than_a_batch() -> Result<(), String> {
        for (count, wanted) in [(256, None), (257, Some(Refused::Batch))] {
            let requests: Vec<SignedRequest> = (0..count).map(request).collect();
            let digests = requests.iter().map(SignedRequest::digest).collect();
            let answer = Message::Fetched(Fetched::Requests(requests.clone()));
            for body in [answer, Message::Pass(requests), Message::Pull(digests)] {
                let found = keys().open(FROM, signer(1).sign(SCOPE, FROM, body)).err();
                if found != wanted {
                    return Err(format!("{count}: {found:?}"));
                }
            }
        }
        Ok(())
    }

    /// A primary proposes nothing, and is told again and again of what waits.
    pub(super) fn what_waits_is_passed_on_again_in_turns() -> Result<(), String> {
        let settings = Settings { each_client_max: 600, ..settings() };
        let pause = settings.repeat;
        let mut replica = Replica::new(settings, Counter(0));
        replica.start(Duration::ZERO);
        (0..600).for_each(|number| ask(&mut replica, number));
        effects(&mut replica);
        let mut passed = Vec::new();
        for turn in 0..3 {
            replica.handle_timeout(NOW + pause * turn);
            let found = effects(&mut replica);
            let number = |effect: &Effect| match effect {
                Effect::Forward { request, .. } => Some(request.request.number),
                _ => None,
            };
            passed.push(found.iter().filter_map(number).collect::<Vec<_>>());
        }
        let counts: Vec<usize> = passed.iter().map(Vec::len).collect();
        expect_sizes(&counts, &[256, 256, 256])?;
        let different: BTreeSet<u64> = passed.into_iter().flatten().collect();
        expect_sizes(&[different.len()], &[600])
    }

    /// A lying primary begins one view by the word of two quorums: by one nothing is bound, by the
    /// other the first place. It says so again and again, and after a restart.
    pub(super) fn of_two_beginnings_of_a_view_the_first_counts() -> Result<(), String> {
        let mut replica = last_member([]);
        begin(&mut replica, 1, 0);
        let ledger = appended(&mut replica);
        for mut replica in [last_member(replica.records()), last_member(ledger), replica] {
            (0..100).for_each(|_| begin(&mut replica, 1, 1));
            let found = effects(&mut replica);
            expect(found.is_empty(), &found)?;
            let other = Vote { view: View(1), ..vote(Phase::Propose, 1, &batch(1)) };
            hear(&mut replica, 2, Message::Propose(other, Some(batch(1))));
            let found = effects(&mut replica);
            expect(accepted(&found) == 1, &found)?;
        }
        Ok(())
    }

    /// A liar shows proof of a batch, and gives the batch to nobody. The word of another takes its
    /// place, or the batch comes after all.
    pub(super) fn a_view_begins_with_batches_that_are_to_be_had() -> Result<(), String> {
        for is_brought in [false, true] {
            let mut primary = backup();
            hear(&mut primary, 1, wish(1));
            hear(&mut primary, 2, wish(0));
            hear(&mut primary, 3, wish(0));
            let found = effects(&mut primary);
            expect(begun_by(&found).is_none(), &found)?;
            primary.handle_timeout(NOW);
            let found = effects(&mut primary);
            let asked = Message::Fetch(Fetch::Batch(batch(0).digest()));
            expect(said(&found).contains(&(vec![FROM], asked)), &found)?;
            let wanted = match is_brought {
                true => {
                    hear(&mut primary, 1, Message::Fetched(Fetched::Batch(batch(0))));
                    [1, 2, 3]
                }
                false => {
                    hear(&mut primary, 4, wish(0));
                    [2, 3, 4]
                }
            };
            let found = effects(&mut primary);
            expect(begun_by(&found) == Some(wanted.map(NodeId::new).to_vec()), &found)?;
            for (_, message) in said(&found) {
                hear(&mut primary, 2, message);
            }
            let found = effects(&mut primary);
            let proposes = |message: &Message| match message {
                Message::Propose(_, of) => *of == Some(batch(0)),
                _ => false,
            };
            let proposed = said(&found).iter().any(|(_, message)| proposes(message));
            expect(proposed == is_brought, &found)?;
        }
        Ok(())
    }

    /// Two members show proof of a batch, of whom one may lie and keep it.
    pub(super) fn each_who_proves_a_batch_is_asked_for_it() -> Result<(), String> {
        let mut primary = backup();
        for (by, word) in [(1, wish(1)), (2, wish(0)), (3, wish(0)), (4, wish(1))] {
            hear(&mut primary, by, word);
        }
        effects(&mut primary);
        let question = Message::Fetch(Fetch::Batch(batch(0).digest()));
        let mut asked = Vec::new();
        for turn in 0..2 {
            primary.handle_timeout(NOW + turn * Duration::from_millis(100));
            let said = said(&effects(&mut primary));
            asked.extend(said.into_iter().filter(|(_, of)| *of == question).flat_map(|(to, _)| to));
        }
        asked.sort_unstable();
        let all = [1, 4].map(NodeId::new);
        if asked == all { Ok(()) } else { Err(format!("{asked:?}")) }
    }

    /// Members by whose word it begins a view.
    fn begun_by(effects: &[Effect]) -> Option<Vec<NodeId>> {
        said(effects).into_iter().find_map(|(_, message)| match message {
            Message::NewView(new_view) => Some(new_view.changes.iter().map(|of| of.by).collect()),
            _ => None,
        })
    }

    /// Its proofs have thousands of signatures: none is looked at before it is known to be of that
    /// primary, which only the signature under all of it says.
    pub(super) fn a_view_begins_by_word_of_its_primary_alone() -> Result<(), String> {
        let real = |number: u64| Signer::ed25519([u8::try_from(number).unwrap_or(0); 32]);
        let checkers = (1..=4).map(|node| (NodeId::new(node), real(node).checker()));
        let keys = Keys::new(SCOPE, group(), checkers.collect(), BTreeMap::new());
        let signed = |by: u64, body: Message| real(by).sign(SCOPE, NodeId::new(by), body);
        let change = |by: u64| {
            let (body, view) = (change(0), Message::ViewChange(change(0)));
            let Signed { epoch, by, signature, .. } = signed(by, view);
            Signed { epoch, by, body, signature }
        };
        let changes = (1..=3).map(change).collect();
        let body = Message::NewView(NewView { view: View(1), changes }.into());
        let right = signed(2, body.clone());
        let other = signed(3, body);
        let forged = Signed { by: NodeId::new(2), ..other.clone() };
        let found = [right, other, forged].map(|words| keys.examine(FROM, words).map(drop));
        let wanted = [Ok(()), Err(Refused::Certificate), Err(Refused::Signature)];
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }

    pub(super) fn only_signed_words_enter() -> Result<(), String> {
        let vote = Message::Vote(vote(Phase::Commit, 1, &batch(0)));
        let stranger = signer(5).sign(SCOPE, NodeId::new(5), vote.clone());
        let sibling = signer(3).sign(SCOPE, NodeId::new(4), vote.clone());
        let elsewhere = signer(3).sign(Scope { cluster: 8, ..SCOPE }, NodeId::new(3), vote);
        let found = [stranger, sibling, elsewhere].map(|signed| keys().open(FROM, signed).err());
        let wanted = [Refused::Stranger, Refused::Signature, Refused::Signature].map(Some);
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// Only a member makes a client look for later members.
    pub(super) fn a_later_epoch_is_believed_of_a_member_that_signs_it() -> Result<(), String> {
        let view = VIEW;
        let reply = Reply { client: ClientId(9), number: 0, view, outcome: Outcome::Forgotten };
        let says = |by: u64, of: u64, epoch| {
            let node = NodeId::new(of);
            let scope = Scope { epoch, ..SCOPE };
            let signed = signer(by).sign_replies(scope, node, [reply.clone()]).remove(0);
            keys().says_later(node, &signed)
        };
        let now = signer(3).sign_replies(SCOPE, NodeId::new(3), [reply.clone()]).remove(0);
        let forged = SignedReply { epoch: 2, ..now };
        let forged = keys().says_later(NodeId::new(3), &forged);
        let found = [says(3, 3, 2), says(3, 3, 1), says(4, 3, 2), says(5, 5, 2), forged];
        if found == [true, false, false, false, false] { Ok(()) } else { Err(format!("{found:?}")) }
    }

    pub(super) fn a_batch_of_unsigned_requests_does_not_enter() -> Result<(), String> {
        let forged = signer(3).sign_request(SCOPE, request(0).request);
        let batch = Batch::new([forged.clone()]);
        let body = Message::Propose(vote(Phase::Propose, 1, &batch), Some(batch));
        let signed: Signed<Message> = signer(1).sign(SCOPE, NodeId::new(1), body);
        let found = (keys().open(FROM, signed).err(), keys().examine_request(FROM, forged).err());
        let wanted = (Some(Refused::Request), Some(Refused::Request));
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }
}

node_kit::rule_tests! {
    rules:
    the_primary_counts_once
    a_batch_beside_others_is_as_large_as_they_are
    what_a_proposal_names_and_is_lacking_is_pulled
    a_client_brings_what_a_proposal_names
    digests_have_to_come_to_that_of_the_vote
    votes_to_commit_may_come_first
    a_vote_is_said_behind_its_record
    of_two_proposals_the_first_counts
    a_member_that_contradicts_itself_is_told_of_once
    nothing_is_open_above_the_window
    a_restart_keeps_the_vote
    a_request_that_is_too_old_fails_no_view
    a_view_begins_beside_a_word_that_takes_too_much_along
    a_batch_that_is_too_large_is_not_voted_for
    a_member_that_asks_all_the_time_is_answered_so_often
    answers_to_a_member_that_asks_all_the_time_have_so_many_bytes
    proposals_that_are_repeated_have_the_bytes_of_one_batch
    an_answer_is_followed_by_one_question
    what_an_outline_names_is_pulled_while_it_may_be_a_batch
    no_word_has_more_requests_than_a_batch
    what_waits_is_passed_on_again_in_turns
    of_two_beginnings_of_a_view_the_first_counts
    a_view_begins_with_batches_that_are_to_be_had
    each_who_proves_a_batch_is_asked_for_it
    a_view_begins_by_word_of_its_primary_alone
    only_signed_words_enter
    a_later_epoch_is_believed_of_a_member_that_signs_it
    a_batch_of_unsigned_requests_does_not_enter
}

/// The rules find what breaks them.
#[test]
fn each_broken_rule_is_found() {
    use node_kit::mutant::{Rule, each_is_found};
    use pbft::mutant::{Mutant, set};

    let broken: [(Mutant, Rule); 13] = [
        (Mutant::LackingNotPulled, rules::what_a_proposal_names_and_is_lacking_is_pulled),
        (Mutant::PulledUnchecked, rules::what_a_proposal_names_and_is_lacking_is_pulled),
        (Mutant::EarlyCommitsDropped, rules::votes_to_commit_may_come_first),
        (Mutant::PrimaryCountedTwice, rules::the_primary_counts_once),
        (Mutant::VotesWithoutSender, rules::the_primary_counts_once),
        (Mutant::VoteNotDurable, rules::a_vote_is_said_behind_its_record),
        (Mutant::WatermarkOffByOne, rules::nothing_is_open_above_the_window),
        (Mutant::VoteUnverified, rules::only_signed_words_enter),
        (Mutant::BegunWithoutBatches, rules::a_view_begins_with_batches_that_are_to_be_had),
        (Mutant::SizesUnchecked, rules::a_batch_that_is_too_large_is_not_voted_for),
        (Mutant::AllFetchesAnswered, rules::a_member_that_asks_all_the_time_is_answered_so_often),
        (Mutant::BegunByAnybody, rules::a_view_begins_by_word_of_its_primary_alone),
        (Mutant::RequestsUnsigned, rules::a_batch_of_unsigned_requests_does_not_enter),
    ];
    assert!(Mutant::BY_RULES.iter().all(|of| broken.iter().any(|(mutant, _)| mutant == of)));
    each_is_found(set, &broken);
}
