use std::time::Duration;

use convoke_transport::DialError;
use convoke_transport::conformance::Recorder;

use super::*;
use crate::config::PollMode;
use crate::provider::simulated::{Fabric, SimDevice};
use crate::wire::Dialling;

/// An engine that has a listener to drive. Its tasks run when the test yields.
fn engine() -> Arc<Engine<SimDevice>> {
    engine_of(Config::default())
}

fn engine_of(config: Config) -> Arc<Engine<SimDevice>> {
    let engine = Engine::new(Fabric::new().device(), config);
    let address = "127.0.0.1:0".parse().unwrap();
    engine.listen(address, Arc::new(Recorder::new(1))).unwrap();
    engine
}

fn term(engine: &Engine<SimDevice>) -> u64 {
    engine.term.load(Ordering::Relaxed)
}

#[tokio::test]
async fn who_is_held_up_is_relieved_once_and_notices_when_it_is_back() {
    let engine = engine();
    let delivery = engine.begin_delivery();
    engine.relieve(delivery);
    engine.relieve(delivery);
    assert_eq!(term(&engine), 2);
    assert!(!engine.end_delivery(delivery));
}

#[tokio::test]
async fn who_is_back_is_not_relieved() {
    let engine = engine();
    let delivery = engine.begin_delivery();
    assert!(engine.end_delivery(delivery));
    engine.relieve(delivery);
    assert_eq!(term(&engine), 1);
    let next = engine.begin_delivery();
    engine.relieve(delivery);
    assert!(engine.end_delivery(next));
}

#[tokio::test]
async fn a_delivery_within_which_the_engine_ends_is_over() {
    let engine = engine();
    engine.begin_delivery();
    engine.give_up_delivery();
    engine.give_up_delivery();
    let next = engine.begin_delivery();
    assert_eq!(next % 2, 1, "deliveries that go on have odd numbers");
    assert!(engine.end_delivery(next));
}

#[tokio::test]
async fn a_device_that_cannot_be_waited_for_is_lost_and_leaves_others_their_turn() {
    let poll_mode = Some(PollMode::Adaptive { spin: Duration::ZERO });
    let engine = engine_of(Config { poll_mode, ..Config::default() });
    engine.provider().stop_waiting();
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    assert!(engine.table.lock().lost.is_some());
}

#[tokio::test]
async fn a_dial_whose_device_is_lost_before_it_begins_fails() {
    let engine = engine();
    let (address, target) = ("rdma://127.0.0.1:9".parse().unwrap(), "127.0.0.1:9".parse().unwrap());
    let (dialling, dialled) = Dialling::new(address, None, Arc::new(Recorder::new(1)));
    let wire = engine.add_wire(|tag| Wire::dialling(&engine, tag, dialling)).unwrap();
    engine.lose(&VerbsError::DeviceLost("it broke".into()));
    wire.deliver();
    wire.begin(target);
    let error = dialled.await.unwrap().unwrap_err();
    assert!(matches!(error, DialError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_wire_that_is_removed_again_leaves_the_one_that_has_its_tag_since() {
    let engine = engine();
    let wire = || {
        let address = "rdma://127.0.0.1:9".parse().unwrap();
        let (dialling, _) = Dialling::new(address, None, Arc::new(Recorder::new(1)));
        engine.add_wire(|tag| Wire::dialling(&engine, tag, dialling)).unwrap()
    };
    let before = wire();
    engine.remove_wire(&before);
    let since = wire();
    assert_eq!(since.tag(), before.tag());
    engine.remove_wire(&before);
    assert!(engine.wire(since.tag()).is_some());
    engine.remove_wire(&since);
    assert!(engine.wire(since.tag()).is_none());
}
