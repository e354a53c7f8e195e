//! The table against a model that remembers everything, and its bytes against any bytes.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;

fn limits(sessions: usize, idle: u64, window: usize, reply_bytes: usize) -> Limits {
    let positive = |number| NonZeroUsize::new(number).unwrap();
    Limits { sessions: positive(sessions), idle, window: positive(window), reply_bytes }
}

fn run(sessions: &mut Sessions, session: SessionId, number: u64, position: u64) -> Begin {
    let begin = sessions.begin(session, number, position);
    if begin == Begin::Run {
        sessions.finish(session, number, reply_of(number));
    }
    begin
}

fn reply_of(number: u64) -> Bytes {
    Bytes::from(format!("reply to {number}").into_bytes())
}

#[test]
fn a_request_runs_once_however_often_it_is_sent() {
    let mut sessions = Sessions::new(Limits::default());
    let session = sessions.open(1, 7);
    assert_eq!(run(&mut sessions, session, 1, 2), Begin::Run);
    for position in 3..10 {
        assert_eq!(run(&mut sessions, session, 1, position), Begin::Repeat(reply_of(1)));
    }
    let mut runs = 0;
    let mut apply = |number| {
        let run = || {
            runs += 1;
            Bytes::from_static(b"done")
        };
        sessions.apply(session, number, 10, run).unwrap()
    };
    assert_eq!([apply(2), apply(2)], ["done", "done"]);
    assert_eq!(runs, 1);
}

#[test]
fn a_request_whose_reply_was_not_kept_is_asked_for_again() {
    let mut sessions = Sessions::new(Limits::default());
    let session = sessions.open(1, 7);
    assert_eq!(sessions.begin(session, 1, 2), Begin::Run);
    assert_eq!(sessions.begin(session, 1, 2), Begin::Run);
}

#[test]
fn a_window_of_requests_may_come_in_any_order() {
    let mut sessions = Sessions::new(limits(4, 100, 4, 1000));
    let session = sessions.open(1, 7);
    for number in [4, 2, 3, 1, 0] {
        let expected = if number == 0 { Begin::Forgotten } else { Begin::Run };
        assert_eq!(run(&mut sessions, session, number, 2), expected, "{number}");
    }
    assert_eq!(run(&mut sessions, session, u64::MAX, 3), Begin::Run);
    assert_eq!(run(&mut sessions, session, 4, 3), Begin::Forgotten);
    assert_eq!(run(&mut sessions, session, u64::MAX - 3, 3), Begin::Run);
    assert_eq!(run(&mut sessions, session, u64::MAX, 3), Begin::Repeat(reply_of(u64::MAX)));
}

#[test]
fn replies_beyond_their_bytes_are_forgotten_but_not_run_again() {
    let mut sessions = Sessions::new(limits(4, 100, 4, 2 * reply_of(1).len()));
    let session = sessions.open(1, 7);
    for number in 1..=3 {
        assert_eq!(run(&mut sessions, session, number, 2), Begin::Run);
    }
    assert_eq!(run(&mut sessions, session, 1, 2), Begin::Forgotten);
    assert_eq!(run(&mut sessions, session, 2, 2), Begin::Repeat(reply_of(2)));
}

#[test]
fn a_session_goes_when_it_is_idle_or_the_oldest_of_too_many() {
    let mut sessions = Sessions::new(limits(2, 10, 4, 1000));
    let (first, second) = (sessions.open(1, 7), sessions.open(2, 7));
    assert!(sessions.keep_alive(first, 3));
    let third = sessions.open(4, 7);
    assert_eq!(run(&mut sessions, second, 1, 4), Begin::Expired);
    assert_eq!(run(&mut sessions, first, 1, 13), Begin::Run);
    assert_eq!(run(&mut sessions, third, 1, 15), Begin::Expired);
    assert!(sessions.close(first, 16) && !sessions.close(first, 16));
    assert!(sessions.is_empty());
}

#[test]
fn it_is_known_beforehand_if_a_session_goes() {
    let mut sessions = Sessions::new(limits(2, 10, 4, 100));
    let session = sessions.open(5, 7);
    assert!(sessions.outlasts(session, 15) && !sessions.outlasts(session, 16));
    assert!(sessions.has_room_for(1) && !sessions.has_room_for(2));
    assert!(sessions.keep_alive(session, 8) && sessions.outlasts(session, 18));
    sessions.advance(18);
    assert!(sessions.contains(session));
    sessions.advance(19);
    assert!(!sessions.contains(session) && !sessions.outlasts(session, 19));
}

#[test]
fn a_session_of_elsewhere_is_unknown() {
    let mut sessions = Sessions::new(Limits::default());
    let session = sessions.open(1, 7);
    let elsewhere = Sessions::new(Limits::default()).open(1, 8);
    assert_eq!(run(&mut sessions, elsewhere, 1, 2), Begin::Expired);
    assert_eq!(session.to_string().parse(), Ok(session));
    assert_eq!(sessions.begin(session, 1, 2).reply(), Ok(None));
    assert_eq!(sessions.begin(elsewhere, 1, 2).reply(), Err(Refused::Expired));
}

/// All that ever happened, searched from its beginning for every answer.
#[derive(Default)]
struct Model {
    sessions: BTreeMap<SessionId, Vec<u64>>,
    used_at: BTreeMap<SessionId, u64>,
}

impl Model {
    fn expire(&mut self, limits: &Limits, position: u64) {
        self.used_at.retain(|_, used_at| position - *used_at <= limits.idle);
    }

    fn open(&mut self, limits: &Limits, position: u64, id: SessionId) {
        self.expire(limits, position);
        if self.used_at.contains_key(&id) {
            return;
        }
        if self.used_at.len() == limits.sessions.get() {
            let (_, oldest) = self.used_at.iter().map(|(id, at)| (*at, *id)).min().unwrap();
            self.used_at.remove(&oldest);
        }
        self.sessions.insert(id, Vec::new());
        self.used_at.insert(id, position);
    }

    fn begin(&mut self, limits: &Limits, id: SessionId, number: u64, position: u64) -> Begin {
        self.expire(limits, position);
        let Some(used_at) = self.used_at.get_mut(&id) else { return Begin::Expired };
        *used_at = position;
        let ran = self.sessions.get_mut(&id).unwrap();
        let highest = ran.iter().max().copied().unwrap_or(0);
        if number + limits.window.get() as u64 <= highest {
            return Begin::Forgotten;
        }
        if !ran.contains(&number) {
            ran.push(number);
            return Begin::Run;
        }
        if Self::is_kept(limits, ran, number) {
            Begin::Repeat(reply_of(number))
        } else {
            Begin::Forgotten
        }
    }

    /// Plays the history again, and looks which replies are left.
    fn is_kept(limits: &Limits, ran: &[u64], number: u64) -> bool {
        let mut kept: Vec<u64> = Vec::new();
        for &one in ran {
            kept.push(one);
            kept.sort_unstable();
            let highest = kept[kept.len() - 1];
            kept.retain(|other| other + limits.window.get() as u64 > highest);
            let bytes = |kept: &[u64]| kept.iter().map(|one| reply_of(*one).len()).sum::<usize>();
            while bytes(&kept) > limits.reply_bytes {
                kept.remove(0);
            }
        }
        kept.contains(&number)
    }
}

/// Clients that were given one seed draw the same nonce.
#[test]
fn clients_with_one_nonce_in_one_record_have_a_session_each() {
    let mut sessions = Sessions::new(limits(3, 50, 4, 40));
    let [one, other] = [sessions.open(1, u64::MAX), sessions.open(1, u64::MAX)];
    for session in [one, other] {
        assert_eq!(run(&mut sessions, session, 1, 1), Begin::Run, "it repeats nothing");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Open { nonce: u64 },
    Request { session: usize, number: u64 },
    KeepAlive { session: usize },
    Close { session: usize },
    Pass { positions: u64 },
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..2_u64).prop_map(|nonce| Step::Open { nonce }),
        12 => (any::<usize>(), 0..24_u64)
            .prop_map(|(session, number)| Step::Request { session, number }),
        1 => any::<usize>().prop_map(|session| Step::KeepAlive { session }),
        1 => any::<usize>().prop_map(|session| Step::Close { session }),
        4 => (0..5_u64).prop_map(|positions| Step::Pass { positions }),
        1 => Just(Step::Snapshot),
    ]
}

fn some_limits() -> impl Strategy<Value = Limits> {
    (1..4_usize, 0..20_u64, 1..6_usize, 0..80_usize)
        .prop_map(|(sessions, idle, window, bytes)| limits(sessions, idle, window, bytes))
}

fn follows_the_model(limits: Limits, steps: &[Step]) -> TestCaseResult {
    let (mut sessions, mut model) = (Sessions::new(limits), Model::default());
    let (mut opened, mut position) = (vec![SessionId::from(9)], 1);
    for step in steps {
        let of = |session: usize| opened[session % opened.len()];
        match *step {
            Step::Open { nonce } => {
                let id = sessions.open(position, nonce);
                model.open(&limits, position, id);
                opened.push(id);
            }
            Step::Request { session, number } => {
                let expected = model.begin(&limits, of(session), number, position);
                prop_assert_eq!(run(&mut sessions, of(session), number, position), expected);
            }
            Step::KeepAlive { session } => {
                model.expire(&limits, position);
                let known = model.used_at.get_mut(&of(session)).map(|at| *at = position);
                prop_assert_eq!(sessions.keep_alive(of(session), position), known.is_some());
            }
            Step::Close { session } => {
                model.expire(&limits, position);
                let known = model.used_at.remove(&of(session)).is_some();
                prop_assert_eq!(sessions.close(of(session), position), known);
            }
            Step::Pass { positions } => position += positions,
            Step::Snapshot => {
                let decoded = Sessions::decode(&sessions.encode());
                prop_assert_eq!(decoded.as_ref(), Ok(&sessions));
                sessions = decoded.unwrap();
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn answers_are_those_of_a_model_that_remembers_everything(
        limits in some_limits(),
        steps in vec(step(), 0..200),
    ) {
        follows_the_model(limits, &steps)?;
    }

    #[test]
    fn any_bytes_are_refused_or_are_those_of_what_was_read(
        steps in vec((0..3_u64, 0..9_u64), 0..20),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut sessions = Sessions::new(limits(3, 50, 4, 40));
        for (position, (nonce, number)) in steps.into_iter().enumerate() {
            let session = sessions.open(position as u64, nonce);
            let _ = run(&mut sessions, session, number, position as u64);
        }
        let mut bytes = sessions.encode();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if cut {
            bytes.truncate(length.index(bytes.len()));
        }
        if let Ok(read) = Sessions::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn noise_never_panics(bytes in vec(any::<u8>(), 0..200)) {
        let mut versioned = vec![1];
        versioned.extend_from_slice(&bytes);
        for bytes in [bytes, versioned] {
            if let Ok(read) = Sessions::decode(&bytes) {
                prop_assert_eq!(read.encode(), bytes);
            }
        }
    }
}

#[test]
fn bytes_say_why_they_are_refused() {
    let mut sessions = Sessions::new(limits(3, 50, 4, 40));
    let session = sessions.open(1, 2);
    assert_eq!(run(&mut sessions, session, 1, 1), Begin::Run);
    let bytes = sessions.encode();
    assert_eq!(Sessions::decode(&[]), Err(Malformed::Short));
    assert_eq!(Sessions::decode(&[9]), Err(Malformed::Version(9)));
    assert_eq!(Sessions::decode(&bytes[..bytes.len() - 1]), Err(Malformed::Short));
    assert_eq!(Sessions::decode(&[&bytes[..], &[0]].concat()), Err(Malformed::Trailing(1)));
    let mut crowded = bytes;
    crowded[1..9].copy_from_slice(&0_u64.to_le_bytes());
    assert_eq!(Sessions::decode(&crowded), Err(Malformed::Damaged("a limit is 0")));
}
