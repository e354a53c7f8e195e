//! Frames and one-way delays of every write in every form, exactly.

use std::time::Duration;

use charts::Kind;
use storage::form::{Form, Phases};
use storage::lanes;
use storage::proto::Value;
use storage::simulated::Simulated;
use tokio::time::Instant;

const ONE_WAY: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn every_write_costs_the_frames_and_delays_of_its_form() {
    for members in [4, 7] {
        let world = Simulated::start(members, members).await.expect("it starts");
        let client = world.client(1_000).await.expect("all live");
        world.network.default_latency(ONE_WAY);
        let mut timestamp = 0;
        for phases in Phases::ALL {
            for form in Form::ALL {
                let case = format!("{} as {form} at {members} replicas", phases.name());
                settle(ONE_WAY).await;
                let (before, begun) = (world.network.total_traffic().frames(), Instant::now());
                timestamp += 1;
                let value = Value { key: "bird".into(), timestamp, ..Value::default() };
                client.put(form, phases, value).await.expect("nobody fails");
                assert_eq!(begun.elapsed(), ONE_WAY * form.delays(phases), "{case}");
                settle(ONE_WAY).await;
                let frames = world.network.total_traffic().frames() - before;
                assert_eq!(frames, form.frames(members, phases), "{case}");
            }
        }
    }
}

/// A write by the client asks for the newest version, writes, and leads each phase: of four calls
/// none takes long, and all together have one deadline.
#[tokio::test(start_paused = true)]
async fn an_operation_of_several_calls_ends_at_its_deadline() {
    let world = Simulated::start(9, 4).await.expect("it starts");
    let client = world.client(1_000).await.expect("all live");
    world.network.default_latency(ONE_WAY);
    let (whole, begun) = (2 * 4 * ONE_WAY, Instant::now());
    client.write(Form::Client, Phases::Two, "bird", b"heron").await.expect("it has ten seconds");
    assert_eq!(begun.elapsed(), whole);
    let deadline = whole - 3 * ONE_WAY;
    let (client, begun) = (client.deadline(deadline), Instant::now());
    let written = client.write(Form::Client, Phases::Two, "bird", b"stork").await;
    let error = written.expect_err("it takes longer").to_string();
    assert!(error.contains("the deadline passed"), "{error}");
    assert_eq!(begun.elapsed(), deadline);
}

/// Lets everything that is on its way arrive.
async fn settle(delay: Duration) {
    tokio::time::sleep(100 * delay).await;
}

/// The picture shows what happens: every frame once, and the last reply at the end.
#[tokio::test(start_paused = true)]
async fn lanes_have_each_frame_where_it_was() {
    for (phases, form) in Phases::ALL.into_iter().flat_map(|p| Form::ALL.map(|form| (p, form))) {
        let case = format!("{} as {form}", phases.name());
        let panel = lanes::record(4, form, phases, ONE_WAY).await.expect("nobody fails");
        assert_eq!(panel.end, f64::from(2 * form.delays(phases)), "{case}");
        assert_eq!(panel.messages.len() as u64, form.frames(4, phases), "{case}");
        assert!(panel.messages.iter().all(|one| one.came.1 - one.left.1 == 2.0), "{case}");
        let casts = panel.messages.iter().filter(|one| one.kind == Kind::Cast).count();
        let expected = if form == Form::Echo { 12 * phases.count() as usize } else { 0 };
        assert_eq!(casts, expected, "{case}");
    }
}

#[test]
fn a_form_costs_what_the_paper_counts() {
    let frames = |n, form: Form| Phases::ALL.map(|phases| form.frames(n, phases));
    assert_eq!(frames(4, Form::Echo), [8, 20, 32]);
    assert_eq!(frames(4, Form::Nested), [8, 32, 56]);
    assert_eq!(frames(7, Form::Echo), [14, 56, 98]);
    assert_eq!(frames(7, Form::Nested), [14, 98, 182]);
    assert_eq!(Phases::ALL.map(|phases| Form::Echo.delays(phases)), [2, 3, 4]);
    assert_eq!(Phases::ALL.map(|phases| Form::Nested.delays(phases)), [2, 4, 6]);
}
