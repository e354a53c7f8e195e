//! Answers that get better with every reply.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use convoke_quorum::{Correctable, Majority, QuorumError, QuorumExt, Replies, Retry, Verdict};
use tokio::time::Instant;

use crate::support::{ASK, Answer, Behaviour, Cluster, HOP, STREAM};

/// The largest number so far, final once all have replied.
fn largest(replies: &Replies<Answer>) -> Verdict<u64> {
    match replies.iter().map(|(_, answer)| answer.number).max() {
        None => Verdict::Continue,
        Some(number) if replies.remaining() == 0 => Verdict::Done(number),
        Some(number) => Verdict::Preliminary(number),
    }
}

/// Replicas that answer one after the other, 100 ms apart.
async fn staggered(count: u64) -> (Cluster, Correctable<u64>) {
    let cluster = Cluster::start(count).await;
    (1..=count).for_each(|id| cluster.will(id, Behaviour::After(100 * id)));
    let correctable = cluster.all(ASK, 7).correctable(largest);
    (cluster, correctable)
}

#[tokio::test(start_paused = true)]
async fn every_level_fires_in_its_turn_and_never_falls() {
    let (_cluster, correctable) = staggered(4).await;
    let start = Instant::now();
    assert_eq!((correctable.level(), correctable.latest()), (0, None));
    for level in 1..=4_u32 {
        assert_eq!(correctable.watch(level as usize).await.unwrap(), 7);
        assert_eq!(start.elapsed(), 2 * HOP + Duration::from_millis(100) * level);
        assert_eq!(correctable.level(), level as usize);
    }
    assert_eq!(correctable.done().await.unwrap(), 7);
}

#[tokio::test(start_paused = true)]
async fn many_may_wait_for_many_levels_and_the_end_fires_them_all() {
    let (_cluster, correctable) = staggered(3).await;
    let watchers: Vec<_> = (0..=5)
        .map(|level| {
            let correctable = correctable.clone();
            tokio::spawn(async move { correctable.watch(level).await })
        })
        .collect();
    for watcher in watchers {
        // Levels 4 and 5 never come: the final answer stands for them.
        assert_eq!(watcher.await.unwrap().unwrap(), 7);
    }
}

/// An answer that looks at the latest one whenever it is copied or goes.
struct Curious(Arc<OnceLock<Correctable<Self>>>);

impl Curious {
    fn look(&self) {
        self.0.get().map(Correctable::level);
    }
}

impl Clone for Curious {
    fn clone(&self) -> Self {
        self.look();
        Self(self.0.clone())
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        self.look();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_ask_for_the_latest_as_it_goes() {
    let cluster = Cluster::start(3).await;
    let own = Arc::new(OnceLock::new());
    let same = own.clone();
    let curious = cluster.all(ASK, 7).correctable(move |replies| match replies.len() {
        0 => Verdict::Continue,
        3 => Verdict::Done(Curious(same.clone())),
        _ => Verdict::Preliminary(Curious(same.clone())),
    });
    own.set(curious.clone()).expect("it is set once");
    curious.done().await.expect("all answer");
    assert_eq!(curious.level(), 3);
}

#[tokio::test(start_paused = true)]
async fn too_few_replies_are_an_error_at_the_end_and_lower_levels_keep_their_answer() {
    let cluster = Cluster::start(3).await;
    (2..=3).for_each(|id| cluster.will(id, Behaviour::Refuse));
    let never_final = |replies: &Replies<Answer>| match replies.len() {
        3 => Verdict::Done(3),
        level => Verdict::Preliminary(level as u64),
    };
    let correctable = cluster.all(ASK, 7).correctable(never_final);
    let error = correctable.watch(2).await.unwrap_err();
    assert!(matches!(error, QuorumError::Impossible(_)), "{error}");
    assert_eq!(error.failed(|_| true).count(), 2);
    assert_eq!(correctable.watch(1).await.unwrap(), 1);
    assert!(correctable.done().await.is_err());
    assert_eq!(correctable.level(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_streams_raises_the_level_once_and_improves_the_value() {
    let cluster = Cluster::start(1).await;
    let correctable = cluster.all(STREAM, 5).correctable(|replies| {
        match replies.latest().map(|(_, answer)| answer.number) {
            Some(4) => Verdict::Done(4),
            Some(number) => Verdict::Preliminary(number),
            None => Verdict::Continue,
        }
    });
    assert_eq!(correctable.watch(1).await.unwrap(), 0);
    assert_eq!((correctable.done().await.unwrap(), correctable.level()), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn when_nobody_wants_to_know_any_more_what_still_runs_is_cancelled() {
    let (cluster, correctable) = staggered(2).await;
    correctable.watch(1).await.unwrap();
    let copy = correctable.clone();
    drop(correctable);
    tokio::time::sleep(HOP).await;
    assert_eq!(cluster.replica(2).stopped(), 0);
    drop(copy);
    tokio::time::sleep(2 * HOP).await;
    assert_eq!(cluster.replica(2).stopped(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_it() {
    let cluster = Cluster::start(2).await;
    cluster.will(2, Behaviour::Hang);
    let call = cluster.all(ASK, 7).deadline(Duration::from_millis(200));
    let correctable = call.correctable(largest);
    // At the end nobody remains: what there is becomes the answer of this rule.
    assert_eq!(correctable.watch(2).await.unwrap(), 7);
    let call = cluster.all(ASK, 7).deadline(Duration::from_millis(200));
    let never = call.correctable(|_| Verdict::<u64>::Continue);
    assert!(matches!(never.done().await, Err(QuorumError::Deadline(_))));
}

#[tokio::test(start_paused = true)]
async fn it_ends_as_soon_as_it_is_impossible() {
    let cluster = Cluster::start(3).await;
    cluster.will(1, Behaviour::After(30));
    (2..=3).for_each(|id| cluster.will(id, Behaviour::Refuse));
    let correctable = cluster.all(ASK, 7).correctable(|replies| match replies.len() {
        _ if !replies.may_reach(&Majority) => Verdict::Impossible,
        0 => Verdict::Continue,
        level => Verdict::Preliminary(level),
    });
    let start = Instant::now();
    let error = correctable.done().await.unwrap_err();
    assert_eq!(start.elapsed(), 2 * HOP);
    assert_eq!(error.failed(|_| true).count(), 2, "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_opened_says_so_at_its_end() {
    let cluster = Cluster::start(3).await;
    let correctable = cluster.all(ASK, 7).retry(Retry::times(1)).correctable(largest);
    assert!(matches!(correctable.watch(1).await, Err(QuorumError::NotIdempotent { .. })));
    assert!(matches!(correctable.done().await, Err(QuorumError::NotIdempotent { .. })));
}

/// Its members are not to blame.
#[tokio::test(start_paused = true)]
async fn a_rule_that_panics_is_told_as_such() {
    let cluster = Cluster::start(3).await;
    let correctable = cluster
        .all(ASK, 7)
        .correctable(|_: &Replies<Answer>| -> Verdict<u64> { panic!("a rule with a bug") });
    let error = correctable.done().await.unwrap_err();
    assert!(matches!(error, QuorumError::Undecided), "{error}");
}
