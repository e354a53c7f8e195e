//! Calls whose senders keep to their credit: all replies come, whoever else is slow or lies.

use super::*;

/// Replies whose senders keep to their credit, and the application that reads them.
struct Honest {
    inbox: Inbox,
    senders: Vec<Sender>,
    unread: VecDeque<(ReplyName, usize)>,
    /// Messages and items that were read.
    read_count: usize,
    /// Bytes that the call holds at most (`docs/limits.md`), unless it may be exhausted.
    bytes_max: Option<u64>,
    /// They were more than it may hold.
    is_exhausted: bool,
    /// Branch that begins replies and sends nothing of what it is granted, and how many it has.
    liar: (Path, u32),
}

struct Sender {
    name: ReplyName,
    channel: Channel,
}

impl Honest {
    fn new(root_count: usize, limits: &Limits) -> Self {
        let (total, message) = (limits.reply_bytes_max, limits.message_bytes_max as u64);
        let beginnings = root_count as u64 * limits.unscheduled_bytes;
        // Where each has begun, there still is room for a message.
        let bytes_max = match root_count {
            1 => total,
            _ if beginnings > total / 2 => total + message,
            _ => total.max(total / 8 * 5 + message),
        };
        Self {
            inbox: Inbox::new(root_count, limits),
            senders: Vec::new(),
            unread: VecDeque::new(),
            read_count: 0,
            bytes_max: (beginnings <= total).then_some(bytes_max),
            is_exhausted: false,
            liar: ("/0".parse().unwrap(), 0),
        }
    }

    /// The liar begins as many replies as it may, so many at most.
    fn lie(&mut self, count: u32, size: usize) {
        for _ in 0..count {
            let (path, index) = &mut self.liar;
            let is_taken = self.inbox.hear(path, &piece(*index, &payload(size), 0..1)).is_ok();
            *index += 1;
            self.pass_credits();
            if !is_taken {
                return;
            }
        }
    }

    /// A branch has a message to send, or the items of a stream.
    fn answer(&mut self, (path, index): (&str, u32), unscheduled: u64, sizes: &[usize]) {
        let mut channel = Channel::new(unscheduled);
        for size in sizes {
            let kind = if sizes.len() == 1 { ReplyKind::Message } else { channel.next_item() };
            channel.push(Piece::whole(kind, Vec::new(), payload(*size).into()));
        }
        self.senders.push(Sender { name: (path.parse().unwrap(), index), channel });
    }

    /// The next frame of a sender, if it has credit for one.
    fn send(&mut self, at: usize) -> bool {
        let Sender { name: (path, index), channel } = &mut self.senders[at];
        let Some(Piece { kind, part, payload, .. }) = channel.poll(&mut drop) else { return false };
        let frame = reply(*index, kind, part, payload.into_bytes());
        let taken = self.inbox.hear(path, &frame);
        let taken = taken.unwrap_or_else(|fault| panic!("{path} {index}: {fault:?}"));
        let name = || (path.clone(), *index);
        self.unread.extend(taken.messages.iter().map(|whole| (name(), whole.payload.len())));
        self.pass_credits();
        true
    }

    /// The application reads a message.
    fn read(&mut self) -> bool {
        let Some(((path, index), len)) = self.unread.pop_front() else { return false };
        self.inbox.consume_all([(&path, index, len, &[] as &[_])]);
        self.read_count += 1;
        self.pass_credits();
        true
    }

    fn pass_credits(&mut self) {
        while let Some((name, limit)) = self.inbox.poll_credit() {
            if self.liar.1 > 0 && name.0 == self.liar.0 {
                continue;
            }
            let to = self.senders.iter_mut().find(|sender| sender.name == name).unwrap();
            assert!(to.channel.grant(limit), "{name:?} has had {limit} before");
        }
        let Some(max) = self.bytes_max else {
            self.is_exhausted |= self.inbox.is_over();
            return;
        };
        assert!(!self.inbox.is_over(), "more than was announced");
        let committed = self.inbox.committed();
        assert!(committed <= max, "{committed} of {max}: {:?}", self.inbox.sums.held);
    }

    /// Sends what has credit, in turn.
    fn send_all(&mut self) {
        while (0..self.senders.len()).filter(|at| self.send(*at)).count() > 0 {}
    }

    /// Sends and reads until nothing is left.
    fn finish(&mut self) {
        self.send_all();
        while self.read() {
            self.send_all();
        }
        if self.is_exhausted {
            return;
        }
        assert!(self.senders.iter().all(|sender| sender.channel.is_empty()), "one got no credit");
    }
}

#[test]
fn large_replies_of_many_root_branches_come_whole_however_late_they_are_read() {
    let limits = Limits::default();
    let narrow = Limits { reply_bytes_max: 8 << 20, ..Limits::default() };
    let sixteenth = Limits {
        unscheduled_bytes: 1 << 10,
        reply_bytes_max: 4 << 20,
        message_bytes_max: 4 << 16,
        ..Limits::default()
    };
    let cases = [
        (20, 4 << 20, &limits),
        (300, 500_000, &limits),
        // The beginnings of all take more than the half that is divided among them.
        (3_400, 4 << 16, &sixteenth),
        (3_700, 1 << 16, &sixteenth),
        (300, 1 << 20, &narrow),
        (450, 1 << 20, &narrow),
    ];
    for (count, size, limits) in cases {
        for reads_late in [true, false] {
            let mut call = Honest::new(count, limits);
            for root in 0..count {
                call.answer((&format!("/{root}"), 0), limits.unscheduled_bytes, &[size]);
            }
            if reads_late {
                call.send_all();
            }
            while (0..count).filter(|at| call.send(*at)).count() > 0 {
                call.read();
            }
            call.finish();
            assert_eq!(call.read_count, count);
        }
    }
}

/// All that may be granted is, and each root branch has more to say.
#[test]
fn what_begins_while_all_is_granted_comes_whole_too() {
    let limits = Limits::default();
    for (count, size) in [(20, 4 << 20), (100, 1 << 20), (300, 300_000)] {
        let mut call = Honest::new(count, &limits);
        let answer = |call: &mut Honest, path: String, index, size| {
            call.answer((&path, index), limits.unscheduled_bytes, &[size]);
        };
        (0..count).for_each(|root| answer(&mut call, format!("/{root}"), 0, size));
        (0..count).for_each(|at| assert!(call.send(at)));
        for root in 0..count {
            answer(&mut call, format!("/{root}"), 1, 100);
            answer(&mut call, format!("/{root}/0"), 0, 60_000);
        }
        call.finish();
        assert_eq!(call.read_count, 3 * count);
    }
    let mut call = Honest::new(4, &limits);
    for (root, index) in (0..6).flat_map(|index| (0..4).map(move |root| (root, index))) {
        call.answer((&format!("/{root}"), index), limits.unscheduled_bytes, &[4 << 20]);
    }
    call.finish();
    assert_eq!(call.read_count, 24);
}

/// Each sender has a window that it does not use, and waits with the rest.
#[test]
fn idle_streams_leave_room_for_others() {
    let narrow =
        Limits { message_bytes_max: 1 << 20, reply_bytes_max: 1 << 20, ..Limits::default() };
    for (roots, streams, limits) in
        [(5, 5, &narrow), (300, 300, &Limits::default()), (1, 300, &Limits::default())]
    {
        let mut call = Honest::new(roots, limits);
        for stream in 0..streams {
            let path = format!("/{}", stream as usize % roots);
            call.answer((&path, stream), limits.unscheduled_bytes, &[1_000; 20]);
        }
        call.finish();
        assert_eq!(call.read_count, 20 * streams as usize, "of {roots} root branches");
    }
}

/// What is unread lies there until the application reads it, and then the next can come.
#[test]
fn a_reply_as_large_as_the_call_comes_once_what_is_there_is_read() {
    let limits =
        Limits { message_bytes_max: 4 << 20, reply_bytes_max: 4 << 20, ..Limits::default() };
    let mut call = Honest::new(1, &limits);
    for (index, size) in (0..).zip([100, 4 << 20, 200]) {
        call.answer(("/0", index), limits.unscheduled_bytes, &[size]);
    }
    call.finish();
    assert_eq!(call.read_count, 3);
}

#[test]
fn each_stream_has_a_window_whatever_the_largest_message_is() {
    let unbounded =
        Limits { message_bytes_max: usize::MAX, reply_bytes_max: u64::MAX, ..Limits::default() };
    let with = |message_bytes_max| Limits { message_bytes_max, ..Limits::default() };
    let cases = [(127, with(16 << 20)), (70, with(4 << 20)), (400, with(4 << 20))];
    for (roots, limits) in cases.into_iter().chain([(1, with(32 << 20)), (1, unbounded)]) {
        let mut inbox = Inbox::new(roots, &limits);
        let paths: Vec<Path> = (0..roots).map(|at| format!("/{at}").parse().unwrap()).collect();
        for path in &paths {
            inbox.hear(path, &item(0, false, 12 << 10)).unwrap();
            inbox.consume_all([(path, 0, 12 << 10, &[] as &[_])]);
        }
        let granted: BTreeMap<ReplyName, u64> =
            std::iter::from_fn(|| inbox.poll_credit()).collect();
        assert_eq!(granted.len(), roots);
        assert!(granted.values().all(|limit| *limit > 32 << 10), "{roots}: {granted:?}");
    }
}

/// Windows that all are granted leave room for the items that outgrow them.
#[test]
fn streams_of_many_root_branches_bring_items_that_outgrow_their_windows() {
    let narrow = |message_bytes_max| Limits {
        message_bytes_max,
        reply_bytes_max: 8 << 20,
        ..Limits::default()
    };
    let limits = [narrow(1 << 20), narrow(4 << 20), narrow(8 << 20), Limits::default()];
    for (roots, streams) in [(127, 2), (127, 1), (20, 8), (3, 60), (1, 40), (1, 200)] {
        for limits in &limits {
            let mut call = Honest::new(roots, limits);
            for (stream, root) in (0..streams).flat_map(|of| (0..roots).map(move |at| (of, at))) {
                let sizes = [12 << 10, 1 << 20, 100, 1 << 20];
                call.answer((&format!("/{root}"), stream), limits.unscheduled_bytes, &sizes);
            }
            call.finish();
            assert_eq!(call.read_count, 4 * roots * streams as usize, "{roots} {streams}");
        }
    }
}

/// The next item of who has had one waits behind those of all others, also if they lack more.
#[test]
fn streams_that_go_on_for_ever_take_turns() {
    for roots in [1, 40] {
        let limits =
            Limits { message_bytes_max: 1 << 20, reply_bytes_max: 8 << 20, ..Limits::default() };
        let mut call = Honest::new(roots, &limits);
        for stream in 0..80 {
            let (path, index) = (stream as usize % roots, stream / u32::try_from(roots).unwrap());
            let mut sizes = [1 << 20; 20];
            sizes[0] = 100 + 200 * stream as usize;
            call.answer((&format!("/{path}"), index), limits.unscheduled_bytes, &sizes);
        }
        let mut served = BTreeSet::new();
        for _ in 0..5 * 80 {
            call.send_all();
            served.extend(call.unread.front().filter(|(_, len)| *len == 1 << 20).cloned());
            call.read();
        }
        assert_eq!(served.len(), 80, "of {roots} root branches");
    }
}

/// More streams have begun than the call may hold bytes of their beginnings.
#[test]
fn an_item_that_outgrows_its_window_comes_beside_any_number_of_idle_streams() {
    let limits =
        Limits { message_bytes_max: 1 << 20, reply_bytes_max: 8 << 20, ..Limits::default() };
    let mut call = Honest::new(1, &limits);
    call.bytes_max = None;
    for stream in 0..1_000 {
        let sizes: &[usize] = if stream % 100 == 99 { &[100, 1 << 20, 100] } else { &[100, 100] };
        call.answer(("/0", stream), limits.unscheduled_bytes, sizes);
    }
    call.finish();
    assert!(!call.is_exhausted);
    assert_eq!(call.read_count, 2_010);
}

#[test]
fn a_root_branch_that_sends_nothing_of_what_it_was_granted_leaves_room_for_others() {
    let limits = Limits::default();
    for (roots, begun, size) in [(4, 17, 1 << 20), (20, 800, 4 << 20)] {
        let mut call = Honest::new(roots, &limits);
        call.lie(begun, 4 << 20);
        for root in 1..roots {
            call.answer((&format!("/{root}"), 0), limits.unscheduled_bytes, &[size]);
        }
        call.finish();
        assert_eq!(call.read_count, roots - 1);
    }
}

/// It has just less of the pool than half of what is free, before it has more.
#[test]
fn a_root_branch_that_was_granted_some_leaves_room_for_the_largest_message() {
    let granted_max = (64 << 20) / 8 * 3;
    let message_bytes_max = granted_max / 2;
    let limits = Limits { message_bytes_max, ..Limits::default() };
    let (mut inbox, own) = (Inbox::new(10, &limits), (32 << 20) / 10);
    let mut begin = |path: &str, index, size| {
        let path = path.parse().unwrap();
        inbox.hear(&path, &piece(index, &Bytes::from(vec![7; size]), 0..1)).unwrap();
        inbox.poll_credit().is_some_and(|(_, limit)| limit == size as u64)
    };
    let first = own + granted_max / 3 - (16 << 10);
    assert!(begin("/0", 0, first));
    assert!(!begin("/0", 1, message_bytes_max));
    assert!(begin("/1", 0, message_bytes_max));
}

#[test]
fn a_root_branch_takes_no_more_than_its_share_without_credit() {
    let mut inbox = Inbox::new(4, &Limits { reply_bytes_max: 100_000, ..limits() });
    let [greedy, other] = ["/0", "/1"].map(|path| path.parse().unwrap());
    let whole = |index| reply(index, ReplyKind::Message, None, bytes(100));
    let taken = (0..1_000).take_while(|index| inbox.hear(&greedy, &whole(*index)).is_ok());
    assert_eq!(taken.count(), 125 + 250, "its part of a half, and half of the other");
    for index in 0..100 {
        inbox.hear(&other, &whole(index)).unwrap();
    }
    assert_eq!(inbox.hear(&greedy, &whole(1_000)), Err(InboxFault::OverShare));
    assert!(!inbox.is_over());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// T10: whatever root branches send, in whatever order and however it is read, none that keeps
    /// to its credit fails, all comes in the end, and no more is held than the call may hold.
    #[test]
    fn replies_within_their_credit_come_whole_in_calls_of_many_root_branches(
        replies in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(1_usize..37_500, 1),
                prop::collection::vec(500_usize..20_000, 2..20),
            ],
            2..40,
        ),
        steps in prop::collection::vec((0..100, any::<prop::sample::Index>()), 0..300),
        reads_percent in 0..100,
    ) {
        let limits = Limits { reply_bytes_max: 100_000, ..small_messages(37_500) };
        let mut call = Honest::new(replies.len(), &limits);
        for (root, sizes) in replies.iter().enumerate() {
            call.answer((&format!("/{root}"), 0), limits.unscheduled_bytes, sizes);
        }
        for (percent, root) in steps {
            match percent < reads_percent {
                true => call.read(),
                false => call.send(root.index(replies.len())),
            };
        }
        call.finish();
        prop_assert_eq!(call.read_count, replies.iter().map(Vec::len).sum::<usize>());
    }
    /// T10: of few or many root branches, however much of the call their beginnings take, all come
    /// whole, or the call is exhausted by these; none waits for ever.
    #[test]
    fn large_replies_of_any_number_of_root_branches_come_whole_or_exhaust_their_call(
        sizes in prop::collection::vec(1_usize..37_500, 2..300),
        reply_bytes_max in 80_000_u64..400_000,
        steps in prop::collection::vec((0..100, any::<prop::sample::Index>()), 0..300),
        reads_percent in 0..100,
    ) {
        let limits = Limits { reply_bytes_max, ..small_messages(37_500) };
        let mut call = Honest::new(sizes.len(), &limits);
        for (root, size) in sizes.iter().enumerate() {
            call.answer((&format!("/{root}"), 0), limits.unscheduled_bytes, &[*size]);
        }
        for (percent, root) in steps {
            match percent < reads_percent {
                true => call.read(),
                false => call.send(root.index(sizes.len())),
            };
        }
        call.finish();
        prop_assert!(call.is_exhausted || call.read_count == sizes.len());
    }

    /// T10: a root branch that begins as much as it may, and sends no more of it, keeps no other
    /// from a message, where two of the largest have room.
    #[test]
    fn a_root_branch_that_only_begins_keeps_no_other_from_its_message(
        message_bytes_max in prop_oneof![Just(10_000), Just(37_500), Just(75_000)],
        parts in prop::collection::vec(1..=100_usize, 1..150),
        lies in prop::collection::vec((1_u32..60, 2..=100_usize), 1..40),
        steps in prop::collection::vec((0..100, any::<prop::sample::Index>()), 0..200),
        reads_percent in 0..100,
    ) {
        let limits = Limits { reply_bytes_max: 400_000, ..small_messages(message_bytes_max) };
        let mut call = Honest::new(parts.len() + 1, &limits);
        for (root, part) in (1..).zip(&parts) {
            let size = message_bytes_max * part / 100;
            call.answer((&format!("/{root}"), 0), limits.unscheduled_bytes, &[size]);
        }
        let mut lies = lies.into_iter();
        for (percent, root) in steps {
            match percent {
                0..20 => {
                    let (count, part) = lies.next().unwrap_or((1_000, 100));
                    call.lie(count, message_bytes_max * part / 100);
                }
                _ if percent < reads_percent => drop(call.read()),
                _ => drop(call.send(root.index(parts.len()))),
            }
        }
        call.lie(1_000, message_bytes_max);
        call.finish();
        prop_assert_eq!(call.read_count, parts.len());
    }
    /// T10, I20: whatever items streams have, however many run beside each other and in whatever
    /// order it is read, none waits for ever and no more is held than the call may hold, also while
    /// one root branch sends nothing of what it was granted.
    #[test]
    fn items_of_any_size_come_whole_of_any_number_of_streams(
        message_bytes_max in prop_oneof![Just(10_000_usize), Just(37_500), Just(75_000)],
        roots in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(0..=100_usize, 2..8), 1..4),
            1..16,
        ),
        lies in prop::collection::vec((1_u32..20, 2..=100_usize), 0..3),
        steps in prop::collection::vec((0..100, any::<prop::sample::Index>()), 0..300),
        reads_percent in 20..100,
    ) {
        let limits = Limits { reply_bytes_max: 400_000, ..small_messages(message_bytes_max) };
        // The liar is a root branch of its own, and the first.
        let first = usize::from(!lies.is_empty());
        let mut call = Honest::new(first + roots.len(), &limits);
        for (root, streams) in (first..).zip(&roots) {
            for (index, parts) in (0..).zip(streams) {
                let sizes = parts.iter().map(|part| message_bytes_max * part / 100);
                let sizes = sizes.collect::<Vec<_>>();
                call.answer((&format!("/{root}"), index), limits.unscheduled_bytes, &sizes);
            }
        }
        let (count, mut lies) = (call.senders.len(), lies.into_iter());
        for (percent, sender) in steps {
            match percent {
                0..10 => {
                    let (count, part) = lies.next().unwrap_or_default();
                    call.lie(count, message_bytes_max * part / 100);
                }
                _ if percent < reads_percent => drop(call.read()),
                _ => drop(call.send(sender.index(count))),
            }
            if let Some(shares) = &call.inbox.shares {
                shares.check(call.inbox.amounts());
            }
        }
        call.finish();
        prop_assert_eq!(call.read_count, roots.iter().flatten().map(Vec::len).sum::<usize>());
    }
}
