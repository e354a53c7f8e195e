mod honest;

use proptest::prelude::*;

use bytes::Bytes;

use super::*;
use crate::flow::tests::Buffers;
use crate::flow::{ASKED, Channel};
use crate::wire::Part;

fn limits() -> Limits {
    Limits {
        unscheduled_bytes: 100,
        stream_window_bytes: 400,
        reply_bytes_max: 10_000,
        message_bytes_max: 5_000,
        ..Limits::default()
    }
}

fn path() -> Path {
    "/0".parse().unwrap()
}

fn reply(index: u32, kind: ReplyKind, part: Option<Part>, payload: Bytes) -> Reply {
    Reply { index, kind, part, is_final: false, ..Reply::sole(payload) }
}

impl Inbox {
    /// A frame of one who sends all.
    fn hear(&mut self, path: &Path, reply: &Reply) -> Result<Accepted, InboxFault> {
        self.accept(path, &mut sender(2, true), reply)
    }

    /// A frame of a sender, and the one of its messages.
    fn hear_by(&mut self, mut by: Sender, reply: &Reply) -> (Accepted, Sender) {
        (self.accept(&path(), &mut by, reply).unwrap(), by)
    }
}

fn sender(node: u64, is_authenticated: bool) -> Sender {
    Sender { node: NodeId::new(node), is_authenticated }
}

fn plain(payload: Bytes) -> Whole {
    Whole { item: None, extensions: Vec::new(), payload }
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<u8>>().into()
}

fn piece(index: u32, message: &Bytes, range: std::ops::Range<usize>) -> Reply {
    let part = Part { offset: range.start as u64, total: message.len() as u64 };
    reply(index, ReplyKind::Message, Some(part), message.slice(range))
}

fn item(seq: u64, is_last: bool, len: usize) -> Reply {
    reply(0, ReplyKind::Item { seq, is_last }, None, bytes(len))
}

#[test]
fn a_short_message_passes_straight_through() {
    let mut inbox = Inbox::new(1, &limits());
    let accepted = inbox.hear(&path(), &reply(0, ReplyKind::Message, None, bytes(100))).unwrap();
    assert!(accepted.is_whole);
    assert_eq!(inbox.poll_credit(), None);
    assert_eq!(inbox.unread(), 100);
    inbox.consume_all([(&path(), 0, 100, &[] as &[_])]);
    assert!(inbox.is_empty());
}

#[test]
fn a_long_message_is_granted_whole_and_put_together() {
    let mut inbox = Inbox::new(1, &limits());
    let message = bytes(1_000);
    assert_eq!(inbox.hear(&path(), &piece(0, &message, 0..100)), Ok(Accepted::default()));
    assert_eq!(inbox.poll_credit(), Some(((path(), 0), 1_000)));
    let accepted = inbox.hear(&path(), &piece(0, &message, 100..1_000)).unwrap();
    assert_eq!(
        accepted,
        Accepted { messages: [plain(message)].into(), is_whole: true, has_gap: false }
    );
}

#[test]
fn more_than_was_granted_is_an_overrun() {
    let mut inbox = Inbox::new(1, &limits());
    let message = bytes(1_000);
    assert_eq!(inbox.hear(&path(), &piece(0, &message, 0..101)), Err(PieceFault::Overrun.into()));
    let whole = reply(1, ReplyKind::Message, None, bytes(101));
    assert_eq!(inbox.hear(&path(), &whole), Err(PieceFault::Overrun.into()));
}

#[test]
fn a_message_above_the_limit_is_refused() {
    let mut inbox = Inbox::new(1, &limits());
    let message = bytes(5_001);
    assert_eq!(
        inbox.hear(&path(), &piece(0, &message, 0..100)),
        Err(PieceFault::TooLarge { size: 5_001, limit: 5_000 }.into())
    );
    let mut narrow = Inbox::new(1, &Limits { message_bytes_max: 50, ..limits() });
    let whole = |len| reply(0, ReplyKind::Message, None, bytes(len));
    assert_eq!(
        narrow.hear(&path(), &whole(51)),
        Err(PieceFault::TooLarge { size: 51, limit: 50 }.into())
    );
    assert!(narrow.hear(&path(), &whole(50)).is_ok());
}

#[test]
fn credit_goes_first_to_the_message_with_the_fewest_bytes_left() {
    let small_total = Limits { reply_bytes_max: 5_000, ..limits() };
    let mut inbox = Inbox::new(1, &small_total);
    let (long, short) = (bytes(4_900), bytes(300));
    inbox.hear(&path(), &piece(0, &long, 0..100)).unwrap();
    assert_eq!(inbox.poll_credit(), Some(((path(), 0), 4_900)));
    inbox.hear(&path(), &piece(1, &short, 0..100)).unwrap();
    // Everything is committed to the long one: the short one waits until there is room.
    assert_eq!(inbox.poll_credit(), None);
    inbox.hear(&path(), &piece(0, &long, 100..4_900)).unwrap();
    assert_eq!(inbox.poll_credit(), None, "it is whole but unread");
    inbox.consume_all([(&path(), 0, 4_900, &[] as &[_])]);
    assert_eq!(inbox.poll_credit(), Some(((path(), 1), 300)));
}

#[test]
fn a_stream_gets_a_window_ahead_of_what_is_read() {
    let mut inbox = Inbox::new(1, &limits());
    inbox.hear(&path(), &item(0, false, 60)).unwrap();
    assert_eq!(inbox.poll_credit(), Some(((path(), 0), 400)));
    inbox.hear(&path(), &item(1, false, 300)).unwrap();
    assert_eq!(inbox.poll_credit(), None, "nothing is read, so the window stays");
    inbox.consume_all([(&path(), 0, 60, &[] as &[_])]);
    assert_eq!(inbox.poll_credit(), None, "not for each item that a slow reader has read");
    inbox.consume_all([(&path(), 0, 300, &[] as &[_])]);
    assert_eq!(inbox.poll_credit(), Some(((path(), 0), 760)));
    assert_eq!(inbox.poll_credit(), None);
}

#[test]
fn an_end_before_the_last_items_waits_for_them() {
    let mut inbox = Inbox::new(1, &limits());
    let end = reply(0, ReplyKind::End { count: 2 }, None, Bytes::new());
    assert!(!inbox.hear(&path(), &end).unwrap().is_whole);
    assert!(!inbox.hear(&path(), &item(1, false, 5)).unwrap().is_whole);
    let accepted = inbox.hear(&path(), &item(0, false, 5)).unwrap();
    assert!(accepted.is_whole);
    assert_eq!(
        accepted.messages.iter().map(|message| message.item).collect::<Vec<_>>(),
        [Some(0), Some(1)]
    );
}

#[test]
fn an_empty_stream_is_whole_with_its_end() {
    let mut inbox = Inbox::new(1, &limits());
    let end = reply(0, ReplyKind::End { count: 0 }, None, Bytes::new());
    assert!(inbox.hear(&path(), &end).unwrap().is_whole);
}

/// A large item whose first piece came before its turn: its size is learned when its turn comes.
#[test]
fn an_item_that_came_early_still_gets_its_credit() {
    let narrow = Limits { stream_window_bytes: 100, ..limits() };
    let mut inbox = Inbox::new(1, &narrow);
    let large = bytes(1_000);
    let part = Some(Part { offset: 0, total: 1_000 });
    let early = reply(0, ReplyKind::Item { seq: 1, is_last: true }, part, large.slice(0..95));
    inbox.hear(&path(), &early).unwrap();
    inbox.hear(&path(), &item(0, false, 5)).unwrap();
    let granted = std::iter::from_fn(|| inbox.poll_credit()).map(|(_, limit)| limit).max();
    assert!(granted >= Some(1_005), "granted {granted:?}, the item cannot come whole");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// I5, I20: items in any order and some twice come out once each and in order.
    #[test]
    fn items_come_out_in_order_whatever_order_they_come_in(
        order in Just((0..20_u64).collect::<Vec<_>>()).prop_shuffle(),
        twice in prop::collection::vec(any::<bool>(), 20),
    ) {
        let mut inbox = Inbox::new(1, &limits());
        let mut seen = Vec::new();
        let mut is_whole = false;
        for (seq, again) in order.into_iter().zip(twice) {
            for _ in 0..=u8::from(again && !is_whole) {
                let accepted = inbox.hear(&path(), &item(seq, seq == 19, 3)).unwrap();
                seen.extend(accepted.messages.into_iter().map(|message| message.item.unwrap()));
                is_whole |= accepted.is_whole;
                if is_whole {
                    break;
                }
            }
        }
        prop_assert!(is_whole);
        prop_assert_eq!(seen, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn sums_are_those_of_all_replies_that_are_not_whole(
        steps in prop::collection::vec((0_u32..4, 0_usize..150, 0_u8..8), 0..80),
        root_count in prop_oneof![Just(1_usize), Just(4)],
    ) {
        let mut inbox = Inbox::new(root_count, &Limits { reply_bytes_max: 1_500, ..limits() });
        let (mut sent, mut unread) = ([0; 4], Vec::new());
        for (at, len, what) in steps {
            let of = Path::root().child(at).unwrap();
            let seq = &mut sent[at as usize];
            match what {
                0 => drop(inbox.forget(&of)),
                1..=3 => inbox.consume_all(
                    unread.drain(..).as_slice().iter().map(|(of, len)| (of, 0, *len, &[] as &[_])),
                ),
                _ => {
                    let taken = inbox.hear(&of, &item(*seq, what == 7 && len > 100, len));
                    *seq += 1;
                    match taken {
                        Ok(taken) => unread.extend(
                            taken.messages.iter().map(|whole| (of.clone(), whole.payload.len())),
                        ),
                        Err(_) => drop(inbox.forget(&of)),
                    }
                }
            }
            let all = inbox.assemblies.iter().map(|(name, of)| (name, &of.assembly));
            let window = inbox.limits.stream_window;
            let wants = inbox.assemblies.iter().filter_map(|(name, of)| {
                let (reason, turn) = of.summed.turn()?;
                Some((name.0.indices().next()?, reason, turn, name.clone()))
            });
            prop_assert_eq!(&wants.collect::<BTreeSet<_>>(), &inbox.sums.wanting);
            let mut opened = inbox.assemblies.values();
            prop_assert!(opened.all(|of| of.summed.wants == of.assembly.wants(window)));
            let open = all.clone().map(|(_, a)| a.held_with(0));
            let over = inbox.over.values().map(|held| held.all());
            prop_assert_eq!(open.chain(over).sum::<u64>(), inbox.committed());
            let waits = all.filter(|(_, a)| a.outstanding() == 0 || a.wants(window).most() > 0);
            prop_assert_eq!(waits.count(), inbox.sums.waiting_count);
            if let Some(shares) = &inbox.shares {
                shares.check(inbox.amounts());
            }
        }
    }

    /// I20: what was granted and what is held never exceed the bound of the call.
    #[test]
    fn grants_stay_within_the_bound(
        messages in prop::collection::vec(101_usize..5_000, 1..20),
    ) {
        let limits = Limits { reply_bytes_max: 6_000, ..limits() };
        let mut inbox = Inbox::new(1, &limits);
        let unscheduled = 100 * messages.len() as u64;
        for (index, len) in (0..).zip(&messages) {
            inbox.hear(&path(), &piece(index, &bytes(*len), 0..100)).unwrap();
            prop_assert!(inbox.committed() <= limits.reply_bytes_max + unscheduled);
        }
    }
}

#[test]
fn empty_messages_are_bounded_too() {
    let mut inbox = Inbox::new(1, &limits());
    for index in 0..78 {
        inbox.hear(&path(), &reply(index, ReplyKind::Message, None, Bytes::new())).unwrap();
    }
    assert!(!inbox.is_over());
    inbox.hear(&path(), &reply(78, ReplyKind::Message, None, Bytes::new())).unwrap();
    assert!(inbox.is_over());
    inbox.consume_all([(&path(), 0, 0, &[] as &[_])]);
    assert!(!inbox.is_over());
}

#[test]
fn beginnings_of_messages_are_bounded_in_bytes() {
    let mut inbox = Inbox::new(1, &Limits { reply_bytes_max: 5_000, ..limits() });
    let message = bytes(5_000);
    for index in 0..39 {
        assert!(!inbox.is_over(), "message {index}");
        inbox.hear(&path(), &piece(index, &message, 0..100)).unwrap();
    }
    assert!(!inbox.is_over());
    inbox.hear(&path(), &piece(39, &message, 0..100)).unwrap();
    assert!(inbox.is_over());
    inbox.forget(&path());
    assert_eq!(inbox.committed(), 0);
}

fn metadata(len: usize) -> Vec<Extension> {
    let mut extensions = Vec::new();
    crate::metadata::push(&mut extensions, "k", &vec![7; len]).unwrap();
    extensions
}

#[test]
fn metadata_is_that_of_the_first_part_whenever_it_comes() {
    let message = bytes(300);
    let with = |reply: Reply, len| Reply { extensions: metadata(len), ..reply };
    let parts = [
        with(piece(0, &message, 0..100), 1),
        with(piece(0, &message, 100..200), 2),
        piece(0, &message, 200..300),
    ];
    for order in [[0, 1, 2], [0, 2, 1]] {
        let mut inbox = Inbox::new(1, &limits());
        let [first, second, third] = order.map(|at| &parts[at]);
        inbox.hear(&path(), first).unwrap();
        assert_eq!(inbox.hear(&path(), first), Ok(Accepted::default()), "a copy is dropped");
        inbox.hear(&path(), second).unwrap();
        let accepted = inbox.hear(&path(), third).unwrap();
        let extensions = metadata(1);
        let whole = Whole { item: None, extensions, payload: message.clone() };
        assert_eq!(accepted.messages[..], [whole]);
        assert_eq!(inbox.beside, cost_of(&metadata(1)));
        inbox.consume_all([(&path(), 0, 300, &metadata(1) as &[_])]);
        assert_eq!((inbox.beside, inbox.is_empty()), (0, true));
    }
}

#[test]
fn a_reply_that_began_twice_is_counted_until_all_of_it_is_read() {
    let mut inbox = Inbox::new(2, &limits());
    for _ in 0..2 {
        for seq in 0..2 {
            inbox.hear(&path(), &item(seq, false, 90)).unwrap();
        }
        inbox.forget(&path());
    }
    assert_eq!(inbox.committed(), 360);
    for _ in 0..4 {
        inbox.consume_all([(&path(), 0, 90, &[] as &[_])]);
    }
    assert_eq!((inbox.committed(), inbox.is_empty()), (0, true));
}

/// Bytes that it brings under one name, again and again, are not taken for granted to it.
#[test]
fn a_reply_that_began_again_takes_no_more_than_what_may_be_brought() {
    let limits = Limits { reply_bytes_max: 1_000_000, ..small_messages(50_000) };
    let mut inbox = Inbox::new(4, &limits);
    let again = |taken| Reply { index: taken / 1_200, ..item(0, false, 400) };
    let mut taken = 0;
    while taken < 1_000_000 && inbox.hear(&path(), &again(taken)).is_ok() {
        assert_eq!(inbox.poll_credit(), None);
        inbox.forget(&path());
        inbox.shares.as_ref().unwrap().check(inbox.amounts());
        taken += 400;
    }
    assert_eq!(taken / 1_000, 125 + 250, "its part of a half, and half of the other");
    while taken > 0 {
        taken -= 400;
        inbox.consume_all([(&path(), taken / 1_200, 400, &[] as &[_])]);
    }
    assert_eq!((inbox.committed(), inbox.is_empty()), (0, true));
}

/// The time of a reply that is given up would be kept for as long as its call.
#[test]
fn the_time_at_which_a_reply_came_in_turn_goes_with_it() {
    let mut inbox = Inbox::new(1, &limits());
    inbox.hear(&path(), &item(0, false, 5)).unwrap();
    inbox.note_in_turn(&path(), 0, Timestamp::from_nanos(7));
    assert_eq!(inbox.in_turn(&path(), 0), Some(Timestamp::from_nanos(7)));
    inbox.forget(&path());
    inbox.note_in_turn(&path(), 0, Timestamp::from_nanos(8));
    assert_eq!(inbox.in_turn(&path(), 0), None);
}

#[test]
fn what_comes_beside_messages_is_bounded_too() {
    let limits = Limits { reply_bytes_max: 5_000, ..limits() };
    let mut inbox = Inbox::new(1, &limits);
    let early = |seq| Reply { extensions: metadata(1_000), ..item(seq, false, 1) };
    for seq in 1..5 {
        inbox.hear(&path(), &early(seq)).unwrap();
        assert!(!inbox.is_over(), "item {seq}");
    }
    inbox.hear(&path(), &early(5)).unwrap();
    assert!(inbox.is_over());
    inbox.forget(&path());
    assert_eq!((inbox.beside, inbox.is_over()), (0, false));
}

/// Pieces of one byte, of which the first never comes, take more than a hundred times what they
/// bring.
#[test]
fn what_pieces_take_that_come_before_their_turn_is_bounded_too() {
    let limits = Limits { unscheduled_bytes: 4_000, reply_bytes_max: 100_000, ..limits() };
    let mut inbox = Inbox::new(1, &limits);
    let message = bytes(4_000);
    let taken = (1..4_000).position(|at| {
        inbox.hear(&path(), &piece(0, &message, at..at + 1)).unwrap();
        inbox.is_over()
    });
    assert_eq!(taken, Some(100_000 / 128));
    inbox.forget(&path());
    assert_eq!((inbox.beside, inbox.is_over()), (0, false));
}

#[test]
fn replies_of_a_slow_reader_keep_few_of_the_buffers_that_they_came_in() {
    let (buffers, mut inbox) = (Buffers::default(), Inbox::new(1, &Limits::default()));
    let mut unread = Vec::new();
    for number in 0..1_000 {
        let kind = ReplyKind::Item { seq: number, is_last: false };
        let item = reply(0, kind, None, buffers.slice(10));
        unread.push(inbox.hear(&path(), &item).unwrap());
        let index = u32::try_from(number + 1).unwrap();
        let whole = reply(index, ReplyKind::Message, None, buffers.slice(10));
        unread.push(inbox.hear(&path(), &whole).unwrap());
    }
    assert_eq!(buffers.count(), IN_BUFFERS_MAX);
    let early = ReplyKind::Item { seq: 2_000, is_last: false };
    inbox.hear(&path(), &reply(0, early, None, buffers.slice(10))).unwrap();
    assert_eq!(buffers.count(), IN_BUFFERS_MAX, "nor does what came before its turn");
}

#[test]
fn an_item_costs_the_same_however_many_streams_are_open() {
    let asked_with = |count: u32| {
        let mut inbox = Inbox::new(1, &Limits { reply_bytes_max: 1 << 30, ..Limits::default() });
        let mut take = |index, seq| {
            let item = reply(index, ReplyKind::Item { seq, is_last: false }, None, bytes(1_000));
            inbox.hear(&path(), &item).unwrap();
            inbox.consume_all([(&path(), index, 1_000, &[] as &[_])]);
            while inbox.poll_credit().is_some() {}
        };
        (0..count).for_each(|index| take(index, 0));
        let before = ASKED.get();
        for seq in 1..100 {
            (0..10).for_each(|index| take(index, seq));
        }
        ASKED.get() - before
    };
    let few = asked_with(10);
    assert_eq!(asked_with(10_000), few);
    assert!(few <= 990 * 3, "{few}");
}

/// Limits of messages of so many bytes that begin with 1,000.
fn small_messages(message_bytes_max: usize) -> Limits {
    let (unscheduled_bytes, stream_window_bytes) = (1_000, 4_000);
    Limits { unscheduled_bytes, stream_window_bytes, message_bytes_max, ..Limits::default() }
}

/// So many bytes that take no memory of their own.
fn payload(size: usize) -> Bytes {
    static BYTES: [u8; 4 << 20] = [7; 4 << 20];
    Bytes::from_static(&BYTES[..size])
}

/// With the key of a branch one can say what its task has not: an item before its turn, or a part.
#[test]
fn what_several_have_sent_of_a_reply_is_not_authenticated() {
    let (own, other, relayed) = (sender(2, true), sender(3, true), sender(2, false));
    let message = bytes(200);
    for (second, is_authenticated) in [(own, true), (other, false), (relayed, false)] {
        let mut inbox = Inbox::new(1, &limits());
        let told = Sender { is_authenticated, ..own };
        let (_, by) = inbox.hear_by(own, &piece(0, &message, 0..100));
        assert_eq!(by, own);
        let (accepted, by) = inbox.hear_by(second, &piece(0, &message, 100..200));
        assert_eq!((accepted.messages.len(), by), (1, told), "parts");
        inbox.hear_by(own, &item(0, false, 5));
        inbox.hear_by(second, &item(2, false, 5));
        let (accepted, by) = inbox.hear_by(own, &item(1, false, 5));
        let told = Sender { is_authenticated, ..second };
        assert_eq!((accepted.messages.len(), by), (2, told), "items");
    }
    // One that came whole by a relay is no part of those that follow.
    let mut inbox = Inbox::new(1, &limits());
    for (seq, by) in [(0, own), (1, relayed), (2, own)] {
        assert_eq!(inbox.hear_by(by, &item(seq, false, 5)).1, by);
    }
    let mut inbox = Inbox::new(1, &limits());
    inbox.hear_by(own, &piece(0, &message, 0..100));
    let mark = Reply { payload: Bytes::new(), ..piece(0, &message, 100..200) };
    inbox.hear_by(relayed, &mark);
    let (_, by) = inbox.hear_by(own, &piece(0, &message, 100..200));
    assert_eq!(by, own, "a word that all before it has left brings nothing");
}
