//! Frames and one-way delays of every write in every form, exactly.

use std::time::Duration;

use storage::form::{Form, Phases};
use storage::proto::Value;
use tokio::time::Instant;

use crate::world::{World, settle};

const ONE_WAY: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn every_write_costs_the_frames_and_delays_of_its_form() {
    for members in [4, 7] {
        let world = World::start(members, members).await;
        let client = world.client(1_000).await;
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
