//! Rules of the core where connections prove names: who is believed about a request, and when.

mod rules {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use convoke::NodeId;
    use pbft::core::{
        Batch, Checker, ClientId, Effect, Keys, Message, Phase, Record, Refused, Replica, Request,
        Sequence, Settings, Signature, Signed, SignedRequest, Status, Trust, Unproven, View, Vote,
        Vouch,
    };

    use crate::replica::{Counter, SCOPE, checkers, effects, group, signer};

    const NOW: Duration = Duration::from_secs(1);
    const LATER: Duration = Duration::from_secs(100);
    const CLIENT: NodeId = NodeId::new(9);

    fn keys() -> Keys {
        let client = (ClientId(9), Checker::Connection(CLIENT));
        Keys::new(SCOPE, group(), checkers(), BTreeMap::from([client])).trusting(Trust::Channels)
    }

    /// One of four; member 1 is the primary of the first view.
    fn member(node: u64) -> Replica<Counter> {
        let settings = Settings::new(NodeId::new(node), group(), [ClientId(9)]);
        let settings = Settings { trust: Trust::Channels, ..settings };
        let mut replica = Replica::new(settings, Counter(0));
        replica.start(Duration::ZERO);
        effects(&mut replica);
        replica
    }

    fn request() -> SignedRequest {
        let request = Request { client: ClientId(9), number: 5, operation: "x".into() };
        SignedRequest { request, signature: Signature::NONE }
    }

    fn ask(replica: &mut Replica<Counter>) {
        let asked = keys().examine_request(CLIENT, request()).and_then(Unproven::open);
        replica.handle_request(NOW, asked.expect("the client's own connection"));
    }

    fn hear(replica: &mut Replica<Counter>, by: u64, body: Message) {
        let by = NodeId::new(by);
        let said = keys().sign(&signer(by.get()), by, body).into_inner();
        replica.handle_message(NOW, keys().open(by, said).expect("it is its own"));
    }

    fn vouch(replica: &mut Replica<Counter>, by: &[u64]) {
        let vouches = || Message::Vouch(vec![Vouch::of(&request().request)]);
        by.iter().for_each(|by| hear(replica, *by, vouches()));
    }

    fn pass(replica: &mut Replica<Counter>, by: &[u64]) {
        by.iter().for_each(|by| hear(replica, *by, Message::Pass(vec![request()])));
    }

    fn vote(phase: Phase) -> Vote {
        let digest = Batch::new([request()]).digest();
        Vote { phase, view: View(0), sequence: Sequence(1), digest }
    }

    fn propose(replica: &mut Replica<Counter>) {
        let body = Message::Propose(vote(Phase::Propose), Some(Batch::new([request()])));
        hear(replica, 1, body);
    }

    fn is_vouching(found: &[Effect]) -> bool {
        let is_vouch = |message: &Message| matches!(message, Message::Vouch(_));
        found.iter().any(
            |effect| matches!(effect, Effect::Relay { message, .. } if is_vouch(&message.body)),
        )
    }

    fn is_leaving(found: &[Effect]) -> bool {
        found.iter().any(|effect| matches!(effect, Effect::Append(Record::Left(_))))
    }

    fn is_accepted(found: &[Effect]) -> bool {
        found.iter().any(|effect| matches!(effect, Effect::Append(Record::Accepted(..))))
    }

    fn expect(is_right: bool, found: &[Effect]) -> Result<(), String> {
        if is_right { Ok(()) } else { Err(format!("{found:?}")) }
    }

    /// The primary and one more say so; with a second one, who need not be in league, it is true.
    pub(super) fn an_invented_request_is_not_voted_for() -> Result<(), String> {
        let mut replica = member(2);
        propose(&mut replica);
        vouch(&mut replica, &[1, 1]);
        let found = effects(&mut replica);
        expect(!is_accepted(&found), &found)?;
        vouch(&mut replica, &[3]);
        let found = effects(&mut replica);
        expect(is_accepted(&found), &found)
    }

    pub(super) fn what_the_client_says_is_voted_for() -> Result<(), String> {
        let mut replica = member(2);
        propose(&mut replica);
        ask(&mut replica);
        let found = effects(&mut replica);
        expect(is_accepted(&found), &found)
    }

    /// A vote to prepare is the word of its member about all of the batch.
    pub(super) fn a_batch_is_believed_that_others_vote_for() -> Result<(), String> {
        let mut replica = member(2);
        propose(&mut replica);
        hear(&mut replica, 3, Message::Vote(vote(Phase::Prepare)));
        let found = effects(&mut replica);
        expect(is_accepted(&found), &found)
    }

    /// The word of one is not enough to vouch in turn, nor its word about another operation.
    pub(super) fn a_request_is_passed_on_by_those_that_believe_it() -> Result<(), String> {
        let mut replica = member(2);
        pass(&mut replica, &[4, 4]);
        let mut other = request();
        other.request.operation = "y".into();
        hear(&mut replica, 3, Message::Pass(vec![other]));
        let found = effects(&mut replica);
        expect(!is_vouching(&found), &found)?;
        let mut replica = member(2);
        pass(&mut replica, &[4, 3]);
        let found = effects(&mut replica);
        expect(is_vouching(&found), &found)
    }

    pub(super) fn a_primary_proposes_what_all_will_believe() -> Result<(), String> {
        let mut replica = member(1);
        ask(&mut replica);
        vouch(&mut replica, &[3]);
        let found = effects(&mut replica);
        expect(!is_accepted(&found), &found)?;
        vouch(&mut replica, &[4]);
        let found = effects(&mut replica);
        expect(is_accepted(&found), &found)
    }

    /// A client that tells one replica alone would have it leave every view.
    pub(super) fn a_request_that_few_have_heard_ends_no_view() -> Result<(), String> {
        let mut replica = member(2);
        ask(&mut replica);
        vouch(&mut replica, &[3]);
        replica.handle_timeout(LATER);
        let found = effects(&mut replica);
        expect(!is_leaving(&found), &found)?;
        vouch(&mut replica, &[4]);
        replica.handle_timeout(LATER);
        let found = effects(&mut replica);
        expect(is_leaving(&found), &found)
    }

    /// The others need its word for their clocks to run, and cannot execute it by that word.
    pub(super) fn what_was_executed_is_vouched_for_to_who_passes_it_on() -> Result<(), String> {
        let mut replica = member(2);
        ask(&mut replica);
        propose(&mut replica);
        for by in [2, 3, 4] {
            if by != 2 {
                hear(&mut replica, by, Message::Vote(vote(Phase::Prepare)));
            }
            hear(&mut replica, by, Message::Vote(vote(Phase::Commit)));
        }
        hear(&mut replica, 2, Message::Vote(vote(Phase::Prepare)));
        let found = effects(&mut replica);
        expect(replica.executed() == Sequence(1), &found)?;
        pass(&mut replica, &[3]);
        let found = effects(&mut replica);
        let is_told = |effect: &Effect| {
            matches!(effect, Effect::Relay { to, message }
                if to.get() == 3 && message.body == Message::Vouch(vec![Vouch::of(&request().request)]))
        };
        expect(found.len() == 1 && found.iter().all(is_told), &found)
    }

    /// Each place of the client holds a request that nobody else has heard of.
    pub(super) fn what_others_believe_finds_a_place() -> Result<(), String> {
        let mut replica = member(2);
        for number in 100..116 {
            let mut alone = request();
            alone.request.number = number;
            let asked = keys().examine_request(CLIENT, alone).and_then(Unproven::open);
            replica.handle_request(NOW, asked.map_err(|refused| refused.to_string())?);
        }
        effects(&mut replica);
        pass(&mut replica, &[3]);
        let found = effects(&mut replica);
        expect(!is_vouching(&found), &found)?;
        pass(&mut replica, &[4]);
        let found = effects(&mut replica);
        expect(is_vouching(&found) && replica.waiting() == 17, &found)
    }

    /// The client has told this one something else than the others, by one number.
    pub(super) fn of_two_requests_by_one_number_more_is_believed() -> Result<(), String> {
        let mut replica = member(1);
        let mut other = request();
        other.request.operation = "y".into();
        let asked = keys().examine_request(CLIENT, other).and_then(Unproven::open);
        replica.handle_request(NOW, asked.map_err(|refused| refused.to_string())?);
        pass(&mut replica, &[2]);
        let found = effects(&mut replica);
        expect(!is_accepted(&found), &found)?;
        pass(&mut replica, &[3]);
        let found = effects(&mut replica);
        expect(is_accepted(&found), &found)
    }

    pub(super) fn a_name_is_who_is_at_the_other_end() -> Result<(), String> {
        let keys = keys();
        let (two, three) = (NodeId::new(2), NodeId::new(3));
        let bare = |by, body| Signed { epoch: SCOPE.epoch, by, body, signature: Signature::NONE };
        let commit = || Message::Vote(vote(Phase::Commit));
        let prepare = || Message::Vote(vote(Phase::Prepare));
        let status =
            Status { view: View(0), is_changing: false, stable: Sequence(0), done: Sequence(0) };
        let told = [
            (two, bare(two, commit()), Ok(())),
            (three, bare(two, commit()), Err(Refused::Connection)),
            (three, bare(two, Message::Status(status)), Err(Refused::Connection)),
            (two, signer(2).sign(SCOPE, two, commit()), Err(Refused::Signature)),
            // What proofs are made of is signed, and then anybody may bring it.
            (two, bare(two, prepare()), Err(Refused::Signature)),
            (three, signer(2).sign(SCOPE, two, prepare()), Ok(())),
            (CLIENT, bare(CLIENT, commit()), Err(Refused::Stranger)),
        ];
        for (from, said, wanted) in told {
            let found = keys.open(from, said.clone()).map(drop);
            if found != wanted {
                return Err(format!("{from} brings {said:?}: {found:?}"));
            }
        }
        let asked = |from| keys.examine_request(from, request()).map(drop);
        let found = (asked(CLIENT), asked(two), asked(NodeId::new(10)));
        let wanted = (Ok(()), Err(Refused::Connection), Err(Refused::Connection));
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    }
}

node_kit::rule_tests! {
    rules:
    an_invented_request_is_not_voted_for
    what_the_client_says_is_voted_for
    a_batch_is_believed_that_others_vote_for
    a_request_is_passed_on_by_those_that_believe_it
    a_primary_proposes_what_all_will_believe
    a_request_that_few_have_heard_ends_no_view
    what_was_executed_is_vouched_for_to_who_passes_it_on
    what_others_believe_finds_a_place
    of_two_requests_by_one_number_more_is_believed
    a_name_is_who_is_at_the_other_end
}

/// The rules find what breaks them.
#[test]
fn each_broken_rule_is_found() {
    use node_kit::mutant::{Rule, each_is_found};
    use pbft::mutant::{Mutant, set};

    let broken: [(Mutant, Rule); 7] = [
        (Mutant::ProposalsBelieved, rules::an_invented_request_is_not_voted_for),
        (Mutant::OneVouches, rules::an_invented_request_is_not_voted_for),
        (Mutant::OneVouches, rules::a_request_is_passed_on_by_those_that_believe_it),
        (Mutant::UnbackedProposed, rules::a_primary_proposes_what_all_will_believe),
        (Mutant::UnbackedProposed, rules::a_request_that_few_have_heard_ends_no_view),
        (Mutant::NamesClaimed, rules::a_name_is_who_is_at_the_other_end),
        (Mutant::RequestsUnsigned, rules::a_name_is_who_is_at_the_other_end),
    ];
    each_is_found(set, &broken);
}
